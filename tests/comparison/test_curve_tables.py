"""Curve tables from per-item results: points, statistics, trust in tasks and pairs, against direct computation."""

import numpy as np
import pyarrow as pa
import pytest
from support.scoring import metric_rows
from vernacular.comparison.curves.curve import Samples, common_axis, curves_of
from vernacular.comparison.curves.schema import ALL
from vernacular.comparison.curves.tables import curve_tables, judge, sentence
from vernacular.core import artifacts
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.evaluate import PROTOCOL_METRICS
from vernacular.statistics import curves as statistics

N = 400
SETTING = {
    "task": "t",
    "language": "gl",
    "protocol": "minimal_pair",
    "shots": 0,
    "seed": 0,
    "style": "default",
    "prompt": "default",
}
EVALUATION = "t.gl.minimal_pair.0shot"
STEPS = [0, 1000, 2000, 4000, 8000, 16000]


def rows_of(correct: np.ndarray) -> list[dict]:
    """Return TASK_RESULTS rows of minimal pairs, the first half of them in the category "a"."""
    return [
        {
            "item_id": f"i{i}", "cluster_id": None, "category": "a" if i < N // 2 else "b", "prompt": f"p{i}",
            "choices": ["x", "y"], "gold": [0], "option_scores": None, "prediction": None, "predicted_indices": None,
            "correct": bool(value), "tie": False, "metrics": {"accuracy": float(value)}, "flags": None,
        }
        for i, value in enumerate(correct)
    ]  # fmt: skip


def answers(shares: list[float], seed: int = 0) -> list[np.ndarray]:
    """Return correct (1) or not (0) per item for each checkpoint; items are learned in one order, as in training."""
    difficulty = np.random.default_rng(seed).permutation(N) / N
    return [(difficulty < share).astype(float) for share in shares]


class Run:
    """Results of the checkpoints of some series, in memory."""

    def __init__(self, series: dict[str, list[float | None]], steps=STEPS, **positions):
        self.checkpoints, self.tables, self.rows = {}, {}, {}
        for name, shares in series.items():
            correct = iter(answers([share for share in shares if share is not None]))
            for step, share in zip(steps, shares, strict=True):
                model = f"{name}.step{step}"
                position = {"step": step, "tokens": None, "words": None}
                self.checkpoints[model] = {"series": name, "curve": name, "name": f"checkpoint-{step}", **position}
                rows = [] if share is None else rows_of(next(correct))
                self.tables[model] = pa.Table.from_pylist(rows, schema=TASK_RESULTS.schema)
                values = metric_rows(rows, PROTOCOL_METRICS["minimal_pair"].METRICS, SETTING, {}) if rows else []
                self.rows[model] = {(row["category"], row["metric"]): row for row in values}
                if share is None:
                    self.rows[model]["", ""] = {"note": "no file"}
        self.positions = positions

    def compute(self) -> dict[str, list[dict]]:
        return curve_tables(
            self.checkpoints, {EVALUATION: SETTING}, lambda m, _: self.tables[m], lambda m, _: self.rows[m],
            resamples=300,
        )  # fmt: skip


def select(rows: list[dict], **values) -> list[dict]:
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


@pytest.fixture(scope="module")
def learning() -> dict[str, list[dict]]:
    return Run({"mine": [0.5, 0.5, 0.6, 0.75, 0.9, 0.88], "other": [0.5, 0.52, 0.55, 0.6, 0.68, 0.7]}).compute()


def test_tables_fit_their_schemas(learning, tmp_path):
    for name, kind in ALL.items():
        path = artifacts.write(tmp_path / f"{name}.parquet", kind, learning[name], {"fingerprint": ""})
        assert artifacts.read(path, kind).num_rows == len(learning[name]) > 0


