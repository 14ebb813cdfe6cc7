"""Whatever the texts are, every request scores the text it is about and fits the schema."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asking import ask, item
from support.soak import examples
from vernacular.protocols.build import REQUESTS as PROTOCOLS

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["__", "[MASK]", "a __ b", " ", "🙂"]
)
LAYOUT = {"acceptability": "sentence", "last_word": "continuation", "cloze": "cloze", "target_word": "target_word"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(60), deadline=None)
@given(context=texts, question=texts, choices=st.lists(texts, max_size=4), target=st.none() | texts)
def test_spans_lie_within_the_text_and_hold_the_choice(protocol, context, question, choices, target):
    gold = [0] if choices else []
    one = item(context=context, question=question, choices=choices, gold=gold, target=target)
    rows, metadata = ask([one], LAYOUT.get(protocol, "passage"), protocol)
    assert rows
    for row in rows:
        whole = row["prefix"] + row["text"]
        if row["kind"] == "generate":
            continue
        assert 0 <= row["span_start"] <= row["span_end"] <= len(whole)
        span = whole[row["span_start"] : row["span_end"]]
        role, _, index = row["role"].partition(":")
        if row["role"].startswith("skipped"):
            assert metadata["skipped"]["i1"]
        elif protocol in ("options", "minimal_pair") or role == "token":
            assert span.strip() == choices[int(index)].strip()
        elif role == "word":
            assert span.strip() == target.strip()
        elif role in ("sentence", "whole"):
            assert span == whole
