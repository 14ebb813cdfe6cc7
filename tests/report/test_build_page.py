import json
import re

import pytest
import vl_convert
from support.report_run import EVALUATIONS, MODELS, N, write_run
from vernacular.core.errors import ArtifactError, UserError
from vernacular.report.page import ASSETS, build


def read_data_file(directory, name):
    text = (directory / "data" / f"{name}.js").read_text("utf-8")
    return json.loads(re.fullmatch(r'vernacular\.piece\("[\w/]+",(.*)\);\n', text, re.DOTALL).group(1))


def test_data_files_are_named_by_number(report_dir):
    names = {path.relative_to(report_dir / "data").as_posix() for path in (report_dir / "data").rglob("*.js")}
    assert all(re.fullmatch(r"(index|provenance|tokenizers|[ep]\d+(/\w+)?)\.js", name) for name in names)
    assert read_data_file(report_dir, "index")["models"] == MODELS  # not a model that occurs in a note only
    assert read_data_file(report_dir, "index")["names"] == EVALUATIONS
    assert read_data_file(report_dir, "index")["languages"] == {"ar": "Arabic", "gl": "Galician", "sr": "Serbian"}


def test_note_of_a_protocol_is_with_its_evaluations(report_dir):
    notes = {entry["protocol"]: entry["note"] for entry in read_data_file(report_dir, "index")["evaluations"]}
    assert "bos: never" in notes["acceptability"]
    assert notes["options"] is notes["generation"] is None


def test_prompts_are_stored_once_for_all_models(report_dir):
    matches = [
        p.name for p in (report_dir / "data" / "e0").glob("*.js") if "Pregunta número 100" in p.read_text("utf-8")
    ]
    assert matches == ["i0.js"]


@pytest.mark.parametrize(("items_per_file", "files"), [(9, 1), (9, 3), (9, 1000), (1, 7), (1000, 1)])
def test_report_is_the_same_in_parts_of_an_evaluation(tmp_path, low_limits, items_per_file, files):
    run = write_run(tmp_path / "run")
    low_limits("report.evaluation", ITEMS_PER_FILE=items_per_file)
    build(out=tmp_path / "whole", **run)
    low_limits("report.evaluation", FILES_AT_A_TIME=files)
    build(out=tmp_path / "parts", **run)
    contents = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in sorted((tmp_path / name).rglob("*.js"))}
        for name in ("whole", "parts")
    ]
    assert contents[0] == contents[1]
    blocks = {path.stem for path in (tmp_path / "parts" / "data" / "e0").glob("i*.js")}
    assert blocks == {f"i{block}" for block in range(-(-N // items_per_file))}


def test_report_files_contain_no_urls(report_dir):
    files = [report_dir / "index.html", report_dir / "style.css", *(report_dir / "js").glob("*.js")]
    assert [path.name for path in files if "//" in re.sub(r"(^|\s)//[^\n]*", "", path.read_text("utf-8"))] == []


@pytest.mark.slow
def test_vega_bundle_matches_pinned_package():
    assert (ASSETS / "lib" / "vega.js").read_text("utf-8") == vl_convert.javascript_bundle()


def test_files_of_a_user_are_kept(tmp_path):
    run = write_run(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    for name in ("thesis.tex", "index.html"):
        (tmp_path / "mine" / name).write_text("years of work")
    with pytest.raises(UserError, match=r"mine/index\.html: expected a file that a run wrote, or none"):
        build(out=tmp_path / "mine", **run)
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"thesis.tex", "index.html"}
    (tmp_path / "mine" / "index.html").unlink()
    build(out=tmp_path / "mine", **run)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_report_replaces_old_report_and_comparisons_are_optional(tmp_path):
    run = write_run(tmp_path / "run")
    for name in ("comparisons", "rankings", "overall"):
        (run["results"] / "summary" / f"{name}.parquet").unlink()
    out = tmp_path / "page"
    build(out=out, **run)
    for path in out.glob(".vernacular*"):  # as written by an earlier version
        path.unlink()
    (out / "data" / "old.js").write_text('vernacular.piece("old",[]);\n')
    (out / "js" / "core.js").write_text((out / "js" / "core.js").read_text().replace("text", "content"))
    build(out=out, **run)
    assert (out / "js" / "core.js").read_bytes() == (ASSETS / "js" / "core.js").read_bytes()
    assert not (out / "data" / "old.js").exists()
    assert read_data_file(out, "index")["pairs"] == []


@pytest.mark.slow
def test_parallel_build_is_identical(tmp_path, report_dir, low_limits):
    low_limits("report.page", FILES_PER_POOL=0)
    run = write_run(tmp_path / "run")
    build(out=tmp_path / "page", processes=2, **run)
    files = [path.relative_to(report_dir) for path in report_dir.rglob("*.js")]
    assert [name for name in files if (tmp_path / "page" / name).read_bytes() != (report_dir / name).read_bytes()] == []


def test_missing_result_raises_artifact_error(tmp_path):
    run = write_run(tmp_path / "run")
    (run["results"] / MODELS[0] / "tasks" / f"{EVALUATIONS[0]}.parquet").unlink()
    with pytest.raises(ArtifactError, match=r"plain/tasks/olas\.gl\.options\.0shot\.parquet: file not found"):
        build(out=tmp_path / "page", **run)
