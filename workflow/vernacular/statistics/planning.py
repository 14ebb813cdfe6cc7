"""Designs before a run: the standard error and the smallest difference that a number of items and prompts can show.

With components σ²_C (clusters of items), σ²_K (prompts) and σ²_CK (both together and the rest), the variance of a mean
over C clusters and K prompts is (a D-study, Brennan 2001)

    V = σ²_C / C + σ²_K / K + σ²_CK / (C K)

More items reduce the first and third term only: one prompt leaves σ²_K, whatever the number of items.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from vernacular.statistics.crossed import Components
from vernacular.statistics.over_prompts import FEWEST_PROMPTS

PROMPTS = (1, 2, 3, 5, 10)
POWER, ALPHA = 0.8, 0.05


@dataclass(frozen=True)
class Design:
    """One line of a planning table; standard error and difference in the units of the metric."""

    clusters: int
    prompts: int
    se: float
    smallest_difference: float  # found with a power of 0.8 at a level of 0.05; NaN below three prompts


def standard_error(found: Components, clusters: int, prompts: int) -> float:
    """Return √V of a design. Components are at least 0.

    >>> simulated = Components((100, 5), {(0,): 0.043, (1,): 0.00056, (0, 1): 0.028})  # clusters of five items
    >>> [round(100 * standard_error(simulated, 100, k), 1) for k in (1, 2, 10)]
    [3.6, 2.9, 2.3]
    """
    items, both = found.of("items"), found.of("items", "prompts")
    return float(np.sqrt((items + both / prompts) / clusters + found.of("prompts") / prompts))


def smallest_difference(found: Components, clusters: int, prompts: int) -> float:
    """Return (t(0.975) + t(0.8)) · SE of the components of a difference; NaN below three prompts or two clusters.

    SE and its degrees of freedom are those of the test (`over_prompts`), whose a and b both contain the interaction.
    """
    if prompts < FEWEST_PROMPTS or clusters < 2:
        return float("nan")
    both = found.of("items", "prompts") / (clusters * prompts)
    a, b = found.of("items") / clusters + both, found.of("prompts") / prompts + both
    if a + b == 0:
        return float("nan")
    df = (a + b) ** 2 / (a**2 / (clusters - 1) + b**2 / (prompts - 1))
    return float((stdtrit(df, 1 - ALPHA / 2) + stdtrit(df, POWER)) * np.sqrt(a + b))


def detectable(se: float | None, df: float | None) -> float | None:
    """Return the smallest difference that a finished design finds with a power of 0.8; None without a spread."""
    if not se or not df or not np.isfinite([se, df]).all():
        return None
    return float((stdtrit(df, 1 - ALPHA / 2) + stdtrit(df, POWER)) * se)


def planning_table(of_value: Components, of_difference: Components | None, clusters: list[int]) -> list[Design]:
    """Return a design for each number of clusters and of `PROMPTS`.

    Args:
        of_value: components of one model's values, for the standard error.
        of_difference: components of the differences of two models, for the smallest difference; None: NaN.
    """
    return [
        Design(
            n,
            k,
            standard_error(of_value, n, k),
            smallest_difference(of_difference, n, k) if of_difference else float("nan"),
        )
        for n in clusters
        for k in PROMPTS
    ]


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


def equal_weight_prompts(found: Components, clusters: int) -> float:
    """Return K*, the number of prompts with which prompts and items add the same variance."""
    items = found.of("items")
    total = clusters * found.of("prompts") + found.of("items", "prompts")
    return total / items if items else float("inf")
