"""A protocol is one package, and what exists for other tools is one block: a clone gains the one and loses the other."""

import shutil

import openpyxl
import pytest
import yaml
from support.workplace import ROOT, Clone, said

PACKAGE = {
    "__init__.py": """
from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(external="word", drawn=("opening",))
""",
    "requests.py": """
from vernacular.protocols.request_rows import continue_with, scored, skipped
from vernacular.types import Role


def requests(item, setting):
    first, _, rest = item["context"].partition(" ")
    if not rest:
        return [skipped(item, "one word alone")]
    before, span = continue_with(first, rest, setting.language)
    return [scored(item, str(Role("opening")), before, span)]
""",
    "metrics.py": """
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import asked, result

METRICS = [
    Metric("surprisal_after_opening", "nats", False, "surprisal", headline=True, about="of all words but the first"),
]


def per_item(items, requests, scores):
    rows = []
    for item, spans in asked(items, requests, scores):
        loglik = spans["opening"].loglik if "opening" in spans else None
        rows.append(result(item, spans, values={"surprisal_after_opening": None if loglik is None else -loglik}))
    return rows
""",
}
EVALUATION = "openings.gl.opening.0shot"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extending")
    (folder / "work" / "mine").mkdir(parents=True)
    place = Clone(
        folder,
        [
            {"task": "openings", "limit": 4},
            {"task": "palmx_culture", "languages": ["ar"], "limit": 4},
            {"task": "veritasqa", "languages": ["ca"], "protocols": ["generation"], "limit": 4},
        ],
    )
    own = place.code("vernacular/protocols/opening")
    own.mkdir()
    for name, text in PACKAGE.items():
        (own / name).write_text(text.lstrip())
    shutil.rmtree(place.code("vernacular/interop"))
    task = yaml.safe_load((ROOT / "workflow" / "tasks" / "cola.yaml").read_text())
    rows = [f'{{"sentence": "O gato número {n} durme.", "label": {n % 2}}}' for n in range(6)]
    (place.folder / "mine" / "rows.jsonl").write_text("\n".join(rows))
    task |= {"task": "openings", "protocols": ["opening"], "languages": {"gl": {"source": {"file": "rows.jsonl"}}}}
    (place.folder / "mine" / "openings.yaml").write_text(yaml.safe_dump(task))
    place.config["tasks"] = ["mine"]
    place.run_of_all = place.run()
    return place


def test_a_ninth_protocol_is_one_package_from_the_requests_to_the_spreadsheet_and_the_report(place):
    assert place.run_of_all.returncode == 0, said(place.run_of_all)
    values = place.results().query("evaluation == @EVALUATION and category == ''").set_index("metric")
    assert list(values.index) == ["surprisal_after_opening"]
    assert values["n"].iloc[0] == 4
    assert values["value"].iloc[0] > 0
    book = openpyxl.load_workbook(place.folder / "results" / "summary" / "surprisal_summary.xlsx")
    cells = [cell.value for row in book["gl"].iter_rows() for cell in row]
    assert any(isinstance(cell, float) and cell == pytest.approx(values["value"].iloc[0]) for cell in cells)
    report = place.folder / "results" / "report" / "data"
    assert EVALUATION in (report / "index.js").read_text()
    assert any('"opening"' in path.read_text() for path in report.rglob("*.js")), "the tokens of its spans are drawn"


def test_without_the_formats_of_other_tools_everything_else_is_there(place):
    assert "palmx_culture.ar.letters.0shot" in set(place.results()["evaluation"])
    names = {path.name for path in (place.folder / "results" / "summary").iterdir()}
    assert "leaderboard.xlsx" in names
    assert not names & {"lm_eval", "every_eval_ever"}
    assert not (place.folder / "results" / "exports").exists()
    measured = place.results().query("evaluation == 'veritasqa.ca.generation.0shot' and category == ''")
    assert {"cosine_mean", "moverscore_mean", "bertscore_mean"} <= set(measured["metric"])


def test_without_the_styles_of_other_tools_they_are_unknown_and_the_others_are_named(place):
    place.config["evaluations"][-1] |= {"styles": ["default", "simil-eval"]}
    run = place.run("-n")
    assert run.returncode != 0
    assert 'evaluations[2].styles[1]: unknown value "simil-eval". Allowed: default, open.' in said(run)
