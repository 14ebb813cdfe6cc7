import math

import pytest
from support.scoring import build_requests, item, results_of, score, score_rows
from vernacular.protocols.letters.metrics import METRICS

LN = math.log
QUESTION = item(question="؟", choices=["a", "b", "c", "d"], gold=[1])


def row_of(letters_item, by_role, **options):
    requests = build_requests([letters_item], "question", "letters", **options)
    return results_of("letters", [letters_item], requests, score_rows(requests, by_role))[0]


def test_probabilities_are_softmax_over_offered_letters():
    # masses 0.1, 0.2, 0.05, 0.05 of the whole vocabulary: 1/4, 1/2, 1/8, 1/8 of the letters
    row = row_of(QUESTION, {"choice:0": LN(0.1), "choice:1": LN(0.2), "choice:2": LN(0.05), "choice:3": LN(0.05)})
    values = row["metrics"]
    assert values["probability"] == pytest.approx(0.5)
    assert values["confidence"] == pytest.approx(0.5)
    # (1/4)^2 + (1/2 - 1)^2 + 2 (1/8)^2
    assert values["brier"] == pytest.approx(0.0625 + 0.25 + 0.03125)
    assert values["margin"] == pytest.approx(LN(2))
    assert (row["prediction"], row["predicted_indices"], row["correct"], row["tie"]) == ("B", [1], True, False)
    assert row["prompt"] == "؟\n\nA. a\nB. b\nC. c\nD. d\nResposta:"


@pytest.mark.parametrize("n_options", [25, 26, 27, 60])
def test_item_with_more_options_than_letters_is_skipped_with_its_reason(n_options):
    many = item(question="?", choices=[f"o{number}" for number in range(n_options)], gold=[n_options - 1])
    row = row_of(many, {f"choice:{n_options - 1}": -1.0})
    if n_options > 26:
        assert row["flags"] == f"error: expected at most 26 options, got {n_options}"
        assert row["prediction"] is row["correct"] is None
    else:
        assert (row["flags"], row["prediction"], row["correct"]) == (
            None,
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[n_options - 1],
            True,
        )


def test_missing_gold_yields_prediction_without_accuracy():
    row = row_of(QUESTION | {"gold": []}, {"choice:2": -1.0})
    assert (row["prediction"], row["correct"]) == ("C", None)
    assert set(row["metrics"]) == {"confidence", "chosen_position"}
    row = row_of(QUESTION | {"gold": []}, {"choice:2": -1.0, "choice:2@1": -1.0}, option_rotations=2)
    assert set(row["metrics"]) == {"confidence", "chosen_position", "same_in_every_order"}


def test_prediction_of_tie_contains_all_letters():
    row = row_of(QUESTION, {"choice:1": -1.0, "choice:3": -1.0})
    assert (row["prediction"], row["correct"], row["tie"]) == ("B | D", False, True)
    assert "chosen_position" not in row["metrics"]


def test_brier_with_two_correct_options():
    row = row_of(QUESTION | {"gold": [0, 1, 9]}, {f"choice:{i}": -1.0 for i in range(4)})  # index 9 is out of range
    assert (row["gold"], row["metrics"]["gold_position"]) == ([0, 1], 0)
    assert row["metrics"]["probability"] == pytest.approx(0.5)
    # (1/4 - 1/2)^2 twice, (1/4)^2 twice
    assert row["metrics"]["brier"] == pytest.approx(0.25)


def test_order_sensitivity_over_rotations():
    # a model that always chooses letter B: correct in the original order, incorrect in the three rotations
    always_b = {"choice:1": -1.0, "choice:2@1": -1.0, "choice:3@2": -1.0, "choice:0@3": -1.0}
    values = row_of(QUESTION, always_b, option_rotations=4)["metrics"]
    assert values["accuracy"] == 1.0
    assert values["accuracy_orders"] == 0.25
    assert values["correct_in_every_order"] == 0.0
    assert values["same_in_every_order"] == 0.0
    values = row_of(QUESTION, {}, option_rotations=4)["metrics"]
    assert values["same_in_every_order"] == 0.0  # all scores are equal: none is chosen
    consistent = {"choice:1": -1.0, "choice:1@1": -1.0, "choice:1@2": -1.0, "choice:1@3": -1.0}
    values = row_of(QUESTION, consistent, option_rotations=4)["metrics"]
    assert (values["accuracy_orders"], values["same_in_every_order"]) == (1.0, 1.0)


@pytest.mark.parametrize("role", ["choice:3@1", "choice:0@2"])
def test_unscored_rotation_removes_order_metrics(role):
    requests = build_requests([QUESTION], "question", "letters", option_rotations=3)
    scores = [score(request, [] if request["role"] == role else -1.0) for request in requests]
    (row,) = results_of("letters", [QUESTION], requests, scores)
    assert row["metrics"]["accuracy"] == 0.0  # all scores are equal
    assert not {"accuracy_orders", "same_in_every_order", "correct_in_every_order"} & row["metrics"].keys()


def test_letters_of_shuffled_multi_answer_items_match_the_prompt():
    multi_answer = item(question="?", choices=["right", "w1", "w2", "w3"], gold=[0], target="right")
    requests = build_requests([multi_answer], "multi_answer", "letters")
    (request,) = (request for request in requests if request["role"] == "choice:0")
    row = results_of("letters", [multi_answer], requests, score_rows(requests, {"choice:0": -1.0}))[0]
    displayed = [line.partition(". ")[2] for line in request["text"].splitlines()[2:6]]
    assert row["choices"] == displayed != multi_answer["choices"]
    all_correct = results_of("letters", [multi_answer | {"gold": [0, 1, 2, 3]}], requests, score_rows(requests, {}))[0]
    assert all_correct["gold"] == [0, 1, 2, 3]
    assert [row["choices"][i] for i in row["gold"]] == ["right"]
    assert row["correct"] is True
    assert row["prediction"] == request["text"][-1]


def test_every_metric_has_a_description():
    assert all(metric.about and metric.metric_group == "surprisal" for metric in METRICS)
