"""Families of tests, rankings, chance levels and aggregates, by hand."""

import math
import warnings

import numpy as np
import pyarrow as pa
import pytest
from support.result_rows import EVALUATION, compare, rankings, row, rows
from vernacular.comparison.align import align, as_table
from vernacular.comparison.compare import compare_all
from vernacular.comparison.overall import _better, _interval, overall
from vernacular.comparison.pairwise import compare_sides
from vernacular.metrics.metric import Metric, chance_level, majority_baseline
from vernacular.statistics.significance import add_significance, competition_ranks, holm

ACCURACY = Metric("accuracy", "share", True, "similarity", proportion=True, headline=True)
SURPRISAL = Metric("surprisal", "nats", False, "surprisal", headline=True)
NEITHER = Metric("length", "words", None, "similarity", headline=True)
HIDDEN = Metric("accuracy_char", "share", True, "similarity", proportion=True)
TOTAL = Metric("mcc", "score", True, "surprisal", headline=True, corpus=lambda a, b: (a * b).mean(-1), needs=("u", "v"))
SPEC = {name: EVALUATION[name] for name in ("task", "language", "protocol", "shots", "seed", "style", "prompt")}


def test_add_significance_by_hand():
    def build_row(p, test, pair="ab", headline=True, category="", higher_is_better=True, difference=1.0):
        return {"baseline": pair[0], "candidate": pair[1], "headline": headline, "category": category, "p_value": p,
                "higher_is_better": higher_is_better, "difference": difference, "evaluation": test, "metric": "m"}  # fmt: skip

    cases = [  # p_holm, family, significant, better
        (build_row(0.01, "e1"), 0.03, 3, True, "candidate"),
        (build_row(0.03, "e2", difference=-1.0), 0.06, 3, False, None),
        (build_row(0.04, "e3"), 0.06, 3, False, None),
        (build_row(None, "e4"), None, None, None, None),
        (build_row(0.002, "e1", difference=-1.0, category="k"), None, None, None, None),
        (build_row(0.002, "e5", headline=False), None, None, None, None),
        (build_row(0.02, "e1", "cb", higher_is_better=False), 0.02, 1, True, "baseline"),
        (build_row(0.01, "e1", "ac", higher_is_better=None), 0.02, 2, True, None),
        (build_row(0.02, "e2", "ac", difference=0.0), 0.02, 2, True, None),
    ]
    records = add_significance([case[0] for case in cases])
    assert [(record["p_holm"], record["n_tests"], record["significant"], record["better"]) for record in records] == [
        (pytest.approx(case[1]), *case[2:]) for case in cases
    ]


def test_tests_against_the_best_are_also_corrected_over_the_models():
    """It is chosen by its value: of 21 equal models, some differ from the best in uncorrected tests."""
    rng = np.random.default_rng(0)
    results = {f"m{k:02}": {"e": as_table(rows(rng.random(400) < 0.5))} for k in range(21)}
    pairs = [("m00", f"m{k:02}") for k in range(1, 21)]
    found = compare_all(pairs, results, {"e": SPEC}, resamples=100)
    (best,) = {row["best"] for row in found.rankings}
    tested = [row for row in found.rankings if row["model"] != best]
    assert min(row["p_value"] for row in tested) < 0.05
    assert sorted(row["p_holm"] for row in tested) == pytest.approx(sorted(holm([row["p_value"] for row in tested])))
    assert all(row["rank"] == 1 for row in found.rankings)
    against = next(row for row in found.comparisons if best in (row["baseline"], row["candidate"]))
    assert against["p_holm"] == next(row["p_holm"] for row in tested if row["model"] == "m00") > against["p_value"]
    other = next(row for row in found.comparisons if best not in (row["baseline"], row["candidate"]))
    assert (other["p_holm"], other["n_tests"]) == (other["p_value"], 1)


@pytest.mark.parametrize(
    ("metric", "chance", "expected"),
    [
        ("accuracy", [0.5, 0.25, math.nan], 0.375), ("accuracy_byte", [0.25], 0.25), ("cosine_accuracy", [0.25], 0.25),
        ("accuracy", [], None), ("accuracy", [math.nan], None), ("exact_match", [0.5], None), ("inaccuracy", [0.5], None),
        ("auc", [], 0.5), ("auc_tokens", [0.25], 0.5), ("mcc", [], 0.0), ("mcc_bytes", [0.25], 0.0),
    ],
)  # fmt: skip
def test_chance_levels(metric, chance, expected):
    assert chance_level(metric, np.array(chance)) == expected


