"""Ctrl-C during a slow download: immediate exit, no incomplete file under the final name, resumed by the next run."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import stages, tiny
from support.hub_server import HubServer, environment
from vernacular.core import artifacts

pytestmark = pytest.mark.usefixtures("default_signals")

ROWS = "".join(json.dumps({"s": f"frase {i} " + "palabra " * 20, "l": i % 2}) + "\n" for i in range(1000))


@pytest.fixture
def server(start_hub, tmp_path):
    server = start_hub()
    tiny.save("llama", tmp_path / "model")
    server.add("me/model", {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()})
    server.add("me/set", {"README.md": "", "test.jsonl": ROWS})
    server.web_files["/files/rows.jsonl"] = ROWS.encode()
    return server


def items_spec(source: dict) -> dict:
    entry = {"source": [source], "columns": {"context": "s", "label": "l"}, "license": None, "expected_rows": None}
    task = {
        "task": "t",
        "item_type": "sentence",
        "protocols": ["acceptability"],
        "directory": ".",
        "languages": {"gl": entry},
    }
    return {"items": {"t.gl": {"task": task, "language": "gl", "data": "hub", "limit": None}}}


def start_command(server: HubServer, directory: Path, command: str, spec: dict) -> subprocess.Popen:
    path = directory / "fields.json"
    path.write_text(stages.text(command, spec=spec, out=directory / "made" / command))
    variables = environment(server.address, directory / "hf")
    with open(path) as fields:
        return subprocess.Popen(
            [sys.executable, "-m", "vernacular", command],
            stdin=fields, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "source", "file"),
    [("model", "me/model", "model.safetensors"), ("items", "me/set", "test.jsonl"), ("items", "web", "rows.jsonl")],
)
def test_interrupted_download_ends_immediately_and_is_resumed(server, tmp_path, command, source, file):
    spec = {"name": "m", "source": source, "kind": "auto", "allow_pickle": False}
    if command == "items":
        address = {"url": f"{server.address}/files/rows.jsonl"} if source == "web" else {"hub": source, "split": "test"}
        spec = items_spec(address)
    assert len(ROWS) > 64 * 10 * 240
    expected = ROWS.encode() if command == "items" else (tmp_path / "model" / file).read_bytes()
    server.slow_paths = {file}
    process = start_command(server, tmp_path, command, spec)
    deadline = time.monotonic() + 120
    while not any(method == "GET" and path.endswith(file) for method, path, _ in server.log):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)  # the download would take minutes
    assert (process.returncode, stdout) == (130, "")
    assert re.split(r"[\r\n]", stderr.rstrip())[-1].startswith(f"{command}: interrupted. ")
    assert "Traceback" not in stderr
    assert not (tmp_path / "made" / command).exists()
    downloaded = [path for path in (tmp_path / "hf").rglob("*") if path.is_file() and path.name == file]
    assert downloaded == [], "no incomplete file under its final name"

    server.slow_paths = set()
    process = start_command(server, tmp_path, command, spec)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    downloaded = [path for path in (tmp_path / "hf").rglob(file) if path.is_file()]
    assert {hashlib.sha256(path.read_bytes()).digest() for path in downloaded} == {hashlib.sha256(expected).digest()}
    if command == "items":
        assert artifacts.metadata(tmp_path / "made" / command / "t.gl.parquet")["rows"]["kept"] == 1000
