"""Metrics of a unit: how lm-eval aggregates them, and which per-item values reproduce its aggregates.

A metric has lm-eval's name, followed by its filter unless that is "none": `exact_match,strict-match`. The first metric
of a task, or of a group's `aggregate_metric_list`, is the headline. Values over all items are those of lm-eval: of a
group, its aggregate, weighted as its file says. Intervals are Vernacular's, from the per-item values. Runs in lm-eval's
environment.
"""

import contextlib
import math
from collections.abc import Sequence

import numpy as np
from lm_eval.api.registry import AGGREGATION_REGISTRY
from lm_eval.api.task import Task

from vernacular.lm_eval import instances
from vernacular.lm_eval.loading import LoadedUnit
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.lm_eval.metrics import CORPUS, to_metric
from vernacular.statistics.intervals import expanded_tail, redrawn
from vernacular.types import Result

_RESAMPLES, _TEXT_RESAMPLES = 1000, 100  # for aggregations that only lm-eval can compute; corpora of texts are slow
_TEXT_AGGREGATIONS = ("bleu", "chrf", "chrf++", "ter")
_TOLERANCE = 1e-9  # relative: an interval is that of lm-eval's value only if both agree


class UnitMetrics:
    """The metrics of a unit: per-item values, and how they are aggregated."""

    def __init__(self, unit: LoadedUnit, results: dict):
        self.unit, self.results = unit, results
        self.raw: dict[str, dict[str, list]] = {}  # metric -> task -> values, as process_results returns them
        self.per_item: dict[str, dict[str, float]] = {}
        self.aggregations: dict[str, set] = {}
        self.higher: dict[str, set] = {}
        for name, task in unit.tasks.items():
            for sample in results["samples"][name]:
                self._add_sample(name, task, sample)
        self.headline = next(iter(self._listed()), None)
        self._add_weights()

    def _add_sample(self, name: str, task: Task, sample: dict) -> None:
        item = instances.item_id(name if self.unit.is_group else None, sample["doc_id"])
        for metric in sample["metrics"]:
            label, value = _label(metric, sample["filter"]), sample[metric]
            self.raw.setdefault(label, {}).setdefault(name, []).append(value)
            self.aggregations.setdefault(label, set()).add(_aggregation(task, metric))
            self.higher.setdefault(label, set()).add(task.higher_is_better().get(metric))
            self.per_item.setdefault(item, {}).update(_components(label, value))

    def is_share(self, label: str) -> bool:
        values = [value for per_task in self.raw[label].values() for value in per_task]
        return self._corpus(label) in (None, "weighted_mean") and all(_is_number(v) and v in (0, 1) for v in values)

    def _listed(self) -> list[str]:
        """Return the metrics with a value over all items, in the order of the task file or of the group's list."""
        return [label for label in self._overall() if label in self.raw]

    def _overall(self) -> dict[str, float]:
        name = self.unit.name if self.unit.is_group else next(iter(self.unit.tasks))
        return _task_values(self.results["results"][name])

    def _corpus(self, label: str) -> str | None:
        """Return the name in CORPUS of a metric's aggregation; None for a mean; "" if only lm-eval can compute it."""
        names = self.aggregations[label]
        name = next(iter(names)) if len(names) == 1 else ""
        if name == "mean":
            numeric = all(_is_number(v) for values in self.raw[label].values() for v in values)
            return ("weighted_mean" if self._weighted(label) else None) if numeric else ""
        if name not in CORPUS or self.unit.is_group:  # a group averages its tasks' statistics
            return ""
        (values,) = self.raw[label].values()
        return name if all(len(_components(label, value)) == CORPUS[name][1] for value in values) else ""

    def _weighted(self, label: str) -> bool:
        """Return whether a group averages this metric over its subtasks regardless of their sizes."""
        group = self.unit.groups.get(self.unit.name) if self.unit.is_group else None
        entries = group.aggregate_metric_list if group else []
        return any(entry.metric == label.partition(",")[0] and not entry.weight_by_size for entry in entries or [])

    def _add_weights(self) -> None:
        """Store with each item one over the size of its subtask, for metrics that are averaged over subtasks."""
        for label in self.raw:
            if self._corpus(label) == "weighted_mean":
                for name in self.raw[label]:
                    for sample in self.results["samples"][name]:
                        values = self.per_item[instances.item_id(name, sample["doc_id"])]
                        if label in values:
                            values[f"{label}:weight"] = 1 / len(self.raw[label][name])

    def definitions(self, metric_group: str) -> list[dict]:
        """Return the metrics that per-item values reproduce, as `protocols.lm_eval.metrics.to_metric` reads them."""
        listed = self._listed() if self.unit.is_group else list(self.raw)
        return [
            {
                "name": label,
                "unit": "share" if self.is_share(label) else "bits" if corpus == "bits_per_byte" else "score",
                "higher_is_better": self._higher_is_better(label),
                "metric_group": metric_group,
                "proportion": self.is_share(label) and corpus is None,
                "headline": label == self.headline,
                "about": f"{label} of lm-eval",
                "corpus": corpus or None,
                "needs": _needs(label, corpus) if corpus else [],
            }
            for label in listed
            if (corpus := self._corpus(label)) != ""
        ]

    def _higher_is_better(self, label: str) -> bool | None:
        directions = self.higher[label]
        return next(iter(directions)) if len(directions) == 1 else None

    def values(self, rows: list[Result], definitions: list[dict]) -> list[dict]:
        """Return the value of each metric over all items (category "") and, of a group, by subtask and subgroup."""
        metrics = [to_metric(definition) for definition in definitions]
        computed = aggregate(rows, metrics, seed=0, categories=self.unit.is_group) if metrics and rows else []
        by_key = {(row["category"], row["metric"]): row for row in computed}
        template = {"metric_group": "similarity" if any(row["option_scores"] is None for row in rows) else "surprisal"}
        template = {"metric_group": definitions[0]["metric_group"]} if definitions else template
        names = [*self.unit.groups, *self.unit.tasks] if self.unit.is_group else [next(iter(self.unit.tasks))]
        found = []
        for name in names:
            category = "" if not self.unit.is_group or name == self.unit.name else name
            for label, value in _task_values(self.results["results"][name]).items():
                row = by_key.get((category, label))
                if row is None or not _agree(row["value"], value):
                    row = template | self._own_row(category, label, name)
                found.append({**row, "value": value if math.isfinite(value) else None})
        return found

    def _own_row(self, category: str, label: str, name: str) -> dict:
        """Return a row without value for a metric that only lm-eval can compute."""
        low, high = self._bootstrap(label, name) if name in self.unit.tasks else (None, None)
        tasks = (
            [name] if name in self.unit.tasks else [task.task_name for task in self.unit.groups[name].get_all_tasks()]
        )
        return {
            "category": category,
            "metric": label,
            "ci_low": low,
            "ci_high": high,
            "n": sum(len(self.raw.get(label, {}).get(task, ())) for task in tasks),
            "n_flagged": 0,
            "n_ties": None,
            "chance_level": None,
            "unit": "share" if label in self.raw and self.is_share(label) else "score",
            "higher_is_better": self._higher_is_better(label) if label in self.raw else None,
            "headline": label == self.headline,
        }

    def _bootstrap(self, label: str, name: str) -> tuple[float | None, float | None]:
        """Return the percentile interval of lm-eval's own aggregation, by a bootstrap; (None, None) if undefined."""
        values = self.raw[label][name]
        task = self.unit.tasks[name]
        function = task.aggregation().get(label.partition(",")[0])
        is_text = any(isinstance(part, str) for value in values for part in _parts(value))
        resamples = _RESAMPLES if not is_text else _TEXT_RESAMPLES
        if function is None or len(values) < 2 or (is_text and _aggregation(task, label) not in _TEXT_AGGREGATIONS):
            return None, None
        rng = np.random.default_rng(0)
        draws = np.full(resamples, np.nan)
        for row in range(resamples):
            # a resample without one of the classes stays undefined
            with contextlib.suppress(ValueError, TypeError, ArithmeticError, LookupError):
                draws[row] = function([values[i] for i in rng.integers(len(values), size=len(values))])
        draws = redrawn(draws)
        if not np.isfinite(draws).all():
            return None, None
        tail = expanded_tail(len(values))
        low, high = np.quantile(draws, [tail, 1 - tail])
        return float(low), float(high)


