"""The end of a run: missing results, paths, one sentence per comparison, wall and CPU time of each stage."""

import pyarrow as pa
import pytest
from support.result_rows import EVALUATION, rows
from vernacular.commands import status
from vernacular.comparison.compare import compare_all
from vernacular.comparison.schema import COMPARISONS
from vernacular.core import artifacts
from vernacular.core.errors import UserError
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import RESULTS, as_table

SPEC = {name: EVALUATION[name] for name in ("task", "language", "protocol", "shots", "seed", "style", "prompt")}

COLUMNS = "baseline,candidate,evaluation,category,metric,unit,baseline_value,candidate_value,p_value,p_holm,significant,better"


@pytest.fixture
def run_directory(tmp_path):
    (tmp_path / "benchmarks" / "infer").mkdir(parents=True)
    for shard, seconds in (("1of2", "10.5"), ("2of2", "NA")):
        path = tmp_path / "benchmarks" / "infer" / f"m.{shard}.tsv"
        path.write_text(f"s\tmax_rss\tcpu_time\n{seconds}\t100.0\t20.25\n")
    (tmp_path / "results" / "summary").mkdir(parents=True)
    return tmp_path


def output(run_directory, capsys, rows: list[str]) -> str:
    results = run_directory / "results" / "summary"
    (results / "comparisons.csv").write_text("\n".join([COLUMNS, *rows]) + "\n", "utf-8-sig")
    status.finish(status.Finish(results=results, benchmarks=run_directory / "benchmarks"))
    return capsys.readouterr().out


def test_report_and_leaderboard_are_named_first_if_they_exist(run_directory, capsys):
    (run_directory / "results" / "report").mkdir()
    for path in ("report/index.html", "summary/leaderboard.xlsx"):
        (run_directory / "results" / path).touch()
    lines = output(run_directory, capsys, []).split("\n")
    assert lines[1].startswith("Report")
    assert lines[1].endswith("results/report/index.html")
    assert lines[2].endswith("results/summary/leaderboard.xlsx")
    assert not any("results.csv" in line for line in lines)


def test_wall_and_cpu_time_of_each_stage_are_labeled(run_directory, capsys):
    status.finish(status.Finish(results=run_directory / "results" / "summary", benchmarks=run_directory / "benchmarks"))
    lines = capsys.readouterr().out.split("\n")
    header, row = (line.split() for line in lines if line.startswith(("stage", "infer")))
    assert header == ["stage", "jobs", "wall", "time,", "s", "CPU", "time,", "s", "peak", "MB"]
    assert row == ["infer", "2", "10.5", "40.5", "100"]


def test_stages_of_models_that_the_config_no_longer_has_are_not_listed(run_directory, capsys):
    for name in (
        "metrics/m.tsv",
        "metrics/other.tsv",
        "collect/other.tsv",
        "compare/compare.tsv",
        "other/infer/m.1of1.tsv",
    ):
        path = run_directory / "benchmarks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("s\tmax_rss\tcpu_time\n1.0\t1.0\t1.0\n")
    summary = run_directory / "results" / "summary"
    metadata = {"models": [{"name": "tuned", "base": "m"}, {"name": "m"}], "fingerprint": "0"}
    artifacts.write(summary / "results.parquet", RESULTS, [], metadata)
    status.finish(status.Finish(results=summary, benchmarks=run_directory / "benchmarks"))
    lines = capsys.readouterr().out.split("\nstage")[1].splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [["infer", "2"], ["metrics", "1"], ["compare", "1"]]


def test_comparison_counts_significant_headline_metrics_and_names_the_clearest_difference(run_directory, capsys):
    rows = [
        "base,tuned,a.gl,,accuracy,share,0.25,0.5,0.04,0.08,False,",
        "base,tuned,b.gl,,accuracy,share,0.2,0.9,0.001,0.003,True,candidate",
        "base,tuned,c.gl,,auc,share,0.9,0.2,0.002,0.004,True,baseline",
        "base,tuned,c.gl,syntax,auc,share,0.9,0.2,0.0001,0.0004,True,baseline",  # a category
        "base,tuned,c.gl,,mcc,share,0.9,0.2,0.0001,,True,baseline",  # not a headline metric
    ]
    text = output(run_directory, capsys, rows)
    expected = (
        "tuned is significantly better than base in 1 of 3 headline metrics and worse in 1; clearest difference: b.gl, "
        "Accuracy: 20.0% -> 90.0% (p 0.001, p (Holm) 0.003)."
    )
    assert expected in text.split("\n")


def test_counts_are_those_of_the_table_that_compare_writes(run_directory, capsys):
    results = {"base": {"e": as_table(rows([0] * 12))}, "tuned": {"e": as_table(rows([1] * 12))}}
    pairs = [("base", "tuned"), ("tuned", "base")]
    comparisons = compare_all(pairs, results, {"e": SPEC}, resamples=100).comparisons
    path = run_directory / "results" / "summary" / "comparisons.csv"
    write_csv(path, to_frame(pa.Table.from_pylist(comparisons, COMPARISONS.schema)))
    status.finish(status.Finish(results=path.parent, benchmarks=run_directory / "benchmarks"))
    text = capsys.readouterr().out
    assert "tuned is significantly better than base in 1 of 1 headline metric and worse in 0;" in text
    assert "base is significantly better than tuned in 0 of 1 headline metric and worse in 1;" in text


def test_at_most_five_comparisons_are_printed(run_directory, capsys):
    rows = [f"base,m{i},a.gl,,accuracy,share,0.25,0.5,0.04,0.08,False," for i in range(7)]
    text = output(run_directory, capsys, rows)
    assert text.count("does not differ significantly from base in any of 1 headline metric;") == 5
    assert "2 other comparisons: " in text


def test_missing_results_are_grouped_by_models_and_reason(tmp_path):
    notes = ["kind,note,count,models,evaluations", 'unavailable,no memory,,tiny,"e0, e1, e2, e3, e4"']
    notes += ["unavailable,gated,,tiny,e9", 'unavailable,gated,,"a, other",e9', "dropped,empty question,1,other,e1"]
    (tmp_path / "notes.csv").write_text("\n".join(notes) + "\n", "utf-8-sig")
    with pytest.raises(UserError) as raised:
        status.verify(status.Verify(notes=tmp_path / "notes.csv", out=tmp_path / "complete.txt"))
    first, *lines = str(raised.value).split("\n")
    assert first == "the summary is written, but results are missing:"
    assert lines == ["  tiny", "    e0, e1, e2 and 2 more: no memory", "    e9: gated", "  a, other", "    e9: gated"]
    assert not (tmp_path / "complete.txt").exists()
