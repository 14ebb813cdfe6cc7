from vernacular.report.item_details import (
    ACCEPTABLE,
    CORRECT,
    INCORRECT,
    NOT_SCORED,
    SCORED,
    TIE,
    UNACCEPTABLE,
    classify_outcomes,
    margin,
)


def row(item="a", scores=None, gold=(), correct=None, tie=None, values=None, flag=None):
    return {"item_id": item, "option_scores": scores, "choices": list("abc"), "gold": list(gold), "correct": correct, "tie": tie,
            "metrics": values or {}, "flags": flag}  # fmt: skip


def test_tie_is_neither_correct_nor_incorrect():
    rows = [row(correct=True), row(correct=False), row(correct=False, tie=True), row()]
    assert classify_outcomes(rows).outcomes == [CORRECT, INCORRECT, TIE, NOT_SCORED]


def test_items_without_judgment_are_scored_if_they_have_a_measure():
    rows = [
        row(values={"chrf2pp": 20.0}),
        row(flag="error: out of memory"),
        row(values={"chrf2pp": 80.0}, correct=True),
    ]
    outcomes = classify_outcomes(rows)
    assert (outcomes.outcomes, outcomes.measure) == ([SCORED, NOT_SCORED, CORRECT], "chrf2pp")
    outcomes = classify_outcomes([row(values={"entity_f1": 0.5}), row(values={})])
    assert (outcomes.outcomes, outcomes.severity) == ([SCORED, NOT_SCORED], [0.0, None])


def test_margin_is_best_correct_minus_best_incorrect_score():
    assert margin(row(scores=[-4.0, -1.0, -2.5], gold=[0, 2])) == -1.5


def test_margin_is_none_without_correct_or_incorrect_score():
    assert margin(row(scores=[-4.0, None], gold=[0])) is None
    assert margin(row(scores=[-4.0, float("nan")], gold=[0])) is None
    assert margin(row(gold=[0])) is None
    assert margin(row(scores=[-1.0, -2.0])) is None


def test_largest_incorrect_margin_has_highest_severity():
    outcomes = classify_outcomes(
        [row(scores=[-5.0, -1.0], gold=[0]), row(scores=[-1.0, -5.0], gold=[0]), row(gold=[0])]
    )
    assert outcomes.measure_values == [-4.0, 4.0, None]
    assert outcomes.severity == [4.0, -4.0, None]


def test_severity_of_unacceptable_sentence_decreases_with_surprisal():
    rows = [row(values={"surprisal_token": s, "label": label}) for s, label in ((1, 1), (3, 1), (1, 0), (3, 0))]
    outcomes = classify_outcomes(rows)
    assert outcomes.outcomes == [ACCEPTABLE, ACCEPTABLE, UNACCEPTABLE, UNACCEPTABLE]
    assert outcomes.severity == [-1.0, 1.0, 1.0, -1.0]


def test_generations_are_ordered_by_chrf():
    outcomes = classify_outcomes([row(values={"chrf": 80.0}), row(values={"chrf": 10.0})])
    assert outcomes.measure == "chrf"
    assert outcomes.severity == [-35.0, 35.0]


def test_item_without_measure_has_no_severity():
    outcomes = classify_outcomes([row(flag="error: empty")])
    assert (outcomes.measure, outcomes.severity, outcomes.flagged) == (None, [None], [True])
