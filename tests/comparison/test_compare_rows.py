"""Whole rows of a comparison by hand, and what a reader is told of items that are not compared."""

import dataclasses
import math

import pytest
from support.result_rows import FACTS, compare, row, rows
from vernacular.comparison import pairwise as compare_module
from vernacular.comparison.align import align
from vernacular.comparison.pairwise import (
    BOOTSTRAP,
    CLUSTERED,
    MCNEMAR,
    PERMUTED,
    PERMUTED_CLUSTERS,
    _affordable,
    compare_sides,
)
from vernacular.comparison.schema import COMPARISONS
from vernacular.metrics.metric import Metric
from vernacular.protocols.options import metrics as options

ACCURACY = Metric("accuracy", "share", True, "similarity", proportion=True, headline=True)
SURPRISAL = Metric("surprisal", "nats", False, "surprisal")
TOTAL = Metric(
    "total", "nats", None, "surprisal", headline=True, corpus=lambda a: a.sum(-1), needs=("surprisal",), vectorised=True
)


def compared(was, now, metrics=(ACCURACY,), **given):
    return compare(was, now, list(metrics), FACTS, **{"resamples": 200, **given})


def test_a_row_to_the_letter():
    was = [row("a", 1, category="k"), row("b", 0, category="k"), row("c", 0, category="l"), row("d", 1), row("e")]
    now = [row("a", 1, category="k"), row("b", 1, category="k"), row("c", 1, category="l"), row("f", 0), row("e", 1)]
    found = compared(was, now, names=("old", "new"))
    assert [each["category"] for each in found] == ["", "k", "l"]
    expected = dict.fromkeys(COMPARISONS.schema.names) | FACTS | {
        "baseline": "old", "candidate": "new", "category": "", "metric": "accuracy", "unit": "share",
        "higher_is_better": True, "headline": True, "n": 3, "n_baseline": 4, "n_candidate": 5,
        "baseline_value": 1 / 3, "candidate_value": 1.0, "difference": pytest.approx(2 / 3),
        "test": MCNEMAR, "p_value": 0.25, "p_holm": 0.25, "n_tests": 1, "significant": False, "better": None,
        "both_correct": 1, "both_incorrect": 0, "baseline_only_correct": 0, "candidate_only_correct": 2, "net_gain": 2,
        "note": "1 item with a value for the baseline only; 2 items with a value for the candidate only",
    }  # fmt: skip
    figures = {name: found[0].pop(name) for name in ("ci_low", "ci_high", "minimum_detectable_difference")}
    assert found[0] == {name: value for name, value in expected.items() if name not in figures}
    # difference 2/3 with a standard error of 1/3, t of 2 degrees at 97.5 % and 80 %
    assert figures["minimum_detectable_difference"] == pytest.approx((4.302653 + 1.060660) / 3, rel=1e-5)
    assert figures["ci_low"] < 2 / 3 < figures["ci_high"]
    of_k, of_l = found[1:]
    assert (of_k["n"], of_k["n_baseline"], of_k["n_candidate"], of_k["note"]) == (2, 2, 2, None)
    assert (of_k["p_holm"], of_k["n_tests"], of_k["net_gain"]) == (None, None, 1)
    assert (of_l["n"], of_l["difference"], of_l["p_value"], of_l["test"]) == (1, 1.0, None, MCNEMAR)
    assert of_l["note"] == "one cluster of items: no interval and no test"


THREE = rows([1, 0, 1])
OTHER = "excluded: different prompt, options or correct answer"
NO_TEST = "one cluster of items: no interval and no test"
SAME = "no item differs: no interval"


