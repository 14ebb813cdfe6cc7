"""Means over prompts and sequential evidence of a run, from Python."""

import json

import numpy as np
import pyarrow as pa
import pytest
from support import report_curves, report_forms, report_labels, report_run, result_rows
from support.messages import assert_states
from support.report_prompts import EVALUATION, MEAN, MODELS, N, write_run
from vernacular import results
from vernacular.comparison.curves.schema import CURVES
from vernacular.comparison.schema import OVERALL
from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.core.tables import to_frame
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.report.page import build
from vernacular.results import plots
from vernacular.statistics.sequential import wealth


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    return write_run(root)["results"]


def test_means_over_prompts_are_a_table(directory):
    table = results.prompts(directory).query("metric == 'accuracy'")
    assert table["evaluation"].unique().tolist() == [MEAN]
    assert table["baseline"].isna().tolist() == [True, True, False]
    assert table["value"].iloc[2] == pytest.approx(table["value"].iloc[1] - table["value"].iloc[0])


def test_evidence_grows_over_the_items_that_both_models_have(directory):
    table = results.evidence(directory, *MODELS, EVALUATION)
    assert (len(table), table["n"].iloc[-1]) == (N, N)
    base, tuned = (results.items(directory, model, EVALUATION).set_index("item_id")["accuracy"] for model in MODELS)
    assert table["cluster"].str.startswith("item q").all()
    differences = (tuned - base)[table["cluster"].str.removeprefix("item ")]
    assert table["difference"].tolist() == differences.tolist()
    assert table["evidence"].tolist() == pytest.approx(wealth(differences.to_numpy()).tolist())


def test_unknown_metric_names_the_closest(directory):
    with pytest.raises(DataError) as raised:
        results.evidence(directory, *MODELS, EVALUATION, "acuracy")
    assert_states(raised.value, "base", '"acuracy"', EVALUATION, '"accuracy"')


def test_tokens_are_those_of_the_scored_texts(tmp_path):
    rows = [report_run.request_row("i1", "sentence", "", "", "O can.")]
    report_run.write_requests(tmp_path, EVALUATION, rows)
    artifacts.write(tmp_path / "a" / "metrics.parquet", METRICS, [], {})
    path = tmp_path / "requests" / f"{EVALUATION}.parquet"
    for requests in (artifacts.metadata(path)["fingerprint"], "of a text that was edited"):
        row = report_run.score_row("i1", "sentence", 0, [1, 4, 1], [1.0, 2.0, 0.5]) | {"is_greedy": [True] * 3}
        scores = tmp_path / "a" / "scores" / f"{EVALUATION}.parquet"
        report_run.write_artifact(scores, SCORES, [row], {"requests": requests})
        if requests.startswith("of"):
            with pytest.raises(DataError) as raised:
                results.tokens(tmp_path, "a", EVALUATION)
            assert_states(raised.value, "a/scores", "earlier", "requests", EVALUATION)
        else:
            assert results.tokens(tmp_path, "a", EVALUATION)["logprob"].notna().all()


@pytest.mark.parametrize("metric", ["correct", "prediction", "flag_text"])
def test_a_column_that_is_no_metric_has_no_evidence_and_no_distribution(directory, metric):
    for call in (
        lambda: results.evidence(directory, *MODELS, EVALUATION, metric),
        lambda: results.plot_distribution(directory, MODELS[0], EVALUATION, metric),
    ):
        with pytest.raises(DataError) as raised:
            call()
        assert_states(raised.value, f'"{metric}"', "accuracy")
        assert "flag_text." not in str(raised.value)


def test_unbounded_metrics_that_differ_by_less_than_1_have_no_evidence(tmp_path):
    for model, value in (("a", 3.2), ("b", 3.5)):
        artifacts.write(tmp_path / model / "metrics.parquet", METRICS, [], {})
        path = tmp_path / model / "tasks" / f"{EVALUATION}.parquet"
        artifacts.write(path, TASK_RESULTS, [result_rows.row(f"i{n}", 1, surprisal=value) for n in range(3)], {})
    with pytest.raises(DataError) as raised:
        results.evidence(tmp_path, "a", "b", EVALUATION, "surprisal")
    assert_states(raised.value, EVALUATION, "surprisal", "from 0 to 1")
    assert len(results.evidence(tmp_path, "a", "b", EVALUATION)) == 3
    edited = [result_rows.row("i0", 1), result_rows.row("i1", 0, gold=(1,)), result_rows.row("i2", 0, prompt="other")]
    artifacts.write(path, TASK_RESULTS, edited, {})
    assert results.evidence(tmp_path, "a", "b", EVALUATION)["cluster"].tolist() == ["item i0"]


