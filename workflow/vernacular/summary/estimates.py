"""Values by labels of speakers, and borrowed values, in the summary: rows of the long table, and the sheet `labels`."""

import pandas as pd

from vernacular.summary.grid import sort_rows, with_columns_of
from vernacular.summary.rows import Column, write_rows

# further columns of results.csv
_COLUMNS = dict.fromkeys(("n_labels", "n_scored"), "Int64")
_COLUMNS |= dict.fromkeys(("rho", "weight", "ratio", "labels_only", "labels_only_low", "labels_only_high"), float)


def add_estimates(long: pd.DataFrame, estimates: list[dict]) -> pd.DataFrame:
    """Return the long table with a row for each estimate of a model (ESTIMATES rows without a baseline).

    The row is that of another metric of the evaluation, with the estimate in place of its value.
    """
    own = long[long["category"].fillna("") == ""].drop_duplicates(["model", "evaluation"])
    by_evaluation = {(row["model"], row["evaluation"]): row for row in own.to_dict("records")}
    rows = [
        by_evaluation[row["model"], row["evaluation"]]
        | {name: row[name] for name in ("metric", "value", "ci_low", "ci_high", "unit", "headline")}
        | {"n": row["n_labels"], "n_flagged": 0, "higher_is_better": True, "signature": _signature(row)}
        | dict.fromkeys(("n_ties", "chance_level", "majority_baseline"))
        for row in estimates
        if row["baseline"] is None
    ]
    if not rows:
        return long
    return sort_rows(pd.concat([long, pd.DataFrame(rows).astype(long.dtypes)], ignore_index=True))


def _signature(row: dict) -> str:
    parts = [row["metric"], f"labels:{row['n_labels']}", f"items:{row['n']}", f"score:{row['score'] or 'none'}"]
    return "|".join(parts)


def with_estimate_columns(values: pd.DataFrame, estimates: list[dict]) -> pd.DataFrame:
    """Return the table of results with what an estimate is made of in further columns, empty in other rows."""
    rows = [row | {"category": ""} for row in estimates if row["baseline"] is None]
    return with_columns_of(values, rows, _COLUMNS)


_SHEET = [
    Column("model", "model", 24),
    Column("minus", "baseline", 24, "of a paired difference: the model that is subtracted"),
    Column("evaluation", "evaluation", 34),
    Column(
        "score", lambda row: row["score"] or "labels alone", 22, "automatic score, or models that are borrowed from"
    ),
    Column("score alone", "score_only", 10, "mean of the score over all items, in its own unit", "0.000"),
    Column("agreement ρ", "rho", 11, "correlation of label and score over the labeled items", "0.00"),
    Column("labels alone", "labels_only", 10, "over the labeled items", "unit"),
    Column("labels alone, low", "labels_only_low", 10, "95 % interval", "unit"),
    Column("labels alone, high", "labels_only_high", 10, "95 % interval", "unit"),
    Column("estimate", "value", 10, "from labels and score together, over all items", "unit"),
    Column("low", "ci_low", 10, "95 % interval", "unit"),
    Column("high", "ci_high", 10, "95 % interval", "unit"),
    Column("ratio", "ratio", 8, "standard error of the estimate over that of the labels alone", "0.00"),
    Column("weight", "weight", 8, "of the score, mean over the folds", "0.00"),
    Column("labels", "n_labels", 8, "labeled items", "0"),
    Column("clusters", "n_clusters", 8, "of labeled items", "0"),
    Column("missing", "n_missing", 8, "items before the last label without one", "0"),
    Column("items", "n", 8, "", "0"),
    Column("annotators", "annotators", 10, "", "0"),
    Column("alpha", "alpha", 8, "Krippendorff's, of the labels of this evaluation", "0.00"),
    Column("alpha, low", "alpha_low", 8, "95 % interval", "0.00"),
    Column("alpha, high", "alpha_high", 8, "95 % interval", "0.00"),
    Column("in a sentence", "sentence", 90),
]


def estimates_sheet(estimates: list[dict]):
    """Return the function that fills a sheet with all estimates: values of models, then differences."""
    rows = sorted(estimates, key=lambda row: row["baseline"] is not None)
    return lambda sheet, size: write_rows(sheet, _SHEET, rows, 5, size)
