"""verbatim: requests with exactly the prompt text that the source of a task provides (lm-evaluation-harness).

The model reads description, few-shot examples and query as one string, followed by the scored or generated text:

    {before}{example}…{query}{delimiter}{option}

As in lm-eval, whitespace at the end of the context is scored with the following text. Items: data/lm_eval/items.py.
"""

import json
from dataclasses import replace

from vernacular.core.errors import ConfigError
from vernacular.protocols import fewshot
from vernacular.protocols.registry import PROTOCOLS
from vernacular.protocols.request_rows import Setting, generation_request, skipped_request, span_request
from vernacular.types import Item


def build(items: list[Item], setting: Setting, *, protocol: str, task: str, shots: int) -> tuple[list[dict], list[str]]:
    """Return (rows per REQUESTS, item IDs of all few-shot examples); examples are sampled for each item.

    Raises ConfigError if there are too few rows for `shots`.
    """
    evaluated = [item for item in items if not item["few_shot"]]
    pool = sorted((item for item in items if item["few_shot"]), key=lambda item: item["source_row"])
    extras = {item["item_id"]: dict(item["extra"] or ()) for item in items}
    task_settings = json.loads(extras[evaluated[0]["item_id"]]["settings"]) if evaluated else {}
    sampled = fewshot.sample_as_lm_eval(
        {item["source_row"]: extras[item["item_id"]]["row"] for item in evaluated},
        [extras[item["item_id"]]["row"] for item in pool],
        shots=shots,
        seed=setting.seed,
        use_first=task_settings.get("sampler") == "first_n",
        exclude_self=task_settings.get("exclude", False),
        task=task,
    )
    rows: list[dict] = []
    for item in evaluated:
        examples = [pool[index] for index in sampled[item["source_row"]]]
        errors = [error for example in examples if (error := extras[example["item_id"]].get("cannot"))]
        if errors:
            rows.append(skipped_request(item, f"one of its few-shot examples is invalid ({errors[0]})"))
            continue
        description = extras[item["item_id"]].get("description", "")
        texts = (description, *(example["context"] for example in examples))
        item_setting = replace(setting, few_shot_examples=tuple(filter(None, texts)))
        rows += _requests(item, extras[item["item_id"]], task_settings, item_setting, protocol)
    used_indices = {index for indices in sampled.values() for index in indices}
    return rows, [pool[index]["item_id"] for index in sorted(used_indices)]


def _requests(item: Item, extra: dict, task_settings: dict, setting: Setting, protocol: str) -> list[dict]:
    """Return requests with the protocol's roles: "choice:i" ("uncond:i" for acc_mutual_info), "word", or "response"."""
    if PROTOCOLS[protocol].generates:
        if not setting.prefix + item["context"]:
            return [skipped_request(item, "empty prompt")]
        kwargs = {"stop": task_settings["until"], "max_new_tokens": task_settings["max_gen_toks"]}
        return [generation_request(item, item["context"], setting=setting, messages=None, **kwargs)]
    if PROTOCOLS[protocol].external == "word":
        return [_scored(item, "word", item["context"], item["target"], setting)]
    rows = []
    for i, choice in enumerate(item["choices"]):
        if "continuation" in extra:
            context = choice + extra.get("prefix", "")
            rows.append(_scored(item, f"choice:{i}", context, extra["continuation"], setting))
            continue
        option = extra.get("delimiter", "") + choice
        rows.append(_scored(item, f"choice:{i}", item["context"], option, setting))
        if task_settings["pmi"]:
            rows.append(_scored(item, f"uncond:{i}", "", option, replace(setting, few_shot_examples=())))
    return rows or [skipped_request(item, "no options")]


def _scored(item: Item, role: str, context: str, span: str, setting: Setting) -> dict:
    """Return a request for `span` and the whitespace at the end of its context."""
    start = len((setting.prefix + context).rstrip())
    return span_request(item, role, context + span, start, setting=setting)


def check(task: dict, *, protocol: str, style: str) -> None:
    """Raise ConfigError if a task with its own prompt text does not support the protocol or style."""
    if style != "default":
        raise ConfigError(f'Task {task["task"]}: has its own prompt text and no style "{style}". Omit styles.')
    if not PROTOCOLS[protocol].custom_prompts:
        raise ConfigError(
            f'Task {task["task"]}: has its own prompt text, which the protocol "{protocol}" does not support.'
        )
