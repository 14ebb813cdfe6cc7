"""Data file `index`: the content of the leaderboard, and the names that all other views need.

To stay small, it holds headline metrics only; all other values are in the files of their evaluation.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa

from vernacular.protocols.evaluate import PROTOCOL_METRICS
from vernacular.report.pieces import short
from vernacular.types import SETTING

BEST, SHARED = 2, 1
_DESCRIBED = ("unit", "higher_is_better", "headline")


class Names:
    """Numbering of names in order of first use: data files refer to models, evaluations and metrics by number."""

    def __init__(self, names: Iterable = ()):
        self.all: list = []
        self._number: dict = {}
        for name in names:
            self.number(name)

    def number(self, name) -> int:
        if name not in self._number:
            self._number[name] = len(self.all)
            self.all.append(name)
        return self._number[name]

    def get(self, name) -> int | None:
        return self._number.get(name)


@dataclass
class Numbers:
    """Numbering of everything that data files refer to; `facts` holds the description of each metric."""

    models: Names
    evaluations: Names
    metrics: Names  # of (protocol, metric)
    facts: list[dict] = field(default_factory=list)

    def metric(self, row) -> int:
        """Return the number of a row's metric, given its protocol, unit and direction; describe it at first use."""
        number = self.metrics.number((row["protocol"], row["metric"]))
        if number == len(self.facts):
            self.facts.append(_facts(row))
        return number


def _facts(row) -> dict:
    """Describe a metric; `about` is null for a metric that this version does not declare."""
    module = PROTOCOL_METRICS.get(row["protocol"])
    declared = {metric.name: metric for metric in module.METRICS} if module else {}
    name = row["metric"]
    unit, higher, headline = (None if pd.isna(row[key]) else row[key] for key in _DESCRIBED)
    return {
        "name": name,
        "protocol": row["protocol"],
        "unit": unit,
        "higher": None if higher is None else bool(higher),
        "headline": bool(headline),
        "about": declared[name].about if name in declared else None,
        "order": list(declared).index(name) if name in declared else len(declared),
    }


def values(rows: pd.DataFrame, numbers: Numbers) -> dict:
    """Return the part of an evaluation's task file that comes from `rows`, its rows of the long table."""
    whole = rows["category"].fillna("") == ""
    of_all = rows[whole].to_dict("records")
    return {
        "cells": cells(of_all, numbers),
        "categories": by_category(rows[~whole].to_dict("records"), numbers),
        "signatures": sorted({row["signature"] for row in of_all if not pd.isna(row["signature"])}),
    }


def cells(rows: list[dict], numbers: Numbers) -> list[list]:
    """Return [model, metric, value, low, high, n, flagged, ties, chance, majority] per row, over all items."""
    return [
        [
            numbers.models.number(row["model"]),
            numbers.metric(row),
            *(short(row[name]) for name in ("value", "ci_low", "ci_high")),
            *(None if pd.isna(row[name]) else int(row[name]) for name in ("n", "n_flagged", "n_ties")),
            short(row["chance_level"]),
            short(row["majority_baseline"]),
        ]
        for row in rows
    ]


def by_category(rows: list[dict], numbers: Numbers) -> dict:
    """Return the headline metrics by category.

    {"names": categories, "rows": [[model, metric, category, value, low, high, n, chance], …]}
    """
    categories = Names()
    found = [
        [
            numbers.models.number(row["model"]),
            numbers.metric(row),
            categories.number(row["category"]),
            *(short(row[name], 4) for name in ("value", "ci_low", "ci_high")),
            int(row["n"]),
            short(row["chance_level"]),
        ]
        for row in rows
        if not pd.isna(row["headline"]) and row["headline"]
    ]
    return {"names": categories.all, "rows": found}


def setting(rows: pd.DataFrame) -> dict:
    """Return task, language, protocol, shots, seed and style of one evaluation's rows."""
    first = rows.iloc[0]
    return {name: None if pd.isna(first[name]) else _plain(first[name]) for name in SETTING}


def speaking(found: list[list], facts: list[dict]) -> int | None:
    """Return the headline metric that represents an evaluation: the first with a chance level, else the first.

    found: rows of `cells`; facts: of all metrics, by number.
    """
    with_chance = {row[1] for row in found if row[8] is not None}
    headline = sorted({row[1] for row in found if facts[row[1]]["headline"]}, key=lambda m: facts[m]["order"])
    return next((m for m in headline if m in with_chance), headline[0] if headline else None)


def places(rankings: pa.Table, numbers: Numbers) -> list[list]:
    """Return [model, evaluation, metric, mark, place]; mark is BEST, SHARED (not significantly different) or 0."""
    return [
        [
            numbers.models.number(row["model"]),
            numbers.evaluations.get(row["evaluation"]),
            numbers.metrics.get((row["protocol"], row["metric"])),
            # equal best values are all BEST, whichever of them is listed as the best
            (BEST if row["difference"] == 0 else SHARED) if row["in_best_group"] else 0,
            row["rank"],
        ]
        for row in rankings.to_pylist()
        if numbers.evaluations.get(row["evaluation"]) is not None
    ]


def overall(table: pa.Table, numbers: Numbers) -> list[list]:
    """Return [model, scope, mean, low, high, rank, win rate, evaluations, left out] per row."""
    return [
        [
            numbers.models.number(row["model"]),
            row["scope"],
            *(short(row[name]) for name in ("mean", "ci_low", "ci_high")),
            row["rank"],
            short(row["win_rate"]),
            row["n_evaluations"],
            row["n_excluded"],
        ]
        for row in table.to_pylist()
    ]


def missing(notes: list[dict], numbers: Numbers) -> list[list]:
    """Return [model, evaluation, kind, note] for what is unavailable or not applicable, from the summary's notes."""
    return [
        [
            numbers.models.number(note["model"]),
            numbers.evaluations.number(note["evaluation"]),
            note["kind"],
            note["note"],
        ]
        for note in notes
        if note["kind"] in ("unavailable", "not applicable")
    ]


def _plain(value):
    return value if isinstance(value, str) else int(value)
