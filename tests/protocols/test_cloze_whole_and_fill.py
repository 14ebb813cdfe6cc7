"""When the whole sentence and the fill of a cloze item rank its candidates alike: with tiny models, for every BOS policy."""

import pyarrow as pa
import pytest
from support import tiny
from support.scoring import ask, item
from vernacular.inference.scoring.score import score
from vernacular.metrics.spans import by_item, logliks
from vernacular.protocols.cloze.metrics import per_item
from vernacular.protocols.schema import REQUESTS

CONTEXTS = [
    "O gato __ no tellado.",
    "Aquest matí hem anat al __ i hem comprat pomes.",
    "The keys to the cabinet are on the __, and nobody has seen them.",
    "Ninguén sae da __.",
]
CHOICES = ["dorme", "the table", "jabuke", "xanelas verdes"]
NOISE = 1e-3  # nats; sums of float32 log-probabilities
# (tokenizer, BOS policy): what stands before the first token, of the sentence and of the left context of the fill
BOTH = [("bytes-bos", "auto"), ("prepend", "auto"), ("bytes", "always"), ("bytes", "eos")]
NEITHER = [("bytes", "never"), ("bytes-bos", "never"), ("prepend", "never"), ("bare", "auto")]
SENTENCE_ALONE = [("bytes", "auto")]


def differences(loaded, contexts=CONTEXTS) -> tuple[list[list[float]], list[dict]]:
    """By item, log-likelihood (nats) of each candidate's sentence minus that of its fill; and the result rows."""
    items = [item(f"i{n}", context=context, choices=CHOICES, gold=[0]) for n, context in enumerate(contexts)]
    requests = ask(items, "cloze", "cloze")
    scores = score(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))[0].to_pylist()
    spans = by_item(requests, scores)
    found = []
    for one in items:
        whole, fill = (logliks(spans[one["item_id"]], role, len(CHOICES)) for role in ("whole", "fill"))
        found.append([a - b for a, b in zip(whole, fill, strict=True)])
    return found, per_item(items, requests, scores)


def spread(values: list[float]) -> float:
    return max(values) - min(values)


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
@pytest.mark.parametrize(("tokens", "bos"), BOTH + NEITHER)
def test_alike_where_both_or_neither_are_read_after_a_bos(arch, tokens, bos):
    """What the sums differ by is the log-likelihood of the left context, which all candidates share."""
    found, rows = differences(tiny.loaded(arch, tokens=tokens, bos=bos))
    assert max(map(spread, found)) < NOISE
    assert all(max(values) < -1 for values in found)
    assert [row["metrics"]["accuracy"] for row in rows] == [row["metrics"]["accuracy_fill"] for row in rows]


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
@pytest.mark.parametrize(("tokens", "bos"), SENTENCE_ALONE)
def test_not_alike_where_the_sentence_alone_is_read_after_a_bos(arch, tokens, bos):
    """`bos: auto` and a tokenizer that has a BOS and adds none: the fill is scored given the left context alone."""
    found, _ = differences(tiny.loaded(arch, tokens=tokens, bos=bos))
    assert min(map(spread, found)) > 100 * NOISE


@pytest.mark.parametrize(("tokens", "bos"), BOTH + NEITHER + SENTENCE_ALONE)
def test_a_gap_that_opens_the_sentence_has_no_left_context_and_one_sum(tokens, bos):
    found, _ = differences(tiny.loaded("gpt2", tokens=tokens, bos=bos), ["__ no tellado."])
    assert max(map(abs, found[0])) < NOISE


def test_not_alike_in_a_masked_model():
    """The left context is scored too, and read with the candidate in sight."""
    found, _ = differences(tiny.loaded("bert", tokens="metaspace"))
    assert min(map(spread, found)) > 100 * NOISE
