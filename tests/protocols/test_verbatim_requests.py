"""A wording that the source brings along is asked as it is: nothing stripped, nothing added, no prompt lines needed."""

import json

import pytest
from support.asking import ask, item, spans
from vernacular.core.errors import ConfigError

ASK = {
    "sampler": "default",
    "exclude": False,
    "pmi": False,
    "until": ["\n"],
    "max_gen_toks": 7,
    "exact": {},
    "filters": [],
}


def evaluated(name, row, *, extra=(), **content):
    known = {"row": f"hash{row}", "ask": json.dumps(ASK), "delimiter": " ", **dict(extra)}
    return item(name, source_row=row, extra=known, **content)


def example(row, text="", **extra):
    return item(f"shot/{row}", context=text, few_shot=True, source_row=row, extra={"row": f"pool{row}", **extra})


def test_blanks_at_the_end_of_the_context_are_scored_with_the_option():
    rows, _ = ask([evaluated("i", 0, context="Que? \n", choices=[" si ", "non"])], "lm_eval", "options")
    assert spans(rows) == {"choice:0": " \n  si ", "choice:1": " \n non"}
    assert rows[0]["text"] == "Que? \n  si "


def test_an_empty_query_after_examples_begins_in_the_block():
    items = [evaluated("i", 0, choices=["A."], extra={"before": "D\n"}), example(0, "Un.\n\n"), example(1, "Dous.\n\n")]
    (row,), _ = ask(items, "lm_eval", "options", shots=1)
    assert row["prefix"] in ("D\nUn.\n\n", "D\nDous.\n\n")
    assert spans([row]) == {"choice:0": "\n\n A."}
    assert row["few_shot_examples"] == ["D\n", row["prefix"].removeprefix("D\n")]


def test_contexts_of_one_continuation_are_scored_by_that_continuation():
    extra = {"continuation": " e xa.", "prefix": "!"}
    rows, _ = ask([evaluated("i", 0, choices=["Chove", "Neva"], extra=extra)], "lm_eval", "options")
    assert [row["text"] for row in rows] == ["Chove! e xa.", "Neva! e xa."]
    assert set(spans(rows).values()) == {" e xa."}


def test_options_without_a_context_are_asked_only_where_the_file_wants_them():
    extra = {"ask": json.dumps(ASK | {"pmi": True})}
    rows, _ = ask([evaluated("i", 0, context="Q", choices=["a"], extra=extra)], "lm_eval", "options")
    assert spans(rows) == {"choice:0": " a", "uncond:0": " a"}
    assert [row["text"] for row in rows] == ["Q a", " a"]


def test_a_generation_goes_as_far_as_the_file_says_and_past_no_chat_template():
    (row,), _ = ask([evaluated("i", 0, context="Q: ")], "lm_eval", "generation")
    assert (row["text"], row["stop"], row["max_new_tokens"], row["messages"]) == ("Q: ", ["\n"], 7, None)


def test_an_example_that_cannot_be_shown_leaves_the_item_unasked_with_the_reason():
    items = [evaluated("i", 0, context="Q", choices=["a", "b"]), example(0, cannot="no text")]
    rows, told = ask(items, "lm_eval", "options", shots=1)
    assert [row["role"] for row in rows] == ["skipped: one of its few-shot examples is invalid (no text)"]
    assert told["skipped"] == {"i": "one of its few-shot examples is invalid (no text)"}


def test_a_language_without_prompt_lines_and_examples_before_a_last_word_are_no_hindrance():
    items = [evaluated("i", 0, context="Fun á", target=" vila"), example(0, "Vin do mar\n\n")]
    (row,), told = ask(items, "lm_eval", "last_word", language="xx", shots=1)
    assert row["prefix"] + row["text"] == "Vin do mar\n\nFun á vila"
    assert told["few_shot_examples"] == ["shot/0"]


@pytest.mark.parametrize(
    ("protocol", "style"), [("generation", "open"), ("generation", "simil-eval"), ("letters", "default")]
)
def test_no_other_way_of_asking_takes_such_a_task(protocol, style):
    with pytest.raises(ConfigError, match="has its own prompt text"):
        ask([evaluated("i", 0, context="Q")], "lm_eval", protocol, style=style)
