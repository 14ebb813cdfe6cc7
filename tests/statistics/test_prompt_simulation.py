"""Coverage and type-I error of the interval over prompts, and the failure of an interval over items, by simulation."""

import numpy as np
import pytest
from scipy import stats
from support.crossed import ACCURACY, CLUSTERS, PER_CLUSTER, PROMPTS, answers, cluster_labels, draw_latent
from vernacular.metrics.corpus import FOLDS, auc, difsur_of_labels, difsur_of_pairs, mcc_cross_validated
from vernacular.statistics.over_prompts import clustered_variance, mean_over_prompts, resampled_variance
from vernacular.statistics.paired import exact_sign_flip

pytestmark = pytest.mark.slow
soak = pytest.mark.soak  # simulations of ten seconds each
SHAPE = (CLUSTERS, PER_CLUSTER, PROMPTS, 1)
RUNS = 2000


def over(values, clusters):
    variance, n_clusters = clustered_variance(values.reshape(len(values), -1).mean(1), clusters)
    return mean_over_prompts(values.mean(0), variance, n_clusters)


def over_items(found, n_clusters):
    half_width = found.se_items * stats.t.ppf(0.975, n_clusters - 1)
    return found.value - half_width, found.value + half_width


def simulate(prompt_points, shape, runs=RUNS, own_seeds=True, tests_items=False):
    """Shares of runs: covered by the interval, covered over items alone, "different" by both tests of equal models.

    `tests_items`: also by the test over items alone, which takes most of the time.
    """
    rng, clusters = np.random.default_rng([11, int(prompt_points)]), cluster_labels(shape)
    counts = np.zeros(4)
    for _ in range(runs):
        left, right = answers(rng, prompt_points, shape, own_seeds=own_seeds)
        found = over(left, clusters)
        low, high = over_items(found, shape[0])
        difference = right - left
        gains = np.rint(difference.reshape(shape[0], -1).sum(1)) if tests_items else None
        counts += [
            found.low <= ACCURACY <= found.high,
            low <= ACCURACY <= high,
            over(difference, clusters).p < 0.05,
            exact_sign_flip(gains) < 0.05 if tests_items else np.nan,
        ]
    return counts / runs


@pytest.mark.parametrize(
    "points", [pytest.param(0, marks=soak), pytest.param(1, marks=soak), 2, pytest.param(4, marks=soak)]
)
def test_interval_over_five_prompts_holds(points):
    covered, covered_by_items, different, different_by_items = simulate(points, SHAPE, tests_items=True)
    assert covered >= 0.94
    assert different <= 0.06
    if points >= 2:  # an interval over items alone fails, and more so with more variance between prompts
        assert covered_by_items <= {2: 0.93, 4: 0.89}[points]
        assert different_by_items >= {2: 0.07, 4: 0.14}[points]


@pytest.mark.parametrize(("shape", "points", "runs"), [
    ((100, 5, 3, 1), 4, 1000), ((100, 5, 10, 1), 2, 1000), ((20, 5, 5, 1), 2, 1000), ((100, 5, 5, 3), 2, 600),
])  # fmt: skip
def test_interval_holds_for_other_designs(shape, points, runs):
    covered, _, different, _ = simulate(points, shape, runs, own_seeds=shape[3] == 1)
    error = np.sqrt(0.05 * 0.95 / runs)
    assert covered >= 0.95 - 2 * error
    assert different <= 0.05 + 2 * error


def test_more_items_do_not_help_an_interval_over_items():
    covered, covered_by_items, _, _ = simulate(4, (400, 5, 5, 1), runs=400)
    assert covered >= 0.92  # standard error of the share: 1 point
    assert covered_by_items <= 0.75


N_PAIRED = 4  # sentences of a cluster
LABELS = np.tile([0.0, 1.0], CLUSTERS * N_PAIRED // 2)
FOLDS_OF_ITEMS = np.arange(len(LABELS)) // 2 % FOLDS


def sentences(rng, prompt_points):
    """Return (400 items, 5 prompts) surprisals; a prompt moves acceptable and unacceptable sentences apart."""
    latent = draw_latent(rng, 0, (CLUSTERS, N_PAIRED, PROMPTS, 1))[0].reshape(len(LABELS), PROMPTS)
    gap = 0.8 + 0.1 * prompt_points * rng.standard_normal(PROMPTS)
    return 20 + latent - LABELS[:, None] * gap


STATISTICS = {
    "auc": (auc, lambda surprisal: [surprisal, LABELS]),
    "difsur": (difsur_of_labels, lambda surprisal: [surprisal, LABELS]),
    "mcc": (mcc_cross_validated, lambda surprisal: [surprisal, LABELS, FOLDS_OF_ITEMS]),
}


@pytest.mark.parametrize("points", [0, 2])
@pytest.mark.parametrize("name", [pytest.param(name, marks=soak) if name == "mcc" else name for name in STATISTICS])
def test_interval_of_corpus_statistics_holds(name, points):
    statistic, arrays_of = STATISTICS[name]
    rng, clusters = np.random.default_rng([12, points]), cluster_labels((CLUSTERS, N_PAIRED))
    runs, results = 200, []
    truth = np.mean([float(statistic(*arrays_of(sentences(rng, points)[:, 0]))) for _ in range(2000)])
    for _ in range(runs):
        surprisals = sentences(rng, points)
        arrays = [arrays_of(surprisals[:, prompt]) for prompt in range(PROMPTS)]
        variance, n_clusters = resampled_variance(statistic, arrays, clusters, resamples=100)
        found = mean_over_prompts([float(statistic(*prompt)) for prompt in arrays], variance, n_clusters)
        low, high = over_items(found, n_clusters)
        results.append([found.low <= truth <= found.high, low <= truth <= high])
    covered, covered_by_items = np.mean(results, axis=0)
    assert covered >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / runs)
    if points:
        assert covered_by_items <= 0.9


def test_order_of_prompts_does_not_change_the_variance_of_a_corpus_statistic():
    rng = np.random.default_rng(13)
    good, bad = rng.random((2, 100, 5)) + 5
    arrays = [[good[:, prompt], bad[:, prompt]] for prompt in range(5)]
    found = resampled_variance(difsur_of_pairs, arrays, None)
    assert resampled_variance(difsur_of_pairs, arrays[::-1], None) == pytest.approx(found)