def test_majority_baselines():
    def gold(*gold_indices):
        return [row(str(i), choices="abc", gold=indices) for i, indices in enumerate(gold_indices)]

    assert majority_baseline("position", gold((0,), (2,), (2, 2), ())) == 2 / 3  # the last has no gold
    assert majority_baseline("position", gold((), ())) is None
    assert majority_baseline("position", [*gold((0,)), row("x", choices=(), gold=(0,))]) == 1.0
    labels = [row(str(i), choices=(), gold=(), **({} if label is None else {"label": label})) for i, label in
              enumerate([0.0, 0.0, 1.0, None])]  # fmt: skip
    assert majority_baseline("label", labels) == 2 / 3


def rank(tables, metrics=(ACCURACY,), **kwargs):
    items, sides = align(tables)
    return rankings(items, sides, list(metrics), EVALUATION, resamples=200, **kwargs)


def test_ranking_rows():
    records = rank({"c": rows([0] * 6), "a": rows([1] * 6), "b": rows([1, 1, 1, 1, 0, 0])}, (ACCURACY, HIDDEN, NEITHER))
    # a vs. c: 6 improved, 0 regressed, mid-p 1/64, times 2 (vs. best), times 3 (all); b vs. c: 4 improved, 1/16
    assert records == [
        EVALUATION | {"model": "a", "metric": "accuracy", "best": "a", "difference": 0.0, "p_value": None,
                      "p_holm": None, "in_best_group": True, "rank": 1, "compared_with": ["b", "c"], "worse_than": []},
        EVALUATION | {"model": "b", "metric": "accuracy", "best": "a", "difference": pytest.approx(-1 / 3),
                      "p_value": 0.25, "p_holm": 0.25, "in_best_group": True, "rank": 1,
                      "compared_with": ["a", "c"], "worse_than": []},
        EVALUATION | {"model": "c", "metric": "accuracy", "best": "a", "difference": -1.0, "p_value": 1 / 64,
                      "p_holm": 1 / 32, "in_best_group": False, "rank": 2,
                      "compared_with": ["a", "b"], "worse_than": ["a"]},
    ]  # fmt: skip


def test_best_model_of_lower_is_better_metric_and_of_equal_models():
    def side(value):
        return [row(f"i{k}", surprisal=value + k) for k in range(3)]

    records = rank({"c": side(1.0), "b": side(1.0), "d": side(2.0)}, (SURPRISAL,))
    assert [(record["model"], record["best"], record["difference"]) for record in records] == [
        ("b", "b", 0.0), ("c", "b", 0.0), ("d", "b", 1.0),
    ]  # fmt: skip
    assert [record["p_value"] for record in records[:2]] == [None, 1.0]


def test_models_without_common_items_share_a_rank():
    records = rank({"a": rows([1] * 8), "b": [row(f"x{k}", 0) for k in range(8)]})
    names = ("difference", "p_value", "p_holm", "in_best_group", "rank")
    assert [tuple(record[name] for name in names) for record in records] == [
        (0.0, None, None, True, 1), (None, None, None, True, 1),
    ]  # fmt: skip


def test_model_with_infinite_value_is_not_ranked():
    sides = {
        name: [row("a", surprisal=value), row("b", surprisal=1.0)]
        for name, value in (("x", math.inf), ("y", 2.0), ("z", 3.0))
    }
    assert [record["model"] for record in rank(sides, (SURPRISAL,))] == ["y", "z"]
    assert rank({name: sides[name] for name in "xy"}, (SURPRISAL,)) == []


def test_ranking_by_corpus_statistic():
    def side(*values):
        return [row(f"i{k}", u=u, v=v) for k, (u, v) in enumerate(values)]

    records = rank({"a": side((1.0, 1.0), (1.0, 0.0)), "b": side((1.0, 1.0), (0.5, 1.0))}, (TOTAL,))
    assert [(record["model"], record["best"], record["difference"]) for record in records] == [
        ("a", "b", -0.25),
        ("b", "b", 0.0),
    ]


def aggregate(*evaluations, **kwargs):
    aligned = []
    for i, (tables, metadata) in enumerate(evaluations):
        items, sides = align(tables)
        metadata = EVALUATION | {"evaluation": f"e{i}", "task": f"t{i}"} | metadata
        aligned.append((metadata, [NEITHER, SURPRISAL, HIDDEN, ACCURACY], items, sides))
    return overall(aligned, **{"resamples": 50, **kwargs})


