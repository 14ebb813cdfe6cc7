"""Construction of an evaluation's requests from its items; no model is loaded.

Few-shot examples are sampled once per (task, language, shots, seed): from rows that the dataset reserves for this
purpose (`few_shot`) and that have not the content of an evaluated item, else from a pool of evaluated items, which are
then excluded from the evaluation with all their repeats. Sampling is by hash, so that a larger number of shots adds
examples and changes none.
"""

from dataclasses import replace

from vernacular.core.errors import ConfigError, format_count, suggest
from vernacular.core.fingerprint import fingerprint, import_modules
from vernacular.protocols.generation import simil_eval
from vernacular.protocols.prompts import (
    DEFAULT,
    LAYOUTS,
    additional_lines,
    entity_types,
    gold_text,
    language_of_lines,
    language_pair,
    load_labels,
    variant_labels,
)
from vernacular.protocols.registry import OPTIONS, OWN, PROTOCOLS, takes_examples, uses_prompt_lines
from vernacular.protocols.request_rows import RequestSettings, warnings_of
from vernacular.types import SIMIL_EVAL_STYLES, Item, skipped_reason

POOL = 32  # items from which held-out examples are sampled


_MODULES = import_modules("vernacular/protocols/*/requests.py")
REQUESTS = {name: _MODULES[protocol.reference_of or name] for name, protocol in OWN.items()}
# settings that `build` takes
_BUILD_KEYS = {"language", "protocol", "shots", "seed", "style", "options", "prompt", "prompts"}


def build(
    items: list[Item],
    task: dict,
    *,
    language: str,
    protocol: str,
    shots: int,
    seed: int,
    style: str,
    options: dict,
    prompt: str = DEFAULT,
    prompts: dict | None = None,
) -> tuple[list[dict], dict]:
    """Build the requests of one evaluation; return (rows per REQUESTS, fields of RequestsMetadata).

    The argument `prompts` holds the lines, or those of the variant; None: those of Vernacular. Raises ConfigError if
    the settings cannot be combined.
    """
    _check(task, protocol=protocol, shots=shots, style=style, options=options)
    metadata = {"language": language, "protocol": protocol, "shots": shots, "seed": seed, "style": style}
    metadata |= {"task": task["task"], "options": options} | inference_metadata(protocol)
    metadata |= {"prompt": prompt} if prompt != DEFAULT else {}
    if pair := language_pair(task, language):
        metadata |= {"input_language": pair[0], "output_language": pair[1]}
    module = REQUESTS[protocol]
    labels = {}
    if uses_prompt_lines(protocol, style):
        labels = prompts or _labels(language_of_lines(language, style, task), prompt, protocol, task, language)
    settings = RequestSettings(task["item_type"], language, seed, style, options, labels)
    examples, held_out = sample_examples(items, task=task["task"], language=language, shots=shots, seed=seed)
    formatted = [module.few_shot_example(item, settings) for item in examples]
    texts, messages = (text for text, _ in formatted), (turn for _, turns in formatted for turn in turns)
    settings = replace(settings, few_shot_examples=tuple(texts), messages=tuple(messages))
    evaluated = [item for item in items if not item["few_shot"] and item["item_id"] not in held_out]
    requests = module.reference_requests if PROTOCOLS[protocol].reference_of else module.requests
    rows = [row for item in evaluated for row in requests(item, settings)]
    if hasattr(module, "dataset_requests"):
        rows += module.dataset_requests(evaluated, settings)
    metadata["warnings"] = warnings_of(evaluated, rows)
    return rows, metadata | _row_metadata(rows, [item["item_id"] for item in examples], held_out, settings)


def _labels(lines: str, prompt: str, protocol: str, task: dict, language: str) -> dict:
    labels = load_labels(lines) if prompt == DEFAULT else variant_labels(lines, prompt)
    added = {"pair": language_pair(task, language), "types": entity_types(task, language)}
    return labels | additional_lines(PROTOCOLS[protocol].lines, lines, **added)


def build_evaluation(items: list[Item], spec) -> tuple[list[dict], dict]:
    """Build the requests of an evaluation from its `PromptSpec` (config/specs.py)."""
    return build(items, spec.task, **{key: getattr(spec, key) for key in _BUILD_KEYS})


def inference_metadata(protocol: str) -> dict:
    """Return the properties of a protocol that inference requires, as metadata of the requests."""
    declaration = PROTOCOLS[protocol]
    kind = "generate" if declaration.generates else "score"
    flags = {name: getattr(declaration, name) for name in ("causal_only", "chat_only", "label_spans")}
    return {**flags, "request_kind": kind}


