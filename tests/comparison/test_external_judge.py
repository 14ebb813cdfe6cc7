"""Answers from elsewhere judged by our rules: whole rows, by hand."""

import math

import pytest
from support.result_rows import row
from vernacular.comparison.external.join import Reference, join
from vernacular.comparison.external.judge import row_of
from vernacular.comparison.external.results import Answer
from vernacular.metrics.schema import as_table

OPTIONS = ("si", "nonón", "🙂")  # 2, 5 and 1 characters; 2, 6 and 4 bytes
ASKED = tuple(("Q", f" {option}") for option in OPTIONS)


def judged(protocol, answer, options=OPTIONS, gold=(1,)):
    """(what differs from an answer that says nothing, judged otherwise?)"""
    ours = row("a", choices=options, gold=gold, cluster="c", category="k", prompt="Q") | {"flags": "ours"}
    found, otherwise = row_of(ours, answer, protocol)
    nothing = {
        "item_id": "a", "cluster_id": "c", "category": "k", "prompt": "Q", "choices": list(options), "gold": list(gold),
        "option_scores": None, "prediction": None, "predicted_indices": None, "correct": None, "tie": None, "metrics": {},
        "flags": None,
    }  # fmt: skip
    assert list(found) == list(nothing)
    return {name: value for name, value in found.items() if value != nothing[name]}, otherwise


def answer(**given):
    return Answer("1", (), **given)


def scored(*scores, **given):
    return answer(asked=ASKED[: len(scores)], scores=scores, **given)


UNREAD = {"flags": "error: no output that can be classified"}


@pytest.mark.parametrize("protocol", ["options", "minimal_pair"])
def test_scored_options_are_also_judged_by_their_length(protocol):
    # a character: -1, -0.8, -3 (the right one); a byte: -1, -0.667, -0.75; as it is: -2, -4, -3
    found = judged(protocol, scored(-2.0, -4.0, -3.0, correct=True))
    values = {"accuracy": 0.0, "accuracy_char": 1.0, "accuracy_byte": 1.0}
    row = {
        "option_scores": [-2.0, -4.0, -3.0],
        "prediction": "si",
        "predicted_indices": [0],
        "correct": False,
        "tie": False,
    }
    assert found == (row | {"metrics": values}, True)
    # a character: -0.1, -0.2, -0.3; a byte: -0.1, -1 / 6, -0.075
    values = judged(protocol, scored(-0.2, -1.0, -0.3), gold=(2,))[0]["metrics"]
    assert values == {"accuracy": 0.0, "accuracy_char": 0.0, "accuracy_byte": 1.0}


def test_lengths_are_those_of_the_options_as_written():
    # as in tests/protocols/test_options_metrics.py: by four characters and two; without its outer spaces the first has one
    found = judged("options", answer(asked=(("Q", " a"), ("Q", " bb")), scores=(-2.0, -1.5)), (" a  ", "bb"), (0,))[0]
    assert found["metrics"] == {"accuracy": 0.0, "accuracy_char": 1.0, "accuracy_byte": 1.0}


@pytest.mark.parametrize("protocol", ["cloze", "letters", "target_word"])
def test_other_protocols_do_not_scale_by_length(protocol):
    assert judged(protocol, scored(-2.0, -4.0, -3.0))[0]["metrics"] == {"accuracy": 0.0}


def test_an_option_of_no_length_is_not_scaled():
    found = judged("options", answer(asked=(("", "a"), ("", "")), scores=(-1.0, -2.0)), ("a", ""), (0,))[0]
    assert found["metrics"] == {"accuracy": 1.0}


@pytest.mark.parametrize(("protocol", "names"), [("options", "nonón | 🙂"), ("letters", "B | C")])
def test_a_tie_is_shown_with_all_that_share_it_and_is_not_right(protocol, names):
    found, otherwise = judged(protocol, scored(-4.0, -1.0, -1.0, correct=False))
    assert (found["prediction"], found["predicted_indices"], found["tie"], found["correct"]) == (
        names,
        [1, 2],
        True,
        False,
    )
    assert (found["metrics"]["accuracy"], found["metrics"]["tie:accuracy"], otherwise) == (0.0, 1.0, False)


def test_scores_without_a_right_option_or_that_are_no_numbers():
    found = judged("cloze", scored(-2.0, -4.0, -3.0), gold=())
    row = {"option_scores": [-2.0, -4.0, -3.0], "prediction": "si", "predicted_indices": [0], "tie": False}
    assert found == (row | UNREAD, False)
    scores = judged("cloze", scored(math.nan, -4.0, -3.0))[0]
    assert math.isnan(scores.pop("option_scores")[0])
    assert scores == UNREAD
    assert judged("cloze", scored(-2.0, -4.0)) == ({"flags": "error: options differ from those of the item"}, False)


