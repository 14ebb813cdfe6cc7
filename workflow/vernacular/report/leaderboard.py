"""The first piece, `index`: all that the leaderboard shows, and the names that every other view needs.

Only headline metrics stand in it, so that it stays small; all other values are in their evaluation's own piece.
"""

from collections.abc import Iterable

import pandas as pd
import pyarrow as pa

from vernacular.metrics.evaluate import PROTOCOLS
from vernacular.report.pieces import short

BEST, SHARED = 2, 1
SETTING = ["task", "language", "protocol", "shots", "seed", "style"]


class Names:
    """Numbers for names, in the order they come up: pieces refer to models, evaluations and metrics by number."""

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


def metric_facts(protocol: str, name: str, row) -> dict:
    """What a reader should know of a metric; `about` is null for one that another version computed."""
    declared = {metric.name: metric for metric in PROTOCOLS[protocol].METRICS} if protocol in PROTOCOLS else {}
    higher = row["higher_is_better"]
    return {
        "name": name,
        "protocol": protocol,
        "unit": None if pd.isna(row["unit"]) else row["unit"],
        "higher": None if pd.isna(higher) else bool(higher),
        "headline": bool(row["headline"]) if not pd.isna(row["headline"]) else False,
        "about": declared[name].about if name in declared else None,
        "order": list(declared).index(name) if name in declared else len(declared),
    }


def cells(rows: pd.DataFrame, models: Names, metrics: Names) -> list[list]:
    """[model, metric, value, low, high, n, flagged, ties, chance, majority] of one evaluation, over all items."""
    return [
        [
            models.number(row["model"]),
            metrics.number((row["protocol"], row["metric"])),
            *(short(row[name]) for name in ("value", "ci_low", "ci_high")),
            *(None if pd.isna(row[name]) else int(row[name]) for name in ("n", "n_flagged", "n_ties")),
            short(row["chance"]),
            short(row["majority"]),
        ]
        for row in rows.to_dict("records")
    ]


def by_category(rows: pd.DataFrame, models: Names, metrics: Names) -> dict:
    """Headline metrics: {"names": categories, "rows": [[model, metric, category, value, low, high, n, chance], …]}."""
    categories = Names()
    chosen = rows[rows["headline"].fillna(False).astype(bool)]
    found = [
        [
            models.number(row["model"]),
            metrics.number((row["protocol"], row["metric"])),
            categories.number(row["category"]),
            *(short(row[name], 4) for name in ("value", "ci_low", "ci_high")),
            int(row["n"]),
            short(row["chance"]),
        ]
        for row in chosen.to_dict("records")
    ]
    return {"names": categories.all, "rows": found}


def setting(rows: pd.DataFrame) -> dict:
    """Task, language, protocol, shots, seed and style of one evaluation's rows."""
    first = rows.iloc[0]
    return {name: None if pd.isna(first[name]) else _plain(first[name]) for name in SETTING}


def speaking(found: list[list], facts: list[dict]) -> int | None:
    """The headline metric that stands for an evaluation: the first with a chance level, else the first.

    found: rows of `cells`; facts: of all metrics, by number.
    """
    with_chance = {row[1] for row in found if row[8] is not None}
    headline = sorted({row[1] for row in found if facts[row[1]]["headline"]}, key=lambda m: facts[m]["order"])
    return next((m for m in headline if m in with_chance), headline[0] if headline else None)


def places(standings: pa.Table, models: Names, evaluations: Names, metrics: Names) -> list[list]:
    """[model, evaluation, metric, mark, place] with mark BEST or SHARED ("not told apart from the best") or 0."""
    return [
        [
            models.number(row["model"]),
            evaluations.get(row["evaluation"]),
            metrics.number((row["protocol"], row["metric"])),
            (BEST if row["model"] == row["best"] else SHARED) if row["shares_best"] else 0,
            row["place"],
        ]
        for row in standings.to_pylist()
        if evaluations.get(row["evaluation"]) is not None
    ]


def overall(table: pa.Table, models: Names) -> list[list]:
    """[model, scope, mean, low, high, rank, win rate, evaluations, left out]."""
    return [
        [
            models.number(row["model"]),
            row["scope"],
            *(short(row[name]) for name in ("mean", "ci_low", "ci_high")),
            row["rank"],
            short(row["win_rate"]),
            row["n_evaluations"],
            row["left_out"],
        ]
        for row in table.to_pylist()
    ]


def missing(notes: list[dict], models: Names, evaluations: Names) -> list[list]:
    """[model, evaluation, kind, sentence] for what could not be had or makes no sense, from the summary's notes."""
    return [
        [models.number(note["model"]), evaluations.number(note["evaluation"]), note["kind"], note["note"]]
        for note in notes
        if note["kind"] in ("unavailable", "not applicable")
    ]


def _plain(value):
    return value if isinstance(value, str) else int(value)