def test_points_have_the_values_of_the_results_and_paired_differences(learning):
    points = select(learning["curves"], curve="mine", category="", metric="accuracy")
    assert [point["step"] for point in points] == STEPS
    assert [point["value"] for point in points] == pytest.approx([0.5, 0.5, 0.6, 0.75, 0.9, 0.88])
    assert points[0].get("previous_difference") is None
    rise = points[4]
    assert rise["previous_difference"] == pytest.approx(0.15)
    # items are learned in one order: the paired interval is narrower than that of the level
    assert rise["previous_difference_high"] - rise["previous_difference_low"] < rise["ci_high"] - rise["ci_low"] + 0.02
    assert points[1]["previous_difference"] == 0
    assert points[1]["previous_p_value"] == 1
    assert (points[4].get("best_difference"), points[5]["best_difference"]) == (None, pytest.approx(-0.02))
    assert points[5].get("last_difference") is None
    p_values = [point["last_p_value"] for point in points[:-1]]
    assert points[0]["last_p_holm"] == pytest.approx(min(1, 5 * min(p_values)))


def test_means_of_several_samples_are_tested_by_their_sizes():
    values = np.column_stack([np.full(N, 0.2), np.full(N, 0.6)])  # shares of five samples that are correct
    accuracy = next(each for each in PROTOCOL_METRICS["minimal_pair"].METRICS if each.proportion)
    found = Samples(accuracy, ["a", "b"], values, np.arange(N), {}, 300).differences([("a", "b")])
    assert (found.value[0], found.p[0]) == (pytest.approx(0.4), pytest.approx(1 / 301))


