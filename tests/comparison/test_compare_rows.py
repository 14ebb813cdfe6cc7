"""Complete rows of a comparison, and its notes on excluded items and missing intervals."""

import dataclasses
import math

import pytest
from support import observed
from support.result_rows import EVALUATION, compare, row, rows
from vernacular.comparison.align import align
from vernacular.comparison.pairwise import (
    BOOTSTRAP,
    MCNEMAR,
    PERMUTATION,
    PERMUTATION_CLUSTERED,
    SIGN_FLIP_CLUSTERED,
    _limit_resamples,
    compare_sides,
)
from vernacular.comparison.schema import COMPARISONS
from vernacular.metrics.metric import Metric
from vernacular.protocols.options import metrics as options
from vernacular.statistics.intervals import resample_statistic

ACCURACY = Metric("accuracy", "share", True, "similarity", proportion=True, headline=True)
SURPRISAL = Metric("surprisal", "nats", False, "surprisal")
TOTAL = Metric("total", "nats", None, "surprisal", headline=True, corpus=lambda a: a.sum(-1), needs=("surprisal",))


def compare_rows(baseline, candidate, metrics=(ACCURACY,), **kwargs):
    return compare(baseline, candidate, list(metrics), EVALUATION, **{"resamples": 200, **kwargs})


def test_comparison_row():
    baseline = [row("a", 1, category="k"), row("b", 0, category="k"), row("c", 0, category="l"), row("d", 1), row("e")]
    candidate = [
        row("a", 1, category="k"),
        row("b", 1, category="k"),
        row("c", 1, category="l"),
        row("f", 0),
        row("e", 1),
    ]
    records = compare_rows(baseline, candidate, names=("old", "new"))
    assert [record["category"] for record in records] == ["", "k", "l"]
    expected = dict.fromkeys(COMPARISONS.schema.names) | EVALUATION | {
        "baseline": "old", "candidate": "new", "category": "", "metric": "accuracy", "unit": "share",
        "higher_is_better": True, "headline": True, "n": 3, "n_baseline": 4, "n_candidate": 5,
        "baseline_value": 1 / 3, "candidate_value": 1.0, "difference": pytest.approx(2 / 3),
        "test": MCNEMAR, "p_value": 0.25, "p_holm": 0.25, "n_tests": 1, "significant": False, "better": None,
        "both_correct": 1, "both_incorrect": 0, "baseline_only_correct": 0, "candidate_only_correct": 2, "net_gain": 2,
        "note": "1 item with a value for the baseline only; 2 items with a value for the candidate only",
    }  # fmt: skip
    intervals = {name: records[0].pop(name) for name in ("ci_low", "ci_high", "minimum_detectable_difference")}
    assert records[0] == {name: value for name, value in expected.items() if name not in intervals}
    # difference 2/3 with a standard error of 1/3, t of 2 degrees at 97.5 % and 80 %
    assert intervals["minimum_detectable_difference"] == pytest.approx((4.302653 + 1.060660) / 3, rel=1e-5)
    assert intervals["ci_low"] < 2 / 3 < intervals["ci_high"]
    category_k, category_l = records[1:]
    assert (category_k["n"], category_k["n_baseline"], category_k["n_candidate"], category_k["note"]) == (2, 2, 2, None)
    assert (category_k["p_holm"], category_k["n_tests"], category_k["net_gain"]) == (None, None, 1)
    assert (category_l["n"], category_l["difference"], category_l["p_value"], category_l["test"]) == (
        1,
        1.0,
        None,
        MCNEMAR,
    )
    assert category_l["note"] == "one cluster of items: no interval and no test"


THREE = rows([1, 0, 1])
DIFFERENT_TEXTS = "excluded: different prompt, options or correct answer"
NO_TEST = "one cluster of items: no interval and no test"
NO_DIFFERENCE = "no item differs: no interval"


