"""Which differences are significant: Holm over the family of tests that one question asks.

The question is "is the candidate better than the baseline?", asked of the headline metrics of all evaluations of a
pair, over all items: that is the family. Other metrics and single categories are there to look into: their p-values
stand uncorrected, and outside any family.
"""

from vernacular.statistics.multiple import holm
from vernacular.statistics.paired import ALPHA


def with_families(rows: list[dict]) -> list[dict]:
    """The rows with `family`, `p_holm`, `significant` and `better`; without a p-value nothing is significant."""
    families: dict[tuple, list[dict]] = {}
    for row in rows:
        row |= {"p_holm": None, "family": None}
        if row["headline"] and not row["category"] and row["p_value"] is not None:
            families.setdefault((row["baseline"], row["candidate"]), []).append(row)
    for family in families.values():
        for row, adjusted in zip(family, holm([row["p_value"] for row in family]), strict=True):
            row |= {"p_holm": float(adjusted), "family": len(family)}
    for row in rows:
        p = row["p_value"] if row["family"] is None else row["p_holm"]
        row["significant"] = p is not None and p < ALPHA
        row["better"] = _better(row)
    return rows


def _better(row: dict) -> str | None:
    if not row["significant"] or row["higher_is_better"] is None or not row["difference"]:
        return None
    return "candidate" if (row["difference"] > 0) == row["higher_is_better"] else "baseline"
