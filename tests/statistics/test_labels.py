"""Estimates from few labels: by hand, invariances, coverage, borrowing, and the agreement of annotators."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri
from support.faulty_items import simulate
from support.soak import seed
from vernacular.statistics.intervals import wilson_at
from vernacular.statistics.labels import agreement, borrowed, corrected, labels_alone

DRAWS = 1_500
CORRELATION = 0.2  # within clusters
# name -> size of clusters, share of 1, share of -1
KINDS = {
    "60 %": (1, 0.6, 0.0), "90 %": (1, 0.9, 0.0), "60 %, clusters": (5, 0.6, 0.0),
    "differences": (1, 0.2, 0.12), "differences, clusters": (5, 0.2, 0.12),
}  # fmt: skip
CELLS = [(kind, n, rho) for kind in KINDS for n in (50, 100, 300) for rho in (0, 0.3, 0.6, 0.9)]
QUICK = [("60 %", 100, 0.6), ("90 %", 50, 0.9), ("differences, clusters", 50, 0.3)]
# half width of the corrected interval over that of the labels alone
RATIOS = {("60 %", 0): 1.01, ("60 %", 0.6): 0.82, ("60 %", 0.9): 0.49}


def drawn(rng, kind, n, rho, n_all=2_000):
    """Return (labels, scores, clusters) of one draw: values of 1, 0 and -1, and a score that correlates with them."""
    size, low, high = KINDS[kind]
    mean, spread = low - high, (low + high - (low - high) ** 2) ** 0.5
    between = CORRELATION if size > 1 else 0.0
    shape = (n_all // size, size)
    first, second = (
        between**0.5 * rng.standard_normal((shape[0], 1)) + (1 - between) ** 0.5 * rng.standard_normal(shape)
        for _ in range(2)
    )
    values = (first < ndtri(low)) - (first > -ndtri(high)).astype(float)
    scores = (rho * (values - mean) / spread + (1 - rho**2) ** 0.5 * second).ravel()
    labels = np.where(np.arange(n_all) < n, values.ravel(), np.nan)
    return labels, scores, np.repeat(np.arange(shape[0]), size)


def test_by_hand():
    labels = np.array([1, 0, 1, 1, 0, np.nan, np.nan, np.nan])
    scores = np.array([0.9, 0.2, 0.6, 0.8, 0.4, 0.7, 0.3, 0.5])
    clusters = np.arange(8)
    weights = [corrected(np.delete(labels, k), np.delete(scores, k), np.arange(7), folds=1).weight for k in range(5)]
    assert weights == pytest.approx([2, 1.8644, 1.6794, 1.6822, 1.4783], abs=5e-5)
    estimate = corrected(labels, scores, clusters)
    assert (estimate.value, estimate.variance) == pytest.approx((0.533950, 0.033432), abs=5e-7)
    one = corrected(labels, scores, clusters, folds=1)
    assert (one.weight, one.value, one.variance) == pytest.approx((1.7073, 0.548780, 0.034057), abs=5e-5)
    alone = labels_alone(labels, clusters)
    assert (alone.value, alone.variance, alone.df) == (pytest.approx(0.6), pytest.approx(0.06), 4)


def test_the_larger_example_of_the_documentation():
    labels, scores, clusters = drawn(np.random.default_rng(1), "60 %", 100, 0.6)
    text = (Path(__file__).parents[2] / "docs" / "labels.md").read_text("utf-8")
    rho = np.corrcoef(labels[:100], scores[:100])[0, 1]
    names = "labels alone", f"labels and a score with ρ = {rho:.2f}".replace("0.", ".")
    for name, estimate in zip(
        names, (labels_alone(labels, clusters), corrected(labels, scores, clusters)), strict=True
    ):
        low, high = estimate.interval(proportion=True)
        assert f"| {name} | {100 * estimate.value:.1f} % | {100 * low:.1f} to {100 * high:.1f} % |" in text


def test_a_constant_or_opposed_score_changes_nothing():
    rng = np.random.default_rng(1)
    labels, scores, clusters = drawn(rng, "60 %, clusters", 50, 0.6)
    alone = labels_alone(labels, clusters)
    for other in (np.full(len(labels), 0.1), -scores):
        estimate = corrected(labels, other, clusters)
        assert estimate.weight == 0
        assert (estimate.value, estimate.variance) == pytest.approx((alone.value, alone.variance), rel=1e-12)


def test_with_all_items_labeled_the_variance_is_the_classical_one():
    labels, scores, clusters = drawn(np.random.default_rng(2), "60 %", 300, 0.6, n_all=300)
    one = corrected(labels, scores, clusters, folds=1)
    assert (one.value, one.variance) == pytest.approx((labels.mean(), labels.var(ddof=1) / 300), rel=1e-12)


def test_unit_of_the_score_and_copies_of_items_change_nothing():
    labels, scores, clusters = drawn(np.random.default_rng(3), "differences, clusters", 100, 0.6)
    estimate = corrected(labels, scores, clusters)
    rescaled = corrected(labels, 3 * scores - 7, clusters)
    doubled = corrected(*(np.repeat(array, 2) for array in (labels, scores, clusters)))
    for other in (rescaled, doubled):
        assert (other.value, other.variance) == pytest.approx((estimate.value, estimate.variance), rel=1e-9)


def test_intervals():
    assert wilson_at(0.6, 0.0016, 99) == pytest.approx((0.5191, 0.6758), abs=5e-5)
    low, high = wilson_at(1.02, 0.0, 19)
    assert (round(low, 3), high) == (0.839, 1.0)  # 20 clusters, all correct
    estimate = labels_alone(np.array([1.0, -1.0, 0.0, 1.0]), np.arange(4))
    low, high = estimate.interval(proportion=False)
    assert (low + high) / 2 == pytest.approx(0.25)
    assert high - low == pytest.approx(2 * 3.18245 * estimate.variance**0.5, rel=1e-5)
    assert estimate.p_value() == pytest.approx(0.6376, abs=1e-4)
    single = labels_alone(np.array([1.0, np.nan]), np.arange(2))
    assert np.isnan(single.interval(proportion=True)).all()
    assert single.p_value() is None


def coverage(kind, n, rho, draws=DRAWS, **settings):
    """Return the coverage of the corrected interval in percent, and its mean width over that of the labels alone."""
    rng = np.random.default_rng([seed(1), list(KINDS).index(kind), n, int(10 * rho)])
    _, low, high = KINDS[kind]
    covered, widths = 0, np.zeros(2)
    for _ in range(draws):
        data = drawn(rng, kind, n, rho)
        estimate = corrected(*data, **settings)
        if settings:  # the interval that is too narrow
            half = 1.959964 * estimate.variance**0.5
            interval = estimate.value - half, estimate.value + half
        else:
            interval = estimate.interval(proportion=not high)
        alone = labels_alone(data[0], data[2]).interval(proportion=not high)
        covered += interval[0] <= low - high <= interval[1]
        widths += np.diff(interval)[0], np.diff(alone)[0]
    return 100 * covered / draws, widths[0] / widths[1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n", "rho"), QUICK)
def test_coverage_of_three_cells(kind, n, rho):
    covered, ratio = coverage(kind, n, rho)
    assert 93.5 <= covered <= 97.5
    if (kind, rho) in RATIOS:
        assert ratio == pytest.approx(RATIOS[kind, rho], abs=0.02)


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "n", "rho"), CELLS)
def test_coverage(kind, n, rho):
    covered, ratio = coverage(kind, n, rho, draws=4 * DRAWS)
    assert 93 <= covered <= 98  # other draws each time: three standard errors are 0.9
    if (kind, rho) in RATIOS and n < 300:
        assert ratio == pytest.approx(RATIOS[kind, rho], abs=0.03)


@pytest.mark.slow
def test_one_weight_with_a_normal_quantile_is_too_narrow():
    covered, _ = coverage("60 %, clusters", 50, 0.6, folds=1)
    assert covered <= 91


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "expected"),
    [pytest.param(0, 0.75, id="adapter of a base that answered all"), pytest.param(4, 0.87, id="new family")],
)
def test_borrowing_covers_and_narrows(target, expected):
    n, n_all, draws, covered, ratios = 300, 2_000, 100, 0, []
    others = [model for model in range(5) if model != target]
    for number in range(draws):
        rng = np.random.default_rng([3, 5, number])
        given = simulate(rng, 5, 6 * n_all, faults=(0, 0, 0)).responses  # of families [2, 2, 1]
        scores = np.array([run for [run] in given.scores])
        margins = scores[:, given.correct] - np.where(given.correct, -np.inf, scores).max(2)
        z = np.tanh(np.clip(margins / np.median(np.abs(margins), axis=1, keepdims=True), -4, 4))
        right = (margins > 0).astype(float)
        labels = np.where(np.arange(n_all) < n, right[target, :n_all], np.nan)
        features = np.concatenate([z[others, :n_all], right[others, :n_all], np.ones((1, n_all))]).T
        low, high = borrowed(labels, features, np.arange(n_all)).interval(proportion=True)
        covered += low <= right[target].mean() <= high
        ratios.append((high - low) / np.diff(labels_alone(labels, np.arange(n_all)).interval(proportion=True))[0])
    assert covered >= 90
    assert np.mean(ratios) == pytest.approx(expected, abs=0.02)


KRIPPENDORFF = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""  # of "Computing Krippendorff's alpha-reliability": .743 for names, .815 for ranks


def test_agreement():
    labels = np.array(
        [
            [float("nan") if cell == "." else float(cell) for cell in line.split()]
            for line in KRIPPENDORFF.strip().split("\n")
        ]
    )
    names, ranks = agreement(labels), agreement(labels, ordinal=True)
    assert (round(names.alpha, 3), round(ranks.alpha, 3), names.n) == (0.743, 0.815, 11)
    assert names.low < names.alpha < names.high <= 1
    assert np.isnan(agreement(np.ones((2, 5))).alpha)  # one value only: no expected disagreement
    assert agreement(np.array([[1, np.nan], [np.nan, 0]])).n == 0


def test_interval_of_the_agreement_covers_and_accounts_for_clusters():
    rng = np.random.default_rng(5)
    truth = rng.random(20_000) < 0.6
    noisy = np.where(rng.random((2, 20_000)) < 0.1, ~truth, truth).astype(float)
    expected = agreement(noisy, resamples=10).alpha
    covered = 0
    for start in range(0, 20_000, 100):
        found = agreement(noisy[:, start : start + 100], resamples=500)
        covered += found.low <= expected <= found.high
    assert covered >= 183
    part = noisy[:, :100]
    doubled = agreement(np.repeat(part, 2, axis=1), [str(i // 2) for i in range(200)])
    assert doubled.high - doubled.low == pytest.approx(agreement(part).high - agreement(part).low, rel=0.15)
