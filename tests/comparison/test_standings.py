import numpy as np
import pytest
from support.result_rows import FACTS, row, rows
from vernacular.comparison.align import align
from vernacular.comparison.compare import rankings
from vernacular.comparison.overall import overall
from vernacular.comparison.pairwise import compare_sides
from vernacular.comparison.schema import OVERALL, RANKINGS
from vernacular.core import artifacts
from vernacular.protocols.acceptability import metrics as acceptability
from vernacular.protocols.last_word import metrics as last_word
from vernacular.protocols.options import metrics as options


def placed(tables, metrics=options.METRICS, **given):
    items, sides = align(tables)
    return {each["model"]: each for each in rankings(items, sides, metrics, FACTS, resamples=300, **given)}


def rights(seed, share, n=200):
    """Right answers that nest: who is right with a share is right with a larger one too."""
    return np.random.default_rng(seed).random(n) < share


TABLES = {"weak": rows(rights(0, 0.3)), "best": rows(rights(0, 0.8)), "near": rows(rights(1, 0.74))}


def test_places_are_shared_and_the_best_is_named():
    found = placed(TABLES)
    assert {model: each["rank"] for model, each in found.items()} == {"best": 1, "near": 1, "weak": 3}
    assert {model: each["in_best_group"] for model, each in found.items()} == {
        "best": True,
        "near": True,
        "weak": False,
    }
    assert {each["best"] for each in found.values()} == {"best"}
    assert found["best"]["p_value"] is None
    assert found["weak"]["difference"] == pytest.approx(np.mean(rights(0, 0.3)) - np.mean(rights(0, 0.8)))


def test_pairs_that_were_compared_already_give_the_same_places():
    items, sides = align(TABLES)
    pairs = [("weak", "near"), ("near", "best")]
    compared = compare_sides(items, sides, pairs, options.METRICS, FACTS, resamples=300)
    assert placed(TABLES, compared=compared) == placed(TABLES)


def test_lowest_surprisal_is_best():
    tables = {
        name: [row(f"i{i}", surprisal=base + i % 5) for i in range(30)] for name, base in (("a", 3.0), ("b", 1.0))
    }
    found = placed(tables, last_word.METRICS)
    assert found["b"]["best"] == "b"
    assert found["a"]["rank"] == 2


def test_one_model_has_no_standing():
    assert placed({"only": rows([1, 0])}) == {}
    assert placed({"only": rows([1, 0]), "failed": []}) == {}


def test_equal_models_share_the_first_place():
    found = placed({"a": rows([1, 0, 1]), "b": rows([1, 0, 1])})
    assert [each["rank"] for each in found.values()] == [1, 1]
    assert all(each["in_best_group"] for each in found.values())


def test_standings_fit_the_schema(tmp_path):
    artifacts.write(tmp_path / "s.parquet", RANKINGS, list(placed(TABLES).values()), {})


def evaluation(tables, metrics=options.METRICS, **facts):
    items, sides = align(tables)
    facts = FACTS | facts
    return facts | {"evaluation": ".".join(map(str, facts.values()))}, metrics, items, sides


def across(*evaluations):
    return {(each["scope"], each["model"]): each for each in overall(list(evaluations), resamples=200)}


def test_the_mean_is_of_chance_normalised_values():
    two = evaluation({"a": rows([1, 1, 1, 0]), "b": rows([1, 1, 0, 0])})  # chance 1/2: 0.5 and 0
    four = evaluation(
        {"a": rows([1, 0, 0, 0], choices="abcd"), "b": rows([1, 1, 1, 1], choices="abcd")}, task="u"
    )  # chance 1/4: 0 and 1
    found = across(two, four)
    assert found["all", "a"]["mean"] == pytest.approx(0.25)
    assert found["all", "b"]["mean"] == pytest.approx(0.5)
    assert found["gl", "a"]["n_evaluations"] == 2
    assert found["all", "a"]["win_rate"] == found["all", "b"]["win_rate"] == 0.5


def test_seeds_of_one_evaluation_count_as_one():
    good, bad = {"a": rows([1, 1])}, {"a": rows([0, 0])}
    found = across(evaluation(good, seed=0), evaluation(good, seed=1), evaluation(bad, task="u"))
    assert found["all", "a"]["mean"] == pytest.approx(0.0)  # of 1 and -1, not of 1, 1 and -1


def test_evaluations_that_a_model_lacks_or_without_chance_are_left_out_and_counted():
    both = evaluation({"a": rows([1, 0]), "b": rows([1, 1])})
    one = evaluation({"a": rows([1, 1])}, task="u")
    words = evaluation({m: [row("i", surprisal=1.0)] for m in "ab"}, last_word.METRICS, task="w")
    found = across(both, one, words)
    assert (found["all", "a"]["n_evaluations"], found["all", "a"]["n_excluded"]) == (1, 2)


def test_a_model_without_any_result_takes_nothing_from_the_others():
    found = across(evaluation({"a": rows([1, 0]), "b": rows([1, 1]), "failed": []}))
    assert set(found) == {(scope, model) for scope in ("gl", "all") for model in "ab"}


def test_ranks_are_shared_unless_significant():
    found = across(*(evaluation(TABLES, task=f"t{i}") for i in range(3)))
    assert [found["all", model]["rank"] for model in ("best", "near", "weak")] == [1, 1, 3]
    best = found["all", "best"]
    assert best["ci_low"] < best["mean"] < best["ci_high"]
    assert best["win_rate"] >= found["all", "weak"]["win_rate"] == 0.0


def test_evaluations_of_the_same_items_are_no_independent_evidence():
    """Three ways to ask one data set vary together: the interval is that of one, not narrower by sqrt(3)."""
    once = across(evaluation(TABLES))
    thrice = across(*(evaluation(TABLES, style=style) for style in "abc"))
    for name in ("ci_low", "ci_high"):
        assert thrice["all", "near"][name] == pytest.approx(once["all", "near"][name])


def test_auc_speaks_for_acceptability():
    rng = np.random.default_rng(5)
    table = [row(f"i{i}", surprisal=rng.normal() + 2 * (i % 2), label=float(i % 2 == 0)) for i in range(40)]
    found = across(evaluation({"a": table}, acceptability.METRICS))
    assert 0.5 < found["all", "a"]["mean"] <= 1
    assert found["all", "a"]["win_rate"] is None


def test_overall_fits_the_schema(tmp_path):
    found = overall([evaluation(TABLES), evaluation(TABLES, language="es")], resamples=100)
    artifacts.write(tmp_path / "o.parquet", OVERALL, found, {})
    assert {each["scope"] for each in found} == {"gl", "es", "all"}
