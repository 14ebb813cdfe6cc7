"""Which metric decides: simulated series, halves of the curves, and what is not applicable."""

import numpy as np
import pytest
from vernacular.comparison.curves.curve import curves_of
from vernacular.comparison.curves.deciding import MIN_CHECKPOINTS, deciding_rows, decisions

METRICS = {"accuracy": ("share", True, True), "answer_bits_per_byte": ("bits", False, False)}
STEPS = [2**k for k in range(12)]


def rows_of(tables: dict[str, np.ndarray], steps=STEPS, metrics=METRICS) -> dict[str, dict]:
    """Return the rows by metric; `tables`: values (curves, checkpoints), NaN without one."""
    checkpoints, values = {}, {}
    for curve in range(len(next(iter(tables.values())))):
        for k, step in enumerate(steps):
            model = f"s{curve}.{step}"
            checkpoints[model] = {"series": f"s{curve}", "curve": f"s{curve}", "name": str(step), "step": step}
            checkpoints[model] |= {"tokens": None, "words": None}
            values[model] = {("", ""): {"note": "deleted"}}
            for name, table in tables.items():
                unit, higher, headline = metrics[name]
                row = {"unit": unit, "higher_is_better": higher, "headline": headline, "value": float(table[curve, k])}
                if not np.isnan(row["value"]):
                    values[model]["", name] = row
                    values[model]["a category", name] = row | {"value": 0.5}
    return {row["metric"]: row for row in deciding_rows(curves_of(checkpoints), values, {"evaluation": "e"})}


def simulated(n_curves: int, seed: int = 0, steps=STEPS) -> dict[str, np.ndarray]:
    """Accuracies of noise, and bits whose order is that of the series from the beginning."""
    rng, x = np.random.default_rng(seed), np.log2(steps)
    bits = 2 - 0.1 * x + 0.05 * np.arange(n_curves)[:, None] + rng.normal(0, 0.005, (n_curves, len(steps)))
    return {"accuracy": 0.5 + rng.normal(0, 0.02, (n_curves, len(steps))), "answer_bits_per_byte": bits}


@pytest.mark.parametrize("n_curves", [3, 6])
def test_bits_decide_where_accuracy_is_noise(n_curves):
    rows = rows_of(simulated(n_curves))
    bits, accuracy = rows["answer_bits_per_byte"], rows["accuracy"]
    assert bits["is_chosen"]
    assert not accuracy["is_chosen"]
    assert bits["decision_accuracy"] > 0.95
    assert 0.2 < accuracy["decision_accuracy"] < 0.8
    if n_curves == 6:
        assert bits["held_out_accuracy"] > 0.95
        assert bits["note"] is None
    else:
        assert bits["held_out_accuracy"] is None
        assert bits["note"] == "chosen and judged on the same curves: optimistic"


def test_choosing_is_not_judged_by_its_own_data():
    metrics = {f"m{i}": ("share", True, i == 0) for i in range(12)}
    chosen, judged = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows = rows_of({name: rng.normal(1, 0.1, (6, len(STEPS))) for name in metrics}, metrics=metrics)
        [row] = [row for row in rows.values() if "held_out_accuracy" in row]
        chosen.append(row["decision_accuracy"])
        judged.append(row["held_out_accuracy"])
        assert row["is_chosen"] == (row["held_out_accuracy"] > 0.5) == (row["note"] is None)
    assert np.mean(chosen) > 0.55, "the best of twelve metrics of noise"
    assert np.mean(judged) == pytest.approx(0.5, abs=0.05)


def test_one_metric_is_better_below_a_position():
    n = 4
    order = np.arange(n)[:, None]
    accuracy = np.where(np.arange(12) < 6, 0.5 - 0.01 * order, 0.5 + 0.05 * order)  # reversed, then in order
    bits = 2 - 0.05 * order - 0.01 * np.arange(12) + np.where((np.arange(12) == 8), 0.06 * order, 0)
    rows = rows_of({"accuracy": accuracy, "answer_bits_per_byte": bits})
    assert rows["answer_bits_per_byte"]["is_chosen"]
    assert rows["answer_bits_per_byte"]["better_below"] == STEPS[6]
    assert "better_below" not in rows["accuracy"]


def test_a_metric_that_decides_everywhere_has_no_limit():
    assert "better_below" not in rows_of(simulated(4))["answer_bits_per_byte"]


@pytest.mark.parametrize(
    ("metric", "n_curves", "steps", "note"),
    [
        (("share", None, False), 3, STEPS, "neither direction is better"),
        (("share", True, True), 1, STEPS, "1 series; a decision needs 2"),
        (("share", True, True), 3, STEPS[:1], f"0 checkpoints with a value at the same position in all series; at least {MIN_CHECKPOINTS}"),
        (("share", True, True), 3, STEPS[:4], f"4 checkpoints with a value at the same position in all series; at least {MIN_CHECKPOINTS}"),
    ],
)  # fmt: skip
def test_what_is_not_applicable_has_a_reason(metric, n_curves, steps, note):
    rows = rows_of({"x": simulated(n_curves, steps=steps)["accuracy"]}, steps=steps, metrics={"x": metric})
    assert rows["x"]["note"] == note
    assert not rows["x"]["is_chosen"]
    assert rows["x"].get("decision_accuracy") is None


def test_metrics_per_token_are_not_compared():
    rows = rows_of({"accuracy_token": simulated(3)["accuracy"]}, metrics={"accuracy_token": ("share", True, False)})
    assert rows["accuracy_token"]["note"] == "per token: moves with the tokenizer"


def test_missing_checkpoints_are_left_out():
    tables = simulated(3)
    tables["accuracy"][1, 4] = np.nan
    rows = rows_of(tables)
    assert (rows["accuracy"]["n_common"], rows["answer_bits_per_byte"]["n_common"]) == (11, 12)


def test_ties_count_half():
    assert decisions(np.array([[1, 1, 2], [1, 2, 3.0]])).tolist() == [0.5, 1.0]


@pytest.mark.parametrize("offset", [-2.0, -0.02], ids=["negative", "both signs"])
def test_values_below_0_have_decisions_and_no_relative_signal(offset):
    margins = 0.01 * np.arange(3)[:, None] + 0.001 * np.arange(len(STEPS)) + offset
    row = rows_of({"margin": margins}, metrics={"margin": ("nats", True, True)})["margin"]
    assert (row["signal"], row["noise"], row["signal_to_noise"]) == (None, None, None)
    assert (row["decision_accuracy"], row["is_chosen"]) == (1.0, True)


@pytest.mark.filterwarnings("error")
def test_values_of_0_have_no_warning():
    assert rows_of({"accuracy": np.zeros((3, len(STEPS)))})["accuracy"]["noise"] is None


def test_of_equal_decisions_the_metric_without_noise_is_chosen():
    order = 0.1 * np.arange(1, 4)[:, None]
    noisy = order + np.random.default_rng(0).normal(0, 0.001, (3, len(STEPS)))
    rows = rows_of({"accuracy": noisy, "answer_bits_per_byte": np.repeat(order, len(STEPS), axis=1)})
    assert {row["decision_accuracy"] for row in rows.values()} == {1.0}
    assert [row["metric"] for row in rows.values() if row["is_chosen"]] == ["answer_bits_per_byte"]
