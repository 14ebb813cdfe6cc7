import math

from vernacular.metrics.choice import best, choose, correct_options, margin


def test_tie_is_not_given_to_the_first_choice():
    choice = choose([-1.0, -1.0, -2.0], [0])
    assert (choice.predicted, choice.correct, choice.tie) == ([0, 1], False, True)
    assert choice.outcome() == {"accuracy": 0.0, "tie:accuracy": 1.0}


def test_tie_among_correct_options_is_right():
    choice = choose([-1.0, -1.0, -2.0], [0, 1])
    assert (choice.correct, choice.tie) == (True, True)


def test_scores_closer_than_float_noise_are_a_tie_and_no_others():
    assert best([-1.0, -1.0 - 9e-7, -1.0 - 2e-6]) == [0, 1]
    assert best([0.0, -1e-6]) == [0, 1]


def test_nothing_scored_is_no_prediction():
    choice = choose(None, [0])
    assert (choice.predicted, choice.correct, choice.tie, choice.outcome()) == ([], None, None, {})


def test_an_unknown_right_option_gives_a_prediction_and_no_accuracy():
    choice = choose([-2.0, -1.0], [])
    assert (choice.predicted, choice.correct, choice.outcome()) == ([1], None, {})


def test_scores_of_minus_infinity_tie_with_each_other_only():
    assert best([-math.inf, -math.inf]) == [0, 1]
    assert best([-math.inf, -1e9]) == [1]


def test_the_twin_of_a_right_option_is_right():
    assert correct_options([" voza", "voz", "voza ", "voza"], [0]) == [0, 2, 3]


def test_margin_is_best_right_minus_best_wrong():
    assert margin([-1.0, -3.0, -2.0], [1, 2]) == -1.0
    assert margin([-1.0, -3.0], [0, 1]) is None
    assert margin([-1.0, -3.0], []) is None