def test_categories_are_curves_of_their_own(learning):
    points = select(learning["curves"], curve="mine", category="a", metric="accuracy")
    expected = [array[: N // 2].mean() for array in answers([0.5, 0.5, 0.6, 0.75, 0.9, 0.88])]
    assert [point["value"] for point in points] == pytest.approx(expected)
    assert points[0]["n"] == N // 2
    assert select(learning["curve_statistics"], curve="mine", category="b")


def test_statistics_of_a_curve(learning):
    (row,) = select(learning["curve_statistics"], curve="mine", category="")
    values = np.array([0.5, 0.5, 0.6, 0.75, 0.9, 0.88])
    assert (row["last"], row["last_x"], row["best"], row["best_x"]) == (0.88, 16000, 0.9, 8000)
    assert row["forgetting"] == pytest.approx(0.02)
    assert row["best_optimism"] == pytest.approx(0)  # nested items: the best checkpoint is the best in each resample
    assert row["monotonicity"] == pytest.approx(float(statistics.spearman(np.array(STEPS), values)))
    assert row["noise"] == pytest.approx(values[1:].std())
    assert row["above_chance_since"] == 2000
    assert row["as_good_as_last_since"] == 8000
    assert (row["learned_50"], row["learned_90"], row["learned_90_stay"]) == (4000, 8000, 8000)
    target = 0.5 + 0.9 * 0.38
    assert row["learned_90_interpolated"] == pytest.approx(4000 * 2 ** ((target - 0.75) / 0.15))
    assert row["learned_90_interpolated_low"] < row["learned_90_interpolated"] < row["learned_90_interpolated_high"]
    slope = np.polyfit(STEPS[-3:], values[-3:], 1)[0] * 1000
    assert row["slope"] == pytest.approx(slope)
    assert (row["rises"], row["falls"], row["n_missing"], row["note"]) == (3, 1, 0, None)


def test_trust_in_a_task_over_two_curves(learning):
    (row,) = learning["task_trust"]
    assert (row["n_curves"], row["n_common"], row["axis"]) == (2, 6, "step")
    assert (row["n_above_chance"], row["n_improved"]) == (2, 2)
    assert row["signal"] == pytest.approx((0.88 - 0.70) / 0.79)
    noise = [np.std([0.5, 0.6, 0.75, 0.9, 0.88]) / 0.726, np.std([0.52, 0.55, 0.6, 0.68, 0.7]) / 0.61]
    assert row["noise"] == pytest.approx(np.mean(noise))  # within runs
    assert row["signal_to_noise"] == pytest.approx(row["signal"] / row["noise"])
    assert row["residual_noise"] < row["noise"] / 2
    assert row["signal_to_residual_noise"] == pytest.approx(row["signal"] / row["residual_noise"])
    assert row["signal_to_noise_low"] < row["signal_to_noise"] < row["signal_to_noise_high"]
    # tie at step 0 (half), wrong at 1000, right at 2000, 4000 and 8000
    assert row["decision_accuracy"] == pytest.approx(3.5 / 5)
    assert row["rank_consistency"] == pytest.approx((0 - 1 + 1 + 1 + 1) / 5)


def test_phases_of_one_series_are_not_different_models():
    run = Run({"mine": [0.5, 0.5, 0.6, 0.75, 0.9, 0.88], "other": [0.5, 0.52, 0.55, 0.6, 0.68, 0.7]})
    for model, checkpoint in run.checkpoints.items():
        checkpoint["series"], checkpoint["curve"] = "mine", f"mine/{model.partition('.')[0]}"
    (row,) = run.compute()["task_trust"]
    assert row["n_curves"] == 2
    assert row.get("signal") is row.get("decision_accuracy") is None
    assert row["noise"] is not None


def test_area_between_curves_and_its_points(learning):
    (pair,) = select(learning["curve_pairs"], category="")
    difference = np.array([0, 0.02, -0.05, -0.15, -0.22, -0.18])
    assert pair["area"] == pytest.approx(np.trapezoid(difference, STEPS) / 16000)
    assert (pair["baseline"], pair["candidate"], pair["better"]) == ("mine", "other", "mine")
    assert pair["area_low"] < pair["area"] < pair["area_high"] < 0
    assert (pair["p_holm"], pair["n_tests"]) == (pair["p_value"], 1)
    points = select(learning["curve_pair_points"], category="")
    assert [point["x"] for point in points] == STEPS
    assert [point["difference"] for point in points] == pytest.approx(difference)


def test_missing_checkpoint_is_a_gap_with_its_reason():
    tables = Run({"mine": [0.5, None, 0.6, 0.75, 0.9, 0.88]}).compute()
    points = select(tables["curves"], category="")
    assert (points[1]["value"], points[1]["note"]) == (None, "no file")
    assert points[2]["previous_difference"] == pytest.approx(0.1)  # to the last checkpoint that has a value
    (row,) = select(tables["curve_statistics"], category="")
    assert (row["n_checkpoints"], row["n_missing"]) == (5, 1)


def test_null_statistics_state_their_reason():
    below = Run({"mine": [0.5, 0.48, 0.5, 0.47, 0.49, 0.5]}).compute()
    (row,) = select(below["curve_statistics"], category="")
    assert row.get("learned_90") is row.get("above_chance_since") is None
    assert "not above chance" in row["note"]
    constant = Run({"mine": [0.5] * 6}).compute()
    (row,) = select(constant["curve_statistics"], category="")
    assert (row["monotonicity"], row["noise"]) == (None, 0)
    assert "all values are equal" in row["note"]
    (row,) = constant["task_trust"]
    assert (row.get("signal_to_noise"), row["verdict"]) == (None, "uncertain")
    short = Run({"mine": [0.5, 0.9]}, steps=[1, 2]).compute()
    (row,) = select(short["curve_statistics"], category="")
    assert (row["note"], row["last"], row.get("monotonicity")) == ("fewer than three checkpoints", 0.9, None)
    assert short["task_trust"][0]["verdict"] == "not judged"


def test_curves_with_other_steps_are_compared_at_equal_tokens():
    def checkpoint(series, step, tokens):
        return {"series": series, "curve": series, "name": "", "step": step, "tokens": tokens, "words": None}

    checkpoints = {f"a{i}": checkpoint("a", 10 * i, 40 * i) for i in (1, 2, 4)}
    checkpoints |= {f"b{i}": checkpoint("b", 20 * i, 40 * i) for i in (2, 4, 8)}
    curves = curves_of(checkpoints)
    assert common_axis(curves) == ("tokens", [80, 160], [["a2", "a4"], ["b2", "b4"]])
    for entry in checkpoints.values():
        entry["tokens"] = None
    assert common_axis(curves_of(checkpoints))[:2] == ("step", [40]) or common_axis(curves_of(checkpoints))[0] is None


BASE = {"n_curves": 2, "n_above_chance": 2, "n_improved": 2, "monotonicity": 0.9, "monotonicity_low": 0.6}
BASE |= {"monotonicity_high": 1.0, "n_checkpoints": 5, "n_items": 100}
NO_GAIN = {"n_improved": 0, "monotonicity": 0.1, "monotonicity_low": -0.1, "monotonicity_high": 0.3}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "useful"),
        ({"n_above_chance": None}, "useful"),  # a metric without a chance level
        (NO_GAIN, "noise"),
        (NO_GAIN | {"n_above_chance": 0}, "noise"),
        (NO_GAIN | {"n_curves": 1}, "uncertain"),
        (NO_GAIN | {"n_checkpoints": 4}, "not judged"),
        (NO_GAIN | {"n_items": 99}, "not judged"),
        (NO_GAIN | {"monotonicity_high": 0.6}, "uncertain"),  # cannot be shown, which is no finding
        ({"n_above_chance": 0}, "uncertain"),
        ({"n_improved": 0, "monotonicity": None, "monotonicity_high": None}, "uncertain"),
        ({"n_improved": 0, "monotonicity_low": -0.1}, "uncertain"),
        ({"n_improved": 0}, "uncertain"),
        ({"monotonicity": 0.3}, "uncertain"),
        ({"signal_to_noise": 0.5}, "uncertain"),
        ({"signal_to_noise": 0.5, "n_curves": 1}, "useful"),
        ({"signal_to_noise": 0.5, "signal_to_residual_noise": 5}, "useful"),  # the rest of the noise is learning
    ],
)
def test_verdicts(changes, verdict):
    assert judge(BASE | changes)[0] == verdict


