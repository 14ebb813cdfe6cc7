import numpy as np
import pytest
from support import observed
from support.result_rows import EVALUATION, rankings, row, rows
from vernacular.comparison.align import align
from vernacular.comparison.overall import overall
from vernacular.comparison.pairwise import compare_sides
from vernacular.comparison.schema import OVERALL, RANKINGS
from vernacular.core import artifacts
from vernacular.protocols.acceptability import metrics as acceptability
from vernacular.protocols.last_word import metrics as last_word
from vernacular.protocols.options import metrics as options


def rank(tables, metrics=options.METRICS, **kwargs):
    items, sides = align(tables)
    return {record["model"]: record for record in rankings(items, sides, metrics, EVALUATION, resamples=300, **kwargs)}


def draw_correct(seed, share, n=200):
    """Draw nested outcomes: items correct at one share are correct at all larger shares of the same seed."""
    return np.random.default_rng(seed).random(n) < share


TABLES = {"weak": rows(draw_correct(0, 0.3)), "best": rows(draw_correct(0, 0.8)), "near": rows(draw_correct(1, 0.74))}


def test_ranks_and_best_group():
    records = rank(TABLES)
    assert {model: record["rank"] for model, record in records.items()} == {"best": 1, "near": 1, "weak": 3}
    assert {model: record["in_best_group"] for model, record in records.items()} == {
        "best": True,
        "near": True,
        "weak": False,
    }
    assert {record["best"] for record in records.values()} == {"best"}
    assert records["best"]["p_value"] is None
    assert records["weak"]["difference"] == pytest.approx(np.mean(draw_correct(0, 0.3)) - np.mean(draw_correct(0, 0.8)))


