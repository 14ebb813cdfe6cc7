import numpy as np
import pytest
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.corpus import difsur_of_pairs, expected_calibration_error, most_common_share
from vernacular.metrics.metric import Metric
from vernacular.protocols.acceptability import metrics as acceptability
from vernacular.protocols.letters import metrics as letters
from vernacular.statistics.intervals import wilson

ACCURACY = Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True)
MEAN = Metric("x", "nats", None, "surprisal")


def row(values, cluster=None, category=None, flag=None, gold=(0,), options=("a", "b")):
    return {
        "item_id": "i",
        "cluster_id": cluster,
        "category": category,
        "choices": list(options),
        "gold": list(gold),
        "metrics": values,
        "tie": None,
        "flags": flag,
    }


def single_row(table):
    (metric_row,) = table
    return metric_row


def test_proportion_of_independent_items_has_wilson_interval():
    result = single_row(aggregate([row({"accuracy": v}) for v in (1, 1, 1, 0)], [ACCURACY], seed=0, categories=False))
    assert (result["value"], result["n"]) == (0.75, 4)
    assert (result["ci_low"], result["ci_high"]) == wilson(3, 4)


def test_clustered_items_have_wider_interval():
    rows = [row({"accuracy": v}, cluster=f"p{i}") for i in range(20) for v in [i % 2] * 5]
    result = single_row(aggregate(rows, [ACCURACY], seed=0, categories=False))
    unclustered = single_row(
        aggregate([row | {"cluster_id": None} for row in rows], [ACCURACY], seed=0, categories=False)
    )
    assert result["ci_high"] - result["ci_low"] > 1.8 * (unclustered["ci_high"] - unclustered["ci_low"])


def test_chance_level_is_mean_share_of_correct_options():
    rows = [
        row({"accuracy": 1}),
        row({"accuracy": 0}, gold=(0, 1), options="abcd"),
        row({"accuracy": 0}, gold=(), options="abcd"),
        row({"accuracy": 0}, gold=(0,), options=""),
    ]
    assert single_row(aggregate(rows, [ACCURACY], seed=0, categories=False))["chance_level"] == 0.5
    rows.append(row({"accuracy": 0}, options="abcd"))
    assert single_row(aggregate(rows, [ACCURACY], seed=0, categories=False))["chance_level"] == pytest.approx(
        (0.5 + 0.5 + 0.25) / 3
    )
    assert single_row(aggregate(rows[2:3], [ACCURACY], seed=0, categories=False))["chance_level"] is None


def test_items_without_value_are_excluded_and_flags_counted():
    rows = [row({"x": 2.0}), row({}, flag="error: not scored"), row({"x": float("nan")}, flag="boundary")]
    result = single_row(aggregate(rows, [MEAN], seed=0, categories=False))
    assert (result["value"], result["n"], result["n_flagged"]) == (2.0, 1, 2)
    assert (result["ci_low"], result["ci_high"]) == (None, None)


def test_failed_evaluation_has_empty_headline_metrics():
    result = single_row(aggregate([row({}, flag="error: x")], [ACCURACY, MEAN], seed=0, categories=False))
    assert (result["metric"], result["value"], result["n"], result["n_flagged"]) == ("accuracy", None, 0, 1)


def test_metric_without_values_is_omitted():
    assert [r["metric"] for r in aggregate([row({"x": 1.0})], [ACCURACY, MEAN], seed=0, categories=False)] == ["x"]


def test_values_over_all_items_and_by_category():
    rows = [row({"x": 1.0}, category="a"), row({"x": 3.0}, category="b"), row({"x": 5.0})]
    table = aggregate(rows, [MEAN], seed=0, categories=True)
    assert [(r["category"], r["value"], r["n"]) for r in table] == [("", 3.0, 3), ("a", 1.0, 1), ("b", 3.0, 1)]


def test_metrics_may_be_lists_of_pairs():
    assert single_row(aggregate([row([("x", 1.5)])], [MEAN], seed=0, categories=False))["value"] == 1.5


def test_ties_are_counted_per_metric():
    accuracy_char = Metric("accuracy_char", "share", True, "surprisal", proportion=True)
    rows = [
        row({"accuracy": 0.0, "tie:accuracy": 1.0, "accuracy_char": 1.0}),
        row({"accuracy": 1.0, "accuracy_char": 1.0}),
        row({"accuracy": 1.0, "tie:accuracy": 1.0, "accuracy_char": 1.0}),
    ]
    assert [r["n_ties"] for r in aggregate(rows, [ACCURACY, accuracy_char], seed=0, categories=False)] == [2, 0]


