import pytest
from support.scoring import ask, item, scored
from vernacular.protocols.options.metrics import per_item

ONE = item(question="?", choices=["a", "bb bb", "éé"], gold=[1])


def row_of(one, by_role):
    requests = ask([one], "question", "options")
    return per_item([one], requests, scored(requests, by_role))[0]


def test_each_normalisation_by_hand():
    row = row_of(
        ONE,
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
    assert [values[f"accuracy{s}"] for s in ("", "_token", "_char", "_byte", "_pmi")] == [0, 1, 1, 1, 1]
    assert row["option_scores"] == [-2.0, -3.0, -2.5]
    assert row["prediction"] == "a"
    assert values["surprisal_correct"] == 3.0
    assert values["margin"] == -1.0
    # e^-3 / (e^-2 + e^-3 + e^-2.5)
    assert values["probability"] == pytest.approx(0.186324, abs=1e-6)
    assert row["prompt"] == "Pregunta: ?\nResposta:"


def test_bytes_and_characters_can_disagree():
    row = row_of(ONE | {"choices": ["aaa", "éé"], "gold": [0]}, {"choice:0": -3.0, "choice:1": -2.4})
    # char -1 against -1.2; byte -1 against -0.6
    assert (row["metrics"]["accuracy_char"], row["metrics"]["accuracy_byte"]) == (1.0, 0.0)


def test_lengths_are_of_the_option_as_the_set_has_it():
    row = row_of(ONE | {"choices": ["a   ", "bb"], "gold": [0]}, {"choice:0": -4.0, "choice:1": -2.2})
    # by four characters and two; without its outer blanks the first would have one
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_char"], row["metrics"]["accuracy_byte"]) == (0, 1, 1)


def test_an_empty_option_has_no_length_to_divide_by():
    row = row_of(ONE | {"choices": ["", "bb"], "gold": [0]}, {"choice:0": -1.0, "choice:1": -2.0})
    assert row["metrics"].keys() & {"accuracy", "accuracy_token", "accuracy_char", "accuracy_byte"} == {
        "accuracy",
        "accuracy_token",
    }


def test_ties_are_told_apart_by_normalisation():
    row = row_of(ONE, {"choice:0": -2.0, "choice:1": [-1.0, -1.0], "choice:2": -5.0})
    assert (row["tie"], row["prediction"]) == (True, "a | bb bb")
    assert row["metrics"]["tie:accuracy"] == 1.0
    assert "tie:accuracy_char" not in row["metrics"]
    assert row["metrics"]["accuracy"] == 0.0


def test_probability_counts_all_right_answers():
    row = row_of(ONE | {"gold": [0, 1]}, {f"choice:{i}": -1.0 for i in range(3)})
    assert row["metrics"]["probability"] == pytest.approx(2 / 3)
    row = row_of(ONE | {"gold": [0, 1]}, {f"choice:{i}": -1.0 - i for i in range(3)})
    assert (row["metrics"]["surprisal_correct"], row["metrics"]["margin"]) == (1.0, 2.0)


def test_without_gold_there_is_a_prediction_and_no_value():
    row = row_of(ONE | {"gold": []}, {"choice:0": -1.0})
    assert (row["prediction"], row["correct"], row["metrics"]) == ("a", None, {})


def test_options_that_were_not_asked_alone_have_no_mutual_information():
    requests = [r for r in ask([ONE], "question", "options") if r["role"].startswith("choice")]
    (row,) = per_item([ONE], requests, scored(requests, {"choice:1": -1.0}))
    assert row["metrics"]["accuracy"] == 1.0
    assert "accuracy_pmi" not in row["metrics"]