def test_plots_have_title_unit_n_and_models(directory):
    values = results.plot_values(directory, EVALUATION).axes[0]
    assert {label.get_text() for label in values.get_yticklabels()} == set(MODELS)
    assert values.get_title() == f"Accuracy, {EVALUATION}\nn = {N} items"
    assert values.get_xlabel() == "%"
    table = results.values(directory).query(f"evaluation == '{EVALUATION}' and metric == 'accuracy'")
    points = [line.get_xdata()[0] for line in values.lines if line.get_marker() == "o"]
    assert points == pytest.approx(sorted(100 * table["value"]))
    differences = results.plot_differences(directory, *MODELS).axes[0]
    drawn = [line.get_xdata()[0] for line in differences.lines if line.get_marker() == "o"]
    assert drawn == sorted(drawn)
    assert differences.get_title().startswith("tuned minus base")
    assert results.plot_overall(directory).axes[0].get_title().startswith("Above chance, all")


def test_plots_of_categories_and_items(tmp_path):
    directory = report_run.write_run(tmp_path)["results"]
    model, evaluation = report_run.MODELS[0], report_run.OPTIONS
    frame = results.items(directory, model, evaluation)
    measure = next(name for name in ("margin", "accuracy") if name in frame)
    axes = results.plot_distribution(directory, model, evaluation, measure).axes[0]
    assert axes.get_title().endswith(f"n = {frame[measure].notna().sum()} items")
    assert sum(patch.get_height() for patch in axes.patches) == frame[measure].notna().sum()
    assert 0 in np.concatenate([[patch.get_x() for patch in axes.patches], [axes.patches[-1].get_x()]]).round(9)
    with pytest.raises(DataError) as raised:
        results.plot_distribution(directory, model, evaluation, "margn")
    assert_states(raised.value, evaluation, "margn")
    known = results.values(directory).query(f"model == {model!r} and evaluation == {evaluation!r} and category != ''")
    known = known[known["metric"] == "accuracy"]
    assert len(known) > 1
    axes = results.plot_categories(directory, model, evaluation, "accuracy").axes[0]
    assert {label.get_text() for label in axes.get_yticklabels()} == set(known["category"])
    with pytest.raises(DataError) as raised:
        results.plot_categories(directory, model, "cloze.sr.generation.2shot")
    assert_states(raised.value, "cloze.sr.generation.2shot", "no categories")


def test_plot_of_means_of_a_run_without_chance_levels_states_it(tmp_path):
    artifacts.write(tmp_path / "summary" / "overall.parquet", OVERALL, [], {})
    with pytest.raises(DataError) as raised:
        results.plot_means(tmp_path)
    assert_states(raised.value, "Means above chance", "no values")


def test_plot_of_prompts_has_each_prompt_and_their_mean(directory):
    axes = results.plot_prompts(directory, MODELS[0], EVALUATION, "accuracy").axes[0]
    assert {label.get_text() for label in axes.get_yticklabels()} == {"default", "formal", "short", "mean over prompts"}
    table = results.values(directory).query(f"task == 'quiz' and metric == 'accuracy' and model == {MODELS[0]!r}")
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in points] == pytest.approx(sorted(100 * table["value"]))
    assert sum(line.get_markerfacecolor() != "white" for line in points) == 1


