"""Intervals and tests of a mean over prompts: items and wordings are both samples.

    SE² = a + b,    df = (a + b)² / (a² / (C - 1) + b² / (K - 1))

a is the variance of the mean of each item's mean over prompts, by cluster (C clusters); b is the variance between the K
prompts' values over K; df follows Satterthwaite 1946. An interval over items alone answers a narrower question: how the
model does on other items with *these* prompts. With a + b, it covers prompts like these, too. In simulations it holds
94 to 97 % where an interval over items holds 84 to 93 % (tests/statistics/test_prompt_simulation.py). Where seeds are
crossed with prompts, the variance between seeds over their number is a third term.

Two models are compared by the same formulas on differences of the same item, prompt and seed.

Variance components are those of a crossed table: clusters of items × prompts, and × few-shot seeds where they are
crossed. A cell is the value of one cluster under one prompt (and seed). Rows and columns are taken as drawn at random
from the items and from the wordings that could have been used; normality is not assumed. The estimates are those of the
analysis of variance (equal to MINQUE in a complete table), where expected mean squares are sums of components:

    E[MS_u] = sum over v ⊇ u of (product of the sizes of the factors outside v) · σ²_v

so that each component is an alternating sum of mean squares. With one value in a cell, the interaction of all factors
and the residual are one component.

Before a run, the components give the standard error, and the smallest difference that a number of items and prompts can
show. With components σ²_C (clusters of items), σ²_K (prompts) and σ²_CK (both together and the rest), the variance of a
mean over C clusters and K prompts is (a D-study, Brennan 2001)

    V = σ²_C / C + σ²_K / K + σ²_CK / (C K)

More items reduce the first and third term only: one prompt leaves σ²_K, whatever the number of items.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from vernacular.statistics.intervals import cluster_codes, redrawn, resample_statistic
from vernacular.statistics.paired import minimum_detectable_difference, t_test

FEWEST_PROMPTS = 3  # with two, the interval would hold about 90 % at four times the width
THESE, LIKE_THESE = "these prompts", "prompts like these"  # the question that an interval answers


@dataclass(frozen=True)
class MeanOverPrompts:
    """A mean over prompts with its interval; NaN where undefined."""

    value: float
    low: float
    high: float
    se: float
    df: float
    p: float  # two-sided, of the value 0
    se_items: float  # standard error over clusters of items, √a
    se_prompts: float  # standard error over prompts (and crossed seeds), √b; NaN for a single prompt
    sd_prompts: float  # standard deviation between the prompts' values; NaN for a single prompt
    question: str  # THESE or LIKE_THESE


def mean_over_prompts(values, variance_items: float, n_clusters: int, *, level: float = 0.95) -> MeanOverPrompts:
    """Return the mean of `values` (prompts,) or (prompts, seeds) with its interval.

    Args:
        values: one value per prompt, or per prompt and seed if they are crossed.
        variance_items: a, the variance over clusters of the mean over prompts.
        n_clusters: number of clusters.

    Fewer than `FEWEST_PROMPTS` prompts allow an interval for these prompts only: a alone, on C - 1 degrees of freedom.

    >>> found = mean_over_prompts([0.0, 1.0, 0.5], 1 / 12, 3)
    >>> round(found.se**2, 4), round(found.df, 3), found.question
    (0.1667, 4.0, 'prompts like these')
    """
    values = np.asarray(values, dtype=float)
    value = float(values.mean())
    terms = [(variance_items, n_clusters - 1)]
    between = [(_variance_of_mean(values, axis), size - 1) for axis, size in enumerate(values.shape) if size > 1]
    sd_prompts = float(values.mean(axis=tuple(range(1, values.ndim))).std(ddof=1)) if len(values) > 1 else np.nan
    random = len(values) >= FEWEST_PROMPTS
    se, df = _satterthwaite([*terms, *between] if random else terms)
    half_width = se * float(stdtrit(df, 0.5 + level / 2)) if se > 0 else np.nan
    return MeanOverPrompts(
        value=value,
        low=value - half_width,
        high=value + half_width,
        se=se,
        df=df,
        p=t_test(value, se, df),
        se_items=float(np.sqrt(variance_items)),
        se_prompts=float(np.sqrt(sum(variance for variance, _ in between))) if len(values) > 1 else np.nan,
        sd_prompts=sd_prompts,
        question=LIKE_THESE if random else THESE,
    )


def resampled_variance(
    statistic, arrays: list[list[np.ndarray]], clusters, *, seed: int = 0, resamples: int = 500
) -> tuple[float, int]:
    """Return (variance over clusters of the mean over prompts of a corpus statistic, number of clusters).

    `arrays` holds the arguments of `statistic` for each prompt, each of shape (n items,); all prompts use the same
    draws of clusters. NaN if the statistic is undefined in more than a fifth of the draws. 500 draws give the standard
    error to about 3 %.
    """
    codes = cluster_codes(clusters, len(arrays[0][0]))
    n_clusters = int(codes.max(initial=-1)) + 1
    if n_clusters < 2:
        return float("nan"), n_clusters
    width = len(arrays[0])
    flat = [np.asarray(array, dtype=float) for prompt in arrays for array in prompt]

    def mean_statistic(*drawn):
        starts = range(0, len(drawn), width)
        return np.mean([statistic(*drawn[start : start + width]) for start in starts], axis=0)

    rng = np.random.default_rng(seed)
    draws = redrawn(resample_statistic(mean_statistic, flat, codes, n_clusters, resamples, rng))
    if not np.isfinite(draws).all():
        return float("nan"), n_clusters
    return float(draws.var(ddof=1) * n_clusters / (n_clusters - 1)), n_clusters


def _variance_of_mean(values: np.ndarray, axis: int) -> float:
    """Return the variance between the levels of one factor, over their number."""
    levels = values.mean(axis=tuple(other for other in range(values.ndim) if other != axis))
    return float(levels.var(ddof=1) / len(levels))


def _satterthwaite(terms: list[tuple[float, int]]) -> tuple[float, float]:
    """Return (standard error, degrees of freedom) of a sum of independent variances (variance, df)."""
    total = sum(variance for variance, _ in terms)
    if not np.isfinite(total):
        return float("nan"), float("nan")
    if total <= 0:
        return 0.0, float("nan")
    spread = sum(variance**2 / df for variance, df in terms if variance > 0)
    return float(np.sqrt(total)), float(total**2 / spread)


def probability_better(difference: float, variance_prompts: float, se: float, n_prompts: int) -> float:
    """Return the probability that the candidate leads under a prompt drawn at random.

    t(K - 1) of d / √(σ² + SE²): σ² is the component of the differences between prompts (at least 0), and SE the
    standard error of their mean. 0.5 if nothing is known but that both are equal; NaN with fewer than three prompts.

    >>> round(probability_better(2.0, 2.8**2, 0.0, 10_000), 2)
    0.76
    """
    if n_prompts < FEWEST_PROMPTS or not np.isfinite([difference, variance_prompts, se]).all():
        return float("nan")
    spread = np.sqrt(max(0.0, variance_prompts) + se**2)
    if spread == 0:
        return 0.5 if difference == 0 else float(difference > 0)
    return float(stdtr(n_prompts - 1, difference / spread))


FACTORS = ("items", "prompts", "seeds")  # axes of a table
Effect = tuple[int, ...]  # axes of an effect: (0,) items, (0, 1) items × prompts


def cluster_table(values: np.ndarray, clusters=None) -> np.ndarray:
    """Return the table (C, …) of clusters from `values` (n items, …); its mean is the mean over items.

    A row is the column mean plus C · n_c / N times the deviation of the cluster's mean from it, so that clusters of
    different sizes have the weights of their items (exact if all sizes are equal, else to first order).

    >>> cluster_table(np.array([[0.0], [1.0], [1.0]]), ["a", "a", "b"]).ravel().round(3).tolist()
    [0.444, 0.889]
    """
    values = np.asarray(values, dtype=float)
    codes = cluster_codes(clusters, len(values))
    n_clusters = int(codes.max(initial=-1)) + 1
    if n_clusters == len(values):
        return values
    means = values.mean(axis=0)
    deviations = np.zeros((n_clusters, *values.shape[1:]))
    np.add.at(deviations, codes, values - means)
    return means + deviations * n_clusters / len(values)


def mean_squares(table: np.ndarray) -> dict[Effect, tuple[float, int]]:
    """Return {effect: (mean square, degrees of freedom)} of a complete table; effects without freedom are omitted."""
    table = np.asarray(table, dtype=float)
    axes = range(table.ndim)
    effects = [effect for size in range(table.ndim + 1) for effect in itertools.combinations(axes, size)]
    means = {e: table.mean(axis=tuple(axis for axis in axes if axis not in e), keepdims=True) for e in effects}
    found = {}
    for effect in effects[1:]:
        parts = [(-1) ** (len(effect) - len(part)) * means[part] for part in effects if set(part) <= set(effect)]
        deviations = sum(parts)
        df = int(np.prod([table.shape[axis] - 1 for axis in effect]))
        if df:
            found[effect] = float((deviations**2).sum() * table.size / deviations.size / df), df
    return found


@dataclass(frozen=True)
class Components:
    """Variance components of a table."""

    shape: tuple[int, ...]  # (clusters, prompts) or (clusters, prompts, seeds)
    variances: dict[Effect, float]  # component by effect, in squared units of the metric; may be negative

    def of(self, *factors: str) -> float:
        """Return one component, at least 0: of("items"), of("items", "prompts"). 0 without degrees of freedom."""
        effect = tuple(sorted(FACTORS.index(factor) for factor in factors))
        return max(0.0, self.variances.get(effect, 0.0))

    def shares(self) -> dict[str, float]:
        """Return the share of each source in the variance of one run: "items", "prompts", "items × prompts", ….

        One run has one prompt and one seed, and all clusters: components that involve items are divided by their
        number. Negative estimates count as 0. {} if nothing varies.
        """
        run = {
            effect: max(0.0, variance) / (self.shape[0] if 0 in effect else 1)
            for effect, variance in self.variances.items()
        }
        total = sum(run.values())
        names = {effect: " × ".join(FACTORS[axis] for axis in effect) for effect in run}
        return {names[effect]: value / total for effect, value in run.items()} if total > 0 else {}


def components(table: np.ndarray) -> Components:
    """Estimate the components of a complete table (clusters, prompts) or (clusters, prompts, seeds).

    >>> found = components(np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]))
    >>> {effect: round(variance, 4) for effect, variance in found.variances.items()}
    {(0,): 0.1667, (1,): 0.0, (0, 1): 0.1667}
    """
    table = np.asarray(table, dtype=float)
    squares = mean_squares(table)
    variances = {}
    for effect in squares:
        signed = sum((-1) ** (len(v) - len(effect)) * ms for v, (ms, _) in squares.items() if set(effect) <= set(v))
        outside = [size for axis, size in enumerate(table.shape) if axis not in effect]
        variances[effect] = float(signed / np.prod(outside, initial=1.0))
    return Components(table.shape, variances)


def clustered_variance(values: np.ndarray, clusters=None) -> tuple[float, int]:
    """Return (variance of the mean of `values` (n,) over clusters, number of clusters); NaN with fewer than two.

    C/(C-1) times the sum of the squared sums of deviations, over n² (Miller 2024, arXiv 2411.00640).

    >>> round(clustered_variance(np.array([1.0, 0.5, 0.0]))[0], 4)
    0.0833
    """
    values = np.asarray(values, dtype=float)
    codes = cluster_codes(clusters, len(values))
    n_clusters = int(codes.max(initial=-1)) + 1
    if n_clusters < 2:
        return float("nan"), n_clusters
    sums = np.bincount(codes, weights=values - values.mean(), minlength=n_clusters)
    return float(n_clusters / (n_clusters - 1) * (sums @ sums) / len(values) ** 2), n_clusters


PROMPTS = (1, 2, 3, 5, 10)
# assumptions of a design without an earlier run; no published figures cover low-resource languages
ACCURACY, DISAGREEMENT, MODEL_AGREEMENT = 0.55, 0.22, 0.68
CLUSTER_CORRELATION, CLUSTER_CORRELATION_BOTH = 0.14, 0.07  # of item effects, of item × prompt effects
MODEL_ALIKE, WORDING_ALIKE = 0.2, 0.3  # correlations between two models: of item × prompt effects, of prompt effects


@dataclass(frozen=True)
class Design:
    """One line of a table of designs; standard error and difference in the units of the metric."""

    clusters: int
    prompts: int
    se: float
    smallest_difference: float  # paired, found with a power of 0.8 at a level of 0.05; see the function


def standard_error(found: Components, clusters: int, prompts: int) -> float:
    """Return √V of a design. Components are at least 0.

    >>> simulated = Components((100, 5), {(0,): 0.043, (1,): 0.00056, (0, 1): 0.028})  # clusters of five items
    >>> [round(100 * standard_error(simulated, 100, k), 1) for k in (1, 2, 10)]
    [3.6, 2.9, 2.3]
    """
    items, both = found.of("items"), found.of("items", "prompts")
    return float(np.sqrt((items + both / prompts) / clusters + found.of("prompts") / prompts))


def smallest_difference(found: Components, clusters: int, prompts: int) -> float:
    """Return the minimum detectable difference by the components of a paired difference; NaN below two clusters.

    SE and its degrees of freedom are those of the test (`over_prompts`), whose a and b both contain the interaction;
    below three prompts, the test is for these prompts, and b is not part of it.
    """
    if clusters < 2:
        return float("nan")
    both = found.of("items", "prompts") / (clusters * prompts)
    if prompts < FEWEST_PROMPTS:
        return minimum_detectable_difference(np.sqrt(found.of("items") / clusters + both), clusters - 1)
    a, b = found.of("items") / clusters + both, found.of("prompts") / prompts + both
    if a + b == 0:
        return float("nan")
    df = (a + b) ** 2 / (a**2 / (clusters - 1) + b**2 / (prompts - 1))
    return minimum_detectable_difference(np.sqrt(a + b), df)


def accuracy_components(sd_prompts: float, items_per_cluster: float = 1) -> tuple[Components, Components]:
    """Return assumed components of an accuracy of 0.55 and of a difference of two models, for a design before any run.

    Two prompts agree on 78 % of the items and two models on 68 %; the items of a cluster correlate by 0.14, their
    interactions by 0.07; wordings shift two models with a correlation of 0.3. `sd_prompts` is a share: 0.02. Measured
    components replace these.
    """
    variance, interaction, discordant = ACCURACY * (1 - ACCURACY), DISAGREEMENT / 2, 1 - MODEL_AGREEMENT
    both = 2 * interaction * (1 - MODEL_ALIKE)  # of a difference

    def of_cluster(variance: float, correlation: float) -> float:
        return variance * (1 + (items_per_cluster - 1) * correlation) / items_per_cluster

    def found(items: float, prompts: float, items_prompts: float) -> Components:
        items, both = of_cluster(items, CLUSTER_CORRELATION), of_cluster(items_prompts, CLUSTER_CORRELATION_BOTH)
        return Components((0, 0), {(0,): items, (1,): prompts, (0, 1): both})

    of_difference = found(max(0.0, discordant - both), 2 * sd_prompts**2 * (1 - WORDING_ALIKE), both)
    return found(variance - interaction, sd_prompts**2, interaction), of_difference


def design_table(of_value: Components, of_difference: Components | None, clusters: list[int]) -> list[Design]:
    """Return a design for each number of clusters and of `PROMPTS`; without `of_difference`, its difference is NaN."""

    def design(n: int, k: int) -> Design:
        smallest = smallest_difference(of_difference, n, k) if of_difference else float("nan")
        return Design(n, k, standard_error(of_value, n, k), smallest)

    return [design(n, k) for n in clusters for k in PROMPTS]


def clusters_needed(found: Components, prompts: int, se: float) -> float:
    """Return the number of clusters for a wanted standard error; infinity if no number of items is enough.

    >>> simulated = Components((100, 5), {(0,): 0.043, (1,): 0.00056, (0, 1): 0.028})
    >>> clusters_needed(simulated, 1, 0.02), clusters_needed(simulated, 5, 0.02)
    (inf, 169)
    """
    rest = se**2 - found.of("prompts") / prompts
    if rest <= 0:
        return float("inf")
    return int(np.ceil((found.of("items") + found.of("items", "prompts") / prompts) / rest))
