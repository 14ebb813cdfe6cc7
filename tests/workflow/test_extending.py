"""A clone with a new protocol package, and an engine of another package."""

import math
from pathlib import Path

import openpyxl
import pandas as pd
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


def requests(item, settings):
    first, _, rest = item["context"].partition(" ")
    if not rest:
        return [skipped_request(item, "one word alone")]
    before, span = continue_with(first, rest, settings.language)
    return [score_request(item, str(Role("opening")), before, span)]
""",
    "metrics.py": """
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import result

METRICS = [
    Metric("surprisal_after_opening", "nats", False, "surprisal", headline=True, about="of all words but the first"),
]


def result_of(item, spans):
    loglik = spans["opening"].loglik if "opening" in spans else None
    return result(item, spans, values={"surprisal_after_opening": None if loglik is None else -loglik})
""",
}
EVALUATION = "openings.gl.opening.0shot"


ENGINE = '''
import math

from vernacular.inference.engine import Abilities, Engine
from vernacular.inference.schema import SCORES, iter_rows, rows_to_table


class Letters(Engine):
    """No model: each character is a token, and all letters are equally probable; all generated texts are the same."""

    @classmethod
    def abilities(cls, record):
        return Abilities(entropies=False)

    def prepare(self, kind, requests):
        return {"kind": kind, "requests": list(iter_rows(requests))}

    def compute(self, prepared, journal):
        outputs = self.score if prepared["kind"] is SCORES else self.generate
        prepared["outputs"] = {row["request_id"]: outputs(row) for row in prepared["requests"]}

    def score(self, row):
        text, span = row["prefix"] + row["text"], range(row["span_start"], row["span_end"])
        values = {"logprobs": [-math.log(32)] * len(span), "is_greedy": [True] * len(span), "n_prompt_tokens": span.start}
        return values | {"tokens": [text[i] for i in span], "offsets": [[i, i + 1] for i in span]}

    def generate(self, row):
        text = "Polo son das chocas"
        return {"raw_output": text, "output": text, "finish_reason": "eos", "n_tokens": len(text), "n_prompt_tokens": 1}

    def finish(self, prepared):
        names = ("request_id", "item_id", "role")
        rows = ({name: row[name] for name in names} | prepared["outputs"][row["request_id"]] for row in prepared["requests"])
        return rows_to_table(rows, prepared["kind"].schema), {"engine": {"name": "letters"}}
'''


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A clone with the protocol, after a run of it and of other protocols with the engine."""
    directory = tmp_path_factory.mktemp("extending")
    (directory / "work" / "mi{model}ne").mkdir(parents=True)  # to Snakemake, {model} in a parameter is a wildcard
    evaluations = [
        {"task": "openings", "limit": 4},
        {"task": "belebele", "languages": ["gl"], "protocols": ["options", "generation"]},
    ]
    workspace = Clone(directory, evaluations)
    package = workspace.code_path("vernacular/protocols/opening")
    package.mkdir()
    for name, text in PACKAGE.items():
        (package / name).write_text(text.lstrip())
    task = yaml.safe_load((ROOT / "workflow" / "tasks" / "cola.yaml").read_text())
    rows = [f'{{"sentence": "O gato número {n} durme.", "label": {n % 2}}}' for n in range(6)]
    (workspace.directory / "mi{model}ne" / "rows.jsonl").write_text("\n".join(rows))
    task |= {"task": "openings", "protocols": ["opening"], "languages": {"gl": {"source": {"file": "rows.jsonl"}}}}
    task |= {"title": "Openings {model} of {0}"}
    (workspace.directory / "mi{model}ne" / "openings.yaml").write_text(yaml.safe_dump(task))
    (directory / "installed").mkdir()
    (directory / "installed" / "my_engines.py").write_text(ENGINE)
    workspace.environment["PYTHONPATH"] = str(directory / "installed")
    workspace.config["tasks"] = ["mi{model}ne"]
    workspace.config["models"] = {"letters": {"source": "./causal", "engine_class": "my_engines:Letters"}}
    workspace.config["similarity"]["metrics"] = ["cosine"]
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    return workspace


def test_new_protocol_package_yields_requests_workbook_and_report(workspace):
    values = workspace.results().query("evaluation == @EVALUATION and category == ''").set_index("metric")
    assert list(values.index) == ["surprisal_after_opening"]
    assert values["n"].iloc[0] == 4
    assert values["value"].iloc[0] == pytest.approx(len(" gato número 0 durme.") * math.log(32))
    book = openpyxl.load_workbook(workspace.directory / "results" / "summary" / "surprisal_summary.xlsx")
    cells = [cell.value for row in book["gl"].iter_rows() for cell in row]
    assert any(isinstance(cell, float) and cell == pytest.approx(values["value"].iloc[0]) for cell in cells)
    report = workspace.directory / "results" / "report" / "data"
    index = (report / "index.js").read_text()
    assert EVALUATION in index
    assert "Openings {model} of {0}" in index
    assert any('"opening"' in path.read_text() for path in report.rglob("*.js")), "the tokens of its spans are shown"


def test_engine_of_another_package_is_run_to_the_spreadsheet(workspace):
    items = pd.read_parquet(workspace.directory / "resources" / "items" / "belebele.gl.parquet")
    items = items[~items["few_shot"]]
    shortest = [min(range(len(choices)), key=lambda i: len(choices[i])) for choices in items["choices"]]
    accuracy = sum(choice in gold for choice, gold in zip(shortest, items["gold"], strict=True)) / len(items)
    values = workspace.results().query("category == ''").set_index(["protocol", "metric"])["value"]
    assert 0 < values["options", "accuracy"] == accuracy < 1
    assert values["options", "answer_bits_per_character"] == pytest.approx(5)  # log2(32)
    assert values["generation", "exact_match"] == 1 / len(items)
    book = openpyxl.load_workbook(workspace.directory / "results" / "summary" / "leaderboard.xlsx")
    [row] = [[cell.value for cell in row] for row in book["gl"].iter_rows() if row[0].value == "letters"]
    assert {accuracy, 1 / len(items)} <= set(row)
    metadata = workspace.score_metadata("letters", "belebele.gl.options.0shot")
    assert metadata["engine"]["name"] == "letters"
    assert len(metadata["engine"]["version"]) == 16
    notes = pd.read_csv(workspace.directory / "results" / "summary" / "notes.csv").set_index("note")
    unknown = notes.loc["within_noise not computed: the float noise of letters is unknown"]
    assert (unknown["kind"], unknown["evaluations"]) == ("not applicable", "belebele.gl.options.0shot")


def test_code_of_an_engine_of_another_package_is_in_the_key(workspace):
    assert workspace.planned_jobs() == {}
    path = Path(workspace.environment["PYTHONPATH"], "my_engines.py")
    path.write_text(ENGINE + "\n\nVERSION = 2\n")
    assert {"infer", "collect"} <= workspace.planned_jobs().keys()
    path.write_text(ENGINE)
