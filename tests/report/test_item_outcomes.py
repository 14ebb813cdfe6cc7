from vernacular.report.item_details import ACCEPTABLE, RIGHT, TIE, UNACCEPTABLE, UNJUDGED, WRONG, judged, margin


def row(item="a", scores=None, gold=(), correct=None, tie=None, values=None, flag=None):
    return {"item_id": item, "option_scores": scores, "choices": list("abc"), "gold": list(gold), "correct": correct, "tie": tie,
            "metrics": values or {}, "flags": flag}  # fmt: skip


def test_a_tie_is_neither_right_nor_wrong():
    rows = [row(correct=True), row(correct=False), row(correct=False, tie=True), row()]
    assert judged(rows).outcomes == [RIGHT, WRONG, TIE, UNJUDGED]


def test_the_margin_is_the_best_right_option_less_the_best_wrong_one():
    assert margin(row(scores=[-4.0, -1.0, -2.5], gold=[0, 2])) == -1.5


def test_without_a_score_on_either_side_there_is_no_margin():
    assert margin(row(scores=[-4.0, None], gold=[0])) is None
    assert margin(row(scores=[-4.0, float("nan")], gold=[0])) is None
    assert margin(row(gold=[0])) is None
    assert margin(row(scores=[-1.0, -2.0])) is None


def test_the_widest_wrong_margin_is_the_worst():
    answers = judged([row(scores=[-5.0, -1.0], gold=[0]), row(scores=[-1.0, -5.0], gold=[0]), row(gold=[0])])
    assert answers.measured == [-4.0, 4.0, None]
    assert answers.badness == [4.0, -4.0, None]


def test_an_unacceptable_sentence_is_the_worse_the_less_it_surprises():
    rows = [row(values={"surprisal_token": s, "label": label}) for s, label in ((1, 1), (3, 1), (1, 0), (3, 0))]
    answers = judged(rows)
    assert answers.outcomes == [ACCEPTABLE, ACCEPTABLE, UNACCEPTABLE, UNACCEPTABLE]
    assert answers.badness == [-1.0, 1.0, 1.0, -1.0]


def test_free_answers_are_ordered_by_how_little_they_share_with_the_right_one():
    answers = judged([row(values={"chrf": 80.0}), row(values={"chrf": 10.0})])
    assert answers.measure == "chrf"
    assert answers.badness == [-35.0, 35.0]


def test_what_cannot_be_measured_has_no_badness_and_is_kept():
    answers = judged([row(flag="error: empty")])
    assert (answers.measure, answers.badness, answers.flagged) == (None, [None], [True])
