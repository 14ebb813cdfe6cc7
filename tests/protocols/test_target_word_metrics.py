import math

import numpy as np
import pytest
from support.scoring import ask, item, score, scored
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.target_word.metrics import METRICS, normalised_difference, per_item

LN2 = math.log(2)
BOY = item(context="The boy [MASK] books.", choices=["reads", "read", "reading"], gold=[0])


def rows_of(items, by_role):
    requests = ask(items, "target_word", "target_word")
    return per_item(items, requests, scored(requests, by_role))


def test_measures_of_one_item_in_nats():
    row = rows_of([BOY], {"token:0": [-1.0, -1.0], "token:1": -3.0, "token:2": -5.0})[0]
    values = row["metrics"]
    assert (values["surprisal_correct"], values["surprisal_incorrect"], values["margin"]) == (2.0, 4.0, 1.0)
    assert values["probability"] == pytest.approx(math.exp(-2))
    assert (values["accuracy"], row["option_scores"]) == (1.0, [-2.0, -3.0, -5.0])


def test_corpus_measures_in_bits():
    items = [BOY, BOY | {"item_id": "i2"}]
    requests = ask(items, "target_word", "target_word")
    by_item = {
        "i1": {"token:0": -2 * LN2, "token:1": -5 * LN2, "token:2": -5 * LN2},
        "i2": {"token:0": -4 * LN2, "token:1": -4 * LN2, "token:2": -6 * LN2},
    }
    rows = per_item(items, requests, [scored([r], by_item[r["item_id"]])[0] for r in requests])
    table = {row["metric"]: row for row in aggregate(rows, METRICS, seed=0, categories=False)}
    # right 2 and 4, wrong 5 and 5 bits
    assert table["surprisal_correct"]["value"] == pytest.approx(3.0)
    assert table["asd"]["value"] == pytest.approx(2.0)
    assert table["asd_normalised"]["value"] == pytest.approx(2 / 3)
    assert (table["asd"]["unit"], table["asd_normalised"]["unit"]) == ("bits", "ratio")
    assert (table["accuracy"]["value"], table["accuracy"]["n_ties"]) == (0.5, 1)


def test_normalised_difference_has_the_sign_of_asd_and_is_not_rounded():
    assert normalised_difference(np.array([1.0]), np.array([2.548])) == pytest.approx(1.548)


def test_certainty_is_between_zero_and_one_whatever_the_vocabulary():
    requests = ask([BOY], "target_word", "target_word")
    extras = {"entropy": [2.0, 9.9], "topk_entropy": [math.log(100), 9.9]}
    values = per_item([BOY], requests, [score(r, [-1.0, -1.0], **extras) for r in requests])[0]["metrics"]
    assert values["certainty"] == pytest.approx(0.0)  # flat over the hundred likeliest
    assert values["entropy"] == 2.0  # of the first token
    sure = {"entropy": [0.0], "topk_entropy": [0.0]}
    values = per_item([BOY], requests, [score(r, -1.0, **sure) for r in requests])[0]["metrics"]
    assert values["certainty"] == 1.0


@pytest.mark.parametrize("gold", [[], [0, 1, 2]])
def test_forms_of_which_none_is_wrong_or_none_right_have_no_surprisals(gold):
    values = rows_of([BOY | {"gold": gold}], {"token:1": -1.0})[0]["metrics"]
    assert not {"surprisal_correct", "surprisal_incorrect", "margin", "surprisal_correct_sentence"} & values.keys()
    assert ("probability" in values, values.get("accuracy")) == ((True, 1.0) if gold else (False, None))


def test_sentence_level_stands_apart():
    row = rows_of(
        [BOY], {"token:0": -5.0, "token:1": -4.0, "sentence:0": -20.0, "sentence:1": -30.0, "sentence:2": -31.0}
    )[0]
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_sentence"]) == (0.0, 1.0)
    assert row["metrics"]["surprisal_incorrect_sentence"] == 30.5


def test_one_bad_row_is_an_error_of_that_row():
    items = [BOY | {"context": "no mask here"}, BOY | {"item_id": "i2", "choices": ["null", "NA"]}]
    bad, good = rows_of(items, {"token:0": -1.0})
    assert bad["flags"] == "error: expected one masked word in the text, got 0"
    assert (good["flags"], good["prediction"], good["correct"]) == (None, "null", True)