@pytest.mark.parametrize(
    ("candidate", "n", "note"),
    [
        (THREE, 3, NO_DIFFERENCE),
        (THREE[::-1], 3, NO_DIFFERENCE),
        (THREE[:2], 2, f"1 item with a value for the baseline only; {NO_DIFFERENCE}"),
        (THREE[:1], 1, f"2 items with a value for the baseline only; {NO_TEST}"),
        ([], 0, "3 items with a value for the baseline only"),
        ([row("x", 1), row("y", 0)], 0, "3 items with a value for the baseline only; 2 items with a value for the candidate only"),
        ([row(item_row["item_id"], 1, prompt="?") for item_row in THREE], 0, f"3 items {DIFFERENT_TEXTS}"),
        ([row("i00", 1, choices=("yes", "nο")), *THREE[1:]], 2, f"1 item {DIFFERENT_TEXTS}; {NO_DIFFERENCE}"),  # a Greek o
        ([row("i00", 1, choices=("no", "yes")), *THREE[1:]], 2, f"1 item {DIFFERENT_TEXTS}; {NO_DIFFERENCE}"),
        ([row("i00", gold=(), accuracy=1.0), *THREE[1:]], 2, f"1 item {DIFFERENT_TEXTS}; {NO_DIFFERENCE}"),
        ([row("i00"), row("i01", accuracy=math.nan), THREE[2]], 1, f"2 items with a value for the baseline only; {NO_TEST}"),
        ([item_row | {"item_id": item_row["item_id"] + "\u0301"} for item_row in THREE], 0, "3 items with a value for the baseline only; 3 items with a value for the candidate only"),
    ],
)  # fmt: skip
def test_excluded_items_are_counted_in_the_note(candidate, n, note):
    (record,) = compare_rows(THREE, candidate)
    assert (record["baseline"], record["candidate"], record["n"], record["note"]) == ("baseline", "candidate", n, note)
    # every item with a value is compared, excluded or on one side only
    for side, rows_of_side in (("n_baseline", THREE), ("n_candidate", candidate)):
        assert record[side] == sum(
            not math.isnan(dict(item_row["metrics"]).get("accuracy", math.nan)) for item_row in rows_of_side
        )
    (reverse,) = compare_rows(candidate, THREE)
    reversed_note = note.replace("baseline", "x").replace("candidate", "baseline").replace("x only", "candidate only")
    assert sorted(reverse["note"].split("; ")) == sorted(reversed_note.split("; "))


def test_items_that_differ_by_rounding_do_not_differ():
    values = [0.5 + k / 40 for k in range(12)]
    sides = [[row(f"i{k}", surprisal=value * factor) for k, value in enumerate(values)] for factor in (1, 1 + 3e-8)]
    (record,) = compare_rows(*sides, [SURPRISAL])
    assert (record["difference"], record["p_value"], record["ci_low"], record["note"]) == (0, 1, None, NO_DIFFERENCE)
    sides[1][0] = row("i0", surprisal=values[0] + 0.3)
    (record,) = compare_rows(*sides, [SURPRISAL])
    assert record["difference"] == pytest.approx(0.3 / 12, rel=1e-12)
    assert record["p_value"] == 1, "one item of twelve, in either direction"


@pytest.mark.parametrize(
    ("baseline", "candidate", "note"),
    [
        ([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], "all items differ by the same amount: no interval"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], NO_DIFFERENCE),
        ([1.0], [3.0], NO_TEST),
        ([1.0, math.inf, 3.0], [1.0, 2.0, 4.0], "infinite value of an item, or undefined in more than a fifth of the resamples: no interval and no test"),
        ([1.0, math.inf], [1.0, 2.0], "infinite value of an item, or undefined in more than a fifth of the resamples: no interval and no test"),
        ([1.0, 5.0, 3.0], [1.0, 2.0, 4.0], None),
        ([0.001, 0.005, 0.003], [0.001, 0.002, 0.004], None),
    ],
)  # fmt: skip
def test_note_gives_the_reason_for_a_missing_interval(baseline, candidate, note):
    sides = [[row(f"i{k}", surprisal=value) for k, value in enumerate(side)] for side in (baseline, candidate)]
    for metric in (SURPRISAL, TOTAL):
        (record,) = compare_rows(*sides, [metric])
        assert record["note"] == note
        assert (record["ci_low"] is None) == (record["ci_high"] is None) == (note is not None)
        if note is None or "infinite" not in note:
            aggregate = sum if metric is TOTAL else lambda values: sum(values) / len(values)
            assert record["baseline_value"] == pytest.approx(aggregate(baseline))
            assert record["candidate_value"] == pytest.approx(aggregate(candidate))
            assert record["difference"] == pytest.approx(aggregate(candidate) - aggregate(baseline))
        if note is None:
            # t of 2 degrees: 97.5 % + 80 % quantiles of standard errors; the interval of a corpus statistic uses 97.5 %
            half_width = record["minimum_detectable_difference"] * 4.302653 / (4.302653 + 1.060660)
            if metric is TOTAL:
                assert record["ci_high"] - record["difference"] == pytest.approx(half_width, rel=1e-5)
    assert record["both_correct"] is None


def test_test_by_type_of_metric_and_clustering():
    def side(shift, clusters):
        labels = [None] * 4 if clusters is None else clusters
        return [row(f"i{k}", k % 2 == shift, surprisal=float(k * shift), cluster=labels[k]) for k in range(4)]

    metrics = (ACCURACY, SURPRISAL, TOTAL)
    unclustered, clustered = (
        [record["test"] for record in compare_rows(side(0, c), side(1, c), metrics)]
        for c in (None, ["a", "a", "b", "b"])
    )
    assert unclustered == [MCNEMAR, PERMUTATION, BOOTSTRAP]
    assert clustered == [SIGN_FLIP_CLUSTERED, PERMUTATION_CLUSTERED, BOOTSTRAP]


