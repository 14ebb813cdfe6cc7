"""The end of a run: missing results, paths, one sentence per comparison, wall and CPU time of each stage."""

import pyarrow as pa
import pytest
from support.result_rows import EVALUATION, rows
from vernacular.comparison.compare import compare_all
from vernacular.comparison.schema import COMPARISONS
from vernacular.core import artifacts
from vernacular.core.errors import UserError
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import RESULTS, as_table
from vernacular.stages import print_results as stage
from vernacular.stages.finish import Finish, finish

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
    stage.print_results(stage.PrintResults(results=results, benchmarks=run_directory / "benchmarks"))
    return capsys.readouterr().out


def test_report_and_leaderboard_are_named_last_if_they_exist(run_directory, capsys):
    (run_directory / "results" / "report").mkdir()
    for path in ("report/index.html", "summary/leaderboard.xlsx"):
        (run_directory / "results" / path).touch()
    *_, report, leaderboard, end = output(run_directory, capsys, []).split("\n")
    assert report.startswith("Report")
    assert report.endswith("results/report/index.html")
    assert leaderboard.endswith("results/summary/leaderboard.xlsx")
    assert end == "", "results.csv does not exist"


def test_worst_diagnosis_follows_the_values(run_directory, capsys):
    worst = {"model": "m", "evaluation": "cola.ca.options.0shot", "sentence": "397 of 400 answers are “no”."}
    summary = run_directory / "results" / "summary" / "results.parquet"
    for diagnosis in (worst, None):
        metadata = {"models": [{"name": "m"}], "notes": [], "worst_diagnosis": diagnosis}
        artifacts.write(summary, RESULTS, RESULTS.schema.empty_table(), metadata)
        text = output(run_directory, capsys, [])
        assert ("\nWhy this score? m, cola.ca.options.0shot: 397 of 400 answers are “no”.\n" in text) == bool(diagnosis)
        assert text.count("Why this score?") == bool(diagnosis)


def test_wall_and_cpu_time_of_each_stage_are_labeled(run_directory, capsys):
    stage.print_results(
        stage.PrintResults(results=run_directory / "results" / "summary", benchmarks=run_directory / "benchmarks")
    )
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
    stage.print_results(stage.PrintResults(results=summary, benchmarks=run_directory / "benchmarks"))
    lines = capsys.readouterr().out.split("\n\n")[0].strip().splitlines()[1:]
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
        "Accuracy: 20.0% -> 90.0% (p = 0.001, p = 0.003 after Holm's correction)."
    )
    assert expected in text.split("\n")


def test_counts_are_those_of_the_table_that_compare_writes(run_directory, capsys):
    results = {"base": {"e": as_table(rows([0] * 12))}, "tuned": {"e": as_table(rows([1] * 12))}}
    pairs = [("base", "tuned"), ("tuned", "base")]
    comparisons = compare_all(pairs, results, {"e": SPEC}, resamples=100).comparisons
    path = run_directory / "results" / "summary" / "comparisons.csv"
    write_csv(path, to_frame(pa.Table.from_pylist(comparisons, COMPARISONS.schema)))
    stage.print_results(stage.PrintResults(results=path.parent, benchmarks=run_directory / "benchmarks"))
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
        finish(Finish(notes=tmp_path / "notes.csv", out=tmp_path / "complete.txt"))
    first, *lines = str(raised.value).split("\n")
    assert first == "the summary is written, but results are missing:"
    assert lines == ["  tiny", "    e0, e1, e2 and 2 more: no memory", "    e9: gated", "  a, other", "    e9: gated"]
    assert not (tmp_path / "complete.txt").exists()


def value_row(model: str, evaluation: str, metric: str = "accuracy", **fields) -> dict:
    task, language, protocol, shots = evaluation.split(".")
    row = {"model": model, "evaluation": evaluation, "task": task, "language": language, "protocol": protocol}
    row |= {"shots": int(shots), "style": "default", "category": "", "metric": metric, "n": 16, "n_flagged": 0}
    row |= {"value": 0.3125, "ci_low": 0.142, "ci_high": 0.556, "unit": "share", "higher_is_better": True}
    return row | {"headline": True, "chance_level": 0.25} | fields


