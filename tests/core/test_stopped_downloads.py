"""Ctrl-C while something comes down slowly: heard at once, nothing half is kept as whole, and the next run goes on."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import tiny
from support.hub_server import HubServer, environment
from vernacular.core import artifacts

pytestmark = pytest.mark.usefixtures("heard_signals")

ROWS = "".join(json.dumps({"s": f"frase {i} " + "palabra " * 20, "l": i % 2}) + "\n" for i in range(1000))


@pytest.fixture
def server(start_hub, tmp_path):
    server = start_hub()
    tiny.save("llama", tmp_path / "model")
    server.add("me/model", {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()})
    server.add("me/set", {"README.md": "", "test.jsonl": ROWS})
    server.plain["/files/rows.jsonl"] = ROWS.encode()
    return server


def items(source: dict) -> dict:
    entry = {"source": [source], "columns": {"context": "s", "label": "l"}, "license": None, "expected_rows": None}
    task = {
        "task": "t",
        "item_type": "sentence",
        "protocols": ["acceptability"],
        "folder": ".",
        "languages": {"gl": entry},
    }
    return {"items": {"t.gl": {"task": task, "language": "gl", "data": "hub", "limit": None}}}


def started(server: HubServer, folder: Path, command: str, spec: dict) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "vernacular",
        command,
        "--spec",
        json.dumps(spec),
        "--out",
        str(folder / "made" / command),
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(server.address, folder / "hf")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "what", "file"),
    [("model", "me/model", "model.safetensors"), ("items", "me/set", "test.jsonl"), ("items", "web", "rows.jsonl")],
)
def test_a_download_that_is_stopped_ends_at_once_and_goes_on_with_the_next_run(server, tmp_path, command, what, file):
    spec = {"name": "m", "source": what, "kind": "auto", "allow_pickle": False}
    if command == "items":
        address = {"url": f"{server.address}/files/rows.jsonl"} if what == "web" else {"hub": what, "split": "test"}
        spec = items(address)
    assert len(ROWS) > 64 * 10 * 240
    whole = ROWS.encode() if command == "items" else (tmp_path / "model" / file).read_bytes()
    server.slow = {file}
    process = started(server, tmp_path, command, spec)
    give_up = time.monotonic() + 120
    while not any(method == "GET" and path.endswith(file) for method, path, _ in server.log):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)  # the file would take minutes more
    assert (process.returncode, out) == (130, "")
    assert re.split(r"[\r\n]", said.rstrip())[-1].startswith(f"{command}: interrupted. ")
    assert "Traceback" not in said
    assert not (tmp_path / "made" / command).exists()
    kept = [path for path in (tmp_path / "hf").rglob("*") if path.is_file() and path.name == file]
    assert kept == [], "what is under its own name is whole"

    server.slow = set()
    process = started(server, tmp_path, command, spec)
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    kept = [path for path in (tmp_path / "hf").rglob(file) if path.is_file()]
    assert {hashlib.sha256(path.read_bytes()).digest() for path in kept} == {hashlib.sha256(whole).digest()}
    if command == "items":
        assert artifacts.metadata(tmp_path / "made" / command / "t.gl.parquet")["rows"]["kept"] == 1000