def test_overall_rows():
    two_options = {"a": rows([1, 1, 0, 1]), "b": rows([0, 1, 0, 1])}  # chance 1/2: 0.5 and 0
    four_options = {name: [row(f"i{k}", correct, choices="wxyz") for k, correct in enumerate(side)] for name, side in
            (("a", [0, 0, 1, 0]), ("b", [1, 1, 1, 1]), ("c", [1, 1, 1, 1]))}  # fmt: skip
    records = aggregate((two_options, {"language": "es"}), (four_options, {}), ({"a": rows([1])}, {"language": "es"}))
    names = ("scope", "model", "n_evaluations", "n_excluded", "mean", "win_rate")
    assert [tuple(record[name] for name in names) for record in records] == [
        ("es", "a", 1, 1, 0.5, 1.0), ("es", "b", 1, 1, 0.0, 0.0),
        ("gl", "a", 1, 0, 0.0, 0.0), ("gl", "b", 1, 0, 1.0, 0.75), ("gl", "c", 1, 0, 1.0, 0.75),
        ("all", "a", 1, 2, 0.0, 0.0), ("all", "b", 1, 2, 1.0, 0.75), ("all", "c", 1, 2, 1.0, 0.75),
        ("task:t0", "a", 1, 0, 0.5, 1.0), ("task:t0", "b", 1, 0, 0.0, 0.0),
        ("task:t1", "a", 1, 0, 0.0, 0.0), ("task:t1", "b", 1, 0, 1.0, 0.75), ("task:t1", "c", 1, 0, 1.0, 0.75), ("task:t2", "a", 1, 0, 1.0, None),
    ]  # fmt: skip
    by_model = {(record["scope"], record["model"]): record for record in records}
    assert (by_model["gl", "b"]["ci_low"], by_model["gl", "b"]["ci_high"]) == (None, None)  # all correct
    assert by_model["es", "a"]["ci_low"] < 0.5 < by_model["es", "a"]["ci_high"]
    assert list(records[0]) == [
        "model",
        "scope",
        "n_evaluations",
        "n_excluded",
        "mean",
        "ci_low",
        "ci_high",
        "n_languages",
        "mean_over_languages",
        "languages_low",
        "languages_high",
        "rank",
        "rank_worst",
        "win_rate",
    ]


def test_overall_uses_items_with_the_same_texts_for_all_models():
    tables = {"a": rows([1, 1, 0]), "b": [*rows([0, 1]), row("i02", 1, prompt="?"), row("more", 1)]}
    records = aggregate((tables, {}))
    assert [(record["model"], record["mean"]) for record in records if record["scope"] == "all"] == [
        ("a", 1.0),
        ("b", 0.0),
    ]


def test_only_seeds_are_averaged():
    def side(outcomes):
        return {"a": rows(outcomes)}

    metadata = {"task": "t"}
    seeds = [(side([1, 1]), metadata | {"seed": seed}) for seed in (1, 2, 3)]
    for changes in ({"shots": 5}, {"style": "plain"}, {"protocol": "letters"}, {"language": "es"}, {"task": "u"}):
        records = aggregate(*seeds, (side([0, 0]), metadata | changes))
        assert next(record["mean"] for record in records if record["scope"] == "all") == 0.0  # half 1, half -1


def test_overall_ranks_are_shared_without_significant_difference():
    rng = np.random.default_rng(0)
    strong, weak = rng.random(60) < 0.9, rng.random(60) < 0.5
    similar = strong.copy()
    similar[np.flatnonzero(strong)[0]] = False
    records = aggregate(({"a": rows(weak), "b": rows(strong), "c": rows(similar)}, {}), resamples=300)
    assert {record["model"]: record["rank"] for record in records if record["scope"] == "all"} == {
        "a": 3,
        "b": 1,
        "c": 1,
    }
    assert aggregate() == []


