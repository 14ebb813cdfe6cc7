import numpy as np
import pytest
from support.scoring import build_requests, item, results_of, score_rows, without_bits
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.minimal_pair import metrics as minimal_pair

PAIR = item(choices=["Ela canta.", "Ela cantan."], gold=[0], category="agreement")


def rows_of(items, by_role, item_type="pair"):
    requests = build_requests(items, item_type, "minimal_pair")
    return results_of("minimal_pair", items, requests, score_rows(requests, by_role))


def test_difference_and_difsur_of_a_pair():
    row = rows_of([PAIR], {"choice:0": [-3.0, -5.0], "choice:1": -10.0})[0]
    values = row["metrics"]
    assert (values["surprisal_good"], values["surprisal_bad"]) == (8.0, 10.0)
    assert (values["difference"], values["difsur_item"], values["accuracy"]) == (2.0, 20.0, 1.0)
    assert "accuracy_bare" not in values
    assert row["prediction"] == "Ela canta."


def test_tie_is_reported_and_incorrect():
    row = rows_of([PAIR], {"choice:0": -8.0, "choice:1": -8.0})[0]
    assert (row["correct"], row["tie"], row["metrics"]["difference"]) == (False, True, 0.0)


def test_accuracy_with_and_without_context_can_differ():
    piqa = item(context="Para abrir a porta,", choices=["usa o pan.", "usa a chave."], gold=[1])
    row = rows_of([piqa], {"choice:0": -9.0, "choice:1": -6.0, "bare:0": -4.0, "bare:1": -5.0})[0]
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_bare"]) == (1.0, 0.0)
    assert row["metrics"]["surprisal_bad_bare"] == 4.0
    assert row["prompt"] == "Para abrir a porta,"


def test_bad_surprisal_is_of_most_probable_incorrect_text():
    four = item(choices=list("abcd"), gold=[2])
    values = rows_of([four], {"choice:0": -9.0, "choice:1": -7.0, "choice:2": -5.0, "choice:3": -8.0})[0]["metrics"]
    assert (values["surprisal_good"], values["surprisal_bad"], values["accuracy"]) == (5.0, 7.0, 1.0)


@pytest.mark.parametrize("gold", [[], [0, 1]])
def test_difference_requires_correct_and_incorrect_text(gold):
    values = rows_of([PAIR | {"gold": gold}], {"choice:0": -8.0, "choice:1": -10.0})[0]["metrics"]
    assert without_bits(values) == (
        dict.fromkeys(("accuracy", "accuracy_token", "accuracy_char", "accuracy_byte"), 1) if gold else {}
    )


def test_good_surprisal_is_of_most_probable_correct_text():
    four = item(choices=list("abcd"), gold=[1, 2])
    values = rows_of([four], {"choice:0": -9.0, "choice:1": -7.0, "choice:2": -5.0, "choice:3": -8.0})[0]["metrics"]
    assert (values["surprisal_good"], values["surprisal_bad"], values["accuracy"]) == (5.0, 8.0, 1.0)


def test_corpus_difsur_is_computed_from_means():
    items = [PAIR, PAIR | {"item_id": "i2", "category": "order"}]
    requests = build_requests(items, "pair", "minimal_pair")
    by_item = {"i1": {"choice:0": -10.0, "choice:1": -20.0}, "i2": {"choice:0": -60.0, "choice:1": -30.0}}
    scores = [score_rows([request], by_item[request["item_id"]])[0] for request in requests]
    table = aggregate(
        results_of("minimal_pair", items, requests, scores), minimal_pair.METRICS, seed=0, categories=True
    )
    values = {(row["metric"], row["category"]): row["value"] for row in table}
    assert values["difsur", ""] == pytest.approx(100 * (25 - 35) / 35)
    assert values["difsur_item", ""] == 0.0  # 50 and -50
    assert values["difference", ""] == -10.0
    assert values["accuracy", "agreement"] == 1.0
    assert values["accuracy", "order"] == 0.0


def test_difsur_of_zero_surprisals_is_zero():
    assert minimal_pair.difsur(np.zeros(2), np.array([0.0, 1.0])).tolist() == [0.0, 100.0]
