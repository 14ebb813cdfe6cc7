import numpy as np
import pytest
from support import tiny
from transformers import ByT5Tokenizer
from vernacular.core.errors import ModelError
from vernacular.inference.model.tokenization import (
    SPECIAL,
    AlignmentError,
    Encoded,
    bos_policy,
    encode,
    reconstruct_offsets,
    span_tokens,
    with_bos,
)


def token_names(loaded, ids):
    return loaded.tokenizer.convert_ids_to_tokens(ids)


def score_span(tokenizer_type, text, start, end):
    """Return (tokens of the span, whether one crosses an edge)."""
    loaded = tiny.load_model("llama", tokens=tokenizer_type)
    encoded = encode(loaded, text)
    span, crosses_edge = span_tokens(text, encoded.offsets, start, end)
    return token_names(loaded, encoded.ids[span.start : span.stop]), crosses_edge


def test_sentencepiece_leading_space_belongs_to_text():
    assert score_span("prepend", "A", 0, 1) == (["▁", "A"], False)
    assert score_span("prepend", " A", 0, 2) == (["▁", "▁", "A"], False)


def test_letter_is_tokenized_with_preceding_cue():
    """Tokenized alone, " A" is ▁ ▁A, with a space token that does not follow the cue."""
    text = "Answer: A"
    assert score_span("metaspace", text, 7, 9) == (["▁A"], False)
    assert score_span("metaspace", text, 8, 9) == (["▁A"], False)  # the space is part of the token


def test_accented_letter_split_across_bytes_is_fully_scored():
    assert score_span("bytes", "na Rúa.", 4, 5) == (["Ã", "ºa"], True)  # its second byte comes with the next letter
    assert score_span("bytes", "na Rúa.", 4, 6) == (["Ã", "ºa"], False)


def test_emoji_of_four_byte_tokens_is_fully_scored():
    assert score_span("bytes", "a 🙂 b", 2, 3) == (["ð", "Ł", "Ļ", "Ĥ"], False)
    assert score_span("prepend", "a 🙂", 2, 3) == (["<0xF0>", "<0x9F>", "<0x99>", "<0x82>"], False)


def test_added_special_tokens_are_not_scored():
    assert score_span("metaspace", "A", 0, 1) == (["▁A"], False)
    assert score_span("wordpiece", "gato", 0, 4) == (["gato"], False)


@pytest.mark.parametrize(
    ("offsets", "start", "end", "tokens", "expected_crossing"),
    [
        ([(0, 3), (3, 6)], 3, 6, [1], False),  # cut between tokens
        ([(0, 2), (2, 6)], 3, 6, [1], False),  # "x yz": the space before the span is scored with it
        ([(0, 4), (4, 6)], 3, 6, [0, 1], True),  # the letter before the span is also scored, and flagged
        ([(0, 3), (3, 5), (5, 6)], 2, 5, [1], True),  # the span's space belongs to the previous word: flagged
        ([(0, 3), (3, 6)], 3, 5, [1], True),  # the last token reaches beyond the span
        ([(0, 6)], 6, 6, [], False),
        ([None, (0, 3), (3, 6), None], 0, 6, [1, 2], False),
        ([(0, 3), (3, 3), (3, 6)], 3, 6, [1, 2], False),  # a zero-width token belongs to the following token
    ],
)
def test_span_tokens(offsets, start, end, tokens, expected_crossing):
    encoded = Encoded.of([0] * len(offsets), offsets, [0] * len(offsets))
    indices, crosses_edge = span_tokens("ab xyz", encoded.offsets, start, end)
    assert (list(indices), crosses_edge) == (tokens, expected_crossing)


def test_whitespace_span_is_scored():
    assert list(span_tokens("a  b", np.array([(0, 1), (1, 2), (2, 4)]), 1, 2)[0]) == [1]


@pytest.mark.parametrize(
    ("tokenizer_type", "policy", "scored_from_start", "first_token"),
    [
        ("bytes", "auto", True, "<bos>"),  # not added by the tokenizer; prepended if the text is scored from its start
        ("bytes", "auto", False, "a"),
        ("bytes", "always", False, "<bos>"),
        ("bytes", "eos", False, "<eos>"),
        ("bytes", "never", True, "a"),
        ("bytes-bos", "auto", False, "<bos>"),
        ("bytes-bos", "always", True, "<bos>"),
        ("bytes-bos", "eos", True, "<bos>"),
        ("bytes-bos", "never", True, "a"),
        ("bare", "auto", True, "a"),
    ],
)
def test_bos_policy(tokenizer_type, policy, scored_from_start, first_token):
    loaded = tiny.load_model("llama", tokens=tokenizer_type, bos=policy)
    encoded = with_bos(loaded, encode(loaded, "a b"), scored_from_start=scored_from_start)
    assert token_names(loaded, encoded.ids[:2]) in ([first_token, "a"], [first_token, "Ġ"], [first_token, "Ġb"])


@pytest.mark.parametrize("policy", ["always", "eos"])
def test_bos_policy_without_required_token_raises(policy):
    with pytest.raises(ModelError, match="has no"):
        bos_policy(tiny.load_model("llama", tokens="bare", bos=policy))


class SlowTokenizer:
    """A byte tokenizer without offsets, like ByT5."""

    is_fast = False
    bos_token_id, eos_token_id, bos_token = None, 0, None

    def __call__(self, text, add_special_tokens=True, **_):
        return {"input_ids": [byte + 1 for byte in text.encode()] + [0] * add_special_tokens}

    def decode(self, ids, **_):
        return bytes(i - 1 for i in ids if i).decode(errors="replace")


def test_offsets_of_slow_tokenizer_are_reconstructed():
    loaded = tiny.load_model("llama")
    loaded.tokenizer = SlowTokenizer()
    encoded = encode(loaded, "rúa 🙂")
    text_offsets = [(0, 1), (1, 2), (1, 2), (2, 3), (3, 4), (4, 5), (4, 5), (4, 5), (4, 5)]
    assert list(map(tuple, encoded.offsets.tolist())) == [*text_offsets, (SPECIAL, SPECIAL)]
    assert encoded.words.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, SPECIAL]


def test_unverifiable_offsets_raise_alignment_error():
    class LowercasingTokenizer(SlowTokenizer):
        def decode(self, ids, **_):
            return super().decode(ids).lower()

    with pytest.raises(AlignmentError, match="decode to 'r'"):
        reconstruct_offsets(
            LowercasingTokenizer(), SlowTokenizer()("Rúa", add_special_tokens=False)["input_ids"], "Rúa"
        )


@pytest.mark.parametrize("text", ["Rúa: a  gato 🙂\n", "مطبخ", " a"])
def test_byt5_tokenizer_is_aligned(text):
    loaded = tiny.load_model("llama")
    loaded.tokenizer = ByT5Tokenizer()
    encoded = encode(loaded, text)
    assert encoded.tail == 1
    assert encoded.offsets[:-1].tolist() == [[i, i + 1] for i, character in enumerate(text) for _ in character.encode()]