def _label(metric: str, filter_name: str) -> str:
    return metric if filter_name == "none" else f"{metric},{filter_name}"


def _task_values(values: dict) -> dict[str, float]:
    """Return the numbers of one task or group by metric, from lm-eval's results."""
    found = {}
    for key, value in values.items():
        metric, comma, filter_name = key.rpartition(",")
        if comma and not metric.endswith("_stderr") and _is_number(value):
            found[_label(metric, filter_name)] = float(value)
    return found


def _aggregation(task: Task, metric: str) -> str:
    """Return the name of a metric's aggregation in lm-eval; "" for a function of the task."""
    function = task.aggregation().get(metric.partition(",")[0])
    names = [name for name, registered in AGGREGATION_REGISTRY.items() if registered is function]
    return "mean" if function is None else names[0] if names else ""


def _is_number(value) -> bool:
    return isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, str)


def _parts(value) -> Sequence:
    return value if isinstance(value, tuple | list) else [value]


def _components(label: str, value) -> dict[str, float]:
    """Return the numbers of a per-item value: one under the metric's name, several as `name:0`, `name:1`."""
    if _is_number(value):
        return {} if math.isnan(value) else {label: float(value)}
    parts = list(_parts(value))
    return {f"{label}:{i}": float(part) for i, part in enumerate(parts)} if all(map(_is_number, parts)) else {}


def _needs(label: str, corpus: str) -> list[str]:
    if corpus == "weighted_mean":
        return [label, f"{label}:weight"]
    return [label] if CORPUS[corpus][1] == 1 else [f"{label}:{i}" for i in range(CORPUS[corpus][1])]


def _agree(own: float | None, value: float) -> bool:
    if own is None or not math.isfinite(value):
        return own is None and not math.isfinite(value)
    return abs(own - value) <= _TOLERANCE * max(1.0, abs(value))
