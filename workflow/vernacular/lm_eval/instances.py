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
from vernacular.data.columns import replace_surrogates as clean  # which no tokenizer and no file format accepts
from vernacular.lm_eval.loading import GREEDY, LoadedUnit, check, is_sampled, own_kwargs, request_fields
from vernacular.protocols.request_rows import external_request, turn
from vernacular.types import CHAT, Role

GENERATE, ROLLING = "generate_until", "loglikelihood_rolling"
_CHAT = "\x02chat"  # begins the text of chat turns
_MAX_REPEATS = 10_000


def chat_arguments(spec) -> dict:
    """Return the arguments with which lm-eval builds the prompts of an evaluation as chats; {}: as plain text."""
    if spec.style != "chat":
        return {}
    return {"apply_chat_template": True, "fewshot_as_multiturn": spec.options.get("fewshot_as_multiturn", True)}


def as_context(turns: list[dict], add_generation_prompt: bool = True) -> str:
    """Return chat turns as the text that lm-eval takes for the rendered prompt; each model renders them itself."""
    return _CHAT + json.dumps([[turn["role"], clean(turn["content"])] for turn in turns], ensure_ascii=False)


def turns_of(context: str) -> list[dict] | None:
    """Return the turns of a context by `as_context`; None if it is plain text."""
    if not context.startswith(_CHAT):
        return None
    try:
        return [turn(role, content) for role, content in json.loads(context.removeprefix(_CHAT))]
    except ValueError:
        raise DataError("its code changes rendered prompts, which chat: true does not support.") from None


def build(
    unit: LoadedUnit, *, limit: int | None, seed: int, generates: bool, chat: dict | None = None, gen_kwargs=None
) -> tuple[list[dict], list[dict]]:
    """Return (rows per ITEMS, rows per REQUESTS) of a unit; of each task, the first `limit` documents.

    `chat`: see `chat_arguments`. `gen_kwargs`: of the evaluation; the tasks have them already. Raises DataError if a
    task has no documents, requests of another kind, or generation arguments that are not supported, or its prompts
    cannot be built; with its name.
    """
    items, rows = [], []
    for name, task in unit.tasks.items():
        try:
            task.build_all_requests(limit=limit, **({"chat_template": as_context, **chat} if chat else {}))
            if not task.instances:
                raise DataError("it has no documents.")
            for doc_id, instances in by_document(task.instances):
                for instance in instances:
                    _check(instance, generates)
                item = _item(name if unit.is_group else None, task, doc_id, instances)
                items.append(item)
                query = _query(task, instances[0])
                size = len(instances)
                built = [row for instance in instances for row in _requests(item, instance, query, size, seed)]
                rows += [_as_chat(row, task, gen_kwargs) for row in built]
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
    (context, arguments), turns, extras = instance.args[:2], turns_of(instance.args[0]), []
    if turns is None:
        # the few-shot examples are stored apart from the query, for the report
        prefix = context[: -len(query)] if query and context.endswith(query) else ""
        text = context[len(prefix) :]
        content = {"prefix": clean(prefix)}
    else:  # the plain text is that of the turns
        last = max(i for i, each in enumerate(turns) if each["role"] != "assistant")
        prefix = "".join(f"{each['content']}\n\n" for each in turns[:last])
        text = "\n\n".join(each["content"] for each in turns[last:])
        content, extras = {"messages": turns, "prefix": prefix}, [CHAT]
    if instance.request_type == GENERATE:
        for repeat in range(repeats(instance)):
            fields = content | request_fields(arguments, seed * 1000 + repeat)
            if turns is not None:
                fields["decoding"] = fields["decoding"] or GREEDY  # also of a model that reasons
            yield external_request(item, role(instance, n_instances, repeat), kind="generate", text=clean(text),
                                   extras=[*extras, "truncate_left"], **fields)  # fmt: skip
    elif turns is None:
        yield _scored(item, role(instance, n_instances), prefix, text, arguments)
    else:
        start, span = len(prefix + text), clean(arguments)
        yield external_request(item, role(instance, n_instances), kind="score", text=text + span, span_start=start,
                               span_end=start + len(span), extras=extras, **content)  # fmt: skip


def instance_request(instance: Instance, name: str, seed: int) -> dict:
    """Return the request of an instance without its task, as an item of the ID `name`, truncated as by `hf`."""
    _check(instance, instance.request_type == GENERATE)
    row = next(_requests({"item_id": name}, instance, "", 1, seed))
    if instance.request_type == "loglikelihood":
        row["extras"] = [*(row["extras"] or ()), "truncate_left"]
    return row


def _as_chat(row: dict, task: Task, gen_kwargs: dict | None) -> dict:
    """Return a request with what a model needs to render it and to decode as the evaluation says."""
    fields = {name: row[name] for name in row if name not in ("request_id", "item_id", "role")}
    delimiter = task.config.fewshot_delimiter
    if row["messages"] and row["messages"][0]["role"] == "system" and delimiter != "\n\n":
        fields["extras"] = [*row["extras"], f"system_delimiter:{delimiter}"]
    if gen_kwargs and row["kind"] == "generate":
        decoding = {name: value for name, value in (row["decoding"] or GREEDY).items() if value is not None}
        fields["gen_kwargs"] = own_kwargs(gen_kwargs) | decoding | {"max_gen_toks": row["max_new_tokens"]}
    return row if fields.items() <= row.items() else external_request(row, row["role"], **fields)


def context_of(row: dict) -> str:
    """Return the text of a request by which its instance is recognized."""
    if not row["messages"]:
        return row["prefix"] + row["text"]
    span = "" if row["kind"] == "generate" else (row["prefix"] + row["text"])[row["span_start"] : row["span_end"]]
    return as_context(row["messages"]) + span


def _scored(item: dict, name: str, prefix: str, context: str, span: str, extras=None) -> dict:
    """Return a request for `span` and the whitespace at the end of its context, which lm-eval scores with it."""
    prefix, context, span = clean(prefix), clean(context), clean(span)
    start = len((prefix + context).rstrip())
    full = prefix + context + span
    prefix = prefix[:start]  # the span is part of the text
    return external_request(item, name, kind="score", prefix=prefix, text=full[len(prefix) :], span_start=start,
                            span_end=len(full), extras=extras)  # fmt: skip


def _item(task_name: str | None, task: Task, doc_id: int, instances: list[Instance]) -> dict:
    target = task.doc_to_target(instances[0].doc)
    choices = task.doc_to_choice(instances[0].doc) if task.OUTPUT_TYPE == "multiple_choice" else []
    choices = list(map(str, choices))
    return {
        "item_id": item_id(task_name, doc_id),
        "few_shot": False,
        "context": clean(_query(task, instances[0])),
        "question": "",
        "choices": list(map(clean, choices)),
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
    if (turns := turns_of(instance.args[0])) is not None:
        content = next(each["content"] for each in reversed(turns) if each["role"] != "assistant")
        return query if isinstance(query, str) and content.endswith(query) else content
    return query if isinstance(query, str) and instance.args[0].endswith(query) else instance.args[0]


def _gold(task: Task, document, target, choices: list[str]) -> list[int]:
    """Return the indices of the correct choices, as `process_results` of lm-eval determines them; [] if unknown."""
    gold = task.doc_to_text(document) if getattr(task, "multiple_input", 0) else target
    candidates = gold if isinstance(gold, list) else [gold]
    indices = [choices.index(entry) if isinstance(entry, str) and entry in choices else entry for entry in candidates]
    return [index for index in indices if type(index) is int and 0 <= index < len(choices)]
