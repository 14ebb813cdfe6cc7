"""Conversion of rows to items, with known irregularities of the datasets."""

import pytest
from support.messages import assert_states
from vernacular.data.load import make_items


def make_item(row: dict, item_type: str, columns: dict) -> dict:
    """Return the item of a row."""
    items, counts = make_items([row], item_type, columns)
    assert counts["dropped"] == {}
    return items[0]


def drop_reason(row: dict, item_type: str, columns: dict) -> str:
    """Return the reason why the row is dropped."""
    items, counts = make_items([row], item_type, columns)
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
        "{'text': array(['un', 'dous'], dtype=object), 'label': array(['A', 'B'], dtype=object)}",
        "array(['un',\n       'dous'], dtype='<U4')",
        "[np.str_('un'), np.str_('dous')]",
        "[{'text': 'un', 'label': 'A'} {'text': 'dous', 'label': 'B'}]",
        "['un'\n 'dous']",
        "('un', 'dous')",
    ],
)
def test_options_in_supported_formats(choices):
    item = make_item({"q": "?", "choices": choices, "answer": "b"}, "question", QUESTION)
    assert (item["choices"], item["gold"]) == (["un", "dous"], [1])


def test_letter_refers_to_the_labels_of_the_options():
    item = make_item(
        {"q": "?", "choices": {"text": ["un", "dous"], "label": ["1", "2"]}, "answer": "2"}, "question", QUESTION
    )
    assert item["gold"] == [1]


@pytest.mark.parametrize(
    ("gold_format", "answer", "gold"),
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
def test_gold_formats(gold_format, answer, gold):
    row = {"q": "?", "choices": ["un", "dous", "tres"], "answer": answer}
    assert make_item(row, "question", QUESTION | {"gold_format": gold_format})["gold"] == gold


@pytest.mark.parametrize(
    ("gold_format", "answer"),
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
def test_answer_not_among_the_options_drops_the_row(gold_format, answer):
    row = {"q": "?", "choices": ["un", "dous", "tres"], "answer": answer}
    assert drop_reason(row, "question", QUESTION | {"gold_format": gold_format}) == "answer not among the options"


@pytest.mark.parametrize(
    ("gold_format", "answer", "hint"), [("index", "B", True), ("number", "b)", True), ("index", "x", False)]
)
def test_letters_with_another_gold_format_suggest_it(gold_format, answer, hint):
    row = {"q": "?", "choices": ["un", "dous", "tres"], "answer": answer}
    _, counts = make_items([row], "question", QUESTION | {"gold_format": gold_format})
    assert ("set gold_format: letter" in str(counts)) is hint


def test_dataset_without_answers_has_items_without_gold():
    assert (
        make_item({"q": "?", "choices": ["a", "b"]}, "question", {"question": "q", "choices": "choices"})["gold"] == []
    )


def test_optional_column_of_an_option_may_be_missing():
    columns = {"question": "q", "choices": ["a", "b", "c|"]}
    assert make_item({"q": "?", "a": "x", "b": "y", "c": ""}, "question", columns)["choices"] == ["x", "y"]
    assert make_item({"q": "?", "a": "x", "b": "y"}, "question", columns)["choices"] == ["x", "y"]


def test_passage_requires_question_and_context():
    columns = {"context": "t", "question": "q", "choices": ["a", "b"]}
    row = {"t": "T.", "q": "?", "a": "x", "b": "y"}
    assert drop_reason(row | {"q": " "}, "passage", columns) == "empty question"
    assert drop_reason(row | {"t": None}, "passage", columns) == "empty context"
    assert make_item(row | {"t": ""}, "question", columns | {"context": "t|"})["context"] == ""


def test_story_is_four_sentences_joined_by_spaces():
    columns = {"context": ["s1", "s2", "s3", "s4"], "choices": ["e1", "e2"], "gold": "right", "gold_format": "number"}
    row = {f"s{i}": f"Frase {i}. " for i in (1, 2, 3, 4)} | {"e1": "Fin.", "e2": "Outro.", "right": 2}
    item = make_item(row, "story", columns)
    assert (item["context"], item["question"], item["gold"]) == ("Frase 1. Frase 2. Frase 3. Frase 4.", "", [1])


def test_bracketed_text_is_not_parsed_as_a_list():
    assert make_item({"s": "[1, 2]", "l": 1}, "sentence", {"context": "s", "label": "l"})["context"] == "[1, 2]"


def dropped_sentence(row: dict, item_type: str, columns: dict) -> str:
    """Return the sentence on the row, which is dropped."""
    _, counts = make_items([row], item_type, columns)
    [sentence] = counts["first_dropped"].values()
    return sentence


def test_printed_numbers_sets_and_shortened_lists():
    row = {"q": "?", "choices": "['un' 'dous' 'tres']", "answer": "[0 1 0]"}
    assert make_item(row, "question", QUESTION | {"gold_format": "labels"})["gold"] == [1]
    assert make_item(row | {"answer": "[0, 2]"}, "question", QUESTION | {"gold_format": "index"})["gold"] == [0, 2]
    options = {"q": "?", "choices": "{'un', 'dous'}", "answer": "dous"}
    item = make_item(options, "question", QUESTION | {"gold_format": "text"})
    assert item["choices"][item["gold"][0]] == "dous"
    assert drop_reason(options | {"answer": "A"}, "question", QUESTION) == "options are a set, which has no order"
    sentence = dropped_sentence({"q": "?", "choices": "['un' 'dous' ... 'mil']", "answer": "A"}, "question", QUESTION)
    assert_states(sentence, "row 0", "['un' 'dous' ... 'mil']", "shortened", "Parquet")


def test_dropped_row_is_shown_with_its_value_and_the_allowed_ones():
    row = {"q": "?", "choices": {"text": ["un", "dous"], "label": ["A", "B"]}, "answer": "А"}  # a Cyrillic letter
    assert_states(dropped_sentence(row, "question", QUESTION), "row 0", 'answer "А" (Cyrillic)', '"A", "B"')
    row = {"q": "?", "choices": ["un", "dous"], "answer": "3"}
    assert_states(dropped_sentence(row, "question", QUESTION | {"gold_format": "number"}), '"3"', '"1", "2"')
    row = {"good": "A maza\u0301.", "bad": "A maz\xe1."}
    sentence = dropped_sentence(row, "pair", {"good": "good", "bad": "bad"})
    assert_states(sentence, "invisible", "U+0061 U+0301", "U+00E1")


@pytest.mark.parametrize(
    ("letters", "gold"),
    [
        ("АБВ", [0, 1, 2]),  # Cyrillic
        ("абв", [0, 1, 2]),
        ("AБB", [0, 1, 2]),  # typed partly in Latin: А and В look like A and B
        ("АВС", [0, 1, 2]),  # Cyrillic letters that look like A, B, C
        ("ΑΒΓ", [0, 1, 2]),
        ("აბგ", [0, 1, 2]),
        ("ابج", [0, 1, 2]),
        ("ابت", [0, 1, 2]),
        ("ＡＢＣ", [0, 1, 2]),
        ("ABА", [0, 1, 0]),  # the last is Cyrillic
        ("АВ", [None, None]),  # 0 and 2, or 0 and 1
        ("AЖB", [0, None, 1]),
    ],
)
def test_letters_of_other_scripts_follow_the_alphabet_of_the_column(letters, gold):
    rows = [{"q": f"{i}?", "choices": ["un", "dous", "tres"], "answer": letter} for i, letter in enumerate(letters)]
    items, _ = make_items(rows, "question", QUESTION)
    found = {item["source_row"]: item["gold"][0] for item in items}
    assert [found.get(i) for i in range(len(rows))] == gold


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ("maza\u0301", ["maz\xe1", "pera"]),
        ("maz\xe1.", ["maza\u0301", "pera"]),
        ("\ufeffmaz\xe1", ["maz\xe1", "pera"]),
        ("a\xa0maz\xe1", ["a maz\xe1", "pera"]),
    ],
)
def test_answer_in_another_normalization_is_the_option_which_stays_unchanged(answer, options):
    row = {"q": "?", "choices": options, "answer": answer}
    item = make_item(row, "question", QUESTION | {"gold_format": "text"})
    assert (item["choices"], item["gold"]) == (options, [0])


