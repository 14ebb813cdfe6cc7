import numpy as np
import pytest
from support.scoring import ask, item, scored
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.minimal_pair import metrics as minimal_pair

PAIR = item(choices=["Ela canta.", "Ela cantan."], gold=[0], category="agreement")


def rows_of(items, by_role, layout="pair"):
    requests = ask(items, layout, "minimal_pair")
    return minimal_pair.per_item(items, requests, scored(requests, by_role))


def test_difference_and_difsur_of_a_pair_by_hand():
    row = rows_of([PAIR], {"choice:0": [-3.0, -5.0], "choice:1": -10.0})[0]
    values = row["metrics"]
    assert (values["surprisal_good"], values["surprisal_bad"]) == (8.0, 10.0)
    assert (values["difference"], values["difsur_item"], values["accuracy"]) == (2.0, 20.0, 1.0)
    assert "accuracy_bare" not in values
    assert row["prediction"] == "Ela canta."


def test_a_tie_is_counted_apart_and_is_not_right():
    row = rows_of([PAIR], {"choice:0": -8.0, "choice:1": -8.0})[0]
    assert (row["correct"], row["tie"], row["metrics"]["difference"]) == (False, True, 0.0)


def test_after_its_context_and_bare_can_disagree():
    piqa = item(context="Para abrir a porta,", choices=["usa o pan.", "usa a chave."], gold=[1])
    row = rows_of([piqa], {"choice:0": -9.0, "choice:1": -6.0, "bare:0": -4.0, "bare:1": -5.0})[0]
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_bare"]) == (1.0, 0.0)
    assert row["metrics"]["surprisal_bad_bare"] == 4.0
    assert row["prompt"] == "Para abrir a porta,"


def test_more_than_two_texts_are_judged_by_the_likeliest_wrong_one():
    four = item(choices=list("abcd"), gold=[2])
    values = rows_of([four], {"choice:0": -9.0, "choice:1": -7.0, "choice:2": -5.0, "choice:3": -8.0})[0]["metrics"]
    assert (values["surprisal_good"], values["surprisal_bad"], values["accuracy"]) == (5.0, 7.0, 1.0)


@pytest.mark.parametrize("gold", [[], [0, 1]])
def test_texts_of_which_none_is_wrong_or_none_right_have_no_difference(gold):
    values = rows_of([PAIR | {"gold": gold}], {"choice:0": -8.0, "choice:1": -10.0})[0]["metrics"]
    assert values == (
        dict.fromkeys(("accuracy", "accuracy_token", "accuracy_char", "accuracy_byte"), 1) if gold else {}
    )


def test_more_than_one_right_text_is_judged_by_the_likeliest():
    four = item(choices=list("abcd"), gold=[1, 2])
    values = rows_of([four], {"choice:0": -9.0, "choice:1": -7.0, "choice:2": -5.0, "choice:3": -8.0})[0]["metrics"]
    assert (values["surprisal_good"], values["surprisal_bad"], values["accuracy"]) == (5.0, 8.0, 1.0)


def test_difsur_of_the_corpus_is_of_means_and_not_the_mean_of_difsurs():
    items = [PAIR, PAIR | {"item_id": "i2", "category": "order"}]
    requests = ask(items, "pair", "minimal_pair")
    by_item = {"i1": {"choice:0": -10.0, "choice:1": -20.0}, "i2": {"choice:0": -60.0, "choice:1": -30.0}}
    scores = [scored([r], by_item[r["item_id"]])[0] for r in requests]
    table = aggregate(minimal_pair.per_item(items, requests, scores), minimal_pair.METRICS, seed=0, categories=True)
    found = {(row["metric"], row["category"]): row["value"] for row in table}
    assert found["difsur", ""] == pytest.approx(100 * (25 - 35) / 35)
    assert found["difsur_item", ""] == 0.0  # 50 and -50
    assert found["difference", ""] == -10.0
    assert found["accuracy", "agreement"] == 1.0
    assert found["accuracy", "order"] == 0.0


def test_identical_surprisals_of_zero_have_a_difsur_of_zero():
    assert minimal_pair.difsur(np.zeros(2), np.array([0.0, 1.0])).tolist() == [0.0, 100.0]