@pytest.mark.parametrize(
    ("now", "n", "note"),
    [
        (THREE, 3, SAME),
        (THREE[::-1], 3, SAME),
        (THREE[:2], 2, f"1 item with a value for the baseline only; {SAME}"),
        (THREE[:1], 1, f"2 items with a value for the baseline only; {NO_TEST}"),
        ([], 0, "3 items with a value for the baseline only"),
        ([row("x", 1), row("y", 0)], 0, "3 items with a value for the baseline only; 2 items with a value for the candidate only"),
        ([row(each["item_id"], 1, prompt="?") for each in THREE], 0, f"3 items {OTHER}"),
        ([row("i00", 1, choices=("yes", "nο")), *THREE[1:]], 2, f"1 item {OTHER}; {SAME}"),  # a Greek o
        ([row("i00", 1, choices=("no", "yes")), *THREE[1:]], 2, f"1 item {OTHER}; {SAME}"),
        ([row("i00", gold=(), accuracy=1.0), *THREE[1:]], 2, f"1 item {OTHER}; {SAME}"),
        ([row("i00"), row("i01", accuracy=math.nan), THREE[2]], 1, f"2 items with a value for the baseline only; {NO_TEST}"),
        ([each | {"item_id": each["item_id"] + "\u0301"} for each in THREE], 0, "3 items with a value for the baseline only; 3 items with a value for the candidate only"),
    ],
)  # fmt: skip
def test_every_item_is_compared_or_counted(now, n, note):
    (found,) = compared(THREE, now)
    assert (found["baseline"], found["candidate"], found["n"], found["note"]) == ("baseline", "candidate", n, note)
    # every item with a value is compared, left out or on one side
    for side, has in (("n_baseline", THREE), ("n_candidate", now)):
        assert found[side] == sum(not math.isnan(dict(each["metrics"]).get("accuracy", math.nan)) for each in has)
    (back,) = compared(now, THREE)
    turned = note.replace("baseline", "x").replace("candidate", "baseline").replace("x only", "candidate only")
    assert sorted(back["note"].split("; ")) == sorted(turned.split("; "))


@pytest.mark.parametrize(
    ("was", "now", "note"),
    [
        ([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], "all items differ by the same amount: no interval"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], SAME),
        ([1.0], [3.0], NO_TEST),
        ([1.0, math.inf, 3.0], [1.0, 2.0, 4.0], "infinite value of an item, or undefined in a resample: no interval and no test"),
        ([1.0, math.inf], [1.0, 2.0], "infinite value of an item, or undefined in a resample: no interval and no test"),
        ([1.0, 5.0, 3.0], [1.0, 2.0, 4.0], None),
        ([0.001, 0.005, 0.003], [0.001, 0.002, 0.004], None),
    ],
)  # fmt: skip
def test_why_there_is_no_interval_is_said(was, now, note):
    sides = [[row(f"i{k}", surprisal=value) for k, value in enumerate(side)] for side in (was, now)]
    for metric in (SURPRISAL, TOTAL):
        (found,) = compared(*sides, [metric])
        assert found["note"] == note
        assert (found["ci_low"] is None) == (found["ci_high"] is None) == (note is not None)
        if note is None or "infinite" not in note:
            made = sum if metric is TOTAL else lambda values: sum(values) / len(values)
            assert found["baseline_value"] == pytest.approx(made(was))
            assert found["candidate_value"] == pytest.approx(made(now))
            assert found["difference"] == pytest.approx(made(now) - made(was))
        if note is None:
            # t of 2 degrees: (97.5 % + 80 %) standard errors, and 97.5 % of them to the end of a corpus statistic's interval
            halves = found["minimum_detectable_difference"] * 4.302653 / (4.302653 + 1.060660)
            if metric is TOTAL:
                assert found["ci_high"] - found["difference"] == pytest.approx(halves, rel=1e-5)
    assert found["both_correct"] is None


def test_each_kind_of_metric_has_its_test():
    def side(shift, clusters):
        names = [None] * 4 if clusters is None else clusters
        return [row(f"i{k}", k % 2 == shift, surprisal=float(k * shift), cluster=names[k]) for k in range(4)]

    metrics = (ACCURACY, SURPRISAL, TOTAL)
    alone, together = (
        [each["test"] for each in compared(side(0, c), side(1, c), metrics)] for c in (None, ["a", "a", "b", "b"])
    )
    assert alone == [MCNEMAR, PERMUTED, BOOTSTRAP]
    assert together == [CLUSTERED, PERMUTED_CLUSTERS, BOOTSTRAP]