MULTI_ANSWER = {
    "question": "q",
    "correct_answers": "right",
    "incorrect_answers": "wrong",
    "separator": ";",
    "target": "best",
}


def test_separated_answers_lose_whitespace_and_duplicates():
    row = {"q": "?", "right": "si; claro ;", "wrong": "non; si; non;;", "best": "claro"}
    items, counts = make_items([row], "multi_answer", MULTI_ANSWER)
    assert (items[0]["choices"], items[0]["gold"], items[0]["target"]) == (["si", "claro", "non"], [0, 1], "claro")
    assert set(counts["repaired"]) == {
        "empty answers removed",
        "repeated answers removed",
        "answers both correct and incorrect: used as correct",
    }


def test_item_without_incorrect_or_correct_answers_is_dropped():
    assert (
        drop_reason({"q": "?", "right": "en xaneiro", "wrong": "en xaneiro", "best": ""}, "multi_answer", MULTI_ANSWER)
        == "no incorrect answer"
    )
    assert (
        drop_reason({"q": "?", "right": ";", "wrong": "non", "best": ""}, "multi_answer", MULTI_ANSWER)
        == "no correct answer"
    )


CLOZE = {"context": "prompt", "choices": "candidates", "gold": "correct", "gold_format": "text"}


def test_cloze_candidates_keep_their_order_without_duplicates():
    row = {"prompt": "Idem u __ sutra.", "candidates": ["voza", "školu", "voza", "kuću"], "correct": "kuću."}
    item = make_item(row, "cloze", CLOZE)
    assert (item["choices"], item["gold"]) == (["voza", "školu", "kuću"], [2])