def test_a_prediction_is_one_of_the_options_or_its_twin():
    found = judged("cloze", answer(prediction=" NONÓN!", correct=None))
    row = {
        "prediction": " NONÓN!",
        "predicted_indices": [1],
        "tie": False,
        "correct": True,
        "metrics": {"accuracy": 1.0},
    }
    assert found == (row, False)
    twins = judged("cloze", answer(prediction="b"), ("a", "b", "b "), (2,))[0]
    assert (twins["predicted_indices"], twins["correct"]) == ([1], True)
    none = {"prediction": "quizais", "flags": "error: the prediction is not one of the options"}
    assert judged("cloze", answer(prediction="quizais")) == (none, False)
    assert judged("letters", answer(prediction="BX"))[0]["flags"] == none["flags"]
    assert judged("cloze", answer()) == (UNREAD, False)


def test_with_both_what_the_file_says_of_right_and_wrong_counts():
    found = judged("cloze", answer(prediction="si", correct=True))
    row = {"prediction": "si", "predicted_indices": [0], "tie": False, "correct": True, "metrics": {"accuracy": 1.0}}
    assert found == (row, False)
    assert judged("cloze", answer(correct=False)) == ({"correct": False, "metrics": {"accuracy": 0.0}}, False)
    unknown = judged("cloze", answer(prediction="quizais", correct=True))[0]
    assert unknown == {"prediction": "quizais", "correct": True, "metrics": {"accuracy": 1.0}}


def test_a_written_answer_has_its_text_metrics_and_no_choice():
    found, otherwise = judged("generation", answer(prediction="nonón", correct=False))
    assert found.pop("metrics") == {"exact_match": 1.0, "token_f1": 1.0, "chrf": pytest.approx(100)}
    assert (found, otherwise) == ({"prediction": "nonón"}, True)
    for given in (answer(correct=True), answer(correct=True, prediction="x")):
        gold = (1,) if given.prediction is None else ()
        found, otherwise = judged("generation", given, gold=gold)
        assert (found.pop("prediction", None), found, otherwise) == (
            given.prediction,
            {"metrics": {"exact_match": 1.0}},
            False,
        )
    assert judged("generation", answer(prediction="x"), gold=()) == ({"prediction": "x"} | UNREAD, False)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"scores": (-4.5,)}, {"metrics": {"surprisal": 4.5, "coverage": 1.0}}),
        ({"scores": (-4.5,), "greedy": False}, {"metrics": {"surprisal": 4.5, "coverage": 1.0, "greedy": 0.0}}),
        ({"scores": (-4.5, -1.0)}, {"flags": "error: no log-likelihood of the word"}),
        ({"scores": (-math.inf,)}, {"flags": "error: no log-likelihood of the word"}),
        ({"scores": (math.nan,)}, {"flags": "error: no log-likelihood of the word"}),
        ({"correct": True}, {"flags": "error: no log-likelihood of the word"}),
    ],
)
def test_a_last_word_is_its_surprisal(given, found):
    assert judged("last_word", answer(**given), (), ()) == (found, False)


LETTERS = tuple(("…", f" {letter}") for letter in "abc")


@pytest.mark.parametrize(
    ("options", "texts", "scores"),
    [
        (OPTIONS, ("Q", "🙂", "si", "nonón"), [-2.0, -3.0, -1.0]),
        (OPTIONS, ("Q", "SI", "NONÓN", "🙂"), [-1.0, -2.0, -3.0]),
        (OPTIONS, ("Q", "si", "nonón"), None),  # one is not named
        (OPTIONS, ("Q", "si", "nonón", "🙂", "si"), None),  # one is named twice: where does it stand?
        (("si", "si ", "🙂"), ("si", "🙂"), None),  # twins
    ],
)
def test_letters_stand_for_what_the_document_names(options, texts, scores):
    found = judged("letters", Answer("1", texts, asked=LETTERS, scores=(-1.0, -2.0, -3.0)), options)[0]
    assert found.get("option_scores") == scores


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.jsonl"])
def test_a_folder_may_hold_any_of_the_three_kinds_of_table(tmp_path, name):
    text = '{"item_id": "a", "correct": 1}\n' if name.endswith("l") else "item_id\tcorrect\na\t1\n"
    (tmp_path / name).write_text(text.replace("\t", "\t" if name.endswith("tsv") else ","))
    ours = {"item_id": "a", "context": "", "question": "Q", "choices": ["yes", "no"]}
    tables, _ = join(tmp_path, {"e": Reference("options", 0, as_table([row("a", False)]), [ours])})
    assert tables["e"]["correct"].to_pylist() == [True]
