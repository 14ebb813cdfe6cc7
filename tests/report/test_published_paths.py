import os

import pytest
from support import report_run
from vernacular.core.paths import without_local_paths
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


def test_report_contains_no_path_of_the_machine(tmp_path):
    run = report_run.write_run(tmp_path / "secret")
    for record in run["records"]:
        record["source"] = f"/home/someone/secret/{record['name'].strip('=()')}"
        record["adapter"] = {"source": "/home/someone/secret/adapter", "revision": None}
        record["unavailable"] = "/home/someone/secret/model.safetensors: damaged"
    build(out=tmp_path / "page", **run)
    texts = [path.read_text("utf-8") for path in (tmp_path / "page" / "data").rglob("*.js")]
    assert any("…/model.safetensors: damaged" in text for text in texts)
    assert [text for text in texts if "someone" in text or str(tmp_path) in text] == []