def test_metrics_of_one_side_only_have_no_row():
    baseline = [row("a", 1, surprisal=1.0), row("b", 0, surprisal=2.0)]
    assert [record["metric"] for record in compare_rows(baseline, rows([1, 0]), (ACCURACY, SURPRISAL))] == ["accuracy"]
    records = compare_rows([row("a", surprisal=1.0)], [row("a", 1)], (ACCURACY, SURPRISAL, TOTAL))
    assert [(record["metric"], record["n"], record["difference"], record["test"]) for record in records] == [
        ("accuracy", 0, None, None), ("total", 0, None, None)
    ]  # fmt: skip


def test_pairs_are_compared_over_their_shared_items():
    tables = {
        "a": rows([1, 1, 1]),
        "b": rows([0, 1, 0]),
        "c": [*rows([1, 0]), row("i02", 1, prompt="?")],
        "d": rows([1]),
    }
    items, sides = align(tables)
    pairs = [("a", "b"), ("a", "c"), ("b", "d"), ("d", "a")]
    records = compare_sides(items, sides, pairs, [ACCURACY], EVALUATION, resamples=100)
    by_pair = {(record["baseline"], record["candidate"]): (record["n"], record["net_gain"]) for record in records}
    assert by_pair == {("a", "b"): (3, -2), ("a", "c"): (2, -1), ("b", "d"): (1, 1), ("d", "a"): (1, 0)}


def test_categories_can_be_disabled():
    baseline = [row(f"i{k}", k % 2, category="ab"[k % 2]) for k in range(4)]
    assert {record["category"] for record in compare_rows(baseline, baseline, options.METRICS)} == {"", "a", "b"}
    assert {record["category"] for record in compare_rows(baseline, baseline, options.METRICS, categories=False)} == {
        ""
    }


@pytest.mark.parametrize(
    ("resamples", "n", "expected"),
    [(10_000, 0, 10_000), (10_000, 5_000, 10_000), (10_000, 7_000, 7_142), (10_000, 10**9, 1_000), (300, 10**9, 300)],
)
def test_limit_resamples(resamples, n, expected):
    assert _limit_resamples(resamples, n) == expected


def test_values_of_different_items_are_not_compared():
    baseline = [row("a", 1, surprisal=1.0), row("b", 0), row("c", 0, surprisal=4.0)]
    candidate = [row("a", 1), row("b", 1, surprisal=5.0), row("c", 1, surprisal=6.0)]
    records = compare_rows(baseline[:2], candidate[:2], (SURPRISAL, TOTAL, ACCURACY))
    assert [(record["metric"], record["n"], record["difference"]) for record in records] == [
        ("surprisal", 0, None), ("total", 0, None), ("accuracy", 2, 0.5),
    ]  # fmt: skip
    records = compare_rows(baseline, candidate, (SURPRISAL, TOTAL, ACCURACY))
    names = ("metric", "n", "baseline_value", "difference")
    assert [tuple(record[name] for name in names) for record in records[:2]] == [
        ("surprisal", 1, 4.0, 2.0), ("total", 1, 4.0, 2.0),
    ]  # fmt: skip


def test_number_of_resamples_of_corpus_statistics():
    side = [row(f"i{k}", surprisal=float(k)) for k in range(3)]
    secondary = dataclasses.replace(TOTAL, name="hidden", headline=False)
    with observed.calls(resample_statistic, lambda arguments: arguments["resamples"]) as resample_counts:
        for resamples in (100, 300, 2_000):
            compare_rows(side, side, (TOTAL, secondary), resamples=resamples)
    assert resample_counts == [100, 100, 100, 100, 300, 300, 250, 250, 1_000, 1_000, 250, 250]


@pytest.mark.parametrize(("n_noisy", "is_stated"), [(0, False), (1, False), (2, True)])
def test_difference_that_float_noise_can_decide_says_so(n_noisy, is_stated):
    """Three items are better and one is worse: a net gain of two."""
    baseline = rows([0, 0, 0, 1, 1, 1])
    candidate = [
        row(f"i{number:02}", correct, within_noise=float(number < n_noisy or number == 5))
        for number, correct in enumerate([1, 1, 1, 0, 1, 1])
    ]
    [record] = compare_rows(baseline, candidate)
    assert ("float noise can decide it: 2 items" in (record["note"] or "")) == is_stated