def test_earlier_checkpoints_are_tested_against_the_best_only():
    """Their number of tests grows with the length of a series; the other models are ranked among themselves."""
    series = {f"mine.step{step}": rows(draw_correct(0, 0.3 + step / 200)) for step in range(1, 41)}
    earlier = [*series][:-1]
    with observed.calls(compare_sides, lambda arguments: len(arguments["pairs"])) as n_pairs:
        records, complete = rank(TABLES | series, unranked=earlier), rank(TABLES | series)
    n_ranked = len(TABLES) + 1
    assert n_pairs == [n_ranked * (n_ranked - 1) // 2 + len(earlier), 43 * 42 // 2]
    assert {model for model, record in records.items() if record["rank"] is None} == {*earlier}
    others = {"rank": None, "compared_with": [], "worse_than": []}
    for model, record in records.items():
        assert record | others == complete[model] | others, "the tests against the best are the same"
        assert model not in earlier or record["compared_with"] == [record["best"]]
    ranks = {model: record["rank"] for model, record in records.items() if model not in earlier}
    without = rank({model: table for model, table in (TABLES | series).items() if model not in earlier})
    assert ranks == {model: record["rank"] for model, record in without.items()}


def test_best_model_may_be_an_earlier_checkpoint():
    tables = TABLES | {"mine.step1": rows([True] * 200), "mine.step2": rows(draw_correct(2, 0.5))}
    records = rank(tables, unranked=["mine.step1"])
    assert {record["best"] for record in records.values()} == {"mine.step1"}
    assert (records["mine.step1"]["rank"], records["mine.step1"]["in_best_group"]) == (None, True)
    assert records["best"]["rank"] == 1
    assert not records["best"]["in_best_group"]


def test_existing_comparisons_give_the_same_rankings():
    items, sides = align(TABLES)
    pairs = [("weak", "near"), ("near", "best")]
    comparisons = compare_sides(items, sides, pairs, options.METRICS, EVALUATION, resamples=300)
    assert rank(TABLES, comparisons=comparisons) == rank(TABLES)


def test_lowest_surprisal_is_best():
    tables = {
        name: [row(f"i{i}", surprisal=offset + i % 5) for i in range(30)] for name, offset in (("a", 3.0), ("b", 1.0))
    }
    records = rank(tables, last_word.METRICS)
    assert records["b"]["best"] == "b"
    assert records["a"]["rank"] == 2


def test_single_model_is_not_ranked():
    assert rank({"only": rows([1, 0])}) == {}
    assert rank({"only": rows([1, 0]), "failed": []}) == {}


def test_equal_models_share_rank_1():
    records = rank({"a": rows([1, 0, 1]), "b": rows([1, 0, 1])})
    assert [record["rank"] for record in records.values()] == [1, 1]
    assert all(record["in_best_group"] for record in records.values())


def test_rankings_match_the_schema(tmp_path):
    artifacts.write(tmp_path / "s.parquet", RANKINGS, list(rank(TABLES).values()), {})


def evaluation(tables, metrics=options.METRICS, **metadata):
    items, sides = align(tables)
    metadata = EVALUATION | metadata
    return metadata | {"evaluation": ".".join(map(str, metadata.values()))}, metrics, items, sides


def aggregate(*evaluations):
    return {(record["scope"], record["model"]): record for record in overall(list(evaluations), resamples=200)}


def test_mean_of_chance_normalized_values():
    two_options = evaluation({"a": rows([1, 1, 1, 0]), "b": rows([1, 1, 0, 0])})  # chance 1/2: 0.5 and 0
    four_options = evaluation(
        {"a": rows([1, 0, 0, 0], choices="abcd"), "b": rows([1, 1, 1, 1], choices="abcd")}, task="u"
    )  # chance 1/4: 0 and 1
    records = aggregate(two_options, four_options)
    assert records["all", "a"]["mean"] == pytest.approx(0.25)
    assert records["all", "b"]["mean"] == pytest.approx(0.5)
    assert records["gl", "a"]["n_evaluations"] == 2
    assert records["all", "a"]["win_rate"] == records["all", "b"]["win_rate"] == 0.5


def test_mean_over_languages_counts_each_language_once():
    galician = [evaluation({"a": rows([1, 1, 1, n])}, task=f"t{n}{k}") for k, n in enumerate((1, 1, 1))]
    spanish = evaluation({"a": rows([1, 1, 0, 0])}, language="es")
    record = aggregate(*galician, spanish)["all", "a"]
    assert record["mean"] == pytest.approx(0.75)  # of 1, 1, 1 and 0
    assert (record["mean_over_languages"], record["n_languages"]) == (pytest.approx(0.5), 2)
    assert record["languages_low"] < 0.5 < record["languages_high"]
    alone = aggregate(*galician[:1])["gl", "a"]
    assert (alone["mean_over_languages"], alone["n_languages"]) == (alone["mean"], 1)


def test_each_task_has_a_mean_over_its_languages():
    galician, spanish = (evaluation({"a": rows([1, 1, 0, n])}, language=code) for code, n in (("gl", 0), ("es", 1)))
    other = evaluation({"a": rows([0, 0])}, task="u")
    records = aggregate(galician, spanish, other)
    assert records["task:t", "a"]["mean"] == pytest.approx(0.25)  # of 0 and 0.5
    assert (records["task:t", "a"]["n_evaluations"], records["task:u", "a"]["mean"]) == (2, -1.0)


def test_seeds_are_averaged():
    all_correct, all_incorrect = {"a": rows([1, 1])}, {"a": rows([0, 0])}
    records = aggregate(
        evaluation(all_correct, seed=0), evaluation(all_correct, seed=1), evaluation(all_incorrect, task="u")
    )
    assert records["all", "a"]["mean"] == pytest.approx(0.0)  # of 1 and -1, not of 1, 1 and -1


def test_excluded_evaluations_are_counted():
    shared = evaluation({"a": rows([1, 0]), "b": rows([1, 1])})
    single = evaluation({"a": rows([1, 1])}, task="u")
    surprisals = evaluation({m: [row("i", surprisal=1.0)] for m in "ab"}, last_word.METRICS, task="w")
    records = aggregate(shared, single, surprisals)
    assert (records["all", "a"]["n_evaluations"], records["all", "a"]["n_excluded"]) == (1, 2)


def test_model_without_results_is_excluded():
    records = aggregate(evaluation({"a": rows([1, 0]), "b": rows([1, 1]), "failed": []}))
    assert set(records) == {(scope, model) for scope in ("gl", "all", "task:t") for model in "ab"}


def test_ranks_are_shared_unless_significant():
    records = aggregate(*(evaluation(TABLES, task=f"t{i}") for i in range(3)))
    assert [records["all", model]["rank"] for model in ("best", "near", "weak")] == [1, 1, 3]
    assert [records["all", model]["rank_worst"] for model in ("best", "near", "weak")] == [2, 2, 3]
    best = records["all", "best"]
    assert best["ci_low"] < best["mean"] < best["ci_high"]
    assert best["win_rate"] >= records["all", "weak"]["win_rate"] == 0.0


def test_evaluations_of_the_same_items_do_not_narrow_the_interval():
    """Three evaluations of one dataset are resampled together: the interval is not narrower by sqrt(3)."""
    single = aggregate(evaluation(TABLES))
    triple = aggregate(*(evaluation(TABLES, style=style) for style in "abc"))
    for name in ("ci_low", "ci_high"):
        assert triple["all", "near"][name] == pytest.approx(single["all", "near"][name])


def test_auc_represents_acceptability():
    rng = np.random.default_rng(5)
    table = [row(f"i{i}", surprisal=rng.normal() + 2 * (i % 2), label=float(i % 2 == 0)) for i in range(40)]
    records = aggregate(evaluation({"a": table}, acceptability.METRICS))
    assert 0.5 < records["all", "a"]["mean"] <= 1
    assert records["all", "a"]["win_rate"] is None


def test_undefined_value_excludes_its_evaluation_and_leaves_the_mean():
    acceptable = [row(f"i{i}", surprisal=float(i), label=1.0) for i in range(4)]  # no area under the curve
    tables = {"a": rows([1, 1, 0]), "b": rows([1, 0, 0])}
    own = evaluation(dict.fromkeys("ab", acceptable), acceptability.METRICS, task="cola")
    records, alone = aggregate(evaluation(tables), own), aggregate(evaluation(tables))
    assert records["all", "a"] == alone["all", "a"] | {"n_excluded": 1}
    assert ("task:cola", "a") not in records


def test_few_sentences_of_a_label_leave_the_overall_interval():
    rng = np.random.default_rng(5)
    labels = [float(i < 14) for i in range(16)]  # 12 % of the resamples have one label only
    table = [row(f"i{i}", surprisal=rng.normal() - label, label=label) for i, label in enumerate(labels)]
    record = aggregate(evaluation({"a": table}, acceptability.METRICS))["all", "a"]
    assert record["ci_low"] < record["mean"] < record["ci_high"]


def test_overall_matches_the_schema(tmp_path):
    records = overall([evaluation(TABLES), evaluation(TABLES, language="es")], resamples=100)
    artifacts.write(tmp_path / "o.parquet", OVERALL, records, {})
    assert {record["scope"] for record in records} == {"gl", "es", "all", "task:t"}
