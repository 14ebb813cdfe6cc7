"""Requests with the prompt text of the source: used unchanged, without prompt lines of the language."""

import json

import pytest
from support.request_builder import build_requests, item, spans
from vernacular.core.errors import ConfigError

SETTINGS = {
    "sampler": "default",
    "exclude": False,
    "pmi": False,
    "until": ["\n"],
    "max_gen_toks": 7,
    "exact": {},
    "filters": [],
}


def evaluated(name, row, *, extra=(), **content):
    fields = {"row": f"hash{row}", "settings": json.dumps(SETTINGS), "delimiter": " ", **dict(extra)}
    return item(name, source_row=row, extra=fields, **content)


def example(row, text="", **extra):
    return item(f"shot/{row}", context=text, few_shot=True, source_row=row, extra={"row": f"pool{row}", **extra})


def test_trailing_whitespace_of_context_is_scored_with_option():
    rows, _ = build_requests([evaluated("i", 0, context="Que? \n", choices=[" si ", "non"])], "lm_eval", "options")
    assert spans(rows) == {"choice:0": " \n  si ", "choice:1": " \n non"}
    assert rows[0]["text"] == "Que? \n  si "


def test_span_of_empty_query_begins_in_the_prefix():
    items = [
        evaluated("i", 0, choices=["A."], extra={"description": "D\n"}),
        example(0, "Un.\n\n"),
        example(1, "Dous.\n\n"),
    ]
    (row,), _ = build_requests(items, "lm_eval", "options", shots=1)
    assert row["prefix"] in ("D\nUn.\n\n", "D\nDous.\n\n")
    assert spans([row]) == {"choice:0": "\n\n A."}
    assert row["few_shot_examples"] == ["D\n", row["prefix"].removeprefix("D\n")]


def test_choices_as_contexts_are_scored_by_shared_continuation():
    extra = {"continuation": " e xa.", "prefix": "!"}
    rows, _ = build_requests([evaluated("i", 0, choices=["Chove", "Neva"], extra=extra)], "lm_eval", "options")
    assert [row["text"] for row in rows] == ["Chove! e xa.", "Neva! e xa."]
    assert set(spans(rows).values()) == {" e xa."}


def test_unconditional_requests_only_with_pmi():
    extra = {"settings": json.dumps(SETTINGS | {"pmi": True})}
    rows, _ = build_requests([evaluated("i", 0, context="Q", choices=["a"], extra=extra)], "lm_eval", "options")
    assert spans(rows) == {"choice:0": " a", "uncond:0": " a"}
    assert [row["text"] for row in rows] == ["Q a", " a"]


def test_generation_uses_stop_and_length_of_task_file_without_chat_messages():
    (row,), _ = build_requests([evaluated("i", 0, context="Q: ")], "lm_eval", "generation")
    assert (row["text"], row["stop"], row["max_new_tokens"], row["messages"]) == ("Q: ", ["\n"], 7, None)


def test_item_with_invalid_example_is_skipped_with_reason():
    items = [evaluated("i", 0, context="Q", choices=["a", "b"]), example(0, cannot="no text")]
    rows, metadata = build_requests(items, "lm_eval", "options", shots=1)
    assert [row["role"] for row in rows] == ["skipped: one of its few-shot examples is invalid (no text)"]
    assert metadata["skipped"] == {"i": "one of its few-shot examples is invalid (no text)"}


def test_last_word_with_examples_needs_no_prompt_lines():
    items = [evaluated("i", 0, context="Fun á", target=" vila"), example(0, "Vin do mar\n\n")]
    (row,), metadata = build_requests(items, "lm_eval", "last_word", language="xx", shots=1)
    assert row["prefix"] + row["text"] == "Vin do mar\n\nFun á vila"
    assert metadata["few_shot_examples"] == ["shot/0"]


@pytest.mark.parametrize(
    ("protocol", "style"), [("generation", "open"), ("generation", "simil-eval"), ("letters", "default")]
)
def test_unsupported_protocol_or_style_raises_config_error(protocol, style):
    with pytest.raises(ConfigError, match="has its own prompt text"):
        build_requests([evaluated("i", 0, context="Q")], "lm_eval", protocol, style=style)
