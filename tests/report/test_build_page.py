import json
import re

import pytest
import vl_convert
from support.report_run import EVALUATIONS, MODELS, write_run
from vernacular.core.errors import ArtifactError
from vernacular.report.page import ASSETS, build


def piece(page, name):
    text = (page / "data" / f"{name}.js").read_text("utf-8")
    return json.loads(re.fullmatch(r'vernacular\.piece\("[\w/]+",(.*)\);\n', text, re.DOTALL).group(1))


def test_every_piece_is_written_by_a_number_whatever_models_are_called(page):
    names = {path.relative_to(page / "data").as_posix() for path in (page / "data").rglob("*.js")}
    assert all(re.fullmatch(r"(index|plots|provenance|[ep]\d+(/\w+)?)\.js", name) for name in names)
    assert piece(page, "index")["models"] == [*MODELS, "elsewhere"]  # those of the run, then whom a note speaks of
    assert piece(page, "index")["names"] == EVALUATIONS


def test_prompts_are_stored_once_and_not_per_model(page):
    holding = [p.name for p in (page / "data" / "e0").glob("*.js") if "Pregunta número 100" in p.read_text("utf-8")]
    assert holding == ["i0.js"]


def test_nothing_in_the_page_names_another_machine(page):
    ours = [page / "index.html", page / "style.css", *(page / "js").glob("*.js")]
    assert [path.name for path in ours if "//" in re.sub(r"(^|\s)//[^\n]*", "", path.read_text("utf-8"))] == []


def test_the_bundle_of_vega_is_the_one_that_the_pinned_package_makes():
    assert (ASSETS / "lib" / "vega.js").read_text("utf-8") == vl_convert.javascript_bundle()


def test_a_folder_with_other_files_is_never_emptied(tmp_path):
    given = write_run(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(ArtifactError, match="contains files that are not of a report"):
        build(out=tmp_path / "mine", **given)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_page_is_replaced_whole_and_comparisons_may_be_missing(tmp_path):
    given = write_run(tmp_path / "run")
    for name in ("comparisons", "rankings", "overall"):
        (given["results"] / "summary" / f"{name}.parquet").unlink()
    out = tmp_path / "page"
    for name in ("js/core.js", "data/old.js"):  # an earlier page, or what is left of one that was cut off
        (out / name).parent.mkdir(parents=True)
        (out / name).touch()
    build(out=out, **given)
    assert not (out / "data" / "old.js").exists()
    assert piece(out, "index")["pairs"] == []


def test_evaluations_written_side_by_side_make_the_same_page(tmp_path, page):
    given = write_run(tmp_path / "run")
    build(out=tmp_path / "page", processes=2, **given)
    files = [path.relative_to(page) for path in page.rglob("*.js")]
    assert [name for name in files if (tmp_path / "page" / name).read_bytes() != (page / name).read_bytes()] == []


def test_a_missing_result_is_named(tmp_path):
    given = write_run(tmp_path / "run")
    (given["results"] / MODELS[0] / "tasks" / f"{EVALUATIONS[0]}.parquet").unlink()
    with pytest.raises(ArtifactError, match=r"plain/tasks/olas\.gl\.options\.0shot\.parquet: file not found"):
        build(out=tmp_path / "page", **given)
