import numpy as np
import pytest
from vernacular.summary.marks import near_chance, standing

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
