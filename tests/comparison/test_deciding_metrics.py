"""Which metric decides: simulated series, halves of the curves, and what is not applicable."""

from dataclasses import replace

import numpy as np
import pytest
from vernacular.comparison.align import Items, Side
from vernacular.comparison.curves.curve import curves_of
from vernacular.comparison.curves.deciding import (
    MIN_CHECKPOINTS,
    deciding_among_models,
    deciding_rows,
    deciding_sentence,
    decisions,
)
from vernacular.protocols.evaluate import metrics_in

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
        assert bits["note"] == "chosen and judged on the same series: optimistic"


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
    for axis, unit in (("step", "steps"), ("tokens", "tokens"), ("words", "words")):
        row = rows["answer_bits_per_byte"] | {"axis": axis}
        assert f", below {STEPS[6]} {unit} (" in deciding_sentence([row])


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


@pytest.mark.parametrize("name", ["accuracy_token", "token_perplexity", "pseudo_token_perplexity"])
def test_metrics_per_token_are_not_compared(name):
    rows = rows_of({name: simulated(3)["accuracy"]}, metrics={name: ("share", True, False)})
    assert rows[name]["note"] == "per token: moves with the tokenizer"


def test_missing_checkpoints_are_left_out():
    tables = simulated(3)
    tables["accuracy"][1, 4] = np.nan
    rows = rows_of(tables)
    assert (rows["accuracy"]["n_common"], rows["answer_bits_per_byte"]["n_common"]) == (11, 12)


def test_ties_count_half():
    assert decisions(np.array([[1, 1], [1, 2.0]]), np.array([[2], [3.0]])).tolist() == [0.5, 1.0]


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


def among_models(
    n_models: int, n_items: int = 400, metrics=("accuracy", "answer_bits_per_byte"), clusters=None, seed=0
):
    """Rows by metric of models without checkpoints: an accuracy of noise, and bits whose order is that of the models."""
    rng = np.random.default_rng(seed)
    declared = {metric.name: metric for metric in metrics_in("options", "gl")}
    sides, bits = {}, declared["answer_bits_per_byte"]
    for model in range(n_models):
        values = {"accuracy": (rng.random(n_items) < 0.5).astype(float)}
        values |= {"accuracy_token": values["accuracy"], "tie:accuracy": values["accuracy"]}
        values[bits.inputs[0]] = 60 + 2.0 * model + rng.normal(0, 2, n_items)
        values[bits.inputs[1]] = np.full(n_items, 30.0)
        sides[f"m{model}"] = Side(np.arange(n_items), np.zeros(n_items, int), values)
    ids = [f"i{number:04}" for number in range(n_items)]
    items = Items(ids, np.full(n_items, None), np.full(n_items, None), np.full(n_items, 0.25))
    chosen = [declared[name] for name in metrics]
    return {row["metric"]: row for row in deciding_among_models(items, sides, chosen, {"evaluation": "e"})}


@pytest.mark.parametrize("n_models", [3, 6])
def test_bits_decide_between_models_without_checkpoints(n_models):
    rows = among_models(n_models)
    bits, accuracy = rows["answer_bits_per_byte"], rows["accuracy"]
    assert (bits["is_chosen"], accuracy["is_chosen"]) == (True, False)
    assert (bits["axis"], bits["n_curves"], bits["n_common"]) == ("item", n_models, 400)
    assert bits["decision_accuracy"] > 0.95
    assert accuracy["decision_accuracy"] < 0.9
    assert bits["signal_to_noise"] > 10 > accuracy["signal_to_noise"]
    # the standard error of a mean of 400 items, over it
    assert accuracy["noise"] == pytest.approx(0.025 / 0.5, rel=0.3)
    if n_models == 6:
        assert bits["held_out_accuracy"] > 0.95
        assert bits["note"] is None
    else:
        assert bits["note"] == "chosen and judged on the same models: optimistic"
    assert "better_below" not in bits


def test_accuracies_of_equal_models_decide_nothing():
    held_out = []
    for seed in range(6):
        row = among_models(6, metrics=["accuracy"], seed=seed)["accuracy"]
        held_out.append(row["held_out_accuracy"])
        assert row["is_chosen"] == (row["held_out_accuracy"] > 0.5 and row["decision_accuracy"] > 0.5)
    assert np.mean(held_out) == pytest.approx(0.5, abs=0.1)


def test_items_of_a_cluster_are_in_one_half():
    """Values of clusters of 20 equal items have the noise of 20 values, not of 400."""
    rng, n_clusters = np.random.default_rng(0), 20
    clusters = np.repeat([f"c{number}" for number in range(n_clusters)], 20).astype(object)
    of_models = {f"m{model}": (rng.random(n_clusters) < 0.5).astype(float).repeat(20) for model in range(3)}
    sides = {name: Side(np.arange(400), np.zeros(400, int), {"accuracy": each}) for name, each in of_models.items()}
    items = Items([f"i{i:03}" for i in range(400)], clusters, np.full(400, None), np.full(400, 0.25))
    [metric] = [metric for metric in metrics_in("options", "gl") if metric.name == "accuracy"]
    [row] = deciding_among_models(items, sides, [metric], {"evaluation": "e"})
    assert row["noise"] == pytest.approx((0.25 / 20) ** 0.5 / 0.5, rel=0.35)
    items = replace(items, clusters=np.full(400, "one", dtype=object))
    [row] = deciding_among_models(items, sides, [metric], {"evaluation": "e"})
    assert row["note"] == "400 items in 1 cluster with a value of all models; at least 100 in 20"


def test_metric_without_a_finite_value_of_a_model_decides_nothing():
    """A text that a model holds for impossible has infinitely many bits; another metric decides all the same."""
    rng, sides = np.random.default_rng(0), {}
    for model in range(4):
        values = {"accuracy": (rng.random(400) < 0.2 + 0.2 * model).astype(float)}
        values["answer_bits"] = np.where(np.arange(400) == model, np.inf, 30.0)
        sides[f"m{model}"] = Side(np.arange(400), np.zeros(400, int), values)
    items = Items([f"i{i:03}" for i in range(400)], *(np.full(400, each) for each in (None, None, 0.25)))
    metric = next(metric for metric in metrics_in("options", "gl") if metric.name == "accuracy")
    bits = replace(metric, name="answer_bits", unit="bits", higher_is_better=False, headline=False)
    found = deciding_among_models(items, sides, [bits, metric], {"evaluation": "e"})
    assert [row["is_chosen"] for row in found] == [False, True]
    assert found[0]["note"] == "undefined or infinite on half of the items for a model"
    assert "decision_accuracy" not in found[0]
    tables = simulated(3)
    tables["accuracy"][0, -1] = -np.inf
    assert rows_of(tables)["accuracy"]["n_common"] == len(STEPS) - 1


def test_many_models_are_halved_at_random():
    row = among_models(40, metrics=["answer_bits_per_byte"])["answer_bits_per_byte"]
    assert row["is_chosen"]
    assert row["held_out_accuracy"] > 0.95


def test_what_is_not_applicable_among_models():
    assert among_models(1) == {}
    note = among_models(3, 99)["accuracy"]["note"]
    assert note == "99 items in 99 clusters with a value of all models; at least 100 in 20"
    found = among_models(3, metrics=["accuracy", "accuracy_token"])
    assert found["accuracy_token"]["note"] == "per token: moves with the tokenizer"
