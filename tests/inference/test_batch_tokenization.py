"""Tokenization with shared beginnings, compared with that of each text alone."""

import copy
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import tiny
from support.soak import examples
from tokenizers import pre_tokenizers
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


def with_first_pre_tokenizer(kind: str, split):
    """Return a model whose tokenizer first calls `split`, which returns the parts of a normalized text."""

    class First:
        def pre_tokenize(self, text):
            text.split(lambda number, part: split(part))

    loaded = tiny.load_model(tokens=kind)
    loaded.tokenizer = copy.deepcopy(loaded.tokenizer)
    backend = loaded.tokenizer.backend_tokenizer
    others = [backend.pre_tokenizer] if backend.pre_tokenizer is not None else []
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.PreTokenizer.custom(First()), *others])
    return loaded


@pytest.mark.parametrize("limit", [{"BLOCK": 5}, {"BLOCK_CHARACTERS": 2_000}, {"BLOCK_CHARACTERS": 1}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_shared_beginning_is_tokenized_once(kind, limit, low_limits):
    """The texts differ in their questions, and each question has four options."""
    lengths = []
    loaded = with_first_pre_tokenizer(kind, lambda text: lengths.append(len(str(text))) or [text])
    rng = random.Random(0)
    words = " ".join(tiny.LINES).split()
    stems = [PREFIX + "Question: " + " ".join(rng.choices(words, k=40)) + "\nAnswer:" for _ in range(6)]
    texts = [stem + option for stem in stems for option in (" A", " B", " the dog", " the dogs")]
    low_limits("inference.model.batch_tokenization", **limit)  # texts continue those of earlier blocks
    assert len(dict(encode_all(loaded, texts))) == len(texts)
    n_distinct = len(PREFIX) + sum(len(stem) - len(PREFIX) for stem in stems)
    assert sum(lengths) < n_distinct + 150 * len(texts) < sum(map(len, texts)) / 2


def test_text_whose_overlap_is_not_reproduced_is_tokenized_as_a_whole():
    """A tokenizer that looks far back: words depend on the beginning of the text."""

    def split(text):
        return [text] if str(text).startswith(PREFIX) else text.split("e", "isolated")

    loaded = with_first_pre_tokenizer("bytes", split)
    whole, window = (loaded.tokenizer(text)["input_ids"] for text in (PREFIX, PREFIX[1:]))
    assert whole[-20:] != window[-20:]
    assert_same_tokens(loaded, [PREFIX + ending for ending in ("the cat", "the dog", "a")])


@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_common_length(a, b):
    length = common_length(a, b)
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]
