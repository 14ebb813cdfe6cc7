"""Consistency between languages: worked orders, the same rows under two tags, unrelated models, what is not compared."""

import numpy as np
import pyarrow as pa
import pytest
from vernacular.comparison.languages import METRICS, compare_languages, groups
from vernacular.comparison.schema import BETWEEN_LANGUAGES, LANGUAGE_ITEMS
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.metrics.spans import choose_option
from vernacular.statistics.consistency import unrelated_rank_c

SETTING = {"task": "rivers", "protocol": "options", "shots": 0, "seed": 0, "style": "default", "prompt": "default"}


def settings(*languages: str) -> dict[str, dict]:
    return {f"rivers.{language}": SETTING | {"language": language} for language in languages}


def table(scores, gold, *, language="en", clusters=None, ids=None, without=()) -> pa.Table:
    """TASK_RESULTS of options with these scores (n, N)."""
    rows = []
    for i, (own, correct) in enumerate(zip(np.asarray(scores, dtype=float).tolist(), gold, strict=True)):
        choice = choose_option(own, [correct])
        row = dict.fromkeys(TASK_RESULTS.schema.names) | {"item_id": ids[i] if ids else f"i{i:04}"}
        row |= {"prompt": f"{language} {i}", "choices": [f"{language} {option}" for option in range(len(own))]}
        row |= {"gold": [correct], "option_scores": own, "metrics": {}, "correct": choice.correct}
        row |= {"predicted_indices": choice.predicted_indices, "prediction": f"{language} {np.argmax(own)}"}
        rows.append(row | {"cluster_id": clusters[i] if clusters else None})
    names = [name for name in TASK_RESULTS.schema.names if name not in without]
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schema=TASK_RESULTS.schema)


def compare(models: dict[str, dict[str, pa.Table]], pairs=()):
    """Return (rows by model, baseline, language, reference and metric; items; notes)."""
    languages = list(dict.fromkeys(language for tables in models.values() for language in tables))
    own = settings(*languages)
    results = {model: {f"rivers.{name}": each for name, each in tables.items()} for model, tables in models.items()}
    [group] = groups(own)
    rows, items, notes = compare_languages(group, results, pairs, own)
    rows, items = (
        pa.Table.from_pylist(found, schema=kind.schema).to_pylist()
        for kind, found in ((BETWEEN_LANGUAGES, rows), (LANGUAGE_ITEMS, items))
    )
    key = ("model", "baseline", "language", "reference", "metric")
    return {tuple(row[name] for name in key): row for row in rows}, items, notes


def test_worked_orders():
    english = table([[3, 2, 1], [3, 2, 1]], [0, 0])
    galician = table([[3, 1, 2], [2, 3, 1]], [0, 0], language="gl")  # A C B, B A C
    rows, items, _ = compare({"m": {"en": english, "gl": galician}})
    row = rows["m", "", "gl", "en", "rank_c"]
    assert row["value"] == pytest.approx((0.8776 + 0.3348) / 2, abs=1e-4) == pytest.approx(0.6062, abs=1e-4)
    assert row["chance"] == pytest.approx(unrelated_rank_c(3))
    assert rows["m", "", "en", "gl", "rank_c"]["value"] == row["value"], "symmetric"
    kept = rows["m", "", "gl", "en", "correct_if_correct_there"]
    assert (kept["value"], kept["n"], kept["chance"]) == (0.5, 2, 0.5)
    back = rows["m", "", "en", "gl", "correct_if_correct_there"]
    assert (back["value"], back["n"], back["chance"]) == (1.0, 1, 1.0)
    assert rows["m", "", "gl", "en", "same_if_both_incorrect"]["n"] == 0
    [item] = items
    assert (item["item_id"], item["models"], item["predictions"], item["n_models"]) == ("i0001", ["m"], ["gl 1"], 1)
    assert (item["text"], item["reference_text"]) == ("gl 1", "en 1")


def test_reference_without_english_is_the_first_by_its_tag():
    tables = {"gl": table([[1, 2]], [0], language="gl"), "es": table([[2, 1]], [0], language="es")}
    _, items, _ = compare({"m": tables})
    assert [(item["language"], item["reference"]) for item in items] == [("gl", "es")]


@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "ties"])
def test_the_same_rows_under_two_tags_are_1(rounded):
    rng = np.random.default_rng(0)
    scores, gold = rng.normal(size=(200, 4)), rng.integers(4, size=200)
    scores = scores.round(0) if rounded else scores
    rows, items, _ = compare({"m": {"en": table(scores, gold), "gl": table(scores, gold, language="gl")}})
    assert {row["value"] for row in rows.values()} == {1.0}
    assert not items


def test_unrelated_answers_have_the_chance_values_within_their_interval():
    rng, gold = np.random.default_rng(1), np.random.default_rng(2).integers(4, size=1_200)
    rows, items, _ = compare({"m": {name: table(rng.normal(size=(1_200, 4)), gold) for name in ("en", "gl")}})
    expected = {"rank_c": 0.3768, "same_if_both_incorrect": 1 / 3, "correct_if_correct_there": 0.25}
    for metric, chance in expected.items():
        row = rows["m", "", "gl", "en", metric]
        assert row["chance"] == pytest.approx(chance, abs=0.04 if metric == METRICS[2] else 1e-4)
        assert row["ci_low"] < row["chance"] < row["ci_high"]
    kept = rows["m", "", "gl", "en", METRICS[2]]
    assert len(items) == round(kept["n"] * (1 - kept["value"]))


