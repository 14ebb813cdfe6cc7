"""A data file on the web: its checksum, the cache, and what goes wrong on the way."""

import hashlib
import json

import huggingface_hub
import pytest
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
    server.plain["/calame.json"] = ROWS.encode()
    return server


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An assets cache of the test's own, and no waiting between attempts."""
    folder = tmp_path / "assets"
    monkeypatch.setattr(huggingface_hub.constants, "HF_ASSETS_CACHE", str(folder))
    monkeypatch.setattr(huggingface_hub.utils._cache_assets, "HF_ASSETS_CACHE", str(folder))
    monkeypatch.setattr(hub_snapshot.time, "sleep", lambda _: None)
    return folder


def kept(cache) -> list[str]:
    return [file.name for file in cache.rglob("*") if file.is_file()]


def test_file_with_the_right_checksum_becomes_items(server, tmp_path):
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
    assert metadata["warnings"] == ["words (gl): 1 row dropped (empty target). The first is row 2 of 2."]


def test_fetched_once_it_is_read_with_the_server_gone(server):
    address = f"{server.address}/calame.json"
    first = hub_snapshot.fetch(address, SHA256)
    server.plain.clear()
    assert hub_snapshot.fetch(address, SHA256) == first
    assert hub_snapshot.fetch(address, None) == first


def test_wrong_checksum_leaves_no_file(server, cache):
    with pytest.raises(DataError, match=f"checksum mismatch .*sha256 0000.* got {SHA256}"):
        hub_snapshot.fetch(f"{server.address}/calame.json", "0" * 64)
    assert kept(cache) == []


def test_file_of_another_pin_is_fetched_again(server):
    address = f"{server.address}/calame.json"
    path, _ = hub_snapshot.fetch(address, SHA256)
    server.plain["/calame.json"] = b"[]"
    new = hashlib.sha256(b"[]").hexdigest()
    assert hub_snapshot.fetch(address, new) == (path, new)


def test_connection_that_drops_half_way_is_tried_again(server, cache):
    server.drops["/calame.json"] = 2
    path, found = hub_snapshot.fetch(f"{server.address}/calame.json", SHA256)
    assert (found, path.read_text()) == (SHA256, ROWS)
    assert kept(cache) == ["calame.json"]


def test_connection_that_always_drops_leaves_no_half_file(server, cache):
    server.drops["/calame.json"] = 99
    with pytest.raises(DataError, match="download failed \\(IncompleteRead\\)"):
        hub_snapshot.fetch(f"{server.address}/calame.json", SHA256)
    assert kept(cache) == []


def test_busy_server_is_asked_again_and_a_missing_file_is_not(server):
    server.errors["/calame.json"] = [503, 429]
    assert hub_snapshot.fetch(f"{server.address}/calame.json", None)[1] == SHA256
    server.log.clear()
    with pytest.raises(DataError, match="HTTP 404"):
        hub_snapshot.fetch(f"{server.address}/gone.json", None)
    assert len(server.log) == 1


def test_no_server_is_named_with_what_to_do():
    with pytest.raises(DataError, match=r"http://127.0.0.1:9/x.json: the download failed \(.*refused.*\)") as error:
        hub_snapshot.fetch("http://127.0.0.1:9/x.json", None)
    assert "machine with internet" in str(error.value)
