"""Tokenization with shared beginnings, compared with that of each text alone."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import tiny
from support.soak import examples
from vernacular.inference.model import batch_tokenization
from vernacular.inference.model.batch_tokenization import common_length, encode_all
from vernacular.inference.model.tokenization import encode

KINDS = ("bytes", "bytes-bos", "prepend", "metaspace", "wordpiece", "bare")
PREFIX = "".join(f"Question: {line}\nAnswer: the cat 🙂\n\n" for line in tiny.LINES[:4])
# pieces that tokens, words, special tokens, digits, whitespace, combining characters and emoji cross
PIECES = st.sampled_from([
    "the cat", " the", " dog", "s", "é", "\u0301", " ", "  ", "\n\n", "\n", "12", "345", " 6", "<eos>", "<s>", "<e", "os>",
    "[MASK]", "🙂", "\u200d", "ქ", "القطة", "?", "!?", ".", "A", " A", "na rúa", "x" * 40, "Question: ",
])  # fmt: skip


def assert_same_tokens(loaded, texts, **options):
    expected = [encode(loaded, text, **options) for text in texts]
    results = dict(encode_all(loaded, texts, **options))
    assert sorted(results) == list(range(len(texts)))
    for index, tokens in enumerate(expected):
        assert results[index].ids.tolist() == tokens.ids.tolist(), texts[index]
        assert results[index].offsets.tolist() == tokens.offsets.tolist(), texts[index]
        assert results[index].words.tolist() == tokens.words.tolist(), texts[index]


@settings(max_examples=examples(60))
@given(
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.integers(0, len(PREFIX)), st.lists(PIECES, max_size=6)), min_size=2, max_size=8),
    st.booleans(),
)
@example("bytes", [(len(PREFIX), ["12"]), (len(PREFIX), ["1"]), (len(PREFIX), ["123"])], True)
@example("prepend", [(len(PREFIX) - 2, [" the cat"]), (len(PREFIX) - 2, [" the catalogue"])], True)
def test_tokens_equal_those_of_each_text_alone(kind, endings, add_special_tokens):
    texts = [PREFIX[:length] + "".join(pieces) for length, pieces in endings]
    assert_same_tokens(tiny.load_model(tokens=kind), [*texts, *texts[:1]], add_special_tokens=add_special_tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_shared_beginning_is_tokenized_once(kind, monkeypatch):
    """The texts differ in their questions, and each question has four options."""
    loaded = tiny.load_model(tokens=kind)
    rng = random.Random(0)
    words = " ".join(tiny.LINES).split()
    stems = [PREFIX + "Question: " + " ".join(rng.choices(words, k=40)) + "\nAnswer:" for _ in range(6)]
    texts = [stem + option for stem in stems for option in (" A", " B", " the dog", " the dogs")]
    lengths = []
    encode_texts = batch_tokenization._Encoder._encode
    monkeypatch.setattr(
        batch_tokenization._Encoder,
        "_encode",
        lambda self, texts, *, special: lengths.extend(map(len, texts)) or encode_texts(self, texts, special=special),
    )
    monkeypatch.setattr(batch_tokenization, "BLOCK", 5)  # texts continue those of earlier blocks
    assert_same_tokens(loaded, texts)
    n_distinct = len(PREFIX) + sum(len(stem) - len(PREFIX) for stem in stems)
    assert sum(lengths) < n_distinct + 150 * len(texts) < sum(map(len, texts)) / 2


def test_text_whose_overlap_is_not_reproduced_is_tokenized_as_a_whole(monkeypatch):
    """A tokenizer that looks far ahead: here, the shared part is tokenized with another vocabulary."""
    loaded, other = tiny.load_model(tokens="bytes"), tiny.load_model(tokens="prepend")
    texts = [PREFIX + ending for ending in ("the cat", "the dog", "a")]
    encode_texts = batch_tokenization._Encoder._encode

    def encode_windows_differently(self, texts, *, special):
        if texts and not texts[0].startswith(PREFIX):
            return other.tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
        return encode_texts(self, texts, special=special)

    monkeypatch.setattr(batch_tokenization._Encoder, "_encode", encode_windows_differently)
    assert_same_tokens(loaded, texts)


@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_common_length(a, b):
    length = common_length(a, b)
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]
