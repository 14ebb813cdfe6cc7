"""Data file `index`: the content of the leaderboard, and the names that all other views need.

To stay small, it holds headline metrics only; all other values are in the files of their evaluation.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from vernacular.comparison.schema import about
from vernacular.core.metadata import INFORMATION, ResultsMetadata
from vernacular.core.paths import publishable
from vernacular.metrics.metric import display_name
from vernacular.protocols.evaluate import declared_metrics
from vernacular.report.data_files import FIELDS, INTERVAL, Row, record, round_significant, rounded
from vernacular.statistics.significance import index_rankings, marks
from vernacular.types import DEFAULT_PROMPT, SETTING

_VALUE = INTERVAL | {"n": "n", "chance": "chance_level"}
_CELL = _VALUE | {"flagged": "n_flagged", "ties": "n_ties", "majority": "majority_baseline"}


class Index:
    """Numbering of names in order of first use: data files refer to models, evaluations and metrics by number."""

    def __init__(self, names: Iterable = ()):
        self.names: list = []
        self._numbers: dict = {}
        for name in names:
            self.number(name)

    def number(self, name) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def get(self, name) -> int | None:
        return self._numbers.get(name)


@dataclass
class ReportIndex:
    """Numbering of everything that data files refer to; `metric_info` holds the description of each metric."""

    models: Index
    evaluations: Index
    metrics: Index  # of (protocol, metric, whether it is a headline)
    metric_info: list[dict] = field(default_factory=list)

    def metric(self, row) -> int:
        """Return the number of a row's metric, given its protocol, unit and direction; describe it at first use."""
        number = self.metrics.number((row["protocol"], row["metric"], bool(row["headline"])))
        if number == len(self.metric_info):
            self.metric_info.append(_describe_metric(row))
        return number


def _describe_metric(row) -> dict:
    """Describe a metric; `about` is null for a metric that this version does not declare."""
    declared = declared_metrics(row["protocol"])
    name = row["metric"]
    unit, higher_is_better = row["unit"], row["higher_is_better"]
    description = {
        "name": name,
        "title": display_name(name),
        "protocol": row["protocol"],
        "unit": unit,
        "higher": None if higher_is_better is None else bool(higher_is_better),
        "headline": bool(row["headline"]),
        "about": declared[name].about if name in declared else about(name),
        "order": list(declared).index(name) if name in declared else len(declared),
    }
    return record("Metric", description)


def task_values(rows: list[dict], index: ReportIndex) -> dict:
    """Return the part of an evaluation's task file that comes from `rows`, its rows of the long table."""
    overall_rows = [row for row in rows if not row["category"]]
    return {
        "cells": cells(overall_rows, index),
        "categories": by_category([row for row in rows if row["category"]], index),
        "signatures": sorted({row["signature"] for row in overall_rows if row["signature"] is not None}),
    }


def cells(rows: list[dict], index: ReportIndex) -> list:
    """Return a Row.Cell per row, over all items."""
    return [
        Row.Cell(model=index.models.number(row["model"]), metric=index.metric(row), **rounded(row, _CELL))
        for row in rows
    ]


def index_cells(evaluation: int, cells: list, index: ReportIndex) -> list:
    """Return the Row.IndexCell of each of the `cells` of an evaluation that has a headline metric."""
    return [
        Row.IndexCell(evaluation=evaluation, **cell._asdict())
        for cell in cells
        if index.metric_info[cell.metric]["headline"]
    ]


def by_category(rows: list[dict], index: ReportIndex) -> dict:
    """Return the headline metrics by category, and the names of the categories."""
    categories = Index()
    category_rows = [
        Row.CategoryValue(
            model=index.models.number(row["model"]),
            metric=index.metric(row),
            category=categories.number(row["category"]),
            **rounded(row, _VALUE),
        )
        for row in rows
        if row["headline"]
    ]
    return record("Categories", {"names": categories.names, "rows": category_rows})


