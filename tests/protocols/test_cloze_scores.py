"""Agreement of the rankings by complete sentence and by fill in the cloze protocol, for every BOS policy (tiny models)."""

import pyarrow as pa
import pytest
from support import tiny
from support.engines import score
from support.scoring import build_requests, item, results_of
from vernacular.metrics.spans import by_item, logliks
from vernacular.protocols.schema import REQUESTS

CONTEXTS = [
    "O gato __ no tellado.",
    "Aquest matí hem anat al __ i hem comprat pomes.",
    "The keys to the cabinet are on the __, and nobody has seen them.",
    "Ninguén sae da __.",
]
CHOICES = ["dorme", "the table", "jabuke", "xanelas verdes"]
NOISE = 1e-3  # nats; sums of float32 log-probabilities
# (tokenizer, BOS policy), by whether the sentence and the left context of the fill are preceded by a BOS
BOTH_WITH_BOS = [("bytes-bos", "auto"), ("prepend", "auto"), ("bytes", "always"), ("bytes", "eos")]
NEITHER_WITH_BOS = [("bytes", "never"), ("bytes-bos", "never"), ("prepend", "never"), ("bare", "auto")]
SENTENCE_ONLY_WITH_BOS = [("bytes", "auto")]


def differences(loaded, contexts=CONTEXTS) -> tuple[list[list[float]], list[dict]]:
    """Return log-likelihood (nats) of each candidate's sentence minus that of its fill, by item, and the result rows."""
    items = [item(f"i{n}", context=context, choices=CHOICES, gold=[0]) for n, context in enumerate(contexts)]
    requests = build_requests(items, "cloze", "cloze")
    scores = score(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))[0].to_pylist()
    spans = by_item(requests, scores)
    item_differences = []
    for cloze_item in items:
        sentence, fill = (logliks(spans[cloze_item["item_id"]], role, len(CHOICES)) for role in ("filled", "fill"))
        item_differences.append([a - b for a, b in zip(sentence, fill, strict=True)])
    return item_differences, results_of("cloze", items, requests, scores)


def spread(values: list[float]) -> float:
    return max(values) - min(values)


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
@pytest.mark.parametrize(("tokens", "bos"), BOTH_WITH_BOS + NEITHER_WITH_BOS)
def test_same_ranking_if_both_or_neither_follow_a_bos(arch, tokens, bos):
    """The sums differ by the log-likelihood of the left context, which all candidates share."""
    loglik_differences, rows = differences(tiny.load_model(arch, tokens=tokens, bos=bos))
    assert max(map(spread, loglik_differences)) < NOISE
    assert all(max(values) < -1 for values in loglik_differences)
    assert [row["metrics"]["accuracy"] for row in rows] == [row["metrics"]["accuracy_fill"] for row in rows]


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
@pytest.mark.parametrize(("tokens", "bos"), SENTENCE_ONLY_WITH_BOS)
def test_different_ranking_if_only_the_sentence_follows_a_bos(arch, tokens, bos):
    """`bos: auto` and a tokenizer that has a BOS but does not add it: only the sentence is scored after a BOS."""
    loglik_differences, _ = differences(tiny.load_model(arch, tokens=tokens, bos=bos))
    assert min(map(spread, loglik_differences)) > 100 * NOISE


@pytest.mark.parametrize(("tokens", "bos"), BOTH_WITH_BOS + NEITHER_WITH_BOS + SENTENCE_ONLY_WITH_BOS)
def test_sentence_and_fill_are_equal_for_gap_at_start(tokens, bos):
    loglik_differences, _ = differences(tiny.load_model("gpt2", tokens=tokens, bos=bos), ["__ no tellado."])
    assert max(map(abs, loglik_differences[0])) < NOISE


def test_different_ranking_in_masked_model():
    """The left context is scored as well, and depends on the candidate."""
    loglik_differences, _ = differences(tiny.load_model("bert", tokens="metaspace"))
    assert min(map(spread, loglik_differences)) > 100 * NOISE
