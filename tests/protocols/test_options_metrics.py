import pytest
from support.scoring import build_requests, item, results_of, score_rows

QUESTION = item(question="?", choices=["a", "bb bb", "éé"], gold=[1])


def row_of(options_item, by_role):
    requests = build_requests([options_item], "question", "options")
    return results_of("options", [options_item], requests, score_rows(requests, by_role))[0]


def test_accuracy_by_each_normalization():
    row = row_of(
        QUESTION,
        {
            "choice:0": [-2.0],
            "choice:1": [-1.0, -2.0],
            "choice:2": [-2.5],
            "uncond:0": [-1.0],
            "uncond:1": [-5.0],
            "uncond:2": [-1.0],
        },
    )
    # sum -2, -3, -2.5 | token -2, -1.5, -2.5 | char -2, -0.6, -1.25 | byte -2, -0.6, -0.625 | pmi -1, 2, -1.5
    values = row["metrics"]
    assert [values[f"accuracy{suffix}"] for suffix in ("", "_token", "_char", "_byte", "_pmi")] == [0, 1, 1, 1, 1]
    assert row["option_scores"] == [-2.0, -3.0, -2.5]
    assert row["prediction"] == "a"
    assert values["surprisal_correct"] == 3.0
    assert values["margin"] == -1.0
    # e^-3 / (e^-2 + e^-3 + e^-2.5)
    assert values["probability"] == pytest.approx(0.186324, abs=1e-6)
    assert row["prompt"] == "Pregunta: ?\nResposta:"


def test_byte_and_character_normalization_can_differ():
    row = row_of(QUESTION | {"choices": ["aaa", "éé"], "gold": [0]}, {"choice:0": -3.0, "choice:1": -2.4})
    # char -1 against -1.2; byte -1 against -0.6
    assert (row["metrics"]["accuracy_char"], row["metrics"]["accuracy_byte"]) == (1.0, 0.0)


def test_lengths_include_outer_whitespace_of_the_option():
    row = row_of(QUESTION | {"choices": ["a   ", "bb"], "gold": [0]}, {"choice:0": -4.0, "choice:1": -2.2})
    # lengths of four and two characters; without outer spaces, the first would have one
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_char"], row["metrics"]["accuracy_byte"]) == (0, 1, 1)


def test_empty_option_has_no_normalized_accuracy():
    row = row_of(QUESTION | {"choices": ["", "bb"], "gold": [0]}, {"choice:0": -1.0, "choice:1": -2.0})
    assert row["metrics"].keys() & {"accuracy", "accuracy_token", "accuracy_char", "accuracy_byte"} == {
        "accuracy",
        "accuracy_token",
    }


def test_ties_are_recorded_per_normalization():
    row = row_of(QUESTION, {"choice:0": -2.0, "choice:1": [-1.0, -1.0], "choice:2": -5.0})
    assert (row["tie"], row["prediction"]) == (True, "a | bb bb")
    assert row["metrics"]["tie:accuracy"] == 1.0
    assert "tie:accuracy_char" not in row["metrics"]
    assert row["metrics"]["accuracy"] == 0.0


def test_probability_sums_all_correct_options():
    row = row_of(QUESTION | {"gold": [0, 1]}, {f"choice:{i}": -1.0 for i in range(3)})
    assert row["metrics"]["probability"] == pytest.approx(2 / 3)
    row = row_of(QUESTION | {"gold": [0, 1]}, {f"choice:{i}": -1.0 - i for i in range(3)})
    assert (row["metrics"]["surprisal_correct"], row["metrics"]["margin"]) == (1.0, 2.0)


def test_missing_gold_yields_prediction_without_values():
    row = row_of(QUESTION | {"gold": []}, {"choice:0": -1.0})
    assert (row["prediction"], row["correct"], row["metrics"]) == ("a", None, {})


def test_pmi_requires_unconditional_scores():
    requests = build_requests([QUESTION], "question", "options")
    requests = [request for request in requests if request["role"].startswith("choice")]
    (row,) = results_of("options", [QUESTION], requests, score_rows(requests, {"choice:1": -1.0}))
    assert row["metrics"]["accuracy"] == 1.0
    assert "accuracy_pmi" not in row["metrics"]


def test_choice_without_the_question():
    scores = {f"choice:{i}": -1.0 - i for i in range(3)} | {f"uncond:{i}": -3.0 + i for i in range(3)}
    row = row_of(QUESTION | {"gold": [2]}, scores)
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_uncond"]) == (0.0, 1.0)