def test_rows_have_evaluation_and_signature():
    results = {name: {"e1": as_table(rows([k, 1, 0]))} for k, name in enumerate("ab")}
    key = ("e1", "accuracy")
    for first, second, signature, note in [
        ("x", "x", "x", None), ("x", None, "x", None), (None, "y", "y", None), (None, None, None, None),
        ("x", "y", None, "different signatures: x and y"),
    ]:  # fmt: skip
        signatures = {"a": {key: first} if first else {}} | ({"b": {key: second}} if second else {})
        result = compare_all([("a", "b")], results, {"e1": SPEC}, signatures=signatures, resamples=50)
        (comparison,) = result.comparisons
        assert (comparison["signature"], comparison["note"]) == (signature, note)
        assert {name: comparison[name] for name in EVALUATION} == EVALUATION | {"evaluation": "e1"}
        assert {record["evaluation"] for record in result.rankings} == {"e1"}
        assert [record["scope"] for record in result.overall] == ["gl", "gl", "all", "all", "task:t", "task:t"]
    missing = {"a": {"e1": as_table(rows([1, 0]))}, "b": {"e1": as_table(rows([1, 1, 0]))}}
    signatures = {"a": {key: "x"}, "b": {key: "y"}}
    (comparison,) = compare_all([("a", "b")], missing, {"e1": SPEC}, signatures=signatures, resamples=50).comparisons
    assert comparison["note"].startswith("1 item with a value for the candidate only; ")
    assert comparison["note"].endswith("; different signatures: x and y")
    assert compare_all([("a", "b")], results, {"e1": SPEC}, resamples=50).comparisons[0]["signature"] is None


def test_empty_table_of_a_model_does_not_affect_the_others():
    empty = pa.Table.from_pylist([], schema=as_table([]).schema)
    results = {"a": {"e": as_table(rows([1, 0]))}, "b": {"e": empty}, "c": {"e": as_table(rows([0, 0]))}}
    result = compare_all([("a", "b"), ("a", "c")], results, {"e": SPEC}, resamples=50)
    assert [(record["candidate"], record["n"]) for record in result.comparisons if record["metric"] == "accuracy"] == [
        ("b", 0),
        ("c", 2),
    ]
    assert (
        {record["model"] for record in result.rankings} == {record["model"] for record in result.overall} == {"a", "c"}
    )


def test_better_requires_a_direction_and_a_difference():
    def significance(**fields):
        row = {"baseline": "a", "candidate": "b", "headline": True, "category": "", "p_value": 0.01}
        row |= {"evaluation": "e", "metric": "m"}
        (record,) = add_significance([row | {"higher_is_better": True, "difference": 1.0} | fields])
        return record["significant"], record["better"]

    assert significance() == (True, "candidate")
    assert significance(difference=-0.5) == significance(higher_is_better=False) == (True, "baseline")
    assert (
        significance(difference=None)
        == significance(difference=0.0)
        == significance(higher_is_better=None)
        == (True, None)
    )
    assert significance(p_value=0.05) == (False, None)
    assert significance(p_value=None) == (None, None)


def test_only_headline_metrics_with_a_direction_are_ranked():
    def side(correct):
        return [
            row(f"i{k}", correct, accuracy_char=1.0, length=2.0, surprisal=5.0 - correct, category="k")
            for k in range(7)
        ]

    records = rank({"a": side(0), "b": side(1)}, (ACCURACY, HIDDEN, NEITHER, SURPRISAL))
    assert [(record["metric"], record["model"], record["best"], record["rank"]) for record in records] == [
        ("accuracy", "a", "b", 2), ("accuracy", "b", "b", 1), ("surprisal", "a", "b", 2), ("surprisal", "b", "b", 1),
    ]  # fmt: skip


