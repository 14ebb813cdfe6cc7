"""Rows in each set's own columns become items; the traps that the sets are known for."""

import pytest
from vernacular.data.items import make_items


def make(row: dict, prompt: str, columns: dict) -> dict:
    """The only item of a row."""
    items, counts = make_items([row], prompt, columns)
    assert counts["dropped"] == {}
    return items[0]


def reason(row: dict, prompt: str, columns: dict) -> str:
    """Why the row is no item."""
    items, counts = make_items([row], prompt, columns)
    assert items == []
    return next(iter(counts["dropped"]))


QUESTION = {"question": "q", "choices": "choices", "gold": "answer", "gold_format": "letter"}


@pytest.mark.parametrize(
    "choices",
    [
        ["un", "dous"],
        {"text": ["un", "dous"], "label": ["A", "B"]},
        [{"text": "un", "label": "A"}, {"text": "dous", "label": "B"}],
        "['un', 'dous']",
        '["un", "dous"]',
        "{'text': ['un', 'dous'], 'label': ['A', 'B']}",
    ],
)
def test_options_in_every_shape_they_come_in(choices):
    item = make({"q": "?", "choices": choices, "answer": "b"}, "question", QUESTION)
    assert (item["choices"], item["gold"]) == (["un", "dous"], [1])


def test_letters_follow_the_options_own_labels():
    item = make(
        {"q": "?", "choices": {"text": ["un", "dous"], "label": ["1", "2"]}, "answer": "2"}, "question", QUESTION
    )
    assert item["gold"] == [1]


@pytest.mark.parametrize(
    ("kind", "answer", "gold"),
    [
        ("letter", " C", [2]),
        ("letter", "(b)", [1]),
        ("letter", ["A", "C"], [0, 2]),
        ("number", "1", [0]),
        ("number", 3, [2]),
        ("number", 3.0, [2]),
        ("index", "0", [0]),
        ("index", -1, []),
        ("text", "dous.", [1]),
        ("text", " un ", [0]),
        ("labels", [0, 1, 1], [1, 2]),
        ("labels", "[1, 0, 0]", [0]),
        ("letter", None, []),
        ("letter", float("nan"), []),
    ],
)
def test_answers_in_every_way_they_are_written(kind, answer, gold):
    row = {"q": "?", "choices": ["un", "dous", "tres"], "answer": answer}
    assert make(row, "question", QUESTION | {"gold_format": kind})["gold"] == gold


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("letter", "D"),
        ("letter", "1"),
        ("number", 0),
        ("number", 4),
        ("number", "x"),
        ("index", 3),
        ("text", "catro"),
        ("labels", [1]),
    ],
)
def test_answer_that_is_no_option_keeps_the_row_out(kind, answer):
    row = {"q": "?", "choices": ["un", "dous", "tres"], "answer": answer}
    assert reason(row, "question", QUESTION | {"gold_format": kind}) == "answer not among the options"


def test_set_without_answers_has_items_without_gold():
    assert make({"q": "?", "choices": ["a", "b"]}, "question", {"question": "q", "choices": "choices"})["gold"] == []


def test_last_option_may_be_missing_where_the_task_file_says_so():
    columns = {"question": "q", "choices": ["a", "b", "c|"]}
    assert make({"q": "?", "a": "x", "b": "y", "c": ""}, "question", columns)["choices"] == ["x", "y"]
    assert make({"q": "?", "a": "x", "b": "y"}, "question", columns)["choices"] == ["x", "y"]


def test_passage_needs_its_question_and_its_text():
    columns = {"context": "t", "question": "q", "choices": ["a", "b"]}
    row = {"t": "T.", "q": "?", "a": "x", "b": "y"}
    assert reason(row | {"q": " "}, "passage", columns) == "empty question"
    assert reason(row | {"t": None}, "passage", columns) == "empty context"
    assert make(row | {"t": ""}, "question", columns | {"context": "t|"})["context"] == ""


def test_story_is_four_sentences_joined_by_a_blank():
    columns = {"context": ["s1", "s2", "s3", "s4"], "choices": ["e1", "e2"], "gold": "right", "gold_format": "number"}
    row = {f"s{i}": f"Frase {i}. " for i in (1, 2, 3, 4)} | {"e1": "Fin.", "e2": "Outro.", "right": 2}
    item = make(row, "story", columns)
    assert (item["context"], item["question"], item["gold"]) == ("Frase 1. Frase 2. Frase 3. Frase 4.", "", [1])


def test_bracketed_text_is_not_taken_for_a_list():
    assert make({"s": "[1, 2]", "l": 1}, "sentence", {"context": "s", "label": "l"})["context"] == "[1, 2]"


TRUTH = {"question": "q", "correct_answers": "right", "incorrect_answers": "wrong", "separator": ";", "target": "best"}


def test_joined_answers_lose_their_blanks_and_repeats():
    row = {"q": "?", "right": "si; claro ;", "wrong": "non; si; non;;", "best": "claro"}
    items, counts = make_items([row], "multi_answer", TRUTH)
    assert (items[0]["choices"], items[0]["gold"], items[0]["target"]) == (["si", "claro", "non"], [0, 1], "claro")
    assert set(counts["repaired"]) == {
        "empty answers removed",
        "repeated answers removed",
        "answers both correct and incorrect: used as correct",
    }


def test_item_whose_wrong_answers_are_all_right_is_kept_out():
    assert (
        reason({"q": "?", "right": "en xaneiro", "wrong": "en xaneiro", "best": ""}, "multi_answer", TRUTH)
        == "no incorrect answer"
    )
    assert reason({"q": "?", "right": ";", "wrong": "non", "best": ""}, "multi_answer", TRUTH) == "no correct answer"


