"""Significant differences: the one rule behind all tables, marks and sentences.

The *family* of a pair of models are its tests of headline metrics over all items; a mean over prompts stands for its
single prompts. Holm's correction is over this family. The best model of a *column* (a headline metric of one
evaluation) is chosen by its value: its tests are also corrected over the models of the column, and the larger p counts.
A difference is significant if this p is below ALPHA. Single categories, other metrics and single prompts are
exploratory: they are in no family, and never called significant.

A rank is also corrected over all pairs of the column. Earlier checkpoints of a series are tested against the best model
only, and have no rank: the number of tests grows with the number of checkpoints, not with the square of it, and does
not weaken those of other models.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from vernacular.core.tables import finite_or_none

# the families, wherever something is called significant; js/verdict.js has the same words
FAMILIES = (
    "Holm correction over all headline metrics of a pair of models and, against the best of all models, over all models"
)

ALPHA = 0.05
NONE, SHARED, BEST = 0, 1, 2
Key = tuple[str, str, str]  # model, evaluation, metric
Test = tuple[frozenset, str, str]  # both sides, evaluation, metric
TEST = ("baseline", "candidate", "evaluation", "metric", "difference", "p_value", "headline", "category")


def holm(p_values) -> np.ndarray:
    """Return (m,) adjusted p-values of one family (Holm 1979); NaN is a missing test, stays NaN and does not count.

    The i-th smallest p times m - i + 1, made monotone and capped at 1. Equal to statsmodels' `multipletests`, which
    runs the garbage collector at every call: a second for the hundreds of families of a few models.

    >>> holm([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    p_values = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p_values), np.nan)
    order = np.argsort(p_values)[: np.count_nonzero(~np.isnan(p_values))]  # NaN sorts last
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps * p_values[order]), 1)
    return adjusted


def significantly_better(n: int, pairs, differences, p_values) -> np.ndarray:
    """Return (n, n) whether the first of two is better than the second, by tests of `pairs` with Holm's correction.

    `differences`: first minus second of each pair, in the direction in which higher is better.

    >>> significantly_better(2, [(0, 1)], [-0.1], [0.01]).tolist()
    [[False, False], [True, False]]
    """
    better = np.zeros((n, n), dtype=bool)
    for (i, j), difference, p in zip(pairs, differences, holm(p_values), strict=True):
        if p < ALPHA and difference:
            better[(i, j) if difference > 0 else (j, i)] = True
    return better


def competition_ranks(better: np.ndarray) -> np.ndarray:
    """Return (m,) ranks: 1 + the number of significantly better models; better[i, j]: i is better than j.

    >>> competition_ranks(np.array([[False, False, True], [False, False, False], [False, False, False]])).tolist()
    [1, 1, 2]
    """
    return 1 + np.asarray(better, dtype=bool).sum(axis=0)


@dataclass(frozen=True)
class Column:
    """A headline metric of one evaluation.

    Attributes:
        setting: columns of the evaluation
        metric: its name, and whether a higher value is better
        values: model -> value
        tests: rows of pairs of these models with `TEST` columns of COMPARISONS
        unranked: models that are tested against the best only
    """

    setting: dict
    metric: str
    higher_is_better: bool
    values: dict[str, float]
    tests: list[dict]
    unranked: Collection[str] = ()

    @cached_property
    def best(self) -> str:
        return max(self.values, key=lambda model: (1 if self.higher_is_better else -1) * self.values[model])

    def test(self, *models: str) -> Test:
        return frozenset(models), self.setting["evaluation"], self.metric


def key_of(row: dict) -> Test:
    """Return what a COMPARISONS row tests, whichever side is the baseline."""
    return frozenset((row["baseline"], row["candidate"])), row["evaluation"], row["metric"]


def corrected(
    rows: Iterable[dict], columns: Sequence[Column] = (), outside: Collection[Test] = ()
) -> dict[Test, tuple[float, int]]:
    """Return the corrected p of each test in a family, and the number of tests of its family.

    Args:
        rows: COMPARISONS rows; those of categories, and of other than headline metrics, are in no family
        columns: all columns of the run, with the tests of pairs that are not among the rows
        outside: tests in no family, as of single prompts for which a mean stands
    """
    families: dict[frozenset, dict[Test, float]] = {}
    for row in chain(rows, *(column.tests for column in columns)):
        if row["headline"] and not row["category"] and row["p_value"] is not None and key_of(row) not in outside:
            families.setdefault(key_of(row)[0], {})[key_of(row)] = row["p_value"]
    found = {}
    for family in families.values():
        for test, p in zip(family, holm(list(family.values())), strict=True):
            found[test] = (float(p), len(family))
    for column in columns:
        tests = [column.test(model, column.best) for model in column.values if model != column.best]
        tests = [test for test in tests if test in found]
        for test, p in zip(tests, holm([families[test[0]][test] for test in tests]), strict=True):
            found[test] = (max(float(p), found[test][0]), found[test][1])
    return found


