"""Data files by URL: checksum, cache and failed downloads."""

import hashlib
import json
import shutil
from pathlib import Path

import huggingface_hub
import pytest
from support.messages import assert_states
from vernacular.core import hub_snapshot
from vernacular.core.errors import DataError
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task

ROWS = json.dumps(
    [{"target": "O lume", "last_w_tgt": "quenta", "id": 1}, {"target": "A auga", "last_w_tgt": " ", "id": 2}]
)
SHA256 = hashlib.sha256(ROWS.encode()).hexdigest()


@pytest.fixture
def server(start_hub):
    server = start_hub()
    server.web_files["/calame.json"] = ROWS.encode()
    return server


@pytest.fixture(autouse=True)
def cache(low_limits):
    """An empty assets cache, and no delay between attempts."""
    low_limits("core.hub_snapshot", FIRST_WAIT=0)
    directory = Path(huggingface_hub.constants.HF_ASSETS_CACHE)
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def cached_files(cache) -> list[str]:
    return [file.name for file in cache.rglob("*") if file.is_file()]


def test_file_with_matching_checksum_is_loaded(server, tmp_path):
    (tmp_path / "words.yaml").write_text(
        "task: words\ntitle: T\ncitation: C\nprotocols: [last_word]\nitem_type: continuation\n"
        "columns: {id: id, context: target, target: last_w_tgt}\nlicense: MIT\n"
        f"languages:\n  gl: {{source: {{url: '{server.address}/calame.json', sha256: {SHA256}}}}}\n"
    )
    rows, metadata = load_items(load_task(tmp_path / "words.yaml"), "gl")
    assert [(row["item_id"], row["context"], row["target"]) for row in rows] == [("1", "O lume", "quenta")]
    assert metadata["rows"]["dropped"] == {"empty target": 1}
    assert metadata["source"]["file_sha256"] == SHA256
    assert metadata["source"]["license"] == "MIT"
    [warning] = metadata["warnings"]
    assert_states(warning, "words (gl)", "1 row", "empty target", "calame.json, row 1 (counted from 0)")


def test_cached_file_is_used_without_server(server):
    address = f"{server.address}/calame.json"
    first = hub_snapshot.fetch(address, SHA256)
    server.web_files.clear()
    assert hub_snapshot.fetch(address, SHA256) == first
    assert hub_snapshot.fetch(address, None) == first


def test_checksum_mismatch_stores_no_file(server, cache):
    with pytest.raises(DataError) as raised:
        hub_snapshot.fetch(f"{server.address}/calame.json", "0" * 64)
    # the complete sentence, once
    assert str(raised.value) == (
        f"{server.address}/calame.json: checksum mismatch "
        f"(expected sha256 {'0' * 64} as in the task file, got {SHA256}).\n"
        "The file changed upstream or the download is damaged; check it, then correct sha256 in the task file."
    )
    assert cached_files(cache) == []


def test_file_with_new_checksum_is_downloaded_again(server):
    address = f"{server.address}/calame.json"
    path, _ = hub_snapshot.fetch(address, SHA256)
    server.web_files["/calame.json"] = b"[]"
    new_sha256 = hashlib.sha256(b"[]").hexdigest()
    assert hub_snapshot.fetch(address, new_sha256) == (path, new_sha256)


def test_dropped_connection_is_retried(server, cache):
    server.drops["/calame.json"] = 2
    path, digest = hub_snapshot.fetch(f"{server.address}/calame.json", SHA256)
    assert (digest, path.read_text()) == (SHA256, ROWS)
    assert cached_files(cache) == ["calame.json"]


def test_repeatedly_dropped_connection_stores_no_file(server, cache):
    server.drops["/calame.json"] = 99
    with pytest.raises(DataError) as raised:
        hub_snapshot.fetch(f"{server.address}/calame.json", SHA256)
    assert_states(raised.value, f"{server.address}/calame.json", "failed", "IncompleteRead")
    assert cached_files(cache) == []


def test_busy_server_is_retried_and_missing_file_is_not(server):
    server.errors["/calame.json"] = [503, 429]
    assert hub_snapshot.fetch(f"{server.address}/calame.json", None)[1] == SHA256
    server.log.clear()
    with pytest.raises(DataError) as raised:
        hub_snapshot.fetch(f"{server.address}/gone.json", None)
    assert_states(raised.value, f"{server.address}/gone.json", "HTTP 404")
    assert len(server.log) == 1


@pytest.mark.parametrize("command", ["snakemake -c4", "vernacular run mine.yaml -c4"])
def test_unreachable_server_error_has_advice(monkeypatch, command):
    monkeypatch.setenv("VERNACULAR_RUN", command)
    with pytest.raises(DataError) as error:
        hub_snapshot.fetch("http://127.0.0.1:9/x.json", None)
    assert_states(
        error.value, "http://127.0.0.1:9/x.json", "failed", "refused", "internet", f"`{command} --until items`"
    )
