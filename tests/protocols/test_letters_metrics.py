import math

import pytest
from support.scoring import ask, item, score, scored
from vernacular.protocols.letters.metrics import METRICS, per_item

LN = math.log
PALM = item(question="؟", choices=["a", "b", "c", "d"], gold=[1])


def row_of(one, by_role, **options):
    requests = ask([one], "question", "letters", **options)
    return per_item([one], requests, scored(requests, by_role))[0]


def test_probabilities_are_a_softmax_over_the_offered_letters():
    # masses 0.1, 0.2, 0.05, 0.05 of the whole vocabulary: 1/4, 1/2, 1/8, 1/8 of the letters
    row = row_of(PALM, {"choice:0": LN(0.1), "choice:1": LN(0.2), "choice:2": LN(0.05), "choice:3": LN(0.05)})
    values = row["metrics"]
    assert values["probability"] == pytest.approx(0.5)
    assert values["confidence"] == pytest.approx(0.5)
    # (1/4)^2 + (1/2 - 1)^2 + 2 (1/8)^2
    assert values["brier"] == pytest.approx(0.0625 + 0.25 + 0.03125)
    assert values["margin"] == pytest.approx(LN(2))
    assert (row["prediction"], row["predicted_indices"], row["correct"], row["tie"]) == ("B", [1], True, False)
    assert row["prompt"] == "؟\n\nA. a\nB. b\nC. c\nD. d\nResposta:"


def test_without_gold_there_is_a_prediction_and_no_accuracy():
    row = row_of(PALM | {"gold": []}, {"choice:2": -1.0})
    assert (row["prediction"], row["correct"]) == ("C", None)
    assert set(row["metrics"]) == {"confidence", "chosen_position"}
    row = row_of(PALM | {"gold": []}, {"choice:2": -1.0, "choice:2@1": -1.0}, option_rotations=2)
    assert set(row["metrics"]) == {"confidence", "chosen_position", "same_in_every_order"}


def test_a_tie_is_shown_with_all_its_letters():
    row = row_of(PALM, {"choice:1": -1.0, "choice:3": -1.0})
    assert (row["prediction"], row["correct"], row["tie"]) == ("B | D", False, True)
    assert "chosen_position" not in row["metrics"]


def test_two_correct_options_share_the_truth():
    row = row_of(PALM | {"gold": [0, 1, 9]}, {f"choice:{i}": -1.0 for i in range(4)})  # there is no tenth option
    assert (row["gold"], row["metrics"]["gold_position"]) == ([0, 1], 0)
    assert row["metrics"]["probability"] == pytest.approx(0.5)
    # (1/4 - 1/2)^2 twice, (1/4)^2 twice
    assert row["metrics"]["brier"] == pytest.approx(0.25)


def test_order_sensitivity_over_rotations():
    # a model that always takes the letter at position B: right as given, wrong in the three rotations
    always_b = {"choice:1": -1.0, "choice:2@1": -1.0, "choice:3@2": -1.0, "choice:0@3": -1.0}
    values = row_of(PALM, always_b, option_rotations=4)["metrics"]
    assert values["accuracy"] == 1.0
    assert values["accuracy_orders"] == 0.25
    assert values["right_in_every_order"] == 0.0
    assert values["same_in_every_order"] == 0.0
    assert row_of(PALM, {}, option_rotations=4)["metrics"]["same_in_every_order"] == 0.0  # all alike: none is chosen
    steady = {"choice:1": -1.0, "choice:1@1": -1.0, "choice:1@2": -1.0, "choice:1@3": -1.0}
    values = row_of(PALM, steady, option_rotations=4)["metrics"]
    assert (values["accuracy_orders"], values["same_in_every_order"]) == (1.0, 1.0)


@pytest.mark.parametrize("role", ["choice:3@1", "choice:0@2"])
def test_an_order_that_was_not_scored_leaves_no_comparison_of_orders(role):
    requests = ask([PALM], "question", "letters", option_rotations=3)
    scores = [score(r, [] if r["role"] == role else -1.0) for r in requests]
    (row,) = per_item([PALM], requests, scores)
    assert row["metrics"]["accuracy"] == 0.0  # all alike
    assert not {"accuracy_orders", "same_in_every_order", "right_in_every_order"} & row["metrics"].keys()


def test_the_letter_shown_is_the_one_asked_in_shuffled_truth_items():
    truth = item(question="?", choices=["right", "w1", "w2", "w3"], gold=[0], target="right")
    requests = ask([truth], "multi_answer", "letters")
    (asked,) = (r for r in requests if r["role"] == "choice:0")
    row = per_item([truth], requests, scored(requests, {"choice:0": -1.0}))[0]
    shown = [line.partition(". ")[2] for line in asked["text"].splitlines()[2:6]]
    assert row["choices"] == shown != truth["choices"]
    two = per_item([truth | {"gold": [0, 1, 2, 3]}], requests, scored(requests, {}))[0]
    assert two["gold"] == [0, 1, 2, 3]
    assert [row["choices"][i] for i in row["gold"]] == ["right"]
    assert row["correct"] is True
    assert row["prediction"] == asked["text"][-1]


def test_every_metric_is_explained():
    assert all(metric.about and metric.family == "surprisal" for metric in METRICS)