def test_sentence_names_tasks_by_the_best_verdict_of_their_metrics():
    rows = [{"evaluation": name, "verdict": verdict} for name, verdict in
            (("a", "useful"), ("a", "noise"), ("b", "noise"), ("c", "uncertain"))]  # fmt: skip
    assert sentence(rows, "135M parameters") == (
        "For models of this size (135M parameters): look at a; be careful with c; ignore as noise b."
    )
    assert sentence([{"evaluation": "d", "verdict": "not judged"}]) == (
        "For models of this size: no verdict (fewer than 5 checkpoints or 100 items) on d."
    )
    assert sentence([]) == ""


def test_prompts_of_one_evaluation_are_one_task():
    setting = {"task": "quiz", "language": "gl", "protocol": "letters", "shots": 0, "seed": 0, "style": "default"}
    verdicts = {"default": "noise", "formal": "useful", "short": "useful"}
    rows = [
        setting
        | {"evaluation": f"quiz.gl.letters.0shot{'' if name == 'default' else f'.{name}'}", "prompt": name}
        | {"verdict": verdict}
        for name, verdict in verdicts.items()
    ]
    assert sentence(rows) == "For models of this size: look at quiz.gl.letters.0shot (3 prompts)."
    assert "ignore as noise" in sentence(rows[:2])  # as many prompts: the more careful verdict


def test_sentence_counts_tasks_after_the_third():
    rows = [{"evaluation": f"t{number}", "verdict": "noise"} for number in range(5)]
    assert sentence(rows) == "For models of this size: ignore as noise t0, t1, t2 and 2 more."
