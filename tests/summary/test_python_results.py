"""Means over prompts and sequential evidence of a run, from Python."""

import numpy as np
import pytest
from support import report_curves, report_run
from support.messages import assert_states
from support.report_prompts import EVALUATION, MEAN, MODELS, N, write_run
from vernacular import results
from vernacular.core.errors import DataError
from vernacular.results import wealth


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
    with pytest.raises(DataError) as raised:
        results.plot_curves(directory, "pairs.gl.minimal_pair.0shots")
    assert_states(raised.value, report_curves.EVALUATION)


def test_plot_of_an_unknown_name_names_the_closest(directory):
    with pytest.raises(DataError) as raised:
        results.plot_values(directory, "quiz.gl.leters.0shot")
    assert_states(raised.value, "evaluation", '"quiz.gl.leters.0shot"', EVALUATION)