def test_a_metric_that_one_side_lacks_has_no_row_beside_those_that_both_have():
    was = [row("a", 1, surprisal=1.0), row("b", 0, surprisal=2.0)]
    assert [each["metric"] for each in compared(was, rows([1, 0]), (ACCURACY, SURPRISAL))] == ["accuracy"]
    found = compared([row("a", surprisal=1.0)], [row("a", 1)], (ACCURACY, SURPRISAL, TOTAL))
    assert [(each["metric"], each["n"], each["difference"], each["test"]) for each in found] == [
        ("accuracy", 0, None, None), ("total", 0, None, None)
    ]  # fmt: skip


def test_many_pairs_are_each_compared_over_the_items_that_they_share():
    tables = {
        "a": rows([1, 1, 1]),
        "b": rows([0, 1, 0]),
        "c": [*rows([1, 0]), row("i02", 1, prompt="?")],
        "d": rows([1]),
    }
    items, sides = align(tables)
    pairs = [("a", "b"), ("a", "c"), ("b", "d"), ("d", "a")]
    found = compare_sides(items, sides, pairs, [ACCURACY], FACTS, resamples=100)
    by_pair = {(each["baseline"], each["candidate"]): (each["n"], each["net_gain"]) for each in found}
    assert by_pair == {("a", "b"): (3, -2), ("a", "c"): (2, -1), ("b", "d"): (1, 1), ("d", "a"): (1, 0)}


def test_categories_can_be_left_out():
    was = [row(f"i{k}", k % 2, category="ab"[k % 2]) for k in range(4)]
    assert {each["category"] for each in compared(was, was, options.METRICS)} == {"", "a", "b"}
    assert {each["category"] for each in compared(was, was, options.METRICS, categories=False)} == {""}


@pytest.mark.parametrize(
    ("asked", "n", "affordable"),
    [(10_000, 0, 10_000), (10_000, 5_000, 10_000), (10_000, 7_000, 7_142), (10_000, 10**9, 1_000), (300, 10**9, 300)],
)
def test_large_evaluations_are_resampled_less_often_but_not_too_little(asked, n, affordable):
    assert _affordable(asked, n) == affordable


def test_values_of_different_items_are_no_difference_and_hide_no_other_metric():
    was = [row("a", 1, surprisal=1.0), row("b", 0), row("c", 0, surprisal=4.0)]
    now = [row("a", 1), row("b", 1, surprisal=5.0), row("c", 1, surprisal=6.0)]
    found = compared(was[:2], now[:2], (SURPRISAL, TOTAL, ACCURACY))
    assert [(each["metric"], each["n"], each["difference"]) for each in found] == [
        ("surprisal", 0, None), ("total", 0, None), ("accuracy", 2, 0.5),
    ]  # fmt: skip
    found = compared(was, now, (SURPRISAL, TOTAL, ACCURACY))
    assert [(each["metric"], each["n"], each["baseline_value"], each["difference"]) for each in found[:2]] == [
        ("surprisal", 1, 4.0, 2.0), ("total", 1, 4.0, 2.0),
    ]  # fmt: skip


def test_corpus_statistics_are_resampled_less_often_and_those_of_no_headline_least(monkeypatch):
    times = []
    whole = compare_module.resampled
    monkeypatch.setattr(compare_module, "resampled", lambda *given: (times.append(given[4]), whole(*given))[1])
    side = [row(f"i{k}", surprisal=float(k)) for k in range(3)]
    hidden = dataclasses.replace(TOTAL, name="hidden", headline=False)
    for resamples in (100, 300, 2_000):
        compared(side, side, (TOTAL, hidden), resamples=resamples)
    assert times == [100, 100, 100, 100, 300, 300, 250, 250, 1_000, 1_000, 250, 250]
