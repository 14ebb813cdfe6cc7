"""Spread of ranks over prompts, and the value of the best prompt without the bias of having chosen it.

The highest of K values is high partly by chance: of five equally good prompts with 500 items, the best shows about one
point that it does not keep on new items. A prompt is therefore chosen on one half of the clusters and evaluated on the
other half; both directions and several divisions are averaged.
"""

from dataclasses import dataclass

import numpy as np

DIVISIONS = 50  # random divisions into halves; the value changes by less than a tenth of a standard error beyond


@dataclass(frozen=True)
class BestPrompt:
    """Values of the prompt that does best.

    Attributes:
        index: the prompt with the best value over all items
        shown: its value, biased by the choice
        corrected: value of a prompt chosen by one half of the clusters on the other half; NaN with fewer than 4
    """

    index: int
    shown: float
    corrected: float


def best_prompt(table: np.ndarray, *, higher_is_better: bool = True, seed: int = 0) -> BestPrompt:
    """Return the best prompt of a table (clusters, prompts) of `crossed.cluster_table`.

    >>> best = best_prompt(np.array([[1.0, 0.0]] * 8))
    >>> best.index, best.shown, best.corrected
    (0, 1.0, 1.0)
    """
    table = np.asarray(table, dtype=float)
    signed = table if higher_is_better else -table
    means = table.mean(axis=0)
    index = int(signed.mean(axis=0).argmax())
    n_clusters = len(table)
    if n_clusters < 4:
        return BestPrompt(index, float(means[index]), float("nan"))
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(DIVISIONS):
        order = rng.permutation(n_clusters)
        halves = order[: n_clusters // 2], order[n_clusters // 2 :]
        for chosen_on, valued_on in (halves, halves[::-1]):
            chosen = signed[chosen_on].mean(axis=0).argmax()
            values.append(table[valued_on, chosen].mean())
    return BestPrompt(index, float(means[index]), float(np.mean(values)))


def ranks_by_prompt(values: np.ndarray, *, higher_is_better: bool = True) -> np.ndarray:
    """Return the ranks of models under each prompt, (models, prompts) of `values` (models, prompts); ties share a rank.

    >>> ranks_by_prompt(np.array([[0.5, 0.6], [0.7, 0.6], [0.4, 0.2]])).tolist()
    [[2, 1], [1, 1], [3, 3]]
    """
    values = np.asarray(values, dtype=float)
    signed = values if higher_is_better else -values
    return 1 + (signed[None, :, :] > signed[:, None, :]).sum(axis=1)