CLOZE = {"context": "prompt", "choices": "candidates", "gold": "correct", "gold_format": "text"}


def test_cloze_keeps_candidates_in_order_and_repeated_ones_once():
    row = {"prompt": "Idem u __ sutra.", "candidates": ["voza", "školu", "voza", "kuću"], "correct": "kuću."}
    item = make(row, "cloze", CLOZE)
    assert (item["choices"], item["gold"]) == (["voza", "školu", "kuću"], [2])


def test_cloze_wants_exactly_one_gap():
    row = {"candidates": ["a", "b"], "correct": "a"}
    assert reason(row | {"prompt": "Bez praznine."}, "cloze", CLOZE) == "no gap"
    assert reason(row | {"prompt": "__ i __."}, "cloze", CLOZE) == "more than one gap"
    assert make(row | {"prompt": "Idem _____."}, "cloze", CLOZE)["context"] == "Idem __."
    assert make(row | {"prompt": "Idem <gap>."}, "cloze", CLOZE | {"mask": "<gap>"})["context"] == "Idem __."


FORMS = {
    "good": "form_grammatical",
    "bad": ["form_ungrammatical"],
    "context": "masked_text|",
    "extra": {"sentence_id": "sentence_id", "prompt_text": "prompt_text|", "original_text": "original_text|"},
}


def test_forms_lose_the_blank_before_them_and_the_text_is_filled_in():
    row = {
        "sentence_id": "s",
        "masked_text": "The boy [MASK] .",
        "form_grammatical": " reads",
        "form_ungrammatical": " read",
    }
    item = make(row, "target_word", FORMS)
    assert (item["choices"], item["gold"], item["context"]) == (["reads", "read"], [0], "The boy [MASK] .")
    assert item["extra"]["prompt_text"] == "The boy"
    assert item["extra"]["original_text"] == "The boy reads ."
    assert item["extra"]["form_columns"] == '["form_grammatical", "form_ungrammatical"]'


def test_prompt_alone_is_masked_at_its_end():
    row = {"sentence_id": "s", "prompt_text": "The boy ", "form_grammatical": " reads", "form_ungrammatical": " read"}
    assert make(row, "target_word", FORMS)["context"] == "The boy [MASK]"


def test_other_mask_token_is_written_as_the_usual_one():
    row = {
        "sentence_id": "s",
        "masked_text": "The boy <mask>.",
        "form_grammatical": "reads",
        "form_ungrammatical": "read",
    }
    assert make(row, "target_word", FORMS | {"mask": "<mask>"})["context"] == "The boy [MASK]."
    assert reason(row, "target_word", FORMS) == "no masked word"


THREE = FORMS | {"bad": ["form_wrong_*"]}
ERGATIVE = {"sentence_id": "s", "masked_text": "კაცი, [MASK] ჰყავს.", "form_grammatical": "რომელსაც"}


def test_incorrect_forms_that_coincide_are_one_form_of_both_columns():
    """A syncretism (Georgian S1-DAT: ergative and nominative are written alike), which the set gives in two columns."""
    row = ERGATIVE | {"form_wrong_erg": "რომელმაც", "form_wrong_nom": "რომელმაც "}
    items, counts = make_items([row], "target_word", THREE)
    assert (items[0]["choices"], items[0]["gold"]) == (["რომელსაც", "რომელმაც"], [0])
    assert items[0]["extra"]["form_columns"] == '["form_grammatical", ["form_wrong_erg", "form_wrong_nom"]]'
    assert (counts["kept"], counts["dropped"]) == (1, {})
    assert counts["repaired"] == {"repeated incorrect forms merged": 1}


@pytest.mark.parametrize("coinciding", [("form_wrong_nom",), ("form_wrong_erg", "form_wrong_nom")])
def test_an_incorrect_form_that_is_the_correct_one_keeps_the_row_out(coinciding):
    row = ERGATIVE | {"form_wrong_erg": "რომელმაც", "form_wrong_nom": "რომელი"}
    row |= dict.fromkeys(coinciding, "რომელსაც")
    assert reason(row, "target_word", THREE) == "an incorrect form equals the correct one"


def test_forms_in_one_column_are_merged_too():
    row = ERGATIVE | {"forms": ["რომელმაც", "რომელმაც"]}
    item = make(row, "target_word", FORMS | {"bad": "forms"})
    assert (item["choices"], item["extra"]["form_columns"]) == (["რომელსაც", "რომელმაც"], "[]")


def test_distinct_forms_are_as_they_were():
    row = ERGATIVE | {"form_wrong_erg": "რომელმაც", "form_wrong_nom": "რომელი"}
    items, counts = make_items([row], "target_word", THREE)
    assert items[0]["choices"] == ["რომელსაც", "რომელმაც", "რომელი"]
    assert items[0]["extra"]["form_columns"] == '["form_grammatical", "form_wrong_erg", "form_wrong_nom"]'
    assert counts["repaired"] == {}


def test_pair_of_sentences_and_beginning_with_two_endings():
    assert make({"g": "Vai.", "b": "Van."}, "pair", {"good": "g", "bad": "b"})["choices"] == ["Vai.", "Van."]
    columns = {"context": "p", "choices": ["s0", "s1"], "gold": "label", "gold_format": "index"}
    item = make({"p": "Para ir,", "s0": "anda.", "s1": "dorme.", "label": "1"}, "pair", columns)
    assert (item["context"], item["gold"]) == ("Para ir,", [1])
    assert reason({"g": "Vai.", "b": ""}, "pair", {"good": "g", "bad": "b"}) == "empty option"