def test_cloze_requires_exactly_one_gap():
    row = {"candidates": ["a", "b"], "correct": "a"}
    assert drop_reason(row | {"prompt": "Bez praznine."}, "cloze", CLOZE) == "no gap"
    assert drop_reason(row | {"prompt": "__ i __."}, "cloze", CLOZE) == "more than one gap"
    assert make_item(row | {"prompt": "Idem _____."}, "cloze", CLOZE)["context"] == "Idem __."
    assert make_item(row | {"prompt": "Idem <gap>."}, "cloze", CLOZE | {"mask": "<gap>"})["context"] == "Idem __."


FORMS = {
    "good": "form_grammatical",
    "bad": ["form_ungrammatical"],
    "context": "masked_text|",
    "extra": {"sentence_id": "sentence_id", "prompt_text": "prompt_text|", "original_text": "original_text|"},
}


def test_forms_lose_leading_space_and_texts_are_derived():
    row = {
        "sentence_id": "s",
        "masked_text": "The boy [MASK] .",
        "form_grammatical": " reads",
        "form_ungrammatical": " read",
    }
    item = make_item(row, "target_word", FORMS)
    assert (item["choices"], item["gold"], item["context"]) == (["reads", "read"], [0], "The boy [MASK] .")
    assert item["extra"]["prompt_text"] == "The boy"
    assert item["extra"]["original_text"] == "The boy reads ."
    assert item["extra"]["form_columns"] == '["form_grammatical", "form_ungrammatical"]'


def test_prompt_without_masked_text_is_masked_at_its_end():
    row = {"sentence_id": "s", "prompt_text": "The boy ", "form_grammatical": " reads", "form_ungrammatical": " read"}
    assert make_item(row, "target_word", FORMS)["context"] == "The boy [MASK]"


def test_custom_mask_token_is_replaced_by_the_default():
    row = {
        "sentence_id": "s",
        "masked_text": "The boy <mask>.",
        "form_grammatical": "reads",
        "form_ungrammatical": "read",
    }
    assert make_item(row, "target_word", FORMS | {"mask": "<mask>"})["context"] == "The boy [MASK]."
    assert drop_reason(row, "target_word", FORMS) == "no masked word"


THREE_FORMS = FORMS | {"bad": ["form_wrong_*"]}
ERGATIVE = {"sentence_id": "s", "masked_text": "კაცი, [MASK] ჰყავს.", "form_grammatical": "რომელსაც"}


def test_identical_incorrect_forms_are_merged():
    """Syncretism (Georgian S1-DAT: ergative and nominative have the same spelling), which the dataset has in two columns."""
    row = ERGATIVE | {"form_wrong_erg": "რომელმაც", "form_wrong_nom": "რომელმაც "}
    items, counts = make_items([row], "target_word", THREE_FORMS)
    assert (items[0]["choices"], items[0]["gold"]) == (["რომელსაც", "რომელმაც"], [0])
    assert items[0]["extra"]["form_columns"] == '["form_grammatical", ["form_wrong_erg", "form_wrong_nom"]]'
    assert (counts["kept"], counts["dropped"]) == (1, {})
    assert counts["repaired"] == {"repeated incorrect forms merged": 1}


@pytest.mark.parametrize("identical_columns", [("form_wrong_nom",), ("form_wrong_erg", "form_wrong_nom")])
def test_incorrect_form_equal_to_the_correct_one_drops_the_row(identical_columns):
    row = ERGATIVE | {"form_wrong_erg": "რომელმაც", "form_wrong_nom": "რომელი"}
    row |= dict.fromkeys(identical_columns, "რომელსაც")
    assert drop_reason(row, "target_word", THREE_FORMS) == "an incorrect form equals the correct one"


def test_identical_forms_in_one_list_column_are_merged():
    row = ERGATIVE | {"forms": ["რომელმაც", "რომელმაც"]}
    item = make_item(row, "target_word", FORMS | {"bad": "forms"})
    assert (item["choices"], item["extra"]["form_columns"]) == (["რომელსაც", "რომელმაც"], "[]")


def test_distinct_forms_are_unchanged():
    row = ERGATIVE | {"form_wrong_erg": "რომელმაც", "form_wrong_nom": "რომელი"}
    items, counts = make_items([row], "target_word", THREE_FORMS)
    assert items[0]["choices"] == ["რომელსაც", "რომელმაც", "რომელი"]
    assert items[0]["extra"]["form_columns"] == '["form_grammatical", "form_wrong_erg", "form_wrong_nom"]'
    assert counts["repaired"] == {}


def test_pair_of_sentences_and_context_with_two_continuations():
    assert make_item({"g": "Vai.", "b": "Van."}, "pair", {"good": "g", "bad": "b"})["choices"] == ["Vai.", "Van."]
    columns = {"context": "p", "choices": ["s0", "s1"], "gold": "label", "gold_format": "index"}
    item = make_item({"p": "Para ir,", "s0": "anda.", "s1": "dorme.", "label": "1"}, "pair", columns)
    assert (item["context"], item["gold"]) == ("Para ir,", [1])
    assert drop_reason({"g": "Vai.", "b": ""}, "pair", {"good": "g", "bad": "b"}) == "empty option"