def test_seed_and_resamples_are_passed_on():
    rng = np.random.default_rng(0)
    tables = {name: [row(f"i{k}", rng.random() < 0.5, surprisal=rng.normal()) for k in range(40)] for name in "ab"}
    items, sides = align(tables)
    results = {name: {"t.gl.options.0shot": as_table(table)} for name, table in tables.items()}
    values = {}
    for seed, resamples in ((0, 50), (1, 50), (0, 51)):
        kwargs = {"seed": seed, "resamples": resamples}
        (comparison,) = compare_sides(items, sides, [("a", "b")], [SURPRISAL], EVALUATION, **kwargs)
        assert (
            compare(tables["a"], tables["b"], [SURPRISAL], EVALUATION, names=("a", "b"), **kwargs)[0]["p_value"]
            == comparison["p_value"]
        )
        rank_records = rankings(items, sides, [SURPRISAL], EVALUATION, **kwargs)
        assert {record["p_value"] for record in rank_records} == {None, comparison["p_value"]}
        aggregate_record = overall([(EVALUATION, [ACCURACY], items, sides)], **kwargs)[0]
        result = compare_all([("a", "b")], results, {"t.gl.options.0shot": SPEC}, **kwargs)
        (accuracy,) = compare_sides(items, sides, [("a", "b")], [ACCURACY], EVALUATION, **kwargs)
        assert result.comparisons[0]["ci_low"] == accuracy["ci_low"]
        assert result.overall == overall([(EVALUATION, [ACCURACY], items, sides)], seed=seed)
        values[seed, resamples] = (
            comparison["p_value"],
            comparison["ci_low"],
            aggregate_record["ci_low"],
            accuracy["ci_low"],
        )
    for column in zip(*values.values(), strict=True):
        assert len(set(column)) == 3
    default = compare_sides(items, sides, [("a", "b")], [SURPRISAL], EVALUATION, seed=0, resamples=50)
    assert compare_sides(items, sides, [("a", "b")], [SURPRISAL], EVALUATION, resamples=50) == default
    assert rankings(items, sides, [SURPRISAL], EVALUATION, resamples=50)[0]["p_value"] in (None, default[0]["p_value"])
    evaluation = (EVALUATION, [ACCURACY], items, sides)
    assert overall([evaluation], resamples=50) == overall([evaluation], seed=0, resamples=50)
    assert compare_all([("a", "b")], results, {"t.gl.options.0shot": SPEC}, resamples=50) == compare_all(
        [("a", "b")], results, {"t.gl.options.0shot": SPEC}, seed=0, resamples=50
    )


def test_no_overall_rows_without_chance_level_or_items():
    items, sides = align({"a": [row("i", surprisal=1.0)], "b": [row("i", surprisal=2.0)]})
    assert overall([(EVALUATION, [SURPRISAL], items, sides)]) == []
    items, sides = align({"a": [], "b": []})
    assert overall([(EVALUATION, [ACCURACY], items, sides)]) == []


def mean_of(tables, metrics, **kwargs):
    items, sides = align(tables)
    return [
        (record["model"], record["mean"])
        for record in overall([(EVALUATION, metrics, items, sides)], resamples=50, **kwargs)
    ][:2]


def test_first_headline_metric_with_chance_level_is_representative():
    tables = {
        "a": [row("i", 1, accuracy_char=0.0, cosine_accuracy=0.0), row("j", 0, accuracy_char=0.0, cosine_accuracy=0.0)]
    }
    lower_is_better = Metric("cosine_accuracy", "share", False, "similarity", headline=True)
    assert mean_of(tables, [HIDDEN, lower_is_better, ACCURACY]) == [("a", 0.0)] * 2  # half correct, two options
    all_correct = {"a": [row("i", 1, gold=(0, 1)), row("j", 1, gold=(0, 1))]}
    assert mean_of(all_correct, [ACCURACY]) == []


def test_items_without_a_value_of_one_model_are_excluded_for_all():
    tables = {"a": [*rows([1, 1]), row("i02")], "b": rows([0, 1, 1]), "c": rows([1, 0, 1])}
    assert mean_of(tables, [ACCURACY]) == [("a", 1.0), ("b", 0.0)]


def test_items_without_a_value_of_the_third_model_are_excluded_for_all():
    tables = {"a": rows([1, 1, 0]), "b": rows([0, 1, 1]), "c": [*rows([1, 0]), row("i02")]}
    assert mean_of(tables, [ACCURACY]) == [("a", 1.0), ("b", 0.0)]
    tables["c"] = [*rows([1, 0]), row("i02", 1, prompt="?")]
    assert mean_of(tables, [ACCURACY]) == [("a", 1.0), ("b", 0.0)]


@pytest.mark.parametrize("choices", ["wxyz", "w"])
def test_chance_level_of_overall_is_that_of_the_shared_items(choices):
    """The item of the first model only has another number of options, which is not part of the chance of 1/2."""
    tables = {"a": [*rows([1, 1, 0, 1]), row("x", 1, choices=choices)], "b": rows([0, 1, 0, 1])}
    assert mean_of(tables, [ACCURACY]) == [("a", 0.5), ("b", 0.0)]
    certain = {name: [row("i", 1, choices="w"), *extra] for name, extra in (("a", rows([1] * 9)), ("b", []))}
    assert mean_of(certain, [ACCURACY]) == []  # the shared item has one option


def test_single_model_has_no_win_rate_and_no_warning():
    items, sides = align({"a": rows([1, 1, 0])})
    with warnings.catch_warnings(action="error"):
        records = overall([(EVALUATION, [ACCURACY], items, sides)], resamples=50)
    assert [record["win_rate"] for record in records] == [None, None, None]


