"""Audit of items from the models' scores of their options: which items a speaker should read first.

*Score* S of an item: how far the ability-weighted models prefer one and the same incorrect option to the correct one,
plus half the slope of the margin over ability, as far as slopes are reliable. It orders an audit list; it is no test,
because a difficult item has the same score as one with an incorrect gold. Of 300 simulated items with 11 % faults, 40
to 52 % of the first 20 are faults with 3 to 20 models; of the share of incorrect models, 34 to 41 %; of correlations
of the item with the rest, 16 to 45 %. *Reach*: the share of (item, incorrect option) pairs that would enter the list if
that option were the gold, an upper bound of the share of incorrect golds that the list finds.

*Drop* of an item in one language below the mean of others, which finds faults of a translation. Its null distribution
are the drops of the other languages: at a nominal false discovery rate of 10 %, 6 to 15 % of simulated discoveries are
false; a t-test over models has 50 to 90 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vernacular.statistics.intervals import clustered_wilson

MIN_MODELS, MIN_FAMILIES, MIN_ITEMS = 3, 2, 100
MIN_COVERAGE = 0.9  # of the items that a model has scored
_CLIP = 4.0  # units of a margin: more says nothing further
_MIN_ABILITY = 0.02  # weight of a model at or below chance
_SLOPE = 0.5  # weight of the slope, if it were known exactly
_TIE = 1e-6  # nats, as for the choice of an option
_DIGITS = 9  # of a score, so that equal scores are ties in any order of models


@dataclass(frozen=True)
class Responses:
    """The models' scores of the options of n items, of at most K options."""

    scores: list[list[np.ndarray]]  # by model: each of its evaluations, (n, K); NaN: not scored
    correct: np.ndarray  # (n, K) bool
    offered: np.ndarray  # (n, K) bool; False after the last option of an item
    families: list[str]  # of each model: models of one family are one witness
    clusters: list[str | None] | None = None  # of each item

    def part(self, models: Sequence[int], items: np.ndarray) -> "Responses":
        """Return the responses of some models to some items."""
        clusters = None if self.clusters is None else [self.clusters[i] for i in items]
        scores = [[run[items] for run in self.scores[m]] for m in models]
        families = [self.families[m] for m in models]
        return Responses(scores, self.correct[items], self.offered[items], families, clusters)


@dataclass(frozen=True)
class Margins:
    """What one set of golds makes of the responses, and the weights of the models."""

    units: list[list[float]]  # by model and evaluation: the median absolute margin
    accuracy: np.ndarray  # (M,)
    low: np.ndarray  # (M,) lower limits of the accuracies
    chance: float
    by_family: np.ndarray  # (M,) weights: each family has the same
    by_ability: np.ndarray  # (M,) weights: multiplied by the accuracy above chance
    x: np.ndarray  # (M, n, K) clipped lead of the correct option over each incorrect one; NaN: none, or not scored
    z: np.ndarray  # (M, n) the smallest of these: the clipped margin
    leads: np.ndarray  # (n, K) mean of the leads by ability


@dataclass(frozen=True)
class Audit:
    """The scores of n items."""

    score: np.ndarray  # (n,) S: high is suspicious
    by_gold: np.ndarray  # (n, K) S with each incorrect option as the only gold; NaN: no incorrect option
    level: np.ndarray  # (n,) L
    slope: np.ndarray  # (n,) B
    favorite: np.ndarray  # (n,) incorrect option that the models prefer
    reliability: float  # h, of the slopes
    margins: Margins

    def order(self, item_ids: Sequence[str]) -> np.ndarray:
        """Return the items by decreasing score; ties by ID."""
        return np.array(sorted(range(len(self.score)), key=lambda i: (-self.score[i], item_ids[i])), dtype=int)

    def reach(self, k: int) -> tuple[float, float]:
        """Return the reach of a list of k items: of the models' favorite option as the gold, and of any option."""
        threshold = np.sort(self.score)[-min(k, len(self.score))]
        share = (k - (self.score > threshold).sum()) / (self.score == threshold).sum()
        favorite = self.by_gold[np.arange(len(self.score)), self.favorite]
        groups = favorite, self.by_gold[~np.isnan(self.by_gold)]
        first, second = (float((group > threshold).mean() + share * (group == threshold).mean()) for group in groups)
        return first, second


def unsuitable(responses: Responses) -> str | None:
    """Return why items cannot be audited from these responses, in one sentence; None: they can."""
    n_models, n_families, n_items = len(responses.families), len(set(responses.families)), len(responses.correct)
    if n_items < MIN_ITEMS:
        return f"expected at least {MIN_ITEMS} items with scores of their options, got {n_items}"
    if n_models < MIN_MODELS:
        return f"expected at least {MIN_MODELS} models that scored 90 % of the items, got {n_models}"
    if n_families < MIN_FAMILIES:
        return f"expected models of at least {MIN_FAMILIES} families, got {n_models} models of one"
    margins = _margins(responses)
    if not (margins.low > margins.chance).any():
        return "no model is above chance, so that its errors say nothing about the items"
    return None


