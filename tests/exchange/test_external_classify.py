"""Classification of external results: complete rows."""

import math

import pytest
from support.result_rows import row
from vernacular.exchange.classify import ExternalResult, build_row
from vernacular.exchange.external_results import Reference, load_external_results
from vernacular.metrics.schema import as_table

OPTIONS = ("si", "nonón", "🙂")  # 2, 5 and 1 characters; 2, 6 and 4 bytes
CONTINUATIONS = tuple(("Q", f" {option}") for option in OPTIONS)


def classify(protocol, result, options=OPTIONS, gold=(1,)):
    """Return (fields that differ from the row of an empty result, whether the file classifies it differently)."""
    item_row = row("a", choices=options, gold=gold, cluster="c", category="k", prompt="Q") | {"flags": "ours"}
    result_row, differs = build_row(item_row, result, protocol)
    empty_row = {
        "item_id": "a", "cluster_id": "c", "category": "k", "prompt": "Q", "choices": list(options), "gold": list(gold),
        "option_scores": None, "prediction": None, "predicted_indices": None, "correct": None, "tie": None, "metrics": {},
        "flags": None,
    }  # fmt: skip
    assert list(result_row) == list(empty_row)
    return {name: value for name, value in result_row.items() if value != empty_row[name]}, differs


def external_result(**fields):
    return ExternalResult("1", (), **fields)


def scored_result(*scores, **fields):
    return external_result(continuations=CONTINUATIONS[: len(scores)], scores=scores, **fields)


UNREADABLE = {"flags": "error: no output that can be classified"}


@pytest.mark.parametrize("protocol", ["options", "minimal_pair"])
def test_scored_options_get_length_normalized_accuracy(protocol):
    # per character: -1, -0.8 (correct), -3; per byte: -1, -0.667 (correct), -0.75; unnormalized: -2, -4, -3
    result = classify(protocol, scored_result(-2.0, -4.0, -3.0, correct=True))
    metrics = {"accuracy": 0.0, "accuracy_char": 1.0, "accuracy_byte": 1.0}
    expected = {
        "option_scores": [-2.0, -4.0, -3.0],
        "prediction": "si",
        "predicted_indices": [0],
        "correct": False,
        "tie": False,
    }
    assert result == (expected | {"metrics": metrics}, True)
    # per character: -0.1, -0.2, -0.3; per byte: -0.1, -1 / 6, -0.075
    metrics = classify(protocol, scored_result(-0.2, -1.0, -0.3), gold=(2,))[0]["metrics"]
    assert metrics == {"accuracy": 0.0, "accuracy_char": 0.0, "accuracy_byte": 1.0}


def test_length_includes_outer_whitespace():
    # four and two characters, as in tests/protocols/test_options_metrics.py; stripped, the first would have one
    changes = classify(
        "options", external_result(continuations=(("Q", " a"), ("Q", " bb")), scores=(-2.0, -1.5)), (" a  ", "bb"), (0,)
    )[0]
    assert changes["metrics"] == {"accuracy": 0.0, "accuracy_char": 1.0, "accuracy_byte": 1.0}


@pytest.mark.parametrize("protocol", ["cloze", "letters", "target_word"])
def test_other_protocols_are_not_length_normalized(protocol):
    assert classify(protocol, scored_result(-2.0, -4.0, -3.0))[0]["metrics"] == {"accuracy": 0.0}


def test_empty_option_is_not_length_normalized():
    changes = classify(
        "options", external_result(continuations=(("", "a"), ("", "")), scores=(-1.0, -2.0)), ("a", ""), (0,)
    )[0]
    assert changes["metrics"] == {"accuracy": 1.0}


@pytest.mark.parametrize(("protocol", "prediction"), [("options", "nonón | 🙂"), ("letters", "B | C")])
def test_tie_lists_all_options_and_is_incorrect(protocol, prediction):
    changes, differs = classify(protocol, scored_result(-4.0, -1.0, -1.0, correct=False))
    assert (changes["prediction"], changes["predicted_indices"], changes["tie"], changes["correct"]) == (
        prediction,
        [1, 2],
        True,
        False,
    )
    assert (changes["metrics"]["accuracy"], changes["metrics"]["tie:accuracy"], differs) == (0.0, 1.0, False)


def test_scores_without_gold_or_with_nan():
    result = classify("cloze", scored_result(-2.0, -4.0, -3.0), gold=())
    expected = {"option_scores": [-2.0, -4.0, -3.0], "prediction": "si", "predicted_indices": [0], "tie": False}
    assert result == (expected, False)
    assert "flags" not in classify("letters", external_result(prediction="b"), gold=())[0]
    changes = classify("cloze", scored_result(math.nan, -4.0, -3.0))[0]
    assert math.isnan(changes.pop("option_scores")[0])
    assert changes == UNREADABLE
    assert classify("cloze", scored_result(-2.0, -4.0)) == (
        {"flags": "error: options differ from those of the item"},
        False,
    )


