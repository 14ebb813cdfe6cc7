import numpy as np
import pytest
from vernacular.summary.grid import by_key, judge, near_chance, standing

NAN = float("nan")


def test_best_is_highest_and_values_whose_interval_holds_it_share():
    found = standing([0.70, 0.66, 0.50], [0.65, 0.61, 0.45], [0.75, 0.71, 0.55], True)
    assert found.tolist() == [2, 1, 0]


def test_best_is_lowest_where_lower_is_better():
    found = standing([3.0, 2.0, 2.2], [2.8, 1.9, 1.9], [3.2, 2.1, 2.5], False)
    assert found.tolist() == [0, 2, 1]


def test_nothing_is_best_where_neither_direction_is_better():
    assert standing([1.0, 2.0], [0, 0], [3, 3], None).tolist() == [0, 0]


def test_the_only_value_is_not_called_best():
    assert standing([0.7, NAN], [0.6, NAN], [0.8, NAN], True).tolist() == [0, 0]


def test_nothing_stands_out_where_all_are_the_same():
    assert standing([0.0, 0.0, NAN], [0.0, 0.0, NAN], [0.3, 0.3, NAN], True).tolist() == [0, 0, 0]


def test_equal_bests_are_all_best():
    assert standing([0.5, 0.5, 0.1], [NAN] * 3, [NAN] * 3, True).tolist() == [2, 2, 0]


def test_infinite_and_missing_values_are_never_best():
    assert standing([np.inf, NAN, 1.0, 2.0], [NAN] * 4, [NAN] * 4, True).tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("low", "high", "near"), [(0.2, 0.3, True), (0.26, 0.3, False), (0.1, 0.2, False), (NAN, NAN, False)]
)
def test_near_chance_is_an_interval_that_holds_it(low, high, near):
    assert near_chance([low], [high], [0.25]).tolist() == [near]


def test_without_a_chance_level_nothing_is_near_it():
    assert near_chance([0.2], [0.3], [NAN]).tolist() == [False]


def places(*rows, evaluation="e", best="a"):
    given = [
        {"model": model, "evaluation": evaluation, "metric": "m", "best": best, "in_best_group": s} for model, s in rows
    ]
    return by_key(given)


def judged(keys, values, marks, found):
    marks, paired = judge([(model, evaluation, "m") for model, evaluation in keys], values, np.array(marks), found)
    return marks.tolist(), paired.tolist()


def test_a_paired_test_tells_apart_what_intervals_do_not_and_the_other_way_round():
    found = places(("a", True), ("b", False), ("c", True))
    keys = [("a", "e"), ("b", "e"), ("c", "e")]
    assert judged(keys, [0.7, 0.69, 0.5], [2, 1, 0], found) == ([2, 0, 1], [True] * 3)


def test_a_run_asked_otherwise_keeps_the_mark_of_its_interval():
    found = places(("a", True), ("b", False)) | places(("a", True), ("b", True), evaluation="f", best="a")
    keys = [("a", "e"), ("b", "e"), ("a", "f"), ("b", "f")]
    marks, paired = judged(keys, [0.7, 0.69, 0.65, 0.64], [2, 1, 1, 0], found)
    assert (marks, paired) == ([2, 0, 1, 0], [True, True, False, False])


def test_standings_that_name_another_best_are_not_believed():
    found = places(("a", False), ("b", True), best="b")
    assert judged([("a", "e"), ("b", "e")], [0.7, 0.5], [2, 0], found) == ([2, 0], [False, False])


def test_equal_bests_stay_best_whichever_the_standings_name():
    found = places(("a", True), ("b", True), best="b")
    assert judged([("a", "e"), ("b", "e")], [0.7, 0.7], [2, 2], found) == ([2, 2], [True, True])


def test_two_revisions_under_one_name_cannot_be_looked_up():
    found = places(("a", True))
    assert judged([("a", "e"), ("a", "e")], [0.7, 0.6], [2, 1], found) == ([2, 1], [False, False])


def test_missing_values_are_not_judged():
    found = places(("a", True), ("b", True))
    marks, paired = judge([("a", "e", "m"), ("b", "e", "m"), None], [0.7, NAN, NAN], np.array([2, 0, 0]), found)
    assert (marks.tolist(), paired.tolist()) == ([2, 0, 0], [True, False, False])