def add_significance(rows: list[dict], found: dict[Test, tuple[float, int]] | None = None) -> list[dict]:
    """Add `p_holm`, `n_tests`, `significant` and `better` to COMPARISONS rows; null outside of families.

    found: of `corrected`; None: the rows are all tests.
    """
    found = corrected(rows) if found is None else found
    for row in rows:
        is_tested = row["headline"] and not row["category"] and row["p_value"] is not None
        p, n_tests = found.get(key_of(row), (None, None)) if is_tested else (None, None)
        row |= {"p_holm": p, "n_tests": n_tests, "significant": None if p is None else p < ALPHA, "better": None}
        if row["significant"] and row["higher_is_better"] is not None and row["difference"]:
            row["better"] = "candidate" if (row["difference"] > 0) == row["higher_is_better"] else "baseline"
    return rows


def rank(column: Column, found: dict[Test, tuple[float, int]]) -> list[dict]:
    """Return a RANKINGS row per model of a column that has a value; found: of `corrected`, with all columns."""
    models, best = list(column.values), column.best
    direction = 1 if column.higher_is_better else -1
    tests = {key_of(row): row for row in column.tests if row["p_value"] is not None and key_of(row) in found}
    compared: dict[str, list[str]] = {model: [] for model in models}
    worse_than: dict[str, list[str]] = {model: [] for model in models}
    places = {model: place for place, model in enumerate(model for model in models if model not in column.unranked)}
    better = np.zeros((len(places), len(places)), dtype=bool)
    ranked = [test for test in tests if test[0] <= places.keys()]
    over_pairs = dict(zip(ranked, holm([tests[test]["p_value"] for test in ranked]), strict=True))
    for test, row in tests.items():
        first, second = row["candidate"], row["baseline"]
        compared[first].append(second)
        compared[second].append(first)
        if found[test][0] < ALPHA and row["difference"]:
            first, second = (first, second) if direction * row["difference"] > 0 else (second, first)
            worse_than[second].append(first)
            if over_pairs.get(test, 1.0) < ALPHA:
                better[places[first], places[second]] = True
    ranks = competition_ranks(better)
    rows = []
    for model in models:
        test = column.test(model, best)
        row = tests.get(test, {"difference": None, "p_value": None, "candidate": model})
        sign, difference = 1 if row["candidate"] == model else -1, 0.0 if model == best else row["difference"]
        rows.append(
            column.setting
            | {
                "model": model,
                "metric": column.metric,
                "best": best,
                "difference": None if difference is None else finite_or_none(sign * difference),
                "p_value": row["p_value"],
                "p_holm": found[test][0] if test in tests else None,
                "in_best_group": best not in worse_than[model],
                "rank": int(ranks[places[model]]) if model in places else None,
                "compared_with": sorted(compared[model]),
                "worse_than": sorted(worse_than[model]),
            }
        )
    return rows


def index_rankings(rankings: Iterable[dict] | None) -> dict[Key, dict]:
    """Index RANKINGS rows by model, evaluation and metric."""
    return {(row["model"], row["evaluation"], row["metric"]): row for row in rankings or []}


def marks(
    keys: Sequence[Key | None], values, chance, higher_is_better: bool | None, rankings: Mapping[Key, dict]
) -> tuple[np.ndarray, np.ndarray]:
    """Return (R,) marks NONE, SHARED or BEST of the values of a column, and (R,) whether each was tested.

    Equal best values are all BEST. SHARED is tested, and not significantly different from the best of these values. No
    value is marked if neither direction is better, if fewer than two differ, or if it is at chance or worse.

    Args:
        keys: of each value; None: no value
        values, chance: (R,), NaN if missing
        rankings: RANKINGS rows of `index_rankings`

    >>> rankings = {("b", "e", "m"): {"compared_with": ["a"], "worse_than": []}}
    >>> found = marks([("a", "e", "m"), ("b", "e", "m"), ("c", "e", "m")], [0.7, 0.69, 0.6], [0.5] * 3, True, rankings)
    >>> [each.tolist() for each in found]
    [[2, 1, 0], [True, True, False]]
    """
    values, chance = (np.asarray(array, dtype=float) for array in (values, chance))
    found, tested = np.full(len(values), NONE), np.zeros(len(values), dtype=bool)
    finite = np.isfinite(values)
    if higher_is_better is None or len(np.unique(values[finite])) < 2:
        return found, tested
    is_best = values == (values[finite].max() if higher_is_better else values[finite].min())
    best = {keys[row][0] for row in np.flatnonzero(is_best)}
    counts = Counter(keys)  # two revisions of a model have one name, and no test
    for row in np.flatnonzero(finite):
        ranking = rankings.get(keys[row]) if counts[keys[row]] == 1 else None
        against = best.intersection(ranking["compared_with"]) if ranking else ()
        tested[row] = is_best[row] or bool(against)
        if against and not best.intersection(ranking["worse_than"]):
            found[row] = SHARED
    found[is_best] = BEST
    with np.errstate(invalid="ignore"):
        found[(values <= chance) if higher_is_better else (values >= chance)] = NONE
    return found, tested
