"""Evaluation of stored outputs by lm-eval: its filters, `process_results` and aggregations, without a model.

`evaluate` of lm-eval runs with a model that returns the stored outputs. It builds all prompts again; each is compared
with the request whose output is returned, so that outputs never meet another prompt. Runs in lm-eval's environment.
"""

import contextlib
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.evaluator import evaluate as lm_eval_evaluate

from vernacular.core.errors import DataError, first_line
from vernacular.lm_eval import instances
from vernacular.lm_eval.generation_arguments import stop_strings
from vernacular.lm_eval.loading import LoadedUnit
from vernacular.lm_eval.sandbox import filter_limit
from vernacular.metrics.spans import by_item

Key = tuple[str, str]  # item ID, role
_FAILED = (float("nan"), False)


def evaluate(
    unit: LoadedUnit, requests: list[dict], outputs: list[dict], *, limit, trusted: bool, chat: dict | None = None
) -> dict:
    """Return what `evaluate` of lm-eval returns; documents without an output are excluded from all metrics.

    Raises:
        DataError: The documents or prompts differ from those of the requests, or the filters take too long.
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model = _StoredOutputs(unit, requests, outputs)
    for name, task in unit.tasks.items():
        _exclude_failed(task, name if unit.is_group else None, model.failed, trusted)
    task_dict = {
        "tasks": unit.tasks,
        "groups": unit.groups,
        "group_map": {group.name: group.child_names for group in unit.groups.values()},
    }
    _seed_langdetect()
    results = lm_eval_evaluate(model, task_dict, limit=limit, bootstrap_iters=0, log_samples=True, **(chat or {}))
    if unused := model.texts.keys() - model.used:
        raise DataError(f"{unit.name}: {len(unused)} of its requests no longer exist; {_CHANGED}")
    return results


_CHANGED = "its dataset has changed since the requests were written. Delete its file in requests/ of the results."


def _seed_langdetect() -> None:
    """Let langdetect, which IFEval uses, return the same language for a text in each run."""
    with contextlib.suppress(ImportError):
        from langdetect import DetectorFactory

        DetectorFactory.seed = 0


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
        """Return each text up to the first stop string, as `postprocess_generated_text` of lm-eval."""
        texts = []
        for instance, value in self._lookup(requests):
            text = value or ""
            for stop in stop_strings(instance.args[1]):
                text = text.split(stop)[0]
            texts.append(text)
        return texts

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
        texts = {_key(row): _answer(row) for row in outputs}
        yield from ((_key(row), texts.get(_key(row))) for row in requests)
        return
    for item, spans in by_item(requests, outputs).items():
        for role, span in spans.items():
            failed = span.loglik is None or math.isnan(span.loglik)
            yield (item, role), None if failed else (span.loglik, all(span.score["is_greedy"]))


def _answer(row: dict) -> str | None:
    """Return a generated text without reasoning; after it, lm-eval removes whitespace."""
    text = row["raw_output"]
    return text if text is None or row["think_state"] is None else text.lstrip()


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
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise DataError(f"{task.task_name}: document {current['id']} cannot be evaluated ({reason})") from error

    def limited_filters():
        with filter_limit(len(task.instances), trusted=trusted):
            return apply_filters()

    task.doc_iterator, task.process_results, task.apply_filters = doc_iterator, process_results, limited_filters
