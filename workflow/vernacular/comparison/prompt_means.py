"""Means over prompts as rows of the comparisons: one question per group, in place of a question per prompt.

The rows of single prompts remain in the tables, outside of Holm's correction: five wordings of a task are not five
questions.
"""

from collections.abc import Iterable

from vernacular.comparison.pairwise import Pair
from vernacular.comparison.schema import COMPARISONS
from vernacular.statistics.over_prompts import LIKE_THESE
from vernacular.statistics.planning import detectable
from vernacular.types import ALL_PROMPTS, SETTING

_KEY = ("baseline", "candidate", "evaluation", "metric")
TEST = "mean over prompts: t over items and prompts, Satterthwaite"
TEST_THESE = "mean over these prompts: t over items"
_COPIED = ("evaluation", *SETTING, "metric", "unit", "higher_is_better", "headline", "n", "p_value", "note")


def comparison_rows(prompt_rows: Iterable[dict], pairs: list[Pair]) -> list[dict]:
    """Return a COMPARISONS row for each of `pairs` that PROMPTS rows compare, in the direction of the pair."""
    directions = {pair: 1.0 for pair in pairs}
    rows = []
    for prompt_row in prompt_rows:
        if prompt_row["baseline"] is None:
            continue
        found = prompt_row["baseline"], prompt_row["model"]
        for pair, reverse in ((found, False), (found[::-1], True)):
            if pair in directions:
                rows.append(_row(prompt_row, pair, reverse=reverse))
    return rows


def _row(prompt_row: dict, pair: Pair, *, reverse: bool) -> dict:
    row = dict.fromkeys(COMPARISONS.schema.names) | {name: prompt_row[name] for name in _COPIED}
    names = ("baseline", "candidate")
    ends = [prompt_row["ci_low"], prompt_row["ci_high"]]
    difference = prompt_row["value"]
    if reverse:
        names = names[::-1]
        ends = [None if end is None else -end for end in reversed(ends)]
        difference = None if difference is None else -difference
    for name, source in zip(("baseline", "candidate"), names, strict=True):
        row |= {f"{name}_value": prompt_row[f"{source}_value"], f"n_{name}": prompt_row[f"n_{source}"] or 0}
    return row | {
        "baseline": pair[0],
        "candidate": pair[1],
        "category": "",
        "difference": difference,
        "ci_low": ends[0],
        "ci_high": ends[1],
        "test": TEST if prompt_row["question"] == LIKE_THESE else TEST_THESE,
        "minimum_detectable_difference": detectable(prompt_row["se"], prompt_row["df"]),
    }


def replaced(rows: Iterable[dict], prompt_rows: Iterable[dict]) -> set[tuple[str, str, str, str]]:
    """Return (baseline, candidate, evaluation, metric) of the single prompts for which one of `rows`, a mean, stands.

    `rows`: per COMPARISONS; those that are no means stand for nothing else.
    """
    runs = {(row["evaluation"], row["metric"]): row["evaluations"] for row in prompt_rows}
    return {
        (row["baseline"], row["candidate"], run, row["metric"])
        for row in rows
        if row["prompt"] == ALL_PROMPTS and row["p_value"] is not None
        for run in runs[row["evaluation"], row["metric"]]
    }


def without_single_prompts(rows: list[dict], prompt_rows: list[dict]) -> list[dict]:
    """Return COMPARISONS rows without the single prompts for which a mean over prompts stands."""
    singles = replaced(rows, prompt_rows)
    return [row for row in rows if tuple(row[name] for name in _KEY) not in singles]