def test_two_models_are_paired_and_clusters_are_drawn_together():
    rng, gold = np.random.default_rng(3), np.zeros(300, dtype=int)
    english = rng.normal(size=(300, 4))
    close, far = english + 0.2 * rng.normal(size=(300, 4)), rng.normal(size=(300, 4))

    def run(repeat: int, clusters=None):
        models = {"close": close, "far": far, "same": far}
        given = {
            name: {
                "en": table(english.repeat(repeat, 0), gold.repeat(repeat), clusters=clusters),
                "gl": table(scores.repeat(repeat, 0), gold.repeat(repeat), clusters=clusters),
            }
            for name, scores in models.items()
        }
        return compare(given, [("far", "close"), ("far", "same")])[0]

    once = run(1)
    better = once["close", "far", "gl", "en", "rank_c"]
    assert better["value"] == pytest.approx(
        once["close", "", "gl", "en", "rank_c"]["value"] - once["far", "", "gl", "en", "rank_c"]["value"]
    )
    assert better["ci_low"] > 0
    assert better["p_value"] < 0.001
    assert once["same", "far", "gl", "en", "rank_c"]["value"] == 0
    assert once["same", "far", "gl", "en", "rank_c"]["p_value"] == 1
    five = run(5, [f"c{i // 5}" for i in range(1_500)])  # five copies of an item are no more evidence
    widths = [rows["far", "", "gl", "en", "rank_c"] for rows in (once, five)]
    widths = [row["ci_high"] - row["ci_low"] for row in widths]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_what_is_not_comparable_is_stated():
    scores, gold = np.random.default_rng(4).normal(size=(20, 4)), np.arange(20) % 4
    english = table(scores, gold)
    cases = {
        "no item has the same ID": table(scores, gold, ids=[f"x{i}" for i in range(20)]),
        "20 of 20 items with the same ID have another number of options, or the gold at another position": table(
            scores[:, ::-1], 3 - gold
        ),
        "no model has results in both languages": table(scores[:0], gold[:0]),
        "no model has scores of the options, or a known answer, to the same item in both languages": (
            table(scores, gold, without=("correct", "option_scores"))
        ),
    }
    for reason, galician in cases.items():
        rows, items, notes = compare({"m": {"en": english, "gl": galician}})
        assert notes == [f"rivers.gl: not compared with en: {reason}"]
        assert not rows
        assert not items


def test_other_options_of_a_few_items_are_excluded_and_counted():
    rng = np.random.default_rng(5)
    gold = np.zeros(20, dtype=int)
    other = gold.copy()
    other[:3] = 1
    rows, _, notes = compare(
        {"m": {"en": table(rng.normal(size=(20, 4)), gold), "gl": table(rng.normal(size=(20, 4)), other)}}
    )
    row = rows["m", "", "gl", "en", "rank_c"]
    assert (row["n"], row["n_compared"], row["n_excluded"], notes) == (17, 17, 3, [])


def test_of_many_languages_only_pairs_with_the_reference_are_compared():
    scores = np.random.default_rng(6).normal(size=(5, 3))
    names = ["gl", "en", *(f"x{letter}" for letter in "abcdefghijk")]
    models = {"m": {name: table(scores, [0] * 5, language=name) for name in names}}
    assert {(key[2], key[3]) for key in compare(models)[0]} == {
        pair for name in names if name != "en" for pair in ((name, "en"), ("en", name))
    }
    del models["m"]["xk"]
    assert len({(key[2], key[3]) for key in compare(models)[0]}) == 12 * 11


def test_a_model_without_results_has_no_rows():
    scores = np.random.default_rng(7).normal(size=(5, 3))
    full, empty = table(scores, [0] * 5), table(scores[:0], [])
    rows, _, _ = compare({"m": {"en": full, "gl": full}, "n": {"en": full, "gl": empty}}, [("m", "n")])
    assert {key[0] for key in rows} == {"m"}


@pytest.mark.parametrize(
    ("choices", "gold", "chosen", "n", "chance"),
    [("aab", [0], 2, 1, 1.0), ("abc", [0], 2, 1, 0.5), ("abc", [0], 0, 0, None), ("ab", [0, 1], 1, 0, None)],
)
def test_same_incorrect_options_are_among_the_incorrect_ones(choices, gold, chosen, n, chance):
    [row] = table([range(len(choices))], [0]).to_pylist()
    row |= {"choices": list(choices), "gold": gold, "correct": False, "predicted_indices": [chosen]}
    same = pa.Table.from_pylist([row], schema=TASK_RESULTS.schema)
    found = compare({"m": {"en": same, "gl": same}})[0]["m", "", "gl", "en", "same_if_both_incorrect"]
    assert (found["n"], found["chance"]) == (n, chance)
