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
from vernacular.protocols.request_rows import Setting, generated, skipped, spanned
from vernacular.types import Item


def build(items: list[Item], setting: Setting, *, protocol: str, task: str, shots: int) -> tuple[list[dict], list[str]]:
    """Return (rows per REQUESTS, item IDs of all few-shot examples); examples are sampled for each item.

    Raises ConfigError if there are too few rows for `shots`.
    """
    evaluated = [item for item in items if not item["few_shot"]]
    pool = sorted((item for item in items if item["few_shot"]), key=lambda item: item["source_row"])
    extras = {item["item_id"]: dict(item["extra"] or ()) for item in items}
    ask = json.loads(extras[evaluated[0]["item_id"]]["ask"]) if evaluated else {}
    drawn = fewshot.sample_as_lm_eval(
        {item["source_row"]: extras[item["item_id"]]["row"] for item in evaluated},
        [extras[item["item_id"]]["row"] for item in pool],
        shots=shots,
        seed=setting.seed,
        first=ask.get("sampler") == "first_n",
        exclude=ask.get("exclude", False),
        task=task,
    )
    rows: list[dict] = []
    for item in evaluated:
        examples = [pool[place] for place in drawn[item["source_row"]]]
        cannot = [reason for e in examples if (reason := extras[e["item_id"]].get("cannot"))]
        if cannot:
            rows.append(skipped(item, f"one of its few-shot examples is invalid ({cannot[0]})"))
            continue
        before = extras[item["item_id"]].get("before", "")
        own = replace(setting, few_shot_examples=tuple(filter(None, (before, *(e["context"] for e in examples)))))
        rows += _requests(item, extras[item["item_id"]], ask, own, protocol)
    shown = dict.fromkeys(place for places in drawn.values() for place in places)
    return rows, [pool[place]["item_id"] for place in sorted(shown)]


def _requests(item: Item, extra: dict, ask: dict, setting: Setting, protocol: str) -> list[dict]:
    """Return requests with the protocol's roles: "choice:i" ("uncond:i" for acc_mutual_info), "word", or "answer"."""
    if PROTOCOLS[protocol].generates:
        if not setting.prefix + item["context"]:
            return [skipped(item, "empty prompt")]
        kwargs = {"stop": ask["until"], "max_new_tokens": ask["max_gen_toks"]}
        return [generated(item, item["context"], setting=setting, messages=None, **kwargs)]
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
        if ask["pmi"]:
            rows.append(_scored(item, f"uncond:{i}", "", option, replace(setting, few_shot_examples=())))
    return rows or [skipped(item, "no options")]


def _scored(item: Item, role: str, context: str, span: str, setting: Setting) -> dict:
    """Return a request for `span` and the whitespace at the end of its context."""
    start = len((setting.prefix + context).rstrip())
    return spanned(item, role, context + span, start, setting=setting)


def check(task: dict, *, protocol: str, style: str) -> None:
    """Raise ConfigError if a task with its own prompt text does not support the protocol or style."""
    if style != "default":
        raise ConfigError(f'Task {task["task"]}: has its own prompt text and no style "{style}". Omit styles.')
    if not PROTOCOLS[protocol].own_wording:
        raise ConfigError(
            f'Task {task["task"]}: has its own prompt text, which the protocol "{protocol}" does not support.'
        )