def test_predictions_are_matched_to_options():
    result = classify("cloze", external_result(prediction=" NONÓN!", correct=None))
    expected = {
        "prediction": " NONÓN!",
        "predicted_indices": [1],
        "tie": False,
        "correct": True,
        "metrics": {"accuracy": 1.0},
    }
    assert result == (expected, False)
    duplicates = classify("cloze", external_result(prediction="b"), ("a", "b", "b "), (2,))[0]
    assert (duplicates["predicted_indices"], duplicates["correct"]) == ([1], True)
    invalid = {"prediction": "quizais", "flags": "error: the prediction is not one of the options"}
    assert classify("cloze", external_result(prediction="quizais")) == (invalid, False)
    assert classify("letters", external_result(prediction="BX"))[0]["flags"] == invalid["flags"]
    for letter in ("B", "b)", "(B)", "[B].", "Ｂ："):
        assert classify("letters", external_result(prediction=letter))[0]["predicted_indices"] == [1]
    assert classify("cloze", external_result()) == (UNREADABLE, False)


def test_correct_of_the_file_overrides_its_prediction():
    result = classify("cloze", external_result(prediction="si", correct=True))
    expected = {
        "prediction": "si",
        "predicted_indices": [0],
        "tie": False,
        "correct": True,
        "metrics": {"accuracy": 1.0},
    }
    assert result == (expected, False)
    assert classify("cloze", external_result(correct=False)) == (
        {"correct": False, "metrics": {"accuracy": 0.0}},
        False,
    )
    unknown = classify("cloze", external_result(prediction="quizais", correct=True))[0]
    assert unknown == {"prediction": "quizais", "correct": True, "metrics": {"accuracy": 1.0}}


def test_generated_text_has_text_metrics_and_no_choice():
    changes, differs = classify("generation", external_result(prediction="nonón", correct=False))
    assert changes.pop("metrics") == {"exact_match": 1.0, "token_f1": 1.0, "chrf": pytest.approx(100)}
    assert (changes, differs) == ({"prediction": "nonón"}, True)
    for result in (external_result(correct=True), external_result(correct=True, prediction="x")):
        gold = (1,) if result.prediction is None else ()
        changes, differs = classify("generation", result, gold=gold)
        assert (changes.pop("prediction", None), changes, differs) == (
            result.prediction,
            {"metrics": {"exact_match": 1.0}},
            False,
        )
    assert classify("generation", external_result(prediction="x"), gold=()) == ({"prediction": "x"}, False)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"scores": (-4.5,)}, {"metrics": {"surprisal": 4.5, "coverage": 1.0}}),
        ({"scores": (-4.5,), "greedy": False}, {"metrics": {"surprisal": 4.5, "coverage": 1.0, "greedy": 0.0}}),
        ({"scores": (-4.5, -1.0)}, {"flags": "error: no log-likelihood of the word"}),
        ({"scores": (-math.inf,)}, {"flags": "error: no log-likelihood of the word"}),
        ({"scores": (math.nan,)}, {"flags": "error: no log-likelihood of the word"}),
        ({"correct": True}, {"flags": "error: no log-likelihood of the word"}),
    ],
)
def test_last_word_surprisal(fields, expected):
    assert classify("last_word", external_result(**fields), (), ()) == (expected, False)


LETTERS = tuple(("…", f" {letter}") for letter in "abc")


@pytest.mark.parametrize(
    ("options", "texts", "scores"),
    [
        (OPTIONS, ("Q", "🙂", "si", "nonón"), [-2.0, -3.0, -1.0]),
        (OPTIONS, ("Q", "SI", "NONÓN", "🙂"), [-1.0, -2.0, -3.0]),
        (OPTIONS, ("Q", "si", "nonón"), None),  # one option is missing
        (OPTIONS, ("Q", "si", "nonón", "🙂", "si"), None),  # one option occurs twice
        (("si", "si ", "🙂"), ("si", "🙂"), None),  # duplicate options
    ],
)
def test_letters_follow_the_document_order(options, texts, scores):
    changes = classify(
        "letters", ExternalResult("1", texts, continuations=LETTERS, scores=(-1.0, -2.0, -3.0)), options
    )[0]
    assert changes.get("option_scores") == scores


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.jsonl"])
def test_directory_with_user_table(tmp_path, name):
    text = '{"item_id": "a", "correct": 1}\n' if name.endswith("l") else "item_id\tcorrect\na\t1\n"
    (tmp_path / name).write_text(text.replace("\t", "\t" if name.endswith("tsv") else ","))
    item_row = {"item_id": "a", "context": "", "question": "Q", "choices": ["yes", "no"]}
    tables, _ = load_external_results(tmp_path, {"e": Reference("options", 0, as_table([row("a", False)]), [item_row])})
    assert tables["e"]["correct"].to_pylist() == [True]
