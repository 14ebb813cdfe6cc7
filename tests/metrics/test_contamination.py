"""Min-K%: the mean of the lowest log-probabilities, of entire texts of causal models only."""

import math

import pytest
from support.scoring import build_requests, item, score
from vernacular.metrics.contamination import SIGNALS, min_k, z_scores
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
    assert [metric.name for metric in SIGNALS] == ["min_20", "min_20_plus_plus"]
    assert not any(metric.headline for metric in SIGNALS)
    assert all(metric.higher_is_better is None for metric in SIGNALS)


# p = (0.7, 0.1, 0.1, 0.1)
MEAN, DEVIATION = -0.940448, 0.891728


def moments(logprobs, deviation=DEVIATION):
    return {"logprob_mean": [MEAN] * len(logprobs), "logprob_sd": [deviation] * len(logprobs)}


def test_worked_example_of_z_scores():
    logprobs = [math.log(0.7), math.log(0.1)]
    values = z_scores({"logprobs": logprobs, **moments(logprobs)})
    assert values == pytest.approx([0.654654, -1.527525], abs=2e-6)
    assert z_scores({"logprobs": logprobs, **moments(logprobs, 0.0)}) is None, "all tokens are equally probable"
    assert z_scores({"logprobs": logprobs}) is None


@pytest.mark.parametrize(
    ("protocol", "item_type", "fields", "roles"),
    [
        ("text", "text", {"context": "Unha frase."}, {"text"}),
        ("acceptability", "sentence", {"context": "Unha frase.", "extra": [("label", "1")]}, {"sentence"}),
        ("minimal_pair", "pair", {"choices": ["ela canta", "ela cantan"], "gold": [0]}, {"choice:0", "choice:1"}),
        ("minimal_pair", "pair", {"context": "Chove.", "choices": ["Si", "Non"], "gold": [0]}, {"bare:0", "bare:1"}),
    ],
)
def test_min_k_plus_plus_is_computed_where_it_is_requested(protocol, item_type, fields, roles):
    row, logprobs = item("i1", **fields), [math.log(p) for p in (0.7, 0.1, 0.7, 0.7, 0.1)]
    requests = build_requests([row], item_type, protocol, min_k_plus_plus=True)
    assert {request["role"] for request in requests if "logprob_moments" in request["extras"]} == roles
    for deviation, is_expected in ((DEVIATION, True), (0.0, False)):
        outputs = [score(r, logprobs, **(moments(logprobs, deviation) if r["role"] in roles else {})) for r in requests]
        values, of_masked = (
            evaluate(protocol, [row], requests, outputs, [], masked=masked)[0][0]["metrics"] for masked in (False, True)
        )
        assert values.get("min_20_plus_plus") == (pytest.approx(-1.527525, abs=2e-6) if is_expected else None)
        assert not {"min_20", "min_20_plus_plus"} & of_masked.keys()
        assert "min_20" in values


REQUEST_IDS = {  # of evaluations that do not ask for a signal, by protocol and whether there is a context
    ("text", "text"): ["165cc725cc0aa64edc6e01dc55d726ba"],
    ("acceptability", "sentence"): ["63fc278406a1871604d19adc8ec1ca62"],
    ("minimal_pair", "pair"): ["8b093a58d5388bb41b0ec62832fe3c0e", "1e5f9ab9e8d43a008f0bbad8c2571749"],
}


@pytest.mark.parametrize(("protocol", "item_type"), REQUEST_IDS)
@pytest.mark.parametrize("options", [{}, {"min_k_plus_plus": False}])
def test_other_evaluations_have_the_same_requests(protocol, item_type, options):
    fields = {"choices": ["ela canta", "ela cantan"], "gold": [0]} if protocol == "minimal_pair" else {}
    row = item("i1", context="" if fields else "Unha frase.", **fields)
    requests = build_requests([row], item_type, protocol, **options)
    assert [request["request_id"] for request in requests] == REQUEST_IDS[protocol, item_type]
    asked = build_requests([row], item_type, protocol, min_k_plus_plus=True)
    assert not {request["request_id"] for request in asked} & set(REQUEST_IDS[protocol, item_type])
