"""Instances that lm-eval builds for its documents, as items and requests. Runs in lm-eval's environment.

An item is a document of a task; in a group, its ID begins with the name of the task, which is also its category. Roles
of requests: `choice:i` for the i-th log-likelihood of a document, `text` for a rolling one, `response` for a generated
text, and `response:i@r` for the r-th repeat of the i-th if there are several.
"""

import hashlib
import json
from collections.abc import Iterator

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task

from vernacular.core.errors import DataError, UserError, first_line
from vernacular.data.columns import replace_surrogates
from vernacular.lm_eval.generation_arguments import check, is_sampled, request_fields
from vernacular.lm_eval.loading import LoadedUnit
from vernacular.protocols.request_rows import external_request
from vernacular.types import Role

GENERATE, ROLLING = "generate_until", "loglikelihood_rolling"
_MAX_REPEATS = 10_000


def build(unit: LoadedUnit, *, limit: int | None, seed: int, generates: bool) -> tuple[list[dict], list[dict]]:
    """Return (rows per ITEMS, rows per REQUESTS) of a unit; of each task, the first `limit` documents.

    Raises:
        DataError: A task has no documents, requests of another kind, or generation arguments that are not supported, or
            its prompts cannot be built; with its name.
    """
    items, rows = [], []
    for name, task in unit.tasks.items():
        try:
            task.build_all_requests(limit=limit)
            if not task.instances:
                raise DataError("it has no documents.")
            for doc_id, instances in by_document(task.instances):
                for instance in instances:
                    _check(instance, generates)
                item = _item(name if unit.is_group else None, task, doc_id, instances)
                items.append(item)
                query = _query(task, instances[0])
                size = len(instances)
                rows += [row for instance in instances for row in _requests(item, instance, query, size, seed)]
        except Exception as error:
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            raise DataError(f"{name}: {kind}{first_line(error)}.") from error
    return items, rows


def by_document(instances: list[Instance]) -> Iterator[tuple[int, list[Instance]]]:
    """Yield (index of the document, its instances in the order of their `idx`), in the order of the documents."""
    documents: dict[int, list[Instance]] = {}
    for instance in instances:
        documents.setdefault(instance.doc_id, []).append(instance)
    for doc_id, group in documents.items():
        yield doc_id, sorted(group, key=lambda instance: instance.idx)


def item_id(task: str | None, doc_id: int) -> str:
    return str(doc_id) if task is None else f"{task}/{doc_id}"


def role(instance: Instance, n_instances: int, repeat: int = 0) -> str:
    """Return the role of an instance's output, among the `n_instances` of its document."""
    if instance.request_type == ROLLING:
        return str(Role("text", instance.idx if n_instances > 1 else None))
    if instance.request_type == GENERATE:
        single = n_instances == 1 and instance.repeats == 1
        return str(Role("response", None if single else instance.idx, repeat))
    return str(Role("choice", instance.idx))


def repeats(instance: Instance) -> int:
    """Return how many outputs lm-eval has generated; greedy ones are equal, so that one request suffices for all."""
    return (instance.repeats or 1) if instance.request_type == GENERATE and is_sampled(instance.args[1]) else 1


def _check(instance: Instance, generates: bool) -> None:
    if (instance.request_type == GENERATE) != generates:
        raise DataError("has requests of several kinds (generated texts and log-likelihoods).")
    if not (instance.repeats is None or (type(instance.repeats) is int and 1 <= instance.repeats <= _MAX_REPEATS)):
        raise DataError(f"repeats: expected a number from 1 to {_MAX_REPEATS}, got {instance.repeats!r}.")
    if generates:
        check(instance.args[1])


def _requests(item: dict, instance: Instance, query: str, n_instances: int, seed: int) -> Iterator[dict]:
    if instance.request_type == ROLLING:
        (text,) = instance.args
        yield _scored(item, role(instance, n_instances), "", "", text, extras=["rolling", "score_bos"])
        return
    context, last = instance.args[0], instance.args[1]
    # the few-shot examples are stored apart from the query, for the report
    prefix = context[: -len(query)] if query and context.endswith(query) else ""
    if instance.request_type == GENERATE:
        for repeat in range(repeats(instance)):
            fields = request_fields(last, seed * 1000 + repeat) | {"extras": ["truncate_left"]}
            text = context[len(prefix) :]
            yield external_request(item, role(instance, n_instances, repeat), kind="generate", prefix=clean(prefix),
                                   text=clean(text), **fields)  # fmt: skip
        return
    yield _scored(item, role(instance, n_instances), prefix, context[len(prefix) :], last)


def _scored(item: dict, name: str, prefix: str, context: str, span: str, extras=None) -> dict:
    """Return a request for `span` and the whitespace at the end of its context, which lm-eval scores with it."""
    prefix, context, span = clean(prefix), clean(context), clean(span)
    start = len((prefix + context).rstrip())
    full = prefix + context + span
    prefix = prefix[:start]  # the span is part of the text
    return external_request(item, name, kind="score", prefix=prefix, text=full[len(prefix) :], span_start=start,
                            span_end=len(full), extras=extras)  # fmt: skip


def clean(text: str) -> str:
    """Replace lone surrogates, which no tokenizer and no file format accepts."""
    return replace_surrogates(text)


def _item(task_name: str | None, task: Task, doc_id: int, instances: list[Instance]) -> dict:
    target = task.doc_to_target(instances[0].doc)
    choices = _choices(task, instances)
    return {
        "item_id": item_id(task_name, doc_id),
        "few_shot": False,
        "context": clean(_query(task, instances[0])),
        "question": "",
        "choices": [clean(choice) for choice in choices],
        "gold": _gold(task, instances[0].doc, target, choices),
        "target": None if choices or not isinstance(target, str) else clean(target),
        "cluster_id": None,
        "category": task_name,
        "source_row": doc_id,
        "extra": {"document": document_hash(instances[0].doc)},
    }


def document_hash(document) -> str:
    """Return a hash by which a later stage recognizes that it has the same document."""
    text = json.dumps(document, ensure_ascii=True, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def _query(task: Task, instance: Instance) -> str:
    """Return the document's own part of the context; the complete context if it is not the context's end."""
    query = task.doc_to_text(instance.doc)
    if instance.request_type == ROLLING:
        return ""
    return query if isinstance(query, str) and instance.args[0].endswith(query) else instance.args[0]


def _choices(task: Task, instances: list[Instance]) -> list[str]:
    if task.OUTPUT_TYPE != "multiple_choice":
        return []
    return [str(choice) for choice in task.doc_to_choice(instances[0].doc)]


def _gold(task: Task, document, target, choices: list[str]) -> list[int]:
    """Return the indices of the correct choices, as `process_results` of lm-eval determines them; [] if unknown."""
    gold = task.doc_to_text(document) if getattr(task, "multiple_input", 0) else target
    candidates = gold if isinstance(gold, list) else [gold]
    indices = [choices.index(entry) if isinstance(entry, str) and entry in choices else entry for entry in candidates]
    return [index for index in indices if type(index) is int and 0 <= index < len(choices)]
