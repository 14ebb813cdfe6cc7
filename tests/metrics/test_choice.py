import math

from vernacular.metrics.spans import best_indices, choose_option, correct_options, margin


def test_tie_with_incorrect_option_is_incorrect():
    choice = choose_option([-1.0, -1.0, -2.0], [0])
    assert (choice.predicted_indices, choice.correct, choice.tie) == ([0, 1], False, True)
    assert choice.outcome() == {"accuracy": 0.0, "tie:accuracy": 1.0}


def test_tie_among_correct_options_is_correct():
    choice = choose_option([-1.0, -1.0, -2.0], [0, 1])
    assert (choice.correct, choice.tie) == (True, True)


def test_scores_within_tolerance_are_a_tie():
    assert best_indices([-1.0, -1.0 - 9e-7, -1.0 - 2e-6]) == [0, 1]
    assert best_indices([0.0, -1e-6]) == [0, 1]


def test_missing_scores_yield_no_prediction():
    choice = choose_option(None, [0])
    assert (choice.predicted_indices, choice.correct, choice.tie, choice.outcome()) == ([], None, None, {})


def test_unknown_gold_yields_prediction_without_accuracy():
    choice = choose_option([-2.0, -1.0], [])
    assert (choice.predicted_indices, choice.correct, choice.outcome()) == ([1], None, {})


def test_scores_of_minus_infinity_tie_only_with_each_other():
    assert best_indices([-math.inf, -math.inf]) == [0, 1]
    assert best_indices([-math.inf, -1e9]) == [1]


def test_duplicate_of_correct_option_is_correct():
    assert correct_options([" voza", "voz", "voza ", "voza"], [0]) == [0, 2, 3]


def test_margin_is_best_correct_minus_best_incorrect():
    assert margin([-1.0, -3.0, -2.0], [1, 2]) == -1.0
    assert margin([-1.0, -3.0], [0, 1]) is None
    assert margin([-1.0, -3.0], []) is None
