import numpy as np
import pytest
from vernacular.summary.cells import index_rankings, mark_by_interval, mark_by_test, near_chance

NAN = float("nan")


def test_interval_containing_best_value_is_shared():
    marks = mark_by_interval([0.70, 0.66, 0.50], [0.65, 0.61, 0.45], [0.75, 0.71, 0.55], True)
    assert marks.tolist() == [2, 1, 0]


def test_lowest_value_is_best_if_lower_is_better():
    marks = mark_by_interval([3.0, 2.0, 2.2], [2.8, 1.9, 1.9], [3.2, 2.1, 2.5], False)
    assert marks.tolist() == [0, 2, 1]


def test_no_marks_without_better_direction():
    assert mark_by_interval([1.0, 2.0], [0, 0], [3, 3], None).tolist() == [0, 0]


def test_no_marks_for_single_value():
    assert mark_by_interval([0.7, NAN], [0.6, NAN], [0.8, NAN], True).tolist() == [0, 0]


def test_no_marks_if_all_values_are_equal():
    assert mark_by_interval([0.0, 0.0, NAN], [0.0, 0.0, NAN], [0.3, 0.3, NAN], True).tolist() == [0, 0, 0]


def test_tied_best_values_are_all_best():
    assert mark_by_interval([0.5, 0.5, 0.1], [NAN] * 3, [NAN] * 3, True).tolist() == [2, 2, 0]


def test_non_finite_values_are_never_best():
    assert mark_by_interval([np.inf, NAN, 1.0, 2.0], [NAN] * 4, [NAN] * 4, True).tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.2, 0.3, True), (0.26, 0.3, False), (0.1, 0.2, False), (NAN, NAN, False)]
)
def test_near_chance_if_interval_contains_chance_level(low, high, expected):
    assert near_chance([low], [high], [0.25]).tolist() == [expected]


def test_near_chance_is_false_without_chance_level():
    assert near_chance([0.2], [0.3], [NAN]).tolist() == [False]


def make_rankings(*rows, evaluation="e", best="a"):
    rankings = [
        {"model": model, "evaluation": evaluation, "metric": "m", "best": best, "in_best_group": in_best_group}
        for model, in_best_group in rows
    ]
    return index_rankings(rankings)


def apply_tests(keys, values, marks, rankings):
    marks, paired = mark_by_test(
        [(model, evaluation, "m") for model, evaluation in keys], values, np.array(marks), rankings
    )
    return marks.tolist(), paired.tolist()


def test_paired_test_overrides_interval_marks():
    rankings = make_rankings(("a", True), ("b", False), ("c", True))
    keys = [("a", "e"), ("b", "e"), ("c", "e")]
    assert apply_tests(keys, [0.7, 0.69, 0.5], [2, 1, 0], rankings) == ([2, 0, 1], [True] * 3)


def test_value_of_another_evaluation_keeps_interval_mark():
    rankings = make_rankings(("a", True), ("b", False)) | make_rankings(
        ("a", True), ("b", True), evaluation="f", best="a"
    )
    keys = [("a", "e"), ("b", "e"), ("a", "f"), ("b", "f")]
    marks, paired = apply_tests(keys, [0.7, 0.69, 0.65, 0.64], [2, 1, 1, 0], rankings)
    assert (marks, paired) == ([2, 0, 1, 0], [True, True, False, False])


def test_rankings_with_another_best_are_ignored():
    rankings = make_rankings(("a", False), ("b", True), best="b")
    assert apply_tests([("a", "e"), ("b", "e")], [0.7, 0.5], [2, 0], rankings) == ([2, 0], [False, False])


def test_tied_best_values_stay_best_whichever_is_listed():
    rankings = make_rankings(("a", True), ("b", True), best="b")
    assert apply_tests([("a", "e"), ("b", "e")], [0.7, 0.7], [2, 2], rankings) == ([2, 2], [True, True])


def test_duplicate_keys_keep_interval_marks():
    rankings = make_rankings(("a", True))
    assert apply_tests([("a", "e"), ("a", "e")], [0.7, 0.6], [2, 1], rankings) == ([2, 1], [False, False])


def test_missing_values_are_not_marked_by_test():
    rankings = make_rankings(("a", True), ("b", True))
    marks, paired = mark_by_test(
        [("a", "e", "m"), ("b", "e", "m"), None], [0.7, NAN, NAN], np.array([2, 0, 0]), rankings
    )
    assert (marks.tolist(), paired.tolist()) == ([2, 0, 0], [True, False, False])
