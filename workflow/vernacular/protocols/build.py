"""items -> requests: everything an evaluation asks of a model, decided before any model is loaded."""

from dataclasses import replace

from vernacular.core.errors import ConfigError, closest
from vernacular.core.fingerprint import fingerprint
from vernacular.protocols import fewshot
from vernacular.protocols.acceptability import requests as acceptability
from vernacular.protocols.cloze import requests as cloze
from vernacular.protocols.generation import requests as generation
from vernacular.protocols.generation import simil_eval
from vernacular.protocols.last_word import requests as last_word
from vernacular.protocols.letters import requests as letters
from vernacular.protocols.minimal_pair import requests as minimal_pair
from vernacular.protocols.options import requests as options_protocol
from vernacular.protocols.prompts import LAYOUTS, load_labels
from vernacular.protocols.request_rows import UNASKED, Setting
from vernacular.protocols.target_word import requests as target_word
from vernacular.protocols.verbatim import requests as verbatim

PROTOCOLS = {
    "generation": generation,
    "letters": letters,
    "options": options_protocol,
    "acceptability": acceptability,
    "minimal_pair": minimal_pair,
    "last_word": last_word,
    "cloze": cloze,
    "target_word": target_word,
}
CAUSAL_ONLY = {"generation", "letters", "options", "last_word"}  # a masked model cannot be asked these
FEW_SHOT = {name for name, protocol in PROTOCOLS.items() if protocol.FEW_SHOT}
STYLES = {name: ("default",) for name in PROTOCOLS} | {
    "generation": ("default", "open", "simil-eval", "simil-eval-open"),
}
# options: what a protocol lets a person choose; a tuple names the values allowed, a type anything of it
OPTIONS = {
    "permutations": int,  # letters: in how many rotations the options are shown
    "bow_correction": bool,  # last_word: ask for the beginning-of-word correction (Pimentel & Meister 2024)
    "legacy": bool,  # cloze: score also as the source's scripts do
    "pll": ("original", "within_word_l2r"),  # masked models: Salazar et al. 2020, or Kauf & Ivanova 2023
    "mask_token": str,  # target_word: how the file writes the masked word
    "evaluation_type": target_word.LEVELS,
    "task_type": target_word.TASK_TYPES,
}


def build(
    items: list[dict], task: dict, *, language: str, protocol: str, shots: int, seed: int, style: str, options: dict
) -> tuple[list[dict], dict]:
    """The requests of one evaluation (rows per REQUESTS) and their metadata.

    Metadata: `demonstrations` (their item ids, in prompt order), `held_out` (those of them that are items of the
    evaluated set, and so not asked), `prefix` (the few-shot block), `unasked` (reason per item that cannot be asked),
    `prompts` (fingerprint of the prompt lines). Raises ConfigError for a combination that makes no sense.
    """
    _check(task, protocol=protocol, shots=shots, style=style, options=options)
    facts = {"language": language, "protocol": protocol, "shots": shots, "seed": seed, "style": style}
    facts |= {"task": task["task"], "options": options}
    if task["prompt"] == "verbatim":
        setting = Setting(task["prompt"], language, seed, style, options)
        rows, shown = verbatim.build(items, setting, protocol=protocol, task=f"{task['task']}.{language}", shots=shots)
        return rows, facts | _told(rows, shown, set(), setting)
    module = PROTOCOLS[protocol]
    labels = load_labels(language) if takes_words(protocol, task["prompt"], style) else {}
    setting = Setting(task["prompt"], language, seed, style, options, labels)
    drawn, held_out = fewshot.sample_examples(items, task=task["task"], language=language, shots=shots, seed=seed)
    shown = [module.demonstrate(item, setting) for item in drawn]
    setting = replace(
        setting,
        demonstrations=tuple(text for text, _ in shown),
        turns=tuple(turn for _, turns in shown for turn in turns),
    )
    asked = [item for item in items if not item["demonstration"] and item["item_id"] not in held_out]
    rows = [row for item in asked for row in module.requests(item, setting)]
    return rows, facts | _told(rows, [item["item_id"] for item in drawn], held_out, setting)


def takes_shots(protocol: str, layout: str) -> bool:
    """Can solved examples stand before what is asked? In a wording that the source brings along they always can."""
    return protocol in FEW_SHOT or layout == "verbatim"


def takes_words(protocol: str, layout: str, style: str) -> bool:
    """Does it take the language's prompt lines, or bring its own wording or none?"""
    return protocol in FEW_SHOT and layout != "verbatim" and not style.startswith("simil-eval")


def _told(rows: list[dict], shown: list[str], held_out: set[str], setting: Setting) -> dict:
    """What the metadata says beside the evaluation's own name."""
    return {
        "demonstrations": shown,
        "held_out": sorted(held_out),
        "prefix": setting.prefix,
        "prompts": fingerprint(setting.labels),
        "unasked": {r["item_id"]: r["role"].removeprefix(UNASKED) for r in rows if r["role"].startswith(UNASKED)},
    }


def _check(task: dict, *, protocol: str, shots: int, style: str, options: dict) -> None:
    where = f"Task {task['task']}"
    if protocol not in PROTOCOLS:
        raise ConfigError(f'{where}: there is no protocol "{protocol}".{closest(protocol, PROTOCOLS)}')
    if protocol not in task.get("protocols", PROTOCOLS):
        raise ConfigError(f'{where} cannot be asked as "{protocol}".{closest(protocol, task["protocols"])}')
    if task["prompt"] == "verbatim":
        verbatim.check(task, protocol=protocol, style=style)
    elif task["prompt"] not in LAYOUTS:
        raise ConfigError(f'{where}: there is no prompt layout "{task["prompt"]}".{closest(task["prompt"], LAYOUTS)}')
    if style not in STYLES[protocol]:
        raise ConfigError(f'{where}: {protocol} has no style "{style}".{closest(style, STYLES[protocol])}')
    if style.startswith("simil-eval") and task["prompt"] not in simil_eval.LAYOUTS:
        raise ConfigError(f"{where}: Simil-Eval has no prompt for it (layout {task['prompt']}); choose another style.")
    if style == "simil-eval-open" and task["prompt"] == "summary":
        raise ConfigError(f"{where}: Simil-Eval has no prompt without options for summaries; choose `simil-eval`.")
    if shots < 0 or (shots and not takes_shots(protocol, task["prompt"])):
        raise ConfigError(f"{where}: {protocol} takes no demonstrations, found shots: {shots}; set it to 0.")
    for name, value in options.items():
        if name not in OPTIONS:
            raise ConfigError(f'{where}: there is no option "{name}".{closest(name, OPTIONS)}')
        allowed = OPTIONS[name]
        if isinstance(allowed, tuple) and value not in allowed:
            raise ConfigError(f"{where}: option {name} is {value!r}.{closest(value, allowed)}")
        if isinstance(allowed, type) and type(value) is not allowed:  # exactly: True is no number of permutations
            raise ConfigError(f"{where}: option {name} must be of type {allowed.__name__}, found {value!r}.")