def test_models_without_shared_items_have_no_overall_value_by_a_metric_whose_chance_is_constant():
    tables = {"a": [row("i", u=1.0, v=1.0)], "b": [row("j", u=1.0, v=1.0)]}
    assert mean_of(tables, [TOTAL]) == []


@pytest.mark.parametrize("metric", [ACCURACY, TOTAL])
def test_interval_of_overall_depends_on_the_shared_items_and_their_clusters_only(metric):
    """A first item that one model lacks, in a cluster of its own size, changes nothing but its cluster's size."""
    rng = np.random.default_rng(1)
    outcomes = {name: rng.random(40) < share for name, share in (("a", 0.8), ("b", 0.4))}
    tables = {
        name: [row(f"i{k:02}", bool(x), u=float(x), v=0.5 + k / 40, cluster=f"c{k // 4}") for k, x in enumerate(known)]
        for name, known in outcomes.items()
    }
    items, sides = align(tables)
    expected = overall([(EVALUATION, [metric], items, sides)], resamples=100)
    items, sides = align(tables | {"a": [row("a", 0, u=9.0, v=9.0, cluster="c9"), *tables["a"]]})
    assert overall([(EVALUATION, [metric], items, sides)], resamples=100) == expected


def test_overall_resamples_clusters_with_the_seed():
    def ci_low(clustered, **kwargs):
        tables = {"a": [row(f"i{k}", k // 4 % 2, cluster=f"c{k // 4}" if clustered else None) for k in range(40)]}
        items, sides = align(tables)
        return overall([(EVALUATION, [ACCURACY], items, sides)], **kwargs)[0]["ci_low"]

    assert ci_low(True, resamples=400) < ci_low(False, resamples=400) - 0.2  # ten clusters, not forty items
    rng = np.random.default_rng(0)
    items, sides = align({"a": [row(f"i{k}", u=rng.normal(), v=rng.normal()) for k in range(30)]})
    records = [overall([(EVALUATION, [TOTAL], items, sides)], seed=seed, resamples=40)[0] for seed in (0, 0, 1)]
    assert records[0] == records[1]
    assert records[0]["ci_low"] != records[2]["ci_low"]


def test_interval_and_ranks_by_hand():
    assert _interval(np.arange(1001.0)) == (25.0, 975.0)
    assert _interval(np.array([1.0, 1.0])) == _interval(np.array([1.0, math.nan, 2.0])) == (None, None)
    quarter = 0.25 / math.sqrt(2)  # anticorrelated draws: their difference has a standard error of 0.5
    draws = np.array([[quarter, -quarter], [-quarter, quarter]])
    assert competition_ranks(_better(np.array([1.0, 0.0]), draws)).tolist() == [1, 2]  # 2 standard errors
    assert competition_ranks(_better(np.array([0.0, 1.0]), draws)).tolist() == [2, 1]
    assert competition_ranks(_better(np.array([0.97, 0.0]), draws)).tolist() == [1, 1]  # 1.94
    assert competition_ranks(_better(np.array([1.0, 0.0]), np.zeros((2, 2)))).tolist() == [1, 1]  # no spread


def test_models_without_common_values_share_a_rank():
    """The models share items, but no item has a surprisal on both sides."""
    first = [row("i", 1, surprisal=1.0), row("j", 1)]
    second = [row("i", 0), row("j", 0, surprisal=9.0)]
    records = rank({"a": first, "b": second}, (ACCURACY, SURPRISAL))
    names = ("metric", "model", "difference", "in_best_group", "rank")
    assert [tuple(record[name] for name in names) for record in records] == [
        ("accuracy", "a", 0.0, True, 1), ("accuracy", "b", -1.0, True, 1),
        ("surprisal", "a", 0.0, True, 1), ("surprisal", "b", None, True, 1),
    ]  # fmt: skip


def test_rankings_do_not_depend_on_the_requested_pairs():
    rng = np.random.default_rng(0)
    results = {
        name: {"e": as_table([row(f"i{k}", surprisal=rng.normal(), label=float(k % 2)) for k in range(30)])}
        for name in "ab"
    }
    evaluations = {"e": SPEC | {"protocol": "acceptability"}}
    for seed, resamples in ((0, 40), (1, 40), (0, 60)):
        kwargs = {"seed": seed, "resamples": resamples}
        assert (
            compare_all([], results, evaluations, **kwargs).rankings
            == compare_all([("a", "b")], results, evaluations, **kwargs).rankings
        )
