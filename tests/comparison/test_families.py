"""Families of tests, places and levels by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest
from support.result_rows import FACTS, compare, row, rows
from vernacular.comparison.align import align, as_table
from vernacular.comparison.compare import compare_all, rankings, with_families
from vernacular.comparison.overall import _interval, _ranks, overall
from vernacular.comparison.pairwise import compare_sides
from vernacular.metrics.metric import Metric, chance_level, majority_baseline

ACCURACY = Metric("accuracy", "share", True, "similarity", proportion=True, headline=True)
SURPRISAL = Metric("surprisal", "nats", False, "surprisal", headline=True)
NEITHER = Metric("length", "words", None, "similarity", headline=True)
HIDDEN = Metric("accuracy_char", "share", True, "similarity", proportion=True)
TOTAL = Metric("mcc", "score", True, "surprisal", headline=True, corpus=lambda a, b: (a * b).mean(-1), needs=("u", "v"))
WHAT = {name: FACTS[name] for name in ("task", "language", "protocol", "shots", "seed", "style")}


def test_holm_by_hand_over_the_headline_tests_of_each_pair():
    def test(p, pair="ab", headline=True, category="", higher=True, difference=1.0):
        return {"baseline": pair[0], "candidate": pair[1], "headline": headline, "category": category, "p_value": p,
                "higher_is_better": higher, "difference": difference}  # fmt: skip

    cases = [  # p_holm, family, significant, better
        (test(0.01), 0.03, 3, True, "candidate"),
        (test(0.03, difference=-1.0), 0.06, 3, False, None),
        (test(0.04), 0.06, 3, False, None),
        (test(None), None, None, False, None),
        (test(0.02, difference=-1.0, category="k"), None, None, True, "baseline"),
        (test(0.02, difference=-1.0, headline=False, higher=False), None, None, True, "candidate"),
        (test(0.05, category="k"), None, None, False, None),
        (test(0.02, "ba", higher=False), 0.02, 1, True, "baseline"),
        (test(0.01, "ac", higher=None), 0.02, 2, True, None),
        (test(0.02, "ac", difference=0.0), 0.02, 2, True, None),
    ]
    found = with_families([case[0] for case in cases])
    assert [(each["p_holm"], each["n_tests"], each["significant"], each["better"]) for each in found] == [
        (pytest.approx(case[1]), *case[2:]) for case in cases
    ]


@pytest.mark.parametrize(
    ("metric", "chances", "level"),
    [
        ("accuracy", [0.5, 0.25, math.nan], 0.375), ("accuracy_byte", [0.25], 0.25), ("cosine_accuracy", [0.25], 0.25),
        ("accuracy", [], None), ("accuracy", [math.nan], None), ("exact_match", [0.5], None), ("inaccuracy", [0.5], None),
        ("auc", [], 0.5), ("auc_tokens", [0.25], 0.5), ("mcc", [], 0.0), ("mcc_bytes", [0.25], 0.0),
    ],
)  # fmt: skip
def test_chance_levels(metric, chances, level):
    assert chance_level(metric, np.array(chances)) == level


def test_majorities():
    def gold(*each):
        return [row(str(i), choices="abc", gold=one) for i, one in enumerate(each)]

    assert majority_baseline("position", gold((0,), (2,), (2, 2), ())) == 2 / 3  # the last withholds its answer
    assert majority_baseline("position", gold((), ())) is None
    assert majority_baseline("position", [*gold((0,)), row("x", choices=(), gold=(0,))]) == 1.0
    labels = [row(str(i), choices=(), gold=(), **({} if label is None else {"label": label})) for i, label in
              enumerate([0.0, 0.0, 1.0, None])]  # fmt: skip
    assert majority_baseline("label", labels) == 2 / 3


def placed(tables, metrics=(ACCURACY,), **given):
    items, sides = align(tables)
    return rankings(items, sides, list(metrics), FACTS, resamples=200, **given)


def test_standings_to_the_letter():
    found = placed({"c": rows([0] * 6), "a": rows([1] * 6), "b": rows([1, 1, 1, 1, 0, 0])}, (ACCURACY, HIDDEN, NEITHER))
    # a against c: six won, none lost, mid-p 1/64, times 2 (the best), times 3 (all); b against c: four won, 1/16
    assert found == [
        FACTS | {"model": "a", "metric": "accuracy", "best": "a", "difference": 0.0, "p_value": None, "p_holm": None,
                 "in_best_group": True, "rank": 1},
        FACTS | {"model": "b", "metric": "accuracy", "best": "a", "difference": pytest.approx(-1 / 3), "p_value": 0.25,
                 "p_holm": 0.25, "in_best_group": True, "rank": 1},
        FACTS | {"model": "c", "metric": "accuracy", "best": "a", "difference": -1.0, "p_value": 1 / 64,
                 "p_holm": 1 / 32, "in_best_group": False, "rank": 2},
    ]  # fmt: skip


def test_the_lowest_is_best_where_lower_is_better_and_of_equals_the_first_by_name():
    def side(value):
        return [row(f"i{k}", surprisal=value + k) for k in range(3)]

    found = placed({"c": side(1.0), "b": side(1.0), "d": side(2.0)}, (SURPRISAL,))
    assert [(each["model"], each["best"], each["difference"]) for each in found] == [
        ("b", "b", 0.0), ("c", "b", 0.0), ("d", "b", 1.0),
    ]  # fmt: skip
    assert [each["p_value"] for each in found[:2]] == [None, 1.0]


def test_models_without_items_in_common_are_not_told_apart():
    found = placed({"a": rows([1] * 8), "b": [row(f"x{k}", 0) for k in range(8)]})
    assert [(each["difference"], each["p_value"], each["p_holm"], each["in_best_group"], each["rank"]) for each in found] == [
        (0.0, None, None, True, 1), (None, None, None, True, 1),
    ]  # fmt: skip


def test_a_model_whose_value_is_infinite_has_no_place():
    sides = {
        name: [row("a", surprisal=value), row("b", surprisal=1.0)]
        for name, value in (("x", math.inf), ("y", 2.0), ("z", 3.0))
    }
    assert [each["model"] for each in placed(sides, (SURPRISAL,))] == ["y", "z"]
    assert placed({name: sides[name] for name in "xy"}, (SURPRISAL,)) == []


def test_a_corpus_statistic_is_placed_by_its_own_value():
    def side(*values):
        return [row(f"i{k}", u=u, v=v) for k, (u, v) in enumerate(values)]

    found = placed({"a": side((1.0, 1.0), (1.0, 0.0)), "b": side((1.0, 1.0), (0.5, 1.0))}, (TOTAL,))
    assert [(each["model"], each["best"], each["difference"]) for each in found] == [("a", "b", -0.25), ("b", "b", 0.0)]


def across(*evaluations, **given):
    made = []
    for number, (tables, facts) in enumerate(evaluations):
        items, sides = align(tables)
        facts = FACTS | {"evaluation": f"e{number}", "task": f"t{number}"} | facts
        made.append((facts, [NEITHER, SURPRISAL, HIDDEN, ACCURACY], items, sides))
    return overall(made, **{"resamples": 50, **given})


def test_overall_to_the_letter():
    two = {"a": rows([1, 1, 0, 1]), "b": rows([0, 1, 0, 1])}  # chance 1/2: 0.5 and 0
    four = {name: [row(f"i{k}", right, choices="wxyz") for k, right in enumerate(side)] for name, side in
            (("a", [0, 0, 1, 0]), ("b", [1, 1, 1, 1]), ("c", [1, 1, 1, 1]))}  # fmt: skip
    found = across((two, {"language": "es"}), (four, {}), ({"a": rows([1])}, {"language": "es"}))
    assert [(each["scope"], each["model"], each["n_evaluations"], each["n_excluded"], each["mean"], each["win_rate"]) for
            each in found] == [
        ("es", "a", 1, 1, 0.5, 1.0), ("es", "b", 1, 1, 0.0, 0.0),
        ("gl", "a", 1, 0, 0.0, 0.0), ("gl", "b", 1, 0, 1.0, 0.75), ("gl", "c", 1, 0, 1.0, 0.75),
        ("all", "a", 1, 2, 0.0, 0.0), ("all", "b", 1, 2, 1.0, 0.75), ("all", "c", 1, 2, 1.0, 0.75),
    ]  # fmt: skip
    by = {(each["scope"], each["model"]): each for each in found}
    assert (by["gl", "b"]["ci_low"], by["gl", "b"]["ci_high"]) == (None, None)  # always right
    assert by["es", "a"]["ci_low"] < 0.5 < by["es", "a"]["ci_high"]
    assert list(found[0]) == [
        "model",
        "scope",
        "n_evaluations",
        "n_excluded",
        "mean",
        "ci_low",
        "ci_high",
        "rank",
        "win_rate",
    ]


def test_models_are_compared_across_tasks_on_the_items_that_all_were_asked_in_the_same_words():
    tables = {"a": rows([1, 1, 0]), "b": [*rows([0, 1]), row("i02", 1, prompt="?"), row("more", 1)]}
    found = across((tables, {}))
    assert [(each["model"], each["mean"]) for each in found if each["scope"] == "all"] == [("a", 1.0), ("b", 0.0)]


def test_what_differs_in_more_than_its_seed_counts_on_its_own():
    def side(right):
        return {"a": rows(right)}

    facts = {"task": "t"}
    seeds = [(side([1, 1]), facts | {"seed": seed}) for seed in (1, 2, 3)]
    for other in ({"shots": 5}, {"style": "plain"}, {"protocol": "letters"}, {"language": "es"}, {"task": "u"}):
        found = across(*seeds, (side([0, 0]), facts | other))
        assert next(each["mean"] for each in found if each["scope"] == "all") == 0.0  # half 1, half -1


def test_clear_differences_across_tasks_rank_and_unclear_ones_share():
    rng = np.random.default_rng(0)
    strong, weak = rng.random(60) < 0.9, rng.random(60) < 0.5
    nearly = strong.copy()
    nearly[np.flatnonzero(strong)[0]] = False
    found = across(({"a": rows(weak), "b": rows(strong), "c": rows(nearly)}, {}), resamples=300)
    assert {each["model"]: each["rank"] for each in found if each["scope"] == "all"} == {"a": 3, "b": 1, "c": 1}
    assert across() == []


def test_the_evaluation_is_named_in_every_row_and_signatures_in_all():
    results = {name: {"e1": as_table(rows([k, 1, 0]))} for k, name in enumerate("ab")}
    at = ("e1", "accuracy")
    for one, other, signature, note in [
        ("x", "x", "x", None), ("x", None, "x", None), (None, "y", "y", None), (None, None, None, None),
        ("x", "y", None, "different signatures: x and y"),
    ]:  # fmt: skip
        signatures = {"a": {at: one} if one else {}} | ({"b": {at: other}} if other else {})
        found = compare_all([("a", "b")], results, {"e1": WHAT}, signatures=signatures, resamples=50)
        (only,) = found.comparisons
        assert (only["signature"], only["note"]) == (signature, note)
        assert {name: only[name] for name in FACTS} == FACTS | {"evaluation": "e1"}
        assert {each["evaluation"] for each in found.rankings} == {"e1"}
        assert [each["scope"] for each in found.overall] == ["gl", "gl", "all", "all"]
    missing = {"a": {"e1": as_table(rows([1, 0]))}, "b": {"e1": as_table(rows([1, 1, 0]))}}
    signatures = {"a": {at: "x"}, "b": {at: "y"}}
    (only,) = compare_all([("a", "b")], missing, {"e1": WHAT}, signatures=signatures, resamples=50).comparisons
    assert only["note"].startswith("1 item with a value for the candidate only; ")
    assert only["note"].endswith("; different signatures: x and y")
    assert compare_all([("a", "b")], results, {"e1": WHAT}, resamples=50).comparisons[0]["signature"] is None


def test_an_evaluation_that_was_not_possible_for_a_model_takes_nothing_from_the_rest():
    none = pa.Table.from_pylist([], schema=as_table([]).schema)
    results = {"a": {"e": as_table(rows([1, 0]))}, "b": {"e": none}, "c": {"e": as_table(rows([0, 0]))}}
    found = compare_all([("a", "b"), ("a", "c")], results, {"e": WHAT}, resamples=50)
    assert [(each["candidate"], each["n"]) for each in found.comparisons if each["metric"] == "accuracy"] == [
        ("b", 0),
        ("c", 2),
    ]
    assert {each["model"] for each in found.rankings} == {each["model"] for each in found.overall} == {"a", "c"}


def test_a_side_without_a_direction_or_without_a_difference_is_not_better():
    def tested(**more):
        row = {"baseline": "a", "candidate": "b", "headline": False, "category": "", "p_value": 0.01}
        (found,) = with_families([row | {"higher_is_better": True, "difference": 1.0} | more])
        return found["significant"], found["better"]

    assert tested() == (True, "candidate")
    assert tested(difference=-0.5) == tested(higher_is_better=False) == (True, "baseline")
    assert tested(difference=None) == tested(difference=0.0) == tested(higher_is_better=None) == (True, None)
    assert tested(p_value=0.05) == tested(p_value=None) == (False, None)


def test_every_headline_metric_with_a_direction_has_its_column_and_no_other():
    def side(right):
        return [
            row(f"i{k}", right, accuracy_char=1.0, length=2.0, surprisal=5.0 - right, category="k") for k in range(7)
        ]

    found = placed({"a": side(0), "b": side(1)}, (ACCURACY, HIDDEN, NEITHER, SURPRISAL))
    assert [(each["metric"], each["model"], each["best"], each["rank"]) for each in found] == [
        ("accuracy", "a", "b", 2), ("accuracy", "b", "b", 1), ("surprisal", "a", "b", 2), ("surprisal", "b", "b", 1),
    ]  # fmt: skip


def test_seed_and_number_of_resamples_reach_every_draw():
    rng = np.random.default_rng(0)
    tables = {name: [row(f"i{k}", rng.random() < 0.5, surprisal=rng.normal()) for k in range(40)] for name in "ab"}
    items, sides = align(tables)
    results = {name: {"t.gl.options.0shot": as_table(table)} for name, table in tables.items()}
    found = {}
    for seed, resamples in ((0, 50), (1, 50), (0, 51)):
        given = {"seed": seed, "resamples": resamples}
        (pair,) = compare_sides(items, sides, [("a", "b")], [SURPRISAL], FACTS, **given)
        assert (
            compare(tables["a"], tables["b"], [SURPRISAL], FACTS, names=("a", "b"), **given)[0]["p_value"]
            == pair["p_value"]
        )
        places = rankings(items, sides, [SURPRISAL], FACTS, **given)
        assert {each["p_value"] for each in places} == {None, pair["p_value"]}
        mean = overall([(FACTS, [ACCURACY], items, sides)], **given)[0]
        everything = compare_all([("a", "b")], results, {"t.gl.options.0shot": WHAT}, **given)
        (accuracy,) = compare_sides(items, sides, [("a", "b")], [ACCURACY], FACTS, **given)
        assert everything.comparisons[0]["ci_low"] == accuracy["ci_low"]
        assert everything.overall == overall([(FACTS, [ACCURACY], items, sides)], seed=seed)
        found[seed, resamples] = (pair["p_value"], pair["ci_low"], mean["ci_low"], accuracy["ci_low"])
    for figures in zip(*found.values(), strict=True):
        assert len(set(figures)) == 3
    at_first = compare_sides(items, sides, [("a", "b")], [SURPRISAL], FACTS, seed=0, resamples=50)
    assert compare_sides(items, sides, [("a", "b")], [SURPRISAL], FACTS, resamples=50) == at_first
    assert rankings(items, sides, [SURPRISAL], FACTS, resamples=50)[0]["p_value"] in (None, at_first[0]["p_value"])
    evaluation = (FACTS, [ACCURACY], items, sides)
    assert overall([evaluation], resamples=50) == overall([evaluation], seed=0, resamples=50)
    assert compare_all([("a", "b")], results, {"t.gl.options.0shot": WHAT}, resamples=50) == compare_all(
        [("a", "b")], results, {"t.gl.options.0shot": WHAT}, seed=0, resamples=50
    )


def test_where_no_evaluation_has_a_chance_level_or_an_item_there_is_no_mean():
    items, sides = align({"a": [row("i", surprisal=1.0)], "b": [row("i", surprisal=2.0)]})
    assert overall([(FACTS, [SURPRISAL], items, sides)]) == []
    items, sides = align({"a": [], "b": []})
    assert overall([(FACTS, [ACCURACY], items, sides)]) == []


def mean_of(tables, metrics, **given):
    items, sides = align(tables)
    return [(each["model"], each["mean"]) for each in overall([(FACTS, metrics, items, sides)], resamples=50, **given)][
        :2
    ]


def test_the_first_headline_metric_with_a_chance_level_speaks_and_no_other():
    tables = {
        "a": [row("i", 1, accuracy_char=0.0, cosine_accuracy=0.0), row("j", 0, accuracy_char=0.0, cosine_accuracy=0.0)]
    }
    lower = Metric("cosine_accuracy", "share", False, "similarity", headline=True)
    assert mean_of(tables, [HIDDEN, lower, ACCURACY]) == [("a", 0.0)] * 2  # half right of two options
    all_right = {"a": [row("i", 1, gold=(0, 1)), row("j", 1, gold=(0, 1))]}
    assert mean_of(all_right, [ACCURACY]) == []


def test_an_item_that_one_of_the_models_has_no_value_for_is_left_out_for_all():
    tables = {"a": [*rows([1, 1]), row("i02")], "b": rows([0, 1, 1]), "c": rows([1, 0, 1])}
    assert mean_of(tables, [ACCURACY]) == [("a", 1.0), ("b", 0.0)]


def test_clusters_are_drawn_whole_and_corpus_statistics_by_the_seed():
    def low(clustered, **given):
        tables = {"a": [row(f"i{k}", k // 4 % 2, cluster=f"c{k // 4}" if clustered else None) for k in range(40)]}
        items, sides = align(tables)
        return overall([(FACTS, [ACCURACY], items, sides)], **given)[0]["ci_low"]

    assert low(True, resamples=400) < low(False, resamples=400) - 0.2  # ten things, not forty
    rng = np.random.default_rng(0)
    items, sides = align({"a": [row(f"i{k}", u=rng.normal(), v=rng.normal()) for k in range(30)]})
    found = [overall([(FACTS, [TOTAL], items, sides)], seed=seed, resamples=40)[0] for seed in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0]["ci_low"] != found[2]["ci_low"]


def test_intervals_and_ranks_of_draws_by_hand():
    assert _interval(np.arange(1001.0)) == (25.0, 975.0)
    assert _interval(np.array([1.0, 1.0])) == _interval(np.array([1.0, math.nan, 2.0])) == (None, None)
    quarter = 0.25 / math.sqrt(2)  # the two move against each other: their difference has a standard error of 0.5
    draws = np.array([[quarter, -quarter], [-quarter, quarter]])
    assert _ranks(np.array([1.0, 0.0]), draws).tolist() == [1, 2]  # 2 standard errors
    assert _ranks(np.array([0.0, 1.0]), draws).tolist() == [2, 1]
    assert _ranks(np.array([0.97, 0.0]), draws).tolist() == [1, 1]  # 1.94
    assert _ranks(np.array([1.0, 0.0]), np.zeros((2, 2))).tolist() == [1, 1]  # nothing is known of its spread


def test_a_metric_that_two_models_know_of_no_item_in_common_tells_them_not_apart():
    """They share an item, but only another metric has a value for it on both sides."""
    one = [row("i", 1, surprisal=1.0), row("j", 1)]
    other = [row("i", 0), row("j", 0, surprisal=9.0)]
    found = placed({"a": one, "b": other}, (ACCURACY, SURPRISAL))
    assert [(each["metric"], each["model"], each["difference"], each["in_best_group"], each["rank"]) for each in found] == [
        ("accuracy", "a", 0.0, True, 1), ("accuracy", "b", -1.0, True, 1),
        ("surprisal", "a", 0.0, True, 1), ("surprisal", "b", None, True, 1),
    ]  # fmt: skip


def test_pairs_that_nobody_asked_for_are_drawn_by_the_same_seed_for_their_places():
    rng = np.random.default_rng(0)
    results = {
        name: {"e": as_table([row(f"i{k}", surprisal=rng.normal(), label=float(k % 2)) for k in range(30)])}
        for name in "ab"
    }
    what = {"e": WHAT | {"protocol": "acceptability"}}
    for seed, resamples in ((0, 40), (1, 40), (0, 60)):
        given = {"seed": seed, "resamples": resamples}
        assert (
            compare_all([], results, what, **given).rankings
            == compare_all([("a", "b")], results, what, **given).rankings
        )
