"""Min-K%: the mean of the lowest log-probabilities, of entire texts of causal models only."""

import math

import pytest
from support.scoring import build_requests, item, score
from vernacular.metrics.contamination import MIN_K, min_k
from vernacular.protocols.evaluate import evaluate

LOGPROBS = [-0.1, -2.0, -0.5, -4.0, -1.2, -0.3, -3.0, -0.2, -0.7, -0.05]


def test_worked_example():
    assert min_k(LOGPROBS) == pytest.approx(-3.5)
    assert min_k(LOGPROBS, 0.5) == pytest.approx(-2.18)
    assert min_k(LOGPROBS, 1) == pytest.approx(sum(LOGPROBS) / 10)
    assert min_k([-1.0, -4.0, -2.0, -3.0]) == -4.0, "one token of a span of four"
    assert min_k([]) is None


def values_of(protocol, item_type, row, logprobs, **options):
    requests = build_requests([row], item_type, protocol)
    end = [[request["span_start"], request["span_end"]] for request in requests]
    outputs = [
        score(request, logprobs, offsets=[offset] * len(logprobs))
        for request, offset in zip(requests, end, strict=True)
    ]
    return evaluate(protocol, [row], requests, outputs, [], **options)[0][0]["metrics"]


@pytest.mark.parametrize(
    ("protocol", "item_type", "fields"),
    [
        ("text", "text", {"context": "Unha frase."}),
        ("acceptability", "sentence", {"context": "Unha frase.", "extra": [("label", "1")]}),
        ("minimal_pair", "pair", {"choices": ["ela canta", "ela cantan"], "gold": [0]}),
        ("minimal_pair", "pair", {"context": "Chove.", "choices": ["Si", "Non"], "gold": [0]}),  # without the context
    ],
)
def test_entire_texts_have_the_signal(protocol, item_type, fields):
    row = item("i1", **fields)
    assert values_of(protocol, item_type, row, LOGPROBS)["min_20"] == pytest.approx(-3.5)
    assert "min_20" not in values_of(protocol, item_type, row, LOGPROBS, masked=True)
    assert "min_20" not in values_of(protocol, item_type, row, [-math.inf, -1.0])


def test_text_after_a_prompt_has_none():
    row = item("i1", question="Que?", choices=["si", "non"], gold=[0])
    assert "min_20" not in values_of("options", "question", row, LOGPROBS)
    unacceptable = item("i1", context="Unha frases.", extra=[("label", "0")])
    assert "min_20" not in values_of("acceptability", "sentence", unacceptable, LOGPROBS)


def test_signal_is_not_in_the_leaderboard():
    assert not MIN_K.headline
    assert MIN_K.higher_is_better is None
