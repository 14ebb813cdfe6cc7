"""Construction of an evaluation's requests from its items; no model is loaded."""

from dataclasses import replace

from vernacular.core.errors import ConfigError, closest
from vernacular.core.fingerprint import fingerprint, import_each
from vernacular.protocols import fewshot
from vernacular.protocols.generation import requests as generation
from vernacular.protocols.prompts import LAYOUTS, load_labels
from vernacular.protocols.registry import OPTIONS, PROTOCOLS, takes_prompt_lines, takes_shots
from vernacular.protocols.request_rows import Setting
from vernacular.protocols.verbatim import requests as verbatim
from vernacular.types import Item, skipped_reason

_MODULES = import_each("vernacular/protocols/*/requests.py")
REQUESTS = {name: _MODULES[name] for name in PROTOCOLS}


def build(
    items: list[Item], task: dict, *, language: str, protocol: str, shots: int, seed: int, style: str, options: dict
) -> tuple[list[dict], dict]:
    """Build the requests of one evaluation; return (rows per REQUESTS, metadata).

    Metadata: `few_shot_examples` (item IDs of the few-shot examples, in prompt order), `held_out` (those of them that
    are excluded from the evaluated items), `prefix` (the few-shot prefix), `skipped` (reason by skipped item),
    `prompts` (fingerprint of the prompt lines). Raises ConfigError if the settings cannot be combined.
    """
    _check(task, protocol=protocol, shots=shots, style=style, options=options)
    facts = {"language": language, "protocol": protocol, "shots": shots, "seed": seed, "style": style}
    facts |= {"task": task["task"], "options": options} | evaluated_by(protocol)
    if task["item_type"] == "lm_eval":
        setting = Setting(task["item_type"], language, seed, style, options)
        rows, shown = verbatim.build(items, setting, protocol=protocol, task=f"{task['task']}.{language}", shots=shots)
        return rows, facts | _told(rows, shown, set(), setting)
    module = REQUESTS[protocol]
    labels = load_labels(language) if takes_prompt_lines(protocol, task["item_type"], style) else {}
    setting = Setting(task["item_type"], language, seed, style, options, labels)
    drawn, held_out = fewshot.sample_examples(items, task=task["task"], language=language, shots=shots, seed=seed)
    shown = [module.few_shot_example(item, setting) for item in drawn]
    setting = replace(
        setting,
        few_shot_examples=tuple(text for text, _ in shown),
        messages=tuple(turn for _, messages in shown for turn in messages),
    )
    asked = [item for item in items if not item["few_shot"] and item["item_id"] not in held_out]
    rows = [row for item in asked for row in module.requests(item, setting)]
    return rows, facts | _told(rows, [item["item_id"] for item in drawn], held_out, setting)


def evaluated_by(protocol: str) -> dict:
    """Return the properties of a protocol that inference requires, as metadata of the requests."""
    declared = PROTOCOLS[protocol]
    return {"causal_only": declared.causal_only, "request_kind": "generate" if declared.generates else "score"}


def _told(rows: list[dict], shown: list[str], held_out: set[str], setting: Setting) -> dict:
    """Return the metadata of the rows, in addition to the evaluation's settings."""
    return {
        "few_shot_examples": shown,
        "held_out": sorted(held_out),
        "prefix": setting.prefix,
        "prompts": fingerprint(setting.labels),
        "skipped": {row["item_id"]: why for row in rows if (why := skipped_reason(row["role"])) is not None},
    }


def _check(task: dict, *, protocol: str, shots: int, style: str, options: dict) -> None:
    where = f"Task {task['task']}"
    if protocol not in PROTOCOLS:
        raise ConfigError(f'{where}: unknown protocol "{protocol}".{closest(protocol, PROTOCOLS)}')
    if protocol not in task.get("protocols", PROTOCOLS):
        raise ConfigError(f'{where}: does not support the protocol "{protocol}".{closest(protocol, task["protocols"])}')
    if task["item_type"] == "lm_eval":
        verbatim.check(task, protocol=protocol, style=style)
    elif task["item_type"] not in LAYOUTS:
        raise ConfigError(f'{where}: unknown prompt layout "{task["item_type"]}".{closest(task["item_type"], LAYOUTS)}')
    if style not in PROTOCOLS[protocol].styles:
        raise ConfigError(
            f'{where}: unknown style "{style}" of {protocol}.{closest(style, PROTOCOLS[protocol].styles)}'
        )
    generation.check(task, style=style)
    if shots < 0 or (shots and not takes_shots(protocol, task["item_type"])):
        raise ConfigError(f"{where}: {protocol} does not support few-shot examples: expected shots: 0, got {shots}.")
    for name, value in options.items():
        if name not in OPTIONS:
            raise ConfigError(f'{where}: unknown option "{name}".{closest(name, OPTIONS)}')
        allowed = OPTIONS[name]
        if isinstance(allowed, tuple) and value not in allowed:
            raise ConfigError(f"{where}: option {name} has the invalid value {value!r}.{closest(value, allowed)}")
        if (
            isinstance(allowed, type) and type(value) is not allowed
        ):  # not isinstance: True is not a number of rotations
            raise ConfigError(f"{where}: expected {allowed.__name__} for option {name}, got {value!r}.")
