"""Property test: for arbitrary texts, the span of every request is the text to score."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.request_builder import build_requests, item
from support.soak import examples
from vernacular.protocols.build import REQUESTS as PROTOCOLS

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["__", "[MASK]", "a __ b", " ", "🙂"]
)
ITEM_TYPES = {"acceptability": "sentence", "last_word": "continuation", "cloze": "cloze", "target_word": "target_word"}
ITEM_TYPES |= {"entities": "entities", "entities_bits": "entities"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(60), deadline=None)
@given(context=texts, question=texts, choices=st.lists(texts, max_size=4), target=st.none() | texts)
def test_spans_are_within_text_and_contain_the_choice(protocol, context, question, choices, target):
    gold = [0] if choices else []
    columns = {}
    if protocol.startswith("entities"):
        columns, target = {"types": ["PER"]}, json.dumps({"PER": choices}, ensure_ascii=False)
    test_item = item(context=context, question=question, choices=choices, gold=gold, target=target)
    rows, metadata = build_requests([test_item], ITEM_TYPES.get(protocol, "passage"), protocol, columns=columns)
    assert rows
    for row in rows:
        full_text = row["prefix"] + row["text"]
        if row["kind"] == "generate":
            continue
        assert 0 <= row["span_start"] <= row["span_end"] <= len(full_text)
        span = full_text[row["span_start"] : row["span_end"]]
        role, _, index = row["role"].partition(":")
        if row["role"].startswith("skipped"):
            assert metadata["skipped"]["i1"]
        elif protocol in ("options", "minimal_pair") or role == "token":
            assert span.strip() == choices[int(index)].strip()
        elif protocol == "entities_bits":
            assert json.loads(span) == {"persoa": choices}
        elif role in ("word", "reference"):
            assert span.strip() == target.strip()
        elif role in ("sentence", "filled", "text"):
            assert span == full_text
