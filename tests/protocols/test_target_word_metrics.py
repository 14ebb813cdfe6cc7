import math

import numpy as np
import pytest
from support.scoring import build_requests, item, results_of, score, score_rows
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.target_word.metrics import METRICS, normalized_difference

LN2 = math.log(2)
BOY = item(context="The boy [MASK] books.", choices=["reads", "read", "reading"], gold=[0])


def rows_of(items, by_role):
    requests = build_requests(items, "target_word", "target_word")
    return results_of("target_word", items, requests, score_rows(requests, by_role))


def test_item_values_are_in_nats():
    row = rows_of([BOY], {"token:0": [-1.0, -1.0], "token:1": -3.0, "token:2": -5.0})[0]
    values = row["metrics"]
    assert (values["surprisal_correct"], values["surprisal_incorrect"], values["margin"]) == (2.0, 4.0, 1.0)
    assert values["probability"] == pytest.approx(math.exp(-2))
    assert (values["accuracy"], row["option_scores"]) == (1.0, [-2.0, -3.0, -5.0])


def test_corpus_metrics_are_in_bits():
    items = [BOY, BOY | {"item_id": "i2"}]
    requests = build_requests(items, "target_word", "target_word")
    by_item = {
        "i1": {"token:0": -2 * LN2, "token:1": -5 * LN2, "token:2": -5 * LN2},
        "i2": {"token:0": -4 * LN2, "token:1": -4 * LN2, "token:2": -6 * LN2},
    }
    rows = results_of(
        "target_word", items, requests, [score_rows([request], by_item[request["item_id"]])[0] for request in requests]
    )
    table = {row["metric"]: row for row in aggregate(rows, METRICS, seed=0, categories=False)}
    # correct: 2 and 4 bits; incorrect: 5 and 5 bits
    assert table["surprisal_correct"]["value"] == pytest.approx(3.0)
    assert table["asd"]["value"] == pytest.approx(2.0)
    assert table["asd_normalized"]["value"] == pytest.approx(2 / 3)
    assert (table["asd"]["unit"], table["asd_normalized"]["unit"]) == ("bits", "ratio")
    assert (table["accuracy"]["value"], table["accuracy"]["n_ties"]) == (0.5, 1)


def test_normalized_difference_is_signed_and_not_rounded():
    assert normalized_difference(np.array([1.0]), np.array([2.548])) == pytest.approx(1.548)


def test_certainty_is_normalized_by_top_k():
    requests = build_requests([BOY], "target_word", "target_word")
    extras = {"entropy": [2.0, 9.9], "topk_entropy": [math.log(100), 9.9]}
    values = results_of(
        "target_word", [BOY], requests, [score(request, [-1.0, -1.0], **extras) for request in requests]
    )[0]["metrics"]
    assert values["certainty"] == pytest.approx(0.0)  # uniform over the 100 most probable tokens
    assert values["entropy"] == 2.0  # of the first token
    certain = {"entropy": [0.0], "topk_entropy": [0.0]}
    values = results_of("target_word", [BOY], requests, [score(request, -1.0, **certain) for request in requests])[0][
        "metrics"
    ]
    assert values["certainty"] == 1.0


@pytest.mark.parametrize("gold", [[], [0, 1, 2]])
def test_surprisals_require_correct_and_incorrect_form(gold):
    values = rows_of([BOY | {"gold": gold}], {"token:1": -1.0})[0]["metrics"]
    assert not {"surprisal_correct", "surprisal_incorrect", "margin", "surprisal_correct_sentence"} & values.keys()
    assert ("probability" in values, values.get("accuracy")) == ((True, 1.0) if gold else (False, None))


def test_sentence_level_metrics_are_separate():
    row = rows_of(
        [BOY], {"token:0": -5.0, "token:1": -4.0, "sentence:0": -20.0, "sentence:1": -30.0, "sentence:2": -31.0}
    )[0]
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_sentence"]) == (0.0, 1.0)
    assert row["metrics"]["surprisal_incorrect_sentence"] == 30.5


def test_invalid_item_does_not_affect_other_items():
    items = [BOY | {"context": "no mask here"}, BOY | {"item_id": "i2", "choices": ["null", "NA"]}]
    invalid, valid = rows_of(items, {"token:0": -1.0})
    assert invalid["flags"] == "error: expected one masked word in the text, got 0"
    assert (valid["flags"], valid["prediction"], valid["correct"]) == (None, "null", True)
