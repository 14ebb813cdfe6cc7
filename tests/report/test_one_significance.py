"""All outputs name the same comparisons as significant, of a run of six models whose tests are computed."""

import re
from itertools import combinations

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
from support.report_prompts import described, metrics_row_of, write_outputs
from support.report_run import request_row, task_tables, write_artifact
from support.table_rows import metrics_row  # noqa: F401
from vernacular import results
from vernacular.comparison.compare import compare_all
from vernacular.comparison.schema import COMPARISONS, OVERALL, PROMPTS, RANKINGS
from vernacular.core import artifacts
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.schema import METRICS, RESULTS
from vernacular.protocols.schema import REQUESTS
from vernacular.report.page import build
from vernacular.stages.print_results import PrintResults, print_results
from vernacular.stages.sides import csv_beside
from vernacular.statistics.significance import FAMILIES
from vernacular.summary.cells import number_format
from vernacular.summary.grid import combine_tables, make_headings, to_arrow
from vernacular.summary.paper import make_table
from vernacular.summary.workbook import write_leaderboard

MODELS = [f"m{k}" for k in range(6)]
EVALUATIONS = [f"quiz{k}.gl.letters.0shot" for k in range(4)]
N = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Write a run whose tests include significant ones, and some that only one correction calls significant."""
    root = tmp_path_factory.mktemp("six")
    directory, metric_rows = root / "results", []
    rng = np.random.default_rng(6)
    evaluations = {name: described(name) for name in EVALUATIONS}
    for number, (name, setting) in enumerate(evaluations.items()):
        question = "Que bebe?\nA. auga\nB. leite\nResposta:"
        requests = [
            request_row(f"q{i}", f"choice:{c}", "", question, f" {'AB'[c]}") for i in range(N) for c in range(2)
        ]
        described_request = {key: value for key, value in setting.items() if key != "items_stem"}
        write_artifact(directory / "requests" / f"{name}.parquet", REQUESTS, requests, described_request)
        difficulty = rng.random(N)
        for m, model in enumerate(MODELS):
            share = 0.45 if number == 3 else 0.5 + 0.05 * ((m + number) % 6) * (1 + number % 2)
            correct = [bool(x) for x in difficulty + 0.2 * rng.normal(size=N) < share]
            write_outputs(directory / model, name, question, correct)
            metric_rows.append(metrics_row_of(model, name, setting, sum(correct) / N))
    tables = task_tables(directory, MODELS, evaluations)
    found = compare_all(list(combinations(MODELS, 2)), tables, evaluations, resamples=200)
    summary = directory / "summary"
    long = combine_tables([pa.Table.from_pylist(metric_rows, schema=METRICS.schema)])
    artifacts.write(
        summary / "results.parquet", RESULTS, to_arrow(long), {"models": [], "notes": [], "fingerprint": "x"}
    )
    for kind in (COMPARISONS, RANKINGS, OVERALL, PROMPTS):
        write_artifact(summary / f"{kind.name}.parquet", kind, getattr(found, kind.name), {})
    csv_beside(summary / "comparisons.parquet", pa.Table.from_pylist(found.comparisons, schema=COMPARISONS.schema))
    build(
        directory, root / "page", models=MODELS, evaluations=EVALUATIONS, changes={}, tasks={},
        records=[ModelRecord(name=name, source=name) for name in MODELS],
    )  # fmt: skip
    return root, long, found


@pytest.fixture(scope="module")
def significant(run):
    """(pair, evaluation) of the significant comparisons, by `results.comparisons`."""
    rows = results.comparisons(run[0] / "results").query("significant")
    assert len(rows) == 15 * len(EVALUATIONS) - (~results.comparisons(run[0] / "results")["significant"]).sum()
    return {(frozenset(pair), name) for *pair, name in rows[["baseline", "candidate", "evaluation"]].values}


@pytest.fixture
def expected(run, significant):
    """Evaluation -> models that are significantly worse than the best; without the columns at chance."""
    _, long, _ = run
    found = {}
    for name, rows in long.groupby("evaluation"):
        best = rows.loc[rows["value"].idxmax()]
        if best["value"] > 0.5:
            above = rows[rows["value"] > 0.5]["model"]
            found[name] = {m for m in above if (frozenset((m, best["model"])), name) in significant}
    return found


def unmarked(marks, long):
    """marks: (model, evaluation) -> whether a value is the best or shares it; only of values above chance."""
    values = {(row.model, row.evaluation): row.value for row in long.itertuples()}
    found = {}
    for (model, name), marked in marks.items():
        found.setdefault(name, set())
        assert not marked or values[model, name] > 0.5
        if not marked and values[model, name] > 0.5:
            found[name].add(model)
    return {name: models for name, models in found.items() if any(marks[m, name] for m in MODELS)}


def test_some_differences_are_significant_and_more_without_a_correction(run, significant):
    rows = results.comparisons(run[0] / "results")
    assert 5 < len(significant) < len(rows) - 20
    assert len(rows[rows["p_value"] < 0.05]) > len(significant), "more without any correction"


def test_rankings_and_comparisons_agree(run, significant):
    for row in run[2].rankings:
        named = {m for m in MODELS if (frozenset((m, row["model"])), row["evaluation"]) in significant}
        assert set(row["worse_than"]) <= named
        assert row["in_best_group"] == ((frozenset((row["best"], row["model"])), row["evaluation"]) not in significant)


def test_table_agrees(run, expected, significant):
    _, long, found = run
    table = make_table(long, make_headings(long, {}), found.rankings, models=MODELS)
    assert FAMILIES in table.caption
    marks = {
        (model, name): cell.mark > 0
        for model, row in zip(MODELS, table.cells, strict=True)
        for name, cell in zip(EVALUATIONS, row, strict=True)
    }
    assert unmarked(marks, long) == expected
    for pair in combinations(MODELS, 2):  # of any two models: their own test
        two = make_table(long[long["model"].isin(pair)], make_headings(long, {}), found.rankings, models=pair)
        assert "not tested" not in two.caption
        for name, first, second in zip(EVALUATIONS, *two.cells, strict=True):
            values = [float(cell.text) for cell in (first, second)]
            if values[0] != values[1] and min(values) > 50:
                assert ({first.mark, second.mark} == {0, 2}) == ((frozenset(pair), name) in significant)


def test_workbook_agrees(run, expected, tmp_path):
    _, long, found = run
    write_leaderboard(
        tmp_path / "book.xlsx", long, {}, rankings=found.rankings, overall=found.overall, comparisons=found.comparisons
    )
    book = openpyxl.load_workbook(tmp_path / "book.xlsx")
    sheet = book["gl"]
    names = [sheet.cell(1, 2 + k).value for k in range(4)]
    marks = {
        (sheet.cell(row, 1).value, f"{name}.gl.letters.0shot"): sheet.cell(row, 2 + k).number_format
        in {number_format("share", mark) for mark in (1, 2)}
        for row in range(4, 10)
        for k, name in enumerate(names)
    }
    assert unmarked(marks, long) == expected
    assert FAMILIES in sheet["A1"].comment.text
    rows = list(book["comparisons"].iter_rows(values_only=True))
    column = rows[0].index("significant")
    assert sum(row[column] == "yes" for row in rows[1:]) == sum(row["significant"] for row in found.comparisons)


def test_terminal_agrees(run, significant, capsys):
    root, *_ = run
    print_results(PrintResults(benchmarks=root / "none", results=root / "results" / "summary"))
    printed = capsys.readouterr().out
    assert FAMILIES in printed
    sentences = re.findall(
        r"(m\d) is significantly better than (m\d) in (\d) of 4 headline metrics and worse in (\d)", printed
    )
    assert sentences
    for candidate, baseline, better, worse in sentences:
        pair = frozenset((candidate, baseline))
        assert int(better) + int(worse) == sum(pair == other for other, _ in significant)


def test_report_agrees(run, expected, significant, open_report):
    root, long, _ = run
    page = open_report(root / "page")
    page.open("#/leaderboard?down=models")
    marks = {}
    for row in page.find_all(".board tbody tr"):
        model = row.find_element("css selector", "th").text
        for cell in row.find_elements("css selector", "td:has(a)"):
            name = re.search(r"quiz\d[^/]*", cell.find_element("css selector", "a").get_attribute("href")).group()
            marks[model, name] = bool(cell.find_elements("css selector", ".mark"))
    assert unmarked(marks, long) == expected
    assert FAMILIES in page.text(".legend")
    page.open("#/overview")
    underlined = {
        re.search(r"quiz\d[^/]*", cell.find_element("css selector", "a").get_attribute("href")).group()
        for cell in page.find_all("table.map td.significant")
    }
    best = {name: rows.loc[rows["value"].idxmax(), "model"] for name, rows in long.groupby("evaluation")}
    assert underlined == {
        name
        for name in expected
        if all((frozenset((m, best[name])), name) in significant for m in MODELS if m != best[name])
    }
    assert FAMILIES in page.text("main")
    for number, (baseline, candidate) in enumerate(combinations(MODELS, 2)):
        if number % 5 == 0:
            page.open(f"#/comparison/{baseline}/{candidate}")
            verdicts = [badge for badge in page.texts(".badge") if badge.endswith("better")]
            assert len(verdicts) == sum(frozenset((baseline, candidate)) == pair for pair, _ in significant)