def test_corpus_metric_excludes_items_with_missing_values():
    metric = Metric("difsur", "percent", True, "surprisal", corpus=difsur_of_pairs, needs=("g", "b"))
    result = single_row(aggregate([row({"g": 8.0, "b": 10.0}), row({"g": 1.0})], [metric], seed=0, categories=False))
    assert (result["value"], result["n"]) == (20.0, 1)


def test_corpus_interval_is_reproducible_and_contains_the_value():
    metric = Metric("difsur", "percent", True, "surprisal", corpus=difsur_of_pairs, needs=("g", "b"))
    rng = np.random.default_rng(0)
    rows = [
        row({"g": float(g), "b": float(g + d)})
        for g, d in zip(rng.uniform(5, 9, 80), rng.normal(1, 1, 80), strict=True)
    ]
    result, repeated = (single_row(aggregate(rows, [metric], seed=3, categories=False)) for _ in range(2))
    assert result == repeated
    assert result["ci_low"] < result["value"] < result["ci_high"]


def test_expected_calibration_error():
    # bin (0.5, 0.6]: confidences 0.6 and 0.55, one of two correct: |1.15 - 1|; bin (0.9, 1]: 0.95, incorrect
    confidence, correct = np.array([0.6, 0.55, 0.95]), np.array([1.0, 0.0, 0.0])
    assert expected_calibration_error(confidence, correct) == pytest.approx((0.15 + 0.95) / 3)
    errors = expected_calibration_error(np.stack([confidence] * 2), np.stack([correct] * 2))
    assert errors.tolist() == pytest.approx([1.1 / 3, 1.1 / 3])


def test_most_common_share_over_resamples():
    assert most_common_share(np.array([[0.0, 0.0, 3.0], [1.0, 2.0, 3.0]])).tolist() == pytest.approx([2 / 3, 1 / 3])
    assert most_common_share(np.array([3.0, 3.0, 0.0])) == pytest.approx(2 / 3)


def test_metric_names_of_letters_are_unique():
    names = [metric.name for metric in letters.METRICS]
    assert len(names) == len(set(names))


def test_chance_level_of_auc_and_mcc_is_independent_of_items():
    metrics = {metric.name: metric for metric in acceptability.METRICS}
    rows = [
        row({"surprisal_char": 1.0, "label": 1.0, "fold": 0.0}),
        row({"surprisal_char": 2.0, "label": 0.0, "fold": 1.0}),
    ]
    table = aggregate(rows, [metrics["auc_char"], metrics["mcc_char"]], seed=0, categories=False)
    assert [(r["metric"], r["chance_level"]) for r in table] == [("auc_char", 0.5), ("mcc_char", 0.0)]


def test_interval_of_several_samples_covers_the_mean_over_items():
    """avg@4 of 100 items that differ: the interval contains the spread of items and of samples."""
    rng = np.random.default_rng(0)
    covered, widths = 0, {1: [], 4: []}
    for _ in range(1000):
        chances = rng.beta(1, 1, 100)
        for n in (1, 4):
            means = rng.binomial(n, chances) / n
            rows = [row({"accuracy": mean, "samples": float(n)}) for mean in means]
            result = single_row(aggregate(rows, [ACCURACY], seed=0, categories=False))
            widths[n].append(result["ci_high"] - result["ci_low"])
        covered += result["ci_low"] <= 0.5 <= result["ci_high"]
    assert 0.93 <= covered / 1000 <= 0.97
    assert np.mean(widths[4]) < 0.85 * np.mean(widths[1])


def test_interval_of_samples_is_that_of_clusters_of_samples():
    means = [0.25, 0.5, 1.0, 0.75]
    from_means = single_row(
        aggregate([row({"accuracy": m, "samples": 4.0}) for m in means], [ACCURACY], seed=0, categories=False)
    )
    samples = [row({"accuracy": float(k < 4 * m)}, cluster=str(i)) for i, m in enumerate(means) for k in range(4)]
    from_samples = single_row(aggregate(samples, [ACCURACY], seed=0, categories=False))
    assert (from_means["ci_low"], from_means["ci_high"]) == (from_samples["ci_low"], from_samples["ci_high"])
    assert (from_means["n"], from_samples["n"]) == (4, 16)
