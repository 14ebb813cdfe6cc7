import numpy as np
import pytest
from vernacular.statistics.significance import index_rankings, marks
from vernacular.summary.cells import near_chance

NAN = float("nan")


def best_of(values, higher_is_better=True, chance=NAN):
    keys = [(f"m{row}", "e", "m") for row in range(len(values))]
    return marks(keys, values, [chance] * len(values), higher_is_better, {})[0].tolist()


def test_only_the_best_is_marked_without_tests():
    assert best_of([0.70, 0.66, 0.50]) == [2, 0, 0]
    assert best_of([3.0, 2.0, 2.2], False) == [0, 2, 0]


def test_no_marks_without_better_direction():
    assert best_of([1.0, 2.0], None) == [0, 0]


def test_no_marks_for_single_value():
    assert best_of([0.7, NAN]) == [0, 0]


def test_no_marks_if_all_values_are_equal():
    assert best_of([0.0, 0.0, NAN]) == [0, 0, 0]


def test_tied_best_values_are_all_best():
    assert best_of([0.5, 0.5, 0.1]) == [2, 2, 0]


def test_non_finite_values_are_never_best():
    assert best_of([np.inf, NAN, 1.0, 2.0]) == [0, 0, 0, 2]


def test_no_mark_at_chance_or_worse():
    assert best_of([0.25, 0.2], chance=0.25) == [0, 0]
    assert best_of([0.3, 0.25], chance=0.25) == [2, 0]
    assert best_of([2.0, 3.0], False, chance=2.0) == [0, 0]


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.2, 0.3, True), (0.26, 0.3, False), (0.1, 0.2, False), (NAN, NAN, False)]
)
def test_near_chance_if_interval_contains_chance_level(low, high, expected):
    assert near_chance([low], [high], [0.25]).tolist() == [expected]


def test_near_chance_is_false_without_chance_level():
    assert near_chance([0.2], [0.3], [NAN]).tolist() == [False]


def make_rankings(rows, evaluation="e"):
    """rows: model -> (models that it was tested with, those that are significantly better)."""
    return index_rankings(
        {"model": model, "evaluation": evaluation, "metric": "m", "compared_with": [*tested], "worse_than": [*worse]}
        for model, (tested, worse) in rows.items()
    )


def apply_tests(keys, values, rankings):
    keys = [None if key is None else (key[0], key[1], "m") for key in keys]
    found, tested = marks(keys, values, [NAN] * len(values), True, rankings)
    return found.tolist(), tested.tolist()


def test_values_that_do_not_differ_significantly_share_the_best():
    rankings = make_rankings({"a": ("bc", ""), "b": ("ac", "a"), "c": ("ab", "")})
    assert apply_tests(["ae", "be", "ce"], [0.7, 0.69, 0.5], rankings) == ([2, 0, 1], [True] * 3)


def test_values_of_another_evaluation_are_not_tested():
    rankings = make_rankings({"a": ("b", ""), "b": ("a", "a")}) | make_rankings({"b": ("c", "")}, "f")
    assert apply_tests(["ae", "be", "bf"], [0.7, 0.69, 0.65], rankings) == ([2, 0, 0], [True, True, False])


def test_a_selection_without_the_best_has_the_tests_among_its_models():
    rankings = make_rankings({"a": ("bc", ""), "b": ("ac", "a"), "c": ("ab", "a"), "d": ("a", "")})
    assert apply_tests(["be", "ce", "de"], [0.7, 0.5, 0.4], rankings) == ([2, 1, 0], [True, True, False])


def test_tied_best_values_stay_best_whichever_is_tested():
    rankings = make_rankings({"a": ("bc", ""), "b": ("ac", ""), "c": ("b", "b")})
    assert apply_tests(["ae", "be", "ce"], [0.7, 0.7, 0.1], rankings) == ([2, 2, 0], [True] * 3)


def test_two_values_of_one_name_are_not_tested():
    assert apply_tests(["ae", "be", "be"], [0.7, 0.6, 0.5], make_rankings({"b": ("a", "")}))[1] == [True, False, False]


def test_missing_values_are_not_marked():
    rankings = make_rankings({"a": ("b", ""), "b": ("a", "")})
    assert apply_tests(["ae", "be", "ce", None], [0.7, NAN, 0.1, NAN], rankings)[0] == [2, 0, 0, 0]