def symptoms(evaluation: int, runs: dict[int, ResultsMetadata]) -> list:
    """Return a Row.Symptom per diagnosis of an evaluation, information excepted; runs: by number of the model."""
    return [
        Row.Symptom(
            evaluation=evaluation,
            model=model,
            code=diagnosis.code,
            severity=diagnosis.severity,
            share=round_significant(diagnosis.share, 4),
        )
        for model, run in runs.items()
        for diagnosis in run.diagnoses
        if diagnosis.severity != INFORMATION
    ]


def spoken(evaluation: int, runs: dict[int, ResultsMetadata]) -> list:
    """Return a Row.Spoken per model whose texts have a language; of short ones, the blocks are counted."""

    def counts(*parts: dict[str, int]) -> list:
        total = sum(map(Counter, parts), Counter())
        return [Row.LanguageCount(language=language, n=n) for language, n in total.most_common()]

    return [
        Row.Spoken(
            evaluation=evaluation,
            model=model,
            answered=counts(found.answered, found.blocks),
            gold=counts(found.gold, found.gold_blocks),
            undecided=found.undecided,
        )
        for model, run in runs.items()
        if (found := run.language) and not found.missing
    ]


def setting(row: dict) -> dict:
    """Return task, language, protocol, shots, seed, style, and a prompt other than the default, of an evaluation.

    row: one of its rows, or the metadata of its requests.
    """
    is_default = (row.get("prompt") or DEFAULT_PROMPT) == DEFAULT_PROMPT
    return {name: row.get(name) for name in SETTING if name != "prompt" or not is_default}


def representative_metric(rows: list, metric_info: list[dict]) -> int | None:
    """Return the headline metric that represents an evaluation: the first with a chance level, else the first.

    rows: rows of `cells`; metric_info: of all metrics, by number.
    """
    with_chance = {row.metric for row in rows if row.chance is not None}
    headline = {row.metric for row in rows if metric_info[row.metric]["headline"]}
    headline = sorted(headline, key=lambda metric: metric_info[metric]["order"])
    return next((metric for metric in headline if metric in with_chance), headline[0] if headline else None)


def ranking_marks(rankings: pa.Table, cells: list, index: ReportIndex) -> list:
    """Return a Row.Mark per cell of a column with several values; `cells`: rows of `index_cells`."""
    by_key, columns = index_rankings(rankings.to_pylist()), {}
    for cell in cells:
        columns.setdefault((cell.evaluation, cell.metric), []).append(cell)
    rows = []
    for (evaluation, metric), column in columns.items():
        info = index.metric_info[metric]
        names = [(index.models.names[cell.model], index.evaluations.names[evaluation], info["name"]) for cell in column]
        numbers = (
            [np.nan if getattr(cell, name) is None else getattr(cell, name) for cell in column]
            for name in ("value", "chance")
        )
        found, _ = marks(names, *numbers, info["higher"], by_key)
        for name, cell, mark in zip(names, column, found.tolist(), strict=True):
            is_worse = name in by_key and not by_key[name]["in_best_group"]
            rows.append(Row.Mark(cell.model, evaluation, metric, mark, is_worse))
    return rows


def overall(table: pa.Table, index: ReportIndex) -> list:
    """Return a Row.Overall per row."""
    named = {"low": "ci_low", "high": "ci_high", "n": "n_evaluations", "excluded": "n_excluded"}
    columns = {field: named.get(field, field) for field in FIELDS["rows"]["Overall"] if field != "model"}
    return [Row.Overall(model=index.models.number(row["model"]), **rounded(row, columns)) for row in table.to_pylist()]


def missing(notes: list[dict], index: ReportIndex) -> list:
    """Return a Row.Missing for what is unavailable or not applicable, from the summary's notes."""
    return [
        Row.Missing(
            model=index.models.number(note["model"]),
            evaluation=index.evaluations.number(note["evaluation"]),
            kind=note["kind"],
            note=publishable(note["note"]),
        )
        for note in notes
        if note["kind"] in ("unavailable", "not applicable") and note["evaluation"] is not None
    ]
