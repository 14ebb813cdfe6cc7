import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from support import observed
from support.result_rows import EVALUATION, row, rows
from vernacular.comparison import compare
from vernacular.comparison.compare import compare_all, compare_pairs
from vernacular.metrics.schema import as_table
from vernacular.statistics.intervals import resample_statistic
from vernacular.statistics.paired import mean_differences

SPEC = {name: EVALUATION[name] for name in ("task", "language", "protocol", "shots", "seed", "style", "prompt")}


def random_rows(seed, n=40):
    return rows(np.random.default_rng(seed).random(n) < 0.5)


def test_holm_family_spans_all_evaluations_of_a_pair():
    strong = {"a": rows([0] * 12), "b": rows([1] * 8 + [0] * 4)}
    none = {"a": random_rows(0), "b": random_rows(1)}
    results = {m: {"e1": as_table(strong[m]), "e2": as_table(none[m]), "e3": as_table(none[m])} for m in "ab"}
    result = compare_all([("a", "b")], results, dict.fromkeys(("e1", "e2", "e3"), SPEC), resamples=100)
    by_name = {record["evaluation"]: record for record in result.comparisons}
    assert {record["n_tests"] for record in by_name.values()} == {3}
    assert by_name["e1"]["p_holm"] == 3 * by_name["e1"]["p_value"]
    assert by_name["e1"]["significant"]
    assert not by_name["e2"]["significant"]


def test_pairs_are_compared_on_common_evaluations():
    results = {
        "a": {"e1": as_table(random_rows(0)), "e2": as_table(random_rows(1))},
        "b": {"e1": as_table(random_rows(2))},
    }
    result = compare_all([("a", "b")], results, {"e1": SPEC, "e2": SPEC}, resamples=50)
    assert {record["evaluation"] for record in result.comparisons} == {"e1"}


def test_external_results_are_compared_but_not_ranked():
    results = {name: {"e1": as_table(random_rows(i))} for i, name in enumerate(("a", "b", "elsewhere"))}
    pairs = [("elsewhere", "a")]
    rows = compare_pairs(pairs, results, {"e1": SPEC}, resamples=50)
    assert [row["baseline"] for row in rows] == ["elsewhere"]
    assert rows == compare_all(pairs, results, {"e1": SPEC}, resamples=50).comparisons


def test_words_that_are_filled_in_are_in_no_ranking_with_log_likelihoods():
    results = {name: {"e1": as_table(random_rows(i))} for i, name in enumerate("abcd")}
    own = {("e1", "accuracy"): "accuracy|protocol:acceptability|likelihood:infilling|v:1"}
    signatures = {"a": {("e1", "accuracy"): "accuracy|protocol:acceptability|v:1"}, "b": own, "c": own}
    found = compare_all([("a", "b"), ("b", "c")], results, {"e1": SPEC}, signatures=signatures, resamples=50)
    compared = {each["model"]: {*each["compared_with"], each["best"]} for each in found.rankings}
    assert compared.keys() == {*"abcd"}
    assert all((other in "bc") == (model in "bc") for model, others in compared.items() for other in others)
    assert {each["model"] for each in found.overall} == {"a", "d"}
    notes = {each["candidate"]: each["note"] for each in found.comparisons}
    assert "different signatures" in notes["b"]
    assert not notes["c"]


@pytest.mark.parametrize(("language", "compared"), [("sr-Latn", {"chrf", "chrf_script"}), ("ru", {"chrf"})])
def test_values_in_one_script_are_compared_where_a_language_has_two(language, compared):
    results = {
        name: {"e1": as_table([row(f"i{k}", None, chrf=value - k, chrf_script=2 * value - k) for k in range(20)])}
        for name, value in (("a", 30.0), ("b", 40.0))
    }
    spec = SPEC | {"protocol": "generation", "language": language}
    found = compare_all([("a", "b")], results, {"e1": spec}, resamples=50).comparisons
    assert {each["metric"]: each["difference"] for each in found if each["n"]} == {
        name: pytest.approx({"chrf": 10.0, "chrf_script": 20.0}[name]) for name in compared
    }


def test_different_signatures_are_noted():
    results = {name: {"e1": as_table(random_rows(i))} for i, name in enumerate("abc")}
    signatures = {"a": {("e1", "accuracy"): "accuracy|v:1"}, "b": {("e1", "accuracy"): "accuracy|v:2"}, "c": {}}
    result = compare_all([("a", "b"), ("a", "c")], results, {"e1": SPEC}, signatures=signatures, resamples=50)
    mismatch, single = result.comparisons
    assert mismatch["signature"] is None
    assert "different signatures: accuracy|v:1 and accuracy|v:2" in mismatch["note"]
    assert single["signature"] == "accuracy|v:1"


def test_result_does_not_depend_on_threads():
    results = {name: {f"e{k}": as_table(random_rows(10 * i + k)) for k in range(4)} for i, name in enumerate("abc")}
    args = (list(combinations("abc", 2)), results, {f"e{k}": SPEC | {"task": f"t{k}"} for k in range(4)})
    assert compare_all(*args, resamples=60, threads=3) == compare_all(*args, resamples=60)


def test_all_pairs_of_an_evaluation_share_their_resamples():
    """45 pairs share one set of draws for their means; each model's corpus statistics are resampled once."""
    rng = np.random.default_rng(0)
    models = [f"m{i}" for i in range(10)]
    results = {
        m: {"e": as_table([row(f"i{i}", surprisal=rng.random(), label=float(i % 2)) for i in range(30)])}
        for m in models
    }
    spec = SPEC | {"protocol": "acceptability"}
    with observed.calls(mean_differences) as means, observed.calls(resample_statistic) as corpus_statistics:
        compare_all(list(combinations(models, 2)), results, {"e": spec}, resamples=20)
    assert (len(means), len(corpus_statistics)) == (
        0,
        10 * 5,
    )  # good and bad mean, difsur, auc; the mean of all evaluations
    results = {m: {"e": as_table(random_rows(i))} for i, m in enumerate(models)}
    with observed.calls(mean_differences) as means:
        compare_all(list(combinations(models, 2)), results, {"e": SPEC}, resamples=20)
    assert len(means) == 1


def test_peak_memory():
    models = [f"m{i}" for i in range(8)]
    results = {m: {"e": as_table(random_rows(i, 400))} for i, m in enumerate(models)}
    tracemalloc.start()
    compare_all(list(combinations(models, 2)), results, {"e": SPEC}, resamples=4000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert compare.RESAMPLES == 10_000


@pytest.mark.parametrize("cells", [1, 90, 10_000])
def test_pairs_and_metrics_computed_in_parts_have_the_same_values(low_limits, cells):
    results = {name: {"e1": as_table(random_rows(i))} for i, name in enumerate("abcd")}
    pairs = list(combinations("abcd", 2))
    whole = compare_all(pairs, results, {"e1": SPEC}, resamples=50)
    low_limits("comparison.pairwise", CELLS=cells)
    parts = compare_all(pairs, results, {"e1": SPEC}, resamples=50)
    assert parts.overall == whole.overall
    for record, expected in zip(parts.comparisons, whole.comparisons, strict=True):
        numbers = {name for name, value in expected.items() if isinstance(value, float)}
        assert {name: record[name] for name in numbers} == pytest.approx({name: expected[name] for name in numbers})
        assert {**record, **{name: expected[name] for name in numbers}} == expected
