import tracemalloc
from itertools import combinations

import numpy as np
from support.result_rows import FACTS, row, rows
from vernacular.comparison import compare, pairwise
from vernacular.comparison.compare import compare_all
from vernacular.metrics.schema import as_table

WHAT = {name: FACTS[name] for name in ("task", "language", "protocol", "shots", "seed", "style")}


def random_rows(seed, n=40):
    return rows(np.random.default_rng(seed).random(n) < 0.5)


def test_holm_is_over_the_headline_tests_of_a_pair_in_all_evaluations():
    strong = {"a": rows([0] * 12), "b": rows([1] * 8 + [0] * 4)}
    none = {"a": random_rows(0), "b": random_rows(1)}
    results = {m: {"e1": as_table(strong[m]), "e2": as_table(none[m]), "e3": as_table(none[m])} for m in "ab"}
    found = compare_all([("a", "b")], results, dict.fromkeys(("e1", "e2", "e3"), WHAT), resamples=100)
    by_name = {each["evaluation"]: each for each in found.comparisons}
    assert {each["n_tests"] for each in by_name.values()} == {3}
    assert by_name["e1"]["p_holm"] == 3 * by_name["e1"]["p_value"]
    assert by_name["e1"]["significant"]
    assert not by_name["e2"]["significant"]


def test_a_pair_is_compared_where_both_were_asked():
    results = {
        "a": {"e1": as_table(random_rows(0)), "e2": as_table(random_rows(1))},
        "b": {"e1": as_table(random_rows(2))},
    }
    found = compare_all([("a", "b")], results, {"e1": WHAT, "e2": WHAT}, resamples=50)
    assert {each["evaluation"] for each in found.comparisons} == {"e1"}


def test_joined_results_are_a_side_but_not_ranked():
    results = {name: {"e1": as_table(random_rows(i))} for i, name in enumerate(("a", "b", "elsewhere"))}
    found = compare_all([("elsewhere", "a")], results, {"e1": WHAT}, outsiders=["elsewhere"], resamples=50)
    assert [each["baseline"] for each in found.comparisons] == ["elsewhere"]
    assert {each["model"] for each in found.rankings} == {each["model"] for each in found.overall} == {"a", "b"}


def test_signatures_that_differ_are_said():
    results = {name: {"e1": as_table(random_rows(i))} for i, name in enumerate("abc")}
    signatures = {"a": {("e1", "accuracy"): "accuracy|v:1"}, "b": {("e1", "accuracy"): "accuracy|v:2"}, "c": {}}
    found = compare_all([("a", "b"), ("a", "c")], results, {"e1": WHAT}, signatures=signatures, resamples=50)
    differing, missing = found.comparisons
    assert differing["signature"] is None
    assert "different signatures: accuracy|v:1 and accuracy|v:2" in differing["note"]
    assert missing["signature"] == "accuracy|v:1"


def test_threads_change_nothing():
    results = {name: {f"e{k}": as_table(random_rows(10 * i + k)) for k in range(4)} for i, name in enumerate("abc")}
    given = (list(combinations("abc", 2)), results, {f"e{k}": WHAT | {"task": f"t{k}"} for k in range(4)})
    assert compare_all(*given, resamples=60, threads=3) == compare_all(*given, resamples=60)


def test_all_pairs_of_an_evaluation_share_their_resamples(monkeypatch):
    """45 pairs take one set of draws for their means, and each model's corpus statistics are resampled once."""
    calls = {"means": 0, "corpus": 0}

    def counting(name, function):
        def counted(*given, **named):
            calls[name] += 1
            return function(*given, **named)

        return counted

    monkeypatch.setattr(pairwise, "mean_differences", counting("means", pairwise.mean_differences))
    monkeypatch.setattr(pairwise, "resampled", counting("corpus", pairwise.resampled))
    rng = np.random.default_rng(0)
    models = [f"m{i}" for i in range(10)]
    results = {
        m: {"e": as_table([row(f"i{i}", surprisal=rng.random(), label=float(i % 2)) for i in range(30)])}
        for m in models
    }
    what = WHAT | {"protocol": "acceptability"}
    compare_all(list(combinations(models, 2)), results, {"e": what}, resamples=20)
    assert calls == {"means": 0, "corpus": 10 * 4}  # good and bad mean, difsur, auc
    results = {m: {"e": as_table(random_rows(i))} for i, m in enumerate(models)}
    compare_all(list(combinations(models, 2)), results, {"e": WHAT}, resamples=20)
    assert calls["means"] == 1


def test_memory_stays_below_the_draws_of_all_pairs():
    models = [f"m{i}" for i in range(8)]
    results = {m: {"e": as_table(random_rows(i, 400))} for i, m in enumerate(models)}
    tracemalloc.start()
    compare_all(list(combinations(models, 2)), results, {"e": WHAT}, resamples=4000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert compare.RESAMPLES == 10_000
