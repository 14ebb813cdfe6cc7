"""The table of all comparisons: differences by the labels of speakers, and what rows are without confirmed faults."""

from collections.abc import Mapping

import pyarrow as pa

from vernacular.comparison.schema import COMPARISONS, HUMAN
from vernacular.statistics.significance import add_significance
from vernacular.types import SETTING

_COMPARED = ("difference", "ci_low", "ci_high", "n")  # of these, beside those over all items


def as_comparisons(rows: list[dict], settings: Mapping[str, Mapping]) -> list[dict]:
    """Return paired differences as rows of COMPARISONS; a pair has two families of tests, with and without a score.

    `settings`: by evaluation, with the columns that identify it.
    """
    values = {(row["model"], row["evaluation"], row["metric"]): row for row in rows if row["baseline"] is None}
    compared = []
    for row in rows:
        if row["baseline"] is None:
            continue
        evaluation = row["evaluation"]
        names = {"baseline": row["baseline"], "candidate": row["model"]}
        sides = {side: values.get((name, evaluation, row["metric"]), {}) for side, name in names.items()}
        copied = ("evaluation", "metric", "unit", "headline", "ci_low", "ci_high", "p_value")
        compared.append(
            dict.fromkeys(COMPARISONS.schema.names)
            | {name: settings[evaluation][name] for name in SETTING}
            | {name: row[name] for name in copied}
            | names
            | {
                "category": "",
                "higher_is_better": True,
                "n": row["n_labels"],
                "difference": row["value"],
                "test": "t of the labels' differences" if row["metric"] == HUMAN else "t of the corrected difference",
            }
            | {f"n_{side}": own.get("n_labels") or row["n_labels"] for side, own in sides.items()}
            | {f"{side}_value": own.get("value") for side, own in sides.items()}
        )
    add_significance([row for row in compared if row["metric"] == HUMAN])
    add_significance([row for row in compared if row["metric"] != HUMAN])
    return compared


def beside(table: pa.Table, without: list[dict]) -> pa.Table:
    """Return COMPARISONS with further columns: what the same rows are without confirmed faults."""
    by_key = {tuple(row[name] for name in COMPARISONS.key): row for row in without}
    keys = zip(*(table[name].to_pylist() for name in COMPARISONS.key), strict=True)
    found = [by_key.get(key, {}) for key in keys]
    for name in _COMPARED:
        column = pa.array([row.get(name) for row in found], COMPARISONS.schema.field(name).type)
        table = table.append_column(f"{name}_without_faults", column)
    return table