def _row_metadata(rows: list[dict], example_ids: list[str], held_out: set[str], settings: RequestSettings) -> dict:
    """Return the metadata of the rows, in addition to the evaluation's settings."""
    starts = {row["span_start"] for row in rows if skipped_reason(row["role"]) is None}
    reasons = {item_id: "repeats a few-shot example" for item_id in sorted(held_out - set(example_ids))}
    return {
        "few_shot_examples": example_ids,
        "held_out": sorted(held_out),
        "prefix": settings.prefix,
        "prompts": fingerprint(settings.labels),
        **({"has_turns": True} if any(row["messages"] for row in rows) else {}),
        **({"whole_texts": True} if starts == {0} else {}),
        "skipped": reasons
        | {row["item_id"]: reason for row in rows if (reason := skipped_reason(row["role"])) is not None},
    }


def _check(task: dict, *, protocol: str, shots: int, style: str, options: dict) -> None:
    location = f"Task {task['task']}"
    if protocol not in OWN:
        raise ConfigError(f'{location}: unknown protocol "{protocol}".{suggest(protocol, OWN)}')
    if protocol not in task.get("protocols", PROTOCOLS):
        raise ConfigError(
            f'{location}: does not support the protocol "{protocol}".{suggest(protocol, task["protocols"])}'
        )
    if task["item_type"] not in LAYOUTS:
        raise ConfigError(
            f'{location}: unknown prompt layout "{task["item_type"]}".{suggest(task["item_type"], LAYOUTS)}'
        )
    if style not in PROTOCOLS[protocol].styles:
        raise ConfigError(
            f'{location}: unknown style "{style}" of {protocol}.{suggest(style, PROTOCOLS[protocol].styles)}'
        )
    if style in SIMIL_EVAL_STYLES:
        simil_eval.check(task, style)
    if shots < 0 or (shots and not takes_examples(protocol, style)):
        raise ConfigError(f"{location}: {protocol} does not support few-shot examples: expected shots: 0, got {shots}.")
    for name, value in options.items():
        if name not in OPTIONS:
            raise ConfigError(f'{location}: unknown option "{name}".{suggest(name, OPTIONS)}')
        allowed = OPTIONS[name]
        if isinstance(allowed, tuple) and value not in allowed:
            raise ConfigError(f"{location}: option {name} has the invalid value {value!r}.{suggest(value, allowed)}")
        # not isinstance: True is not a number of rotations
        if isinstance(allowed, type) and type(value) is not allowed:
            raise ConfigError(f"{location}: expected {allowed.__name__} for option {name}, got {value!r}.")


def sample_examples(
    items: list[Item], *, task: str, language: str, shots: int, seed: int
) -> tuple[list[dict], set[str]]:
    """Return (few-shot examples, IDs of evaluated items with their content); raise ConfigError if there are too few."""
    if not shots:
        return [], set()
    usable = [item for item in items if _is_usable(item)]
    reserved = [item for item in usable if item["few_shot"]]
    pool = [item for item in reserved if item.get("repeats") is None]
    if not reserved:
        pool = sorted(usable, key=_limit_order)[: max(POOL, shots)]
    pool = sorted(pool, key=lambda item: fingerprint([task, language, seed, item["item_id"]]))
    if not reserved:  # of equal rows, the first
        pool = list({_content_id(item): item for item in reversed(pool)}.values())[::-1]
    examples = pool[:shots]
    contents = set() if reserved else {_content_id(item) for item in examples}
    held_out = {item["item_id"] for item in items if _content_id(item) in contents}
    if len(pool) < shots or (not reserved and all(item["item_id"] in held_out for item in usable)):
        suffix = "" if reserved or not usable else ", and at least one item to evaluate"
        leaks = f" ({len(reserved) - len(pool)} more are evaluated items)" if len(pool) < len(reserved) else ""
        raise ConfigError(
            f"{task}.{language}: expected at least {format_count(shots, 'row')} with a known answer as few-shot "
            f"examples{suffix}, got {len(pool)}{leaks}. Set a smaller value of shots."
        )
    return examples, held_out


def _content_id(item: Item) -> str:
    """Return the ID that evaluated items with the same content share."""
    return item.get("repeats") or item["item_id"]


def _limit_order(item: Item) -> tuple[str, str]:
    """Return the sort key by which a limit selects items (data/load.py), so that it does not change the pool."""
    return fingerprint([0, item["cluster_id"] or f"item {item['item_id']}"]), item["item_id"]


def _is_usable(item: Item) -> bool:
    """Return whether an item has an answer and at most 26 options: one rule, so that all protocols share examples."""
    return bool(gold_text(item)) and len(item["choices"]) != 1 and len(item["choices"]) <= 26