def test_plot_of_curves_has_a_line_with_gaps_per_series(tmp_path):
    directory = report_curves.write_run(tmp_path)["results"]
    axes = results.plot_curves(directory, report_curves.EVALUATION).axes[0]
    lines = {line.get_label(): line for line in axes.lines if line.get_marker() == "o"}
    assert set(lines) == set(report_curves.SHARES)
    assert axes.get_xlabel() == "tokens"
    for series, line in lines.items():
        values = line.get_ydata()
        assert list(line.get_xdata()) == [step * report_curves.TOKENS_PER_STEP for step in report_curves.STEPS]
        missing = [f"{series}.step{step}" == report_curves.MISSING for step in report_curves.STEPS]
        assert np.isnan(values).tolist() == missing
        shares = np.mean(list(report_curves.SHARES[series].values()), axis=0)
        assert values[~np.isnan(values)] == pytest.approx(100 * shares[~np.array(missing)], abs=1)
    path = directory / "summary" / "curves.parquet"
    table = artifacts.read(path, CURVES)
    words = table["tokens"]
    for name, column in (("tokens", pa.nulls(len(table), pa.int64())), ("step", pa.nulls(len(table), pa.int64())),
                         ("words", words)):  # fmt: skip
        table = table.set_column(table.schema.get_field_index(name), name, column)
    artifacts.write(path, CURVES, table, {})  # as BabyLM's chck_10M: words only
    axes = results.plot_curves(directory, report_curves.EVALUATION).axes[0]
    assert axes.get_xlabel() == "words"
    assert np.isfinite(axes.lines[0].get_xdata()).all()
    with pytest.raises(DataError) as raised:
        results.plot_curves(directory, "pairs.gl.minimal_pair.0shots")
    assert_states(raised.value, report_curves.EVALUATION)


def test_plot_of_an_unknown_name_names_the_closest(directory):
    with pytest.raises(DataError) as raised:
        results.plot_values(directory, "quiz.gl.leters.0shot")
    assert_states(raised.value, "evaluation", '"quiz.gl.leters.0shot"', EVALUATION)


def test_plot_of_an_evaluation_without_gold_names_the_metrics_it_has(directory, monkeypatch):
    rows = results.values(directory).assign(headline=False)
    monkeypatch.setattr(plots, "values", lambda _: rows)
    with pytest.raises(DataError) as raised:
        results.plot_values(directory, EVALUATION)
    assert_states(raised.value, f"{EVALUATION}: no value of a headline metric; name another.", "accuracy")


