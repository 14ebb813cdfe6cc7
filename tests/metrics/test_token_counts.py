"""Token counts per item: words, parts of characters, unknown tokens and prompts, from stored tokens and offsets."""

import pyarrow as pa
import pytest
from support import tiny
from support.engines import score as score_requests
from support.scoring import build_requests, item, score
from vernacular.metrics.tokens import count_tokens, token_counts
from vernacular.protocols.schema import REQUESTS


@pytest.mark.parametrize(
    ("text", "offsets", "expected"),
    [
        ("O gato.", [(0, 1), (1, 6), (6, 7)], {"words": 2, "split_words": 0}),  # the full stop is no part of the word
        ("O gato.", [(0, 1), (1, 3), (3, 6), (6, 7)], {"words": 2, "split_words": 1}),
        ("l'home", [(0, 2), (2, 6)], {"words": 1, "split_words": 1}),
        ("— gato", [(0, 1), (1, 6)], {"words": 2, "countable_words": 1, "split_words": 0}),
        (" gato", [(0, 1), (1, 5)], {"words": 1, "split_words": 0}),  # the space is a token of its own
        ("gato", [(0, 0), (0, 4)], {"split_words": 0, "byte_tokens": 0}),  # a token without characters
        ("ña", [(0, 1), (0, 1), (1, 2)], {"byte_tokens": 2, "split_words": 1, "bytes": 3, "characters": 2}),
        ("a ña", [(0, 1), (1, 3), (2, 4)], {"byte_tokens": 2}),  # a space with half a letter, and the other half
        ("", [], {"tokens": 0, "words": 0, "split_words": 0, "byte_tokens": 0}),
    ],
)
def test_words_and_parts_of_characters(text, offsets, expected):
    counts = count_tokens(text, ["x"] * len(offsets), offsets)
    assert {name: counts[name] for name in expected} == expected


def test_inserted_space_is_no_part_of_a_word():
    counts = count_tokens("O gato", ["▁", "O", "▁", "gato"], [(0, 1), (0, 1), (1, 2), (2, 6)])
    assert (counts["tokens"], counts["split_words"], counts["byte_tokens"]) == (4, 0, 0)


def test_bytes_of_sentencepiece_are_byte_tokens():
    assert count_tokens("\n", ["<0x0A>"], [(0, 1)])["byte_tokens"] == 1
    assert count_tokens("0x0A", ["0x0A"], [(0, 4)])["byte_tokens"] == 0


TEXTS = ["O gato dorme 🙂.", "Ninguén sae da casa.", "Jutros smo otišli na pijacu.", "დღეს დილით ბაზარში."]


@pytest.mark.parametrize("tokens", ["bytes", "bytes-bos", "prepend", "metaspace", "wordpiece"])
def test_counts_agree_with_the_tokenizer(tokens):
    masked = tokens in ("metaspace", "wordpiece")
    loaded = tiny.load_model("bert" if masked else "llama", tokens=tokens)
    items = [item(f"i{n}", context=text, extra=[("label", "1")]) for n, text in enumerate(TEXTS)]
    requests = build_requests(items, "sentence", "acceptability")
    scores, metadata = score_requests(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))
    unknown = metadata["tokenizer"]["unk_token"]
    counts = token_counts(items, requests, scores.to_pylist(), [], roles=("sentence",), unknown_token=unknown)
    tokenizer = loaded.tokenizer
    for text, row in zip(TEXTS, counts, strict=True):
        pieces = tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])
        assert row["tokens"] == len(pieces)
        assert (row["bytes"], row["characters"]) == (len(text.encode()), len(text))
        assert row["unknown_tokens"] == sum(piece == unknown for piece in pieces)
        decoded = [tokenizer.decode([i]) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
        partial = sum("\ufffd" in piece or name.startswith("<0x") for piece, name in zip(decoded, pieces, strict=True))
        assert row["byte_tokens"] == (partial if tokens in ("bytes", "bytes-bos", "prepend") else 0)
        assert 0 <= row["split_words"] <= row["countable_words"] <= row["words"] == len(text.split())
        assert row["texts"] == 1
        n_special = row["prompt_tokens"]
        assert n_special == {"bytes": 1, "bytes-bos": 1, "prepend": 1, "metaspace": 1, "wordpiece": 1}[tokens]
    assert sum(row["unknown_tokens"] for row in counts) > 0 or tokens != "wordpiece"


def test_all_options_are_counted_and_the_prompt_once():
    question = item("i1", question="Que?", choices=["un", "dous", "tres"], gold=[1])
    requests = build_requests([question], "question", "options")
    outputs = [
        score(request, -1.0, offsets=[[request["span_start"], request["span_end"]]], n_prompt_tokens=7)
        for request in requests
    ]
    results = [{"item_id": "i1", "metrics": [("answer_bits", 2.5)]}]
    [row] = token_counts([question], requests, outputs, results, roles=("choice",))
    assert (row["texts"], row["tokens"], row["characters"]) == (3, 3, len(" un dous tres"))
    assert (row["prompt_tokens"], row["prompt_characters"]) == (7, requests[0]["span_start"])
    assert row["bits"] == 2.5


def test_label_letters_and_generated_text_are_not_counted():
    question = item("i1", question="Que?", choices=["un", "dous"], gold=[1])
    requests = build_requests([question], "question", "generation")
    output = {"item_id": "i1", "role": "response", "n_prompt_tokens": 5, "rendered": None, "flags": None}
    [row] = token_counts([question], requests, [output], [], roles=())
    assert (row["texts"], row["tokens"], row["prompt_tokens"]) == (None, None, 5)
    assert row["prompt_characters"] == len(requests[0]["prefix"] + requests[0]["text"])


def test_truncated_prompt_and_unnamed_unknown_token_are_not_guessed():
    sentence = item("i1", context="abc", extra=[("label", "1")])
    requests = build_requests([sentence], "sentence", "acceptability")
    flags = "truncated: 3 tokens dropped; unknown token: part of the scored text is not in the vocabulary"
    output = score(requests[0], [-1.0], offsets=[[0, 3]], flags=flags)
    [row] = token_counts([sentence], requests, [output], [], roles=("sentence",))
    assert (row["tokens"], row["unknown_tokens"], row["prompt_tokens"]) == (1, None, None)


def test_unscored_item_is_counted_without_tokens():
    sentence = item("i1", context="abc", extra=[("label", "1")])
    requests = build_requests([sentence], "sentence", "acceptability")
    output = score(requests[0], [], offsets=None, flags="error: out of memory", n_prompt_tokens=None) | {"tokens": None}
    assert token_counts([sentence], requests, [output], [], roles=("sentence",)) == []
