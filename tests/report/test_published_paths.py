import os

import pytest
from support import report_run
from vernacular.core.model_record import AdapterRecord, Listing
from vernacular.core.paths import is_public_address, publishable, without_local_paths
from vernacular.report.page import build


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("/home/ana/models/tiny", "…/tiny"),
        ("file not found: /scratch/p1/x.csv (line 3)", "file not found: …/x.csv (line 3)"),
        ("'/opt/data/a b/c.json'", "'…/a b/c.json'"),
        ("./models/tiny, ~/models/x.gguf, meta-llama/Llama-2-7b-hf@main", None),
        ("https://example.org/a/b.csv and hf://owner/name", None),
        ("and/or, 3/4, km/h, /", None),
    ],
)
def test_only_absolute_paths_are_shortened(text, published):
    assert without_local_paths(text) == (text if published is None else published)


def test_paths_below_the_working_directory_are_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert without_local_paths(f"{tmp_path}/models/tiny: damaged") == f"{os.path.join('models', 'tiny')}: damaged"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://api.example.org/v1", True),
        ("http://www.example.org/data.zip", True),
        ("http://node7:8000/v1", False),
        ("http://node7/v1", False),
        ("http://localhost/v1", False),
        ("http://127.0.0.1:8080/v1", False),
        ("http://[::1]:8080/v1", False),
        ("https://203.0.113.9/v1", False),
        ("https://gpu3.lab.example.org:8000/v1", False),
        ("https://models.cluster.local/v1", False),
        ("https://ana:secret@example.org/v1", False),
        ("https://example.org/data.zip?token=abc", False),
        ("https://example.org/data.zip?split=test", True),
        ("https://example.org:port/v1", False),
        ("file:///home/ana/x.csv", False),
    ],
)
def test_address_without_port_at_a_domain_of_the_internet_is_public(address, expected):
    assert is_public_address(address) == expected
    shortened = f"{address.partition(':')[0]}://…"
    assert publishable(f'model x: {address}: no answer; see "{address}".') == (
        f'model x: {address if expected else shortened}: no answer; see "{address if expected else shortened}".'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("upstream 10.1.2.3:8000 failed, 192.168.0.7 too", "upstream … failed, … too"),
        ("version 0.9.2.1, 8.8.8.8 and 1.2.3", None),
        ("see /data/models/x, http://node7:8000/v1/a/b and https://example.org/a/b", "see …/x, http://… and https://example.org/a/b"),
        (["http://node7/v1", {"source": "/home/ana/x", "n": 1}], ["http://…", {"source": "…/x", "n": 1}]),
    ],
)  # fmt: skip
def test_private_addresses_and_paths_are_shortened(text, expected):
    assert publishable(text) == (text if expected is None else expected)


def test_report_contains_no_path_of_the_machine(tmp_path):
    run = report_run.write_run(tmp_path / "secret")
    adapter = AdapterRecord("/home/someone/secret/adapter", "a", None, "LORA", 4, False, False, Listing("a", {}))
    reason = "/home/someone/secret/model.safetensors: damaged"
    for number, record in enumerate(run["records"]):
        source = "http://someone7:8000/v1" if number == 1 else f"/home/someone/secret/{record.name.strip('=()')}"
        run["records"][number] = record | {"source": source, "adapter": adapter, "unavailable": reason}
    build(out=tmp_path / "page", **run)
    texts = [path.read_text("utf-8") for path in (tmp_path / "page" / "data").rglob("*.js")]
    assert any("…/model.safetensors: damaged" in text for text in texts)
    assert [text for text in texts if "someone" in text or str(tmp_path) in text] == []