def value_table(run_directory, capsys, rows: list[dict], notes: list[dict] = (), **fields) -> list[str]:
    summary = run_directory / "results" / "summary"
    artifacts.write(
        summary / "results.parquet", RESULTS, rows, {"models": [], "notes": list(notes), "fingerprint": "0"}
    )
    stage.print_results(stage.PrintResults(results=summary, benchmarks=run_directory / "benchmarks", **fields))
    _, *parts = capsys.readouterr().out.split("\n\n")  # after the times
    return "\n\n".join(parts).rstrip("\n").split("\n")


def test_values_of_one_model_are_printed_with_titles_intervals_and_items(run_directory, capsys):
    rows = [
        value_row("m", "cola.gl.acceptability.0", "auc", ci_low=None, ci_high=None),
        value_row("m", "cola.gl.acceptability.0", "difsur", value=-7.25, ci_low=-17.6, ci_high=4.1, unit="percent"),
        value_row("m", "cola.gl.acceptability.0", "mcc", headline=False),
        value_row("m", "cola.gl.acceptability.0", "auc", category="syntax"),
        value_row(
            "m", "qa.gl.options.5", "surprisal", value=2, ci_low=1, ci_high=3, unit="nats", higher_is_better=False
        ),
    ]
    lines = value_table(run_directory, capsys, rows, tasks={"cola": {"title": "Acceptability"}})
    assert lines == [
        "m:",
        "task           language  protocol, shots         metric              value  95% interval     n",
        "Acceptability  gl        acceptability, 0 shots  ROC AUC (↑)         31.3%  none            16",
        "                                                 difsur (↑)          -7.3%  -17.6% to 4.1%  16",
        "qa             gl        options, 5 shots        Surprisal (nats ↓)  2.000  1.000 to 3.000  16",
    ]


def test_values_of_several_models_follow_each_other(run_directory, capsys):
    rows = [value_row(model, "qa.gl.options.0", n=n) for model, n in (("base", 16), ("tuned", 15))]
    header, first, second = value_table(run_directory, capsys, rows)
    assert " ".join(header.split()) == "task language protocol, shots metric model value 95% interval n"
    assert " ".join(first.split()) == "qa gl options, 0 shots Accuracy (↑) base 31.3% 14.2% to 55.6% 16"
    assert " ".join(second.split()) == "tuned 31.3% 14.2% to 55.6% 15"


def test_of_many_values_those_that_represent_an_evaluation_are_printed_and_the_others_counted(run_directory, capsys):
    evaluations = [f"qa.l{i}.options.0" for i in range(40)]
    rows = [value_row(m, e, metric) for e in evaluations for m in "ab" for metric in ("accuracy", "accuracy_pmi")]
    *lines, others = value_table(run_directory, capsys, rows)
    assert len(lines) == 1 + 80
    assert "Accuracy, PMI" not in "\n".join(lines)
    assert others.startswith("80 other values of headline metrics, and intervals: ")


def test_values_of_twelve_models_fit_the_terminal_with_a_line_per_task(run_directory, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    evaluations = [f"qa{i % 7}.l{i // 7}.options.0" for i in range(41)]
    rows = [value_row(f"a-long-name-{letter}", name) for letter in "abcdefghijkl" for name in evaluations]
    *lines, others = value_table(run_directory, capsys, rows, languages=["l3"])
    legend, *blocks = ("\n".join(lines)).split("\n\n")
    assert [line.split()[2] for line in legend.split("\n")[1:]] == ["l3"] * 7, "the first language of the config"
    names = [f"a-long-name-{letter}" for letter in "abcdefghijkl"]
    assert [[line.split()[0] for line in block.split("\n")] for block in blocks] == [["model", *names]] * len(blocks)
    assert [number for block in blocks for number in block.split("\n")[0].split()[1:]] == list("1234567")
    assert len(blocks) == 2
    assert max(map(len, lines)) <= 60
    assert others.startswith(f"{12 * (41 - 7)} other values")


def test_earlier_checkpoints_are_left_to_the_curves_and_missing_results_are_counted(run_directory, capsys):
    rows = [value_row(f"s-{step}", "qa.gl.options.0", series="s", step=step) for step in (100, 200)]
    notes = [{"kind": "not applicable", "model": "m", "evaluation": name, "note": "", "count": None} for name in "ef"]
    lines = value_table(run_directory, capsys, rows, notes)
    assert lines[0] == "s-200:"
    assert lines[-1].startswith("Without a value: 2 evaluations of 1 model; reasons: ")


def test_without_values_the_table_says_so(run_directory, capsys):
    assert value_table(run_directory, capsys, []) == ["no values"]
