"""Evaluation of stored outputs by lm-eval: its filters, `process_results` and aggregations, without a model.

`evaluate` of lm-eval runs with a model that returns the stored outputs. It builds all prompts again; each is compared
with the request whose output is returned, so that outputs never meet another prompt. Runs in lm-eval's environment.

A metric has lm-eval's name, followed by its filter unless that is "none": `exact_match,strict-match`. The first metric
of a task, or of a group's `aggregate_metric_list`, is the headline. Values over all items are those of lm-eval: of a
group, its aggregate, weighted as its file says. Intervals are Vernacular's, from the per-item values that reproduce
lm-eval's aggregates.
"""

import contextlib
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.registry import AGGREGATION_REGISTRY
from lm_eval.api.task import Task
from lm_eval.evaluator import evaluate as lm_eval_evaluate

from vernacular.core.errors import DataError, named
from vernacular.lm_eval import instances
from vernacular.lm_eval.loading import LoadedUnit, answer, before_stop
from vernacular.lm_eval.sandbox import filter_limit
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.spans import by_item
from vernacular.protocols.lm_eval.metrics import CORPUS, to_metric
from vernacular.statistics.intervals import expanded_tail, redrawn
from vernacular.types import Result

Key = tuple[str, str]  # item ID, role
_FAILED = (float("nan"), False)


def evaluate(
    unit: LoadedUnit, requests: list[dict], outputs: list[dict], *, limit, trusted: bool, chat: dict | None = None
) -> dict:
    """Return what `evaluate` of lm-eval returns; documents without an output are excluded from all metrics.

    Raises DataError if the documents or prompts differ from those of the requests, or the filters take too long.
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model = _StoredOutputs(unit, requests, outputs)
    for name, task in unit.tasks.items():
        _exclude_failed(task, name if unit.is_group else None, model.failed, trusted)
    children = {group.name: group.child_names for group in unit.groups.values()}
    task_dict = {"tasks": unit.tasks, "groups": unit.groups, "group_map": children}
    with contextlib.suppress(ImportError):  # IFEval uses it: the same language for a text in each run
        from langdetect import DetectorFactory

        DetectorFactory.seed = 0
    results = lm_eval_evaluate(model, task_dict, limit=limit, bootstrap_iters=0, log_samples=True, **(chat or {}))
    if unused := model.texts.keys() - model.used:
        raise DataError(f"{unit.name}: {len(unused)} of its requests no longer exist; {_CHANGED}")
    return results


_CHANGED = "its dataset has changed since the requests were written. Delete its file in requests/ of the results."


class _StoredOutputs:
    """A model for lm-eval that returns stored outputs."""

    rank, world_size = 0, 1
    tokenizer_name = ""
    apply_chat_template = staticmethod(instances.as_context)

    def __init__(self, unit: LoadedUnit, requests: list[dict], outputs: list[dict]):
        self.is_group = unit.is_group
        self.texts: dict[Key, str] = {_key(row): instances.context_of(row) for row in requests}
        self.outputs: dict[Key, object] = dict(_values(requests, outputs))
        self.failed = {item for (item, _), value in self.outputs.items() if value is None}
        self.used: set[Key] = set()

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [value or _FAILED for _, value in self._lookup(requests)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [(value or _FAILED)[0] for _, value in self._lookup(requests)]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Return each text up to the first stop string."""
        return [before_stop(value or "", instance.args[1]) for instance, value in self._lookup(requests)]

    def _lookup(self, requests: list[Instance]) -> Iterator[tuple[Instance, object]]:
        """Yield each instance with its output; lm-eval lists an instance once per repeat."""
        sizes = Counter((instance.task_name, instance.doc_id) for instance in {id(i): i for i in requests}.values())
        seen: dict[int, int] = defaultdict(int)
        for instance in requests:
            repeat = min(seen[id(instance)], instances.repeats(instance) - 1)
            seen[id(instance)] += 1
            item = instances.item_id(instance.task_name if self.is_group else None, instance.doc_id)
            key = (item, instances.role(instance, sizes[instance.task_name, instance.doc_id], repeat))
            if self.texts.get(key) != _text(instance):
                raise DataError(f"{instance.task_name}: the prompt of document {instance.doc_id} differs: {_CHANGED}")
            self.used.add(key)
            yield instance, self.outputs[key]


def _key(row: dict) -> Key:
    return row["item_id"], row["role"]


def _text(instance: Instance) -> str:
    parts = instance.args[:1] if instance.request_type != "loglikelihood" else instance.args[:2]
    return instances.clean("".join(parts))


def _values(requests: list[dict], outputs: list[dict]) -> Iterator[tuple[Key, object]]:
    """Yield the output of each request: (log-likelihood, is greedy), a text, or None if it failed."""
    if requests and requests[0]["kind"] == "generate":
        texts = {_key(row): answer(row) for row in outputs}
        yield from ((_key(row), texts.get(_key(row))) for row in requests)
        return
    for item, spans in by_item(requests, outputs).items():
        for role, span in spans.items():
            failed = span.loglik is None or math.isnan(span.loglik)
            yield (item, role), None if failed else (span.loglik, all(span.score["is_greedy"]))


def _exclude_failed(task: Task, name: str | None, failed: set[str], trusted: bool) -> None:
    """Let `process_results` of a task return no metric for a failed document, and limit the time of its filters."""
    documents, process, apply_filters = task.doc_iterator, task.process_results, task.apply_filters
    current = {"id": None}

    def doc_iterator(**kwargs):
        for doc_id, document in documents(**kwargs):
            current["id"] = doc_id
            yield doc_id, document

    def process_results(document, results):
        if instances.item_id(name, current["id"]) in failed:
            return {}
        try:
            return process(document, results)
        except Exception as error:
            reason = named(error)
            raise DataError(f"{task.task_name}: document {current['id']} cannot be evaluated ({reason})") from error

    def limited_filters():
        with filter_limit(len(task.instances), trusted=trusted):
            return apply_filters()

    task.doc_iterator, task.process_results, task.apply_filters = doc_iterator, process_results, limited_filters


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
        name = self.unit.name if self.unit.is_group else next(iter(self.unit.tasks))
        return [label for label in _task_values(self.results["results"][name]) if label in self.raw]

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
        metric_group = "similarity" if any(row["option_scores"] is None for row in rows) else "surprisal"
        template = {"metric_group": definitions[0]["metric_group"] if definitions else metric_group}
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
        tasks = [name]
        if name not in self.unit.tasks:
            tasks = [task.task_name for task in self.unit.groups[name].get_all_tasks()]
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
    return isinstance(value, int | float | np.number | np.bool_)


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