def audit(responses: Responses) -> Audit:
    """Return the scores of all items, which have a correct and an incorrect option and a model with their scores."""
    margins = _margins(responses)
    deviations = margins.accuracy - margins.by_family @ margins.accuracy
    spread = np.sqrt(margins.by_family @ deviations**2)
    ability = deviations / spread if spread > 1e-9 else np.zeros(len(deviations))
    present = ~np.isnan(margins.z)
    w = _rescaled(margins.by_family, present)
    z = np.where(present, margins.z, 0.0)
    level, slope = _lowest(margins.leads), (w * ability[:, None] * z).sum(0)
    errors = np.where(present, z - (w * z).sum(0) - ability[:, None] * slope, 0.0)
    n_models = len(ability)
    noise = ((w * ability[:, None] * errors) ** 2).sum(0).mean() * n_models / max(n_models - 2, 1)
    reliability = max(0.0, 1 - noise / slope.var()) if slope.var() > 1e-12 else 0.0

    def score(levels: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        raw = -_standardized(levels, level) - _SLOPE * reliability * _standardized(slopes, slope)
        return np.round(raw, _DIGITS)

    by_gold = np.full(responses.correct.shape, np.nan)
    for option in range(responses.correct.shape[1]):
        rows = np.flatnonzero(responses.offered[:, option] & ~responses.correct[:, option])
        gold = np.zeros((len(rows), responses.correct.shape[1]), dtype=bool)
        gold[:, option] = True
        subset = responses.part(range(n_models), rows)
        x = _leads(subset, gold, margins.units)
        option_z = np.where(present[:, rows], _lowest(x), 0.0)
        leads = _weighted(x, margins.by_ability)
        by_gold[rows, option] = score(_lowest(leads), (w[:, rows] * ability[:, None] * option_z).sum(0))
    favorite = np.where(np.isnan(margins.leads), np.inf, margins.leads).argmin(1)
    return Audit(score(level, slope), by_gold, level, slope, favorite, float(reliability), margins)


def complete(responses: Responses) -> tuple[list[int], np.ndarray]:
    """Return the models that scored at least 90 % of the items, and the items that can be audited with them."""
    decidable = (responses.correct & responses.offered).any(1) & (~responses.correct & responses.offered).any(1)
    scored = [[(np.isfinite(run) | ~responses.offered).all(1) for run in runs] for runs in responses.scores]
    scored = np.array([np.any(runs, axis=0) for runs in scored]).reshape(-1, len(decidable))
    n_items = max(int((decidable & scored.any(0)).sum()), 1)
    models = [m for m, own in enumerate(scored) if (own & decidable).sum() >= MIN_COVERAGE * n_items]
    return models, np.flatnonzero(decidable & scored[models].any(0)) if models else np.array([], dtype=int)


def _margins(responses: Responses) -> Margins:
    correct, offered = responses.correct, responses.offered
    chance = float((correct.sum(1) / offered.sum(1)).mean())
    units, accuracies, lows = [], [], []
    for runs in responses.scores:
        own_units, hits = [], []
        for run in runs:
            margin = _lowest(_differences(run, correct, offered))
            known = ~np.isnan(margin)
            own_units.append(float(np.median(np.abs(margin[known]))) or 1.0 if known.any() else 1.0)
            hits.append(np.where(known, margin > _TIE, np.nan))
        right = np.array(hits)
        known = ~np.isnan(right).all(0)
        first = right[np.isnan(right[:, known]).sum(1).argmin()]  # of several evaluations, the most complete one
        own = ~np.isnan(first)
        clusters = None if responses.clusters is None else [responses.clusters[i] for i in np.flatnonzero(own)]
        units.append(own_units)
        accuracies.append(float(np.nanmean([np.nanmean(row) for row in right if not np.isnan(row).all()])))
        lows.append(clustered_wilson(first[own], clusters)[0])
    accuracy = np.array(accuracies)
    sizes = [responses.families.count(family) for family in responses.families]
    by_family = 1 / np.array(sizes, dtype=float)
    by_ability = by_family * np.maximum((accuracy - chance) / (1 - chance), _MIN_ABILITY)
    by_family, by_ability = by_family / by_family.sum(), by_ability / by_ability.sum()
    x = _leads(responses, correct, units)
    leads = _weighted(x, by_ability)
    return Margins(units, accuracy, np.array(lows), chance, by_family, by_ability, x, _lowest(x), leads)


def _differences(scores: np.ndarray, gold: np.ndarray, offered: np.ndarray) -> np.ndarray:
    """Return (n, K): the best correct score minus that of each incorrect option; NaN elsewhere, and without scores."""
    known = (np.isfinite(scores) | ~offered).all(1)
    best = np.where(gold, scores, -np.inf).max(1, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        return np.where(offered & ~gold & known[:, None], best[:, None] - scores, np.nan)


def _leads(responses: Responses, gold: np.ndarray, units: list[list[float]]) -> np.ndarray:
    """Return x (M, n, K): the clipped lead of the gold over each other option, as a mean over evaluations."""
    means = []
    for runs, own in zip(responses.scores, units, strict=True):
        pairs = zip(runs, own, strict=True)
        leads = [_differences(run, gold, responses.offered) / unit for run, unit in pairs]
        values = np.clip(np.array(leads), -_CLIP, _CLIP)
        known = ~np.isnan(values)
        count = known.sum(0)
        means.append(np.where(count, np.where(known, values, 0).sum(0) / np.maximum(count, 1), np.nan))
    return np.array(means)


def _rescaled(weights: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the weights of the models with scores of each item, (M, n), which sum to 1."""
    w = weights[:, None] * present
    return w / np.maximum(w.sum(0), 1e-300)


def _weighted(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted mean of x (M, n, K) over the models with scores of each item, (n, K)."""
    present = ~np.isnan(x).all(2)
    mean = np.einsum("mn,mnk->nk", _rescaled(weights, present), np.nan_to_num(x))
    return np.where(np.isnan(x).all(0), np.nan, mean)


def _lowest(values: np.ndarray) -> np.ndarray:
    """Return the minimum over the last axis without NaN; NaN if nothing remains."""
    lowest = np.where(np.isnan(values), np.inf, values).min(-1, initial=np.inf)
    return np.where(np.isinf(lowest), np.nan, lowest)


def _standardized(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    spread = reference.std()
    return (values - reference.mean()) / spread if spread > 1e-9 else np.zeros(len(values))


class Drops:
    """How far each of n items is harder in one language than in others, relative to its spread.

    Args:
        languages: The responses of the same models to the same items in each language.
    """

    def __init__(self, languages: Sequence[Responses]):
        margins = [_margins(responses) for responses in languages]
        z = np.array([each.z for each in margins])
        self.right = np.where(np.isnan(z), np.nan, z > 0)  # (L, M, n)
        self.present = ~np.isnan(z).any(0)  # (M, n)
        self._z = np.where(self.present, z, 0.0)
        self._spread = np.abs(self._z)
        self._weights = np.array([each.by_ability for each in margins])
        self._sums = self._z.sum(0), self._spread.sum(0), self._weights.sum(0)

    def drop(self, target: int, *, without: int | None = None) -> np.ndarray:
        """Return (n,) T: the drop in a language below the mean of the others, except for one."""
        left_out = [] if without is None else [without]
        z, spread, weights = (total - part[left_out].sum(0) for total, part in
                              zip(self._sums, (self._z, self._spread, self._weights), strict=True))  # fmt: skip
        n_others = len(self._z) - 1 - len(left_out)
        w = _rescaled((weights - self._weights[target]) / n_others, self.present)
        drop = (z - self._z[target]) / n_others - self._z[target]
        counts = np.maximum(self.present.sum(1, keepdims=True), 1)
        drop = np.where(self.present, drop - drop.sum(1, keepdims=True) / counts, 0.0)
        spread = (w * spread).sum(0) / (n_others + 1)
        t = (w * drop).sum(0) / np.maximum(spread + np.median(spread), 1e-12)
        return t - np.median(t)

    def rates(self, target: int) -> np.ndarray:
        """Return q (n,): the false discovery rate of all items up to each drop in a language.

        With three or more languages, the null distribution are the drops of each other language against the others
        without the target (Benjamini & Hochberg 1995); with two, the rises of the same items (Barber & Candès 2015).
        """
        others = [number for number in range(len(self._z)) if number != target]
        if len(others) == 1:
            return mirrored(self.drop(target))
        nulls = [self.drop(number, without=target) for number in others]
        return from_null(self.drop(target), np.concatenate(nulls))


def from_null(t: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Return q of each value, from the values that occur by chance.

    >>> from_null(np.array([3, 1, 0.2, -1]), np.array([2.5, 0.1, -0.5, -1, 1.2, 0.3, 0, -2])).round(4).tolist()
    [0.4444, 0.5926, 0.5926, 0.8889]
    """
    null = np.sort(null)
    p = (1 + len(null) - np.searchsorted(null, t)) / (1 + len(null))
    order = np.argsort(-p, kind="stable")
    ranks = np.arange(len(p), 0, -1)
    q = np.empty(len(p))
    q[order] = np.minimum.accumulate(p[order] * len(p) / ranks)
    return np.minimum(q, 1)


def mirrored(t: np.ndarray) -> np.ndarray:
    """Return q of each value: by chance, as many items rise by so much as drop.

    >>> mirrored(np.array([2.0, 1.0, -0.5])).tolist()
    [0.5, 0.5, 1.0]
    """
    q = np.array([(1 + (t <= -x).sum()) / (t >= x).sum() if x > 0 else 1.0 for x in t])
    order = np.argsort(t, kind="stable")
    smallest = np.empty(len(t))
    smallest[order] = np.minimum.accumulate(q[order])
    for x in np.unique(t):  # equal values have the same q
        smallest[t == x] = smallest[t == x].min()
    return np.where(t > 0, np.minimum(smallest, 1), 1.0)
