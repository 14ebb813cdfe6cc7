import numpy as np
import pytest
from vernacular.metrics.corpus import expected_calibration_error
from vernacular.metrics.spans import probabilities
from vernacular.report.data_files import Row
from vernacular.report.distributions import SurprisalProfile, bin_edges, calibration, surprisal_profiles
from vernacular.report.item_details import UNSCORED


@pytest.mark.parametrize(("low", "high"), [(-3.1, 0.2), (-0.01, 5.0), (-1.0, 1.0), (-7.3, 1e-6)])
def test_zero_is_an_edge_of_a_histogram_with_both_signs(low, high):
    edges = bin_edges(low, high)
    assert 0.0 in edges
    assert edges[0] <= low
    assert edges[-1] >= high
    assert np.diff(edges) == pytest.approx(np.full(len(edges) - 1, edges[1] - edges[0]))
    assert len(edges) <= 24 + 3


@pytest.mark.parametrize(("low", "high"), [(1.0, 3.0), (-3.0, -1.0), (0.0, 2.0), (2.0, 2.0)])
def test_edges_without_a_sign_change_span_the_values(low, high):
    edges = bin_edges(low, high)
    assert len(edges) == 24 + 1
    assert (edges[0], edges[-1]) == (low, max(high, low + 1) if high == low else high)


def row(scores, correct):
    return {"option_scores": scores, "correct": correct}


def test_calibration_bins_contain_all_items_and_give_the_metric():
    rng = np.random.default_rng(0)
    rows = [row(rng.normal(0, 2, 4).tolist(), bool(rng.random() < 0.5)) for _ in range(200)]
    _, error, bins, expected, signed = calibration(7, rows)
    confidence = np.array([probabilities(r["option_scores"]).max() for r in rows])
    correct = np.array([float(r["correct"]) for r in rows])
    assert error == pytest.approx(float(expected_calibration_error(confidence, correct)), rel=1e-3)
    assert sum(n for *_, n in bins) == 200
    assert signed == pytest.approx(confidence.mean() - correct.mean(), rel=1e-3)
    assert 0.05 < expected < error
    # the error is the weighted gap between confidence and accuracy
    assert error == pytest.approx(sum(n * abs(c - a) for c, a, n in bins) / 200, rel=1e-3)


def test_calibration_excludes_items_without_scores_or_gold():
    assert calibration(7, [row(None, True), row([], True), row([0.0, None], True), row([0.0, 1.0], None)]) is None
    ((confidence, accuracy, n),) = calibration(7, [row([0.0, 0.0], True), row([0.0, None], False)]).bins
    assert (confidence, accuracy, n) == (0.5, 1.0, 1)


def profile(texts, tokens):
    """Return the profile of items with the role "choice:0", correct, and "choice:1", added one by one."""
    result = SurprisalProfile()
    for item, text in texts.items():
        spans = {(item, "choice:0"): (text, 0), (item, "choice:1"): ("x", 0)}
        result.add({item: tokens[item]}, spans, {item: [0]})
    return result


def test_surprisal_by_position_is_the_mean_of_words_of_correct_texts():
    texts = {"a": "one two three", "b": "four five six"}
    tokens = {
        # "one", " tw", "o", " three": the second word consists of two tokens
        "a": [Row.Tokens("choice:0", 0, [3, 3, 1, 6], [100, 200, 50, 300]), Row.Tokens("choice:1", 0, [1], [9900])],
        "b": [Row.Tokens("choice:0", 0, [4, 5, 4], [UNSCORED, 400, 500])],
    }
    profiles = surprisal_profiles({7: profile(texts, tokens)})
    assert profiles["position"] == [(7, [(1, 1.0, 1), (2, (2.5 + 4.0) / 2, 2), (3, 4.0, 2)])]


def test_surprisal_by_length_is_per_character_in_common_ranges():
    texts = {str(n): "x" * n for n in (2, 4, 8, 16, 32)}
    tokens = {n: [Row.Tokens("choice:0", 0, [len(text)], [100 * len(text)])] for n, text in texts.items()}
    double = {n: [Row.Tokens("choice:0", 0, [len(text)], [200 * len(text)])] for n, text in texts.items()}
    one, two = surprisal_profiles({0: profile(texts, tokens), 1: profile(texts, double)})["length"]
    assert [ranges[:2] for ranges in one[1]] == [ranges[:2] for ranges in two[1]]
    assert {ranges[2] for ranges in one[1]} == {1.0}
    assert {ranges[2] for ranges in two[1]} == {2.0}
    assert sum(ranges[3] for ranges in one[1]) == 5


def test_texts_of_one_word_and_length_have_no_profile():
    tokens = {name: [Row.Tokens("choice:0", 0, [2], [100])] for name in ("a", "b")}
    assert surprisal_profiles({0: profile({"a": "xy", "b": "zw"}, tokens)}) == {"position": [], "length": []}
