"""How much values move with the few-shot seed: a spread of its own, never pooled into the intervals over items."""

import pandas as pd

_SAME = ["model", "adapter", "model_revision", "task", "language", "protocol", "shots", "style", "metric"]
_SEED_COLUMNS = [*_SAME, "seeds", "n_seeds", "mean", "sd", "lowest", "highest"]


def between_seeds(long: pd.DataFrame) -> pd.DataFrame:
    """One row per value that was measured with several seeds, over all items; empty where no seed was varied.

    `sd` is the sample standard deviation (n - 1) between seeds: with two or three seeds a rough figure. `n_seeds` is
    how many seeds gave a value; `mean`, `lowest` and `highest` are over those.
    """
    whole = long[(long["category"].fillna("") == "") & long["value"].notna()]
    if whole.empty:
        return pd.DataFrame(columns=_SEED_COLUMNS)
    groups = whole.sort_values("seed").groupby(_SAME, dropna=False, sort=True)
    table = groups.agg(
        seeds=("seed", lambda seeds: " ".join(map(str, seeds))),
        n_seeds=("seed", "nunique"),
        mean=("value", "mean"),
        sd=("value", "std"),
        lowest=("value", "min"),
        highest=("value", "max"),
    )
    return table[table["n_seeds"] > 1].reset_index()