def report_data(directory, name):
    """Return the content of a data file of the report in `directory`."""
    return json.loads((directory / "data" / f"{name}.js").read_text().split(",", 1)[1].removesuffix(");\n"))


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The results of a run, what the report shows of its evaluations with options and with labels, and its models."""
    root = tmp_path_factory.mktemp("reported")
    arguments = report_labels.write_run(root)
    build(out=root / "page", **arguments)
    return arguments["results"], report_data(root / "page", "e0/task"), report_run.MODELS


def series(axes):
    """Return the points of each labeled line."""
    lines = [line for line in axes.lines if line.get_marker() not in ("None", "")]
    return {line.get_label(): list(zip(*map(list, line.get_data()), strict=True)) for line in lines}


def test_plot_of_outcomes_is_that_of_the_report(reported):
    directory, task, models = reported
    axes = results.plot_outcomes(directory, report_run.OPTIONS).axes[0]
    drawn = {bars.get_label(): [patch.get_width() for patch in bars.patches] for bars in axes.containers}
    codes = {"incorrect": 0, "correct": 1, "tie": 2}
    assert drawn == {
        name: [counts[code] for _, counts, _ in task["outcomes"]] for name, code in codes.items() if name in drawn
    }
    assert sum(map(sum, drawn.values())) == len(models) * task["items"]
    assert [label.get_text() for label in axes.get_yticklabels()] == models


def test_plot_of_reliability_is_that_of_the_report(reported):
    directory, task, models = reported
    drawn = series(results.plot_reliability(directory, report_run.OPTIONS).axes[0])
    expected = {
        f"{models[model]}: error {100 * error:.1f} %": [(confidence, accuracy) for confidence, accuracy, _ in bins]
        for model, error, bins, *_ in task["calibration"]
    }
    assert expected
    assert drawn == expected
    with pytest.raises(DataError) as raised:
        results.plot_reliability(directory, report_run.SENTENCES)
    assert_states(raised.value, report_run.SENTENCES)


@pytest.mark.parametrize("by", ["position", "length"])
def test_plot_of_surprisal_is_that_of_the_report(reported, by):
    directory, task, models = reported
    expected = {
        models[model]: [
            (point[0], point[1]) if by == "position" else ((point[0] + point[1]) / 2, point[2]) for point in points
        ]
        for model, points in task["surprisal"][by]
    }
    if not expected:
        with pytest.raises(DataError):
            results.plot_surprisal(directory, report_run.OPTIONS, by)
    else:
        assert series(results.plot_surprisal(directory, report_run.OPTIONS, by).axes[0]) == expected


def test_plot_of_items_has_the_measures_of_both_models(reported):
    directory, _, models = reported
    axes = results.plot_items(directory, *models[:2], report_run.OPTIONS).axes[0]
    pieces = [report_data(directory.parent / "page", f"e0/m{model}")["rows"] for model in (0, 1)]
    x, y = ({row[0]: row[3] for row in piece} for piece in pieces)
    expected = sorted((x[at], y[at]) for at in x if x[at] is not None and y.get(at) is not None)
    drawn = sorted(point for points in series(axes).values() for point in points)
    assert np.array(drawn) == pytest.approx(np.array(expected), rel=1e-6)
    assert (axes.get_xlabel(), axes.get_ylabel()) == tuple(models[:2])


def test_plot_of_labels_has_them_alone_and_with_scores(reported):
    directory, *_ = reported
    axes = results.plot_labels(directory, report_run.OPTIONS).axes[0]
    drawn = {
        label.get_text(): line.get_xdata()[0]
        for label, line in zip(
            axes.get_yticklabels(), [line for line in axes.lines if line.get_marker() == "o"], strict=True
        )
    }
    assert drawn == pytest.approx({"base: alone": 60, "base: accuracy": 55, "base: other": 60})
    pairs = results.plot_labels(directory, report_run.OPTIONS, is_difference=True).axes[0]
    assert [label.get_text() for label in pairs.get_yticklabels()] == ["<i>tuned</i> minus base: alone"]


def texts(axes):
    """Return the text of each row and column of a matrix."""
    columns, rows = (
        [label.get_text() for label in labels] for labels in (axes.get_xticklabels(), axes.get_yticklabels())
    )
    return {(rows[text.get_position()[1]], columns[text.get_position()[0]]): text.get_text() for text in axes.texts}


def test_confusion_matrix_is_that_of_the_report(tmp_path):
    arguments = report_forms.write_run(tmp_path)
    build(out=tmp_path / "page", **arguments)
    number = arguments["evaluations"].index(report_forms.LETTERS)
    model, labels, _, confusion, *_ = report_data(tmp_path / "page", f"e{number}/task")["answers"][0]
    name = arguments["models"][model]
    drawn = texts(results.plot_confusion(arguments["results"], name, report_forms.LETTERS).axes[0])
    names = [label for label, *_ in labels]
    assert drawn == {
        (row, column): str(count)
        for row, counts in zip(names, confusion, strict=True)
        for column, count in zip([*names, "none"], counts, strict=True)
    }


def test_means_and_values_by_language_are_matrices(directory):
    table = to_frame(artifacts.read(directory / "summary" / "overall.parquet", OVERALL)).query(
        "not scope.str.startswith('task:')"
    )
    drawn = texts(results.plot_means(directory).axes[0])
    assert {(row.model, row.scope) for row in table.itertuples()} == set(drawn)
    for row in table.itertuples():
        first, *others = drawn[row.model, row.scope].splitlines()
        assert first == f"{100 * row.mean:.1f}"
        assert others == ([] if np.isnan(row.ci_low) else [f"{100 * row.ci_low:.1f} to {100 * row.ci_high:.1f}"])
    drawn = texts(results.plot_languages(directory, MODELS[0]).axes[0])
    known = results.values(directory).query(f"model == {MODELS[0]!r} and metric == 'accuracy' and category == ''")
    assert {f"{100 * value:.1f}" for value in known["value"]} >= {text.split("\n")[0] for text in drawn.values()}


def test_values_by_category_and_language_are_a_matrix(reported):
    directory, *_ = reported
    model = report_run.MODELS[0]
    drawn = texts(results.plot_categories_by_language(directory, model, report_run.OPTIONS, "accuracy").axes[0])
    known = results.values(directory).query(
        f"model == {model!r} and task == 'olas' and metric == 'accuracy' and category != ''"
    )
    assert {key: text.split("\n")[0] for key, text in drawn.items()} == {
        (row.category, row.language): f"{100 * row.value:.1f}" for row in known.itertuples()
    }
