import pytest
from support import tiny
from transformers import ByT5Tokenizer
from vernacular.core.errors import ModelError
from vernacular.inference.model.tokenization import (
    CannotAlign,
    bos_policy,
    encode,
    rebuilt_offsets,
    span_tokens,
    with_bos,
)


def names(loaded, ids):
    return loaded.tokenizer.convert_ids_to_tokens(ids)


def scored(kind, text, start, end):
    """(tokens of the span, flagged?)"""
    loaded = tiny.loaded("llama", tokens=kind)
    encoded = encode(loaded, text)
    span, straddles = span_tokens(text, encoded.offsets, start, end)
    return names(loaded, encoded.ids[span.start : span.stop]), straddles


def test_sentencepiece_blank_before_a_text_is_scored_with_it():
    assert scored("prepend", "A", 0, 1) == (["▁", "A"], False)
    assert scored("prepend", " A", 0, 2) == (["▁", "▁", "A"], False)


def test_letter_after_a_cue_is_tokenised_with_the_cue():
    """Alone " A" would be ▁ ▁A, and the model would be asked for a blank that the cue never leaves."""
    text = "Answer: A"
    assert scored("metaspace", text, 7, 9) == (["▁A"], False)
    assert scored("metaspace", text, 8, 9) == (["▁A"], False)  # the blank is part of how the word is written


def test_accented_letter_split_across_bytes_is_scored_whole():
    assert scored("bytes", "na Rúa.", 4, 5) == (["Ã", "ºa"], True)  # its second byte comes with the next letter
    assert scored("bytes", "na Rúa.", 4, 6) == (["Ã", "ºa"], False)


def test_emoji_of_four_byte_tokens_is_scored_whole():
    assert scored("bytes", "a 🙂 b", 2, 3) == (["ð", "Ł", "Ļ", "Ĥ"], False)
    assert scored("prepend", "a 🙂", 2, 3) == (["<0xF0>", "<0x9F>", "<0x99>", "<0x82>"], False)


def test_special_tokens_that_the_tokenizer_adds_are_never_scored():
    assert scored("metaspace", "A", 0, 1) == (["▁A"], False)
    assert scored("wordpiece", "gato", 0, 4) == (["gato"], False)


@pytest.mark.parametrize(
    ("offsets", "start", "end", "tokens", "straddles"),
    [
        ([(0, 3), (3, 6)], 3, 6, [1], False),  # cut between tokens
        ([(0, 2), (2, 6)], 3, 6, [1], False),  # "x yz": the blank before the span goes with it
        ([(0, 4), (4, 6)], 3, 6, [0, 1], True),  # the letter before the span is scored too, and it is said
        ([(0, 3), (3, 5), (5, 6)], 2, 5, [1], True),  # the span's blank belongs to the word before: said
        ([(0, 3), (3, 6)], 3, 5, [1], True),  # the last token reaches beyond the span
        ([(0, 6)], 6, 6, [], False),
        ([None, (0, 3), (3, 6), None], 0, 6, [1, 2], False),
        ([(0, 3), (3, 3), (3, 6)], 3, 6, [1, 2], False),  # a mark without characters goes with what follows
    ],
)
def test_tokens_of_a_span(offsets, start, end, tokens, straddles):
    found, flagged = span_tokens("ab xyz", offsets, start, end)
    assert (list(found), flagged) == (tokens, straddles)


def test_span_of_blanks_is_scored_as_such():
    assert list(span_tokens("a  b", [(0, 1), (1, 2), (2, 4)], 1, 2)[0]) == [1]


@pytest.mark.parametrize(
    ("kind", "policy", "start", "first"),
    [
        ("bytes", "auto", True, "<bos>"),  # none of its own: put where the text is scored from its start
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
def test_bos_policy(kind, policy, start, first):
    loaded = tiny.loaded("llama", tokens=kind, bos=policy)
    encoded = with_bos(loaded, encode(loaded, "a b"), scored_from_start=start)
    assert names(loaded, encoded.ids[:2]) in ([first, "a"], [first, "Ġ"], [first, "Ġb"])


@pytest.mark.parametrize("policy", ["always", "eos"])
def test_policy_that_wants_a_token_the_tokenizer_lacks_is_refused(policy):
    with pytest.raises(ModelError, match="has no"):
        bos_policy(tiny.loaded("llama", tokens="bare", bos=policy))


def test_unknown_policy_is_refused():
    with pytest.raises(ModelError, match="expected auto, always, never or eos as bos"):
        bos_policy(tiny.loaded("llama", bos="sometimes"))


class Slow:
    """A tokenizer without offsets: bytes, as ByT5."""

    is_fast = False
    bos_token_id, eos_token_id, bos_token = None, 0, None

    def __call__(self, text, add_special_tokens=True, **_):
        return {"input_ids": [byte + 1 for byte in text.encode()] + [0] * add_special_tokens}

    def decode(self, ids, **_):
        return bytes(i - 1 for i in ids if i).decode(errors="replace")


def test_tokenizer_without_offsets_has_them_rebuilt():
    loaded = tiny.loaded("llama")
    loaded.tokenizer = Slow()
    encoded = encode(loaded, "rúa 🙂")
    assert encoded.offsets == [(0, 1), (1, 2), (1, 2), (2, 3), (3, 4), (4, 5), (4, 5), (4, 5), (4, 5), None]
    assert encoded.words == [0, 0, 0, 0, 1, 1, 1, 1, 1, None]


def test_offsets_that_cannot_be_proven_are_refused():
    class Lowering(Slow):
        def decode(self, ids, **_):
            return super().decode(ids).lower()

    with pytest.raises(CannotAlign, match="decode to 'r'"):
        rebuilt_offsets(Lowering(), Slow()("Rúa", add_special_tokens=False)["input_ids"], "Rúa")


@pytest.mark.parametrize("text", ["Rúa: a  gato 🙂\n", "مطبخ", " a"])
def test_byte_tokenizer_of_transformers_is_aligned(text):
    loaded = tiny.loaded("llama")
    loaded.tokenizer = ByT5Tokenizer()
    encoded = encode(loaded, text)
    assert encoded.offsets[-1] is None
    assert encoded.offsets[:-1] == [(i, i + 1) for i, letter in enumerate(text) for _ in letter.encode()]
