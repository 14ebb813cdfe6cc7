"""A clone with a new protocol package."""

import openpyxl
import pytest
import yaml
from support.workspace import ROOT, Clone, output_tail

pytestmark = pytest.mark.slow  # a complete run

PACKAGE = {
    "__init__.py": """
from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(external="word", displayed_roles=("opening",))
""",
    "requests.py": """
from vernacular.protocols.request_rows import continue_with, score_request, skipped_request
from vernacular.types import Role


def requests(item, setting):
    first, _, rest = item["context"].partition(" ")
    if not rest:
        return [skipped_request(item, "one word alone")]
    before, span = continue_with(first, rest, setting.language)
    return [score_request(item, str(Role("opening")), before, span)]
""",
    "metrics.py": """
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import items_with_spans, result

METRICS = [
    Metric("surprisal_after_opening", "nats", False, "surprisal", headline=True, about="of all words but the first"),
]


def per_item(items, requests, scores):
    rows = []
    for item, spans in items_with_spans(items, requests, scores):
        loglik = spans["opening"].loglik if "opening" in spans else None
        rows.append(result(item, spans, values={"surprisal_after_opening": None if loglik is None else -loglik}))
    return rows
""",
}
EVALUATION = "openings.gl.opening.0shot"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    directory = tmp_path_factory.mktemp("extending")
    (directory / "work" / "mine").mkdir(parents=True)
    workspace = Clone(
        directory,
        [
            {"task": "openings", "limit": 4},
        ],
    )
    package = workspace.code_path("vernacular/protocols/opening")
    package.mkdir()
    for name, text in PACKAGE.items():
        (package / name).write_text(text.lstrip())
    task = yaml.safe_load((ROOT / "workflow" / "tasks" / "cola.yaml").read_text())
    rows = [f'{{"sentence": "O gato número {n} durme.", "label": {n % 2}}}' for n in range(6)]
    (workspace.directory / "mine" / "rows.jsonl").write_text("\n".join(rows))
    task |= {"task": "openings", "protocols": ["opening"], "languages": {"gl": {"source": {"file": "rows.jsonl"}}}}
    (workspace.directory / "mine" / "openings.yaml").write_text(yaml.safe_dump(task))
    workspace.config["tasks"] = ["mine"]
    workspace.full_run = workspace.run()
    return workspace


def test_new_protocol_package_yields_requests_workbook_and_report(workspace):
    assert workspace.full_run.returncode == 0, output_tail(workspace.full_run)
    values = workspace.results().query("evaluation == @EVALUATION and category == ''").set_index("metric")
    assert list(values.index) == ["surprisal_after_opening"]
    assert values["n"].iloc[0] == 4
    assert values["value"].iloc[0] > 0
    book = openpyxl.load_workbook(workspace.directory / "results" / "summary" / "surprisal_summary.xlsx")
    cells = [cell.value for row in book["gl"].iter_rows() for cell in row]
    assert any(isinstance(cell, float) and cell == pytest.approx(values["value"].iloc[0]) for cell in cells)
    report = workspace.directory / "results" / "report" / "data"
    assert EVALUATION in (report / "index.js").read_text()
    assert any('"opening"' in path.read_text() for path in report.rglob("*.js")), "the tokens of its spans are shown"
