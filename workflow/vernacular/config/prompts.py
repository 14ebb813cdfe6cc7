"""Expansion of `prompts:` and `seeds:` of an entry of `evaluations:`: which wordings, with which few-shot seeds."""

from vernacular.core.errors import ConfigError, suggest
from vernacular.protocols.prompt_template import usual_layout
from vernacular.protocols.prompt_variants import covering
from vernacular.protocols.registry import PROTOCOLS, uses_prompt_lines
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT

PAIRED = "paired"  # the j-th prompt of the language's file takes seed j


def check_prompts(entry: dict, task: dict, protocols: list[str], styles: list[str], report) -> None:
    """Check `prompts` and `seeds: paired` of an entry; `report(key, message)` every mistake."""
    several = entry.get("prompts", DEFAULT_PROMPT) != DEFAULT_PROMPT
    if entry["seeds"] == PAIRED and not several:
        report("seeds", "paired needs several prompts; set prompts: all or a list.")
    if not several:
        return
    if not any(_has_words(task, protocol, style) for protocol in protocols for style in styles):
        report("prompts", f"{_reason(task, protocols, styles)}; remove prompts.")
        return
    known_styles = {style for protocol in PROTOCOLS.values() for style in protocol.styles} - {DEFAULT_PROMPT}
    for language in task["languages"]:
        for letters in (False, True):
            for name in _covering(task, language, letters, report):
                if name in known_styles:
                    report("prompts", f'the prompt "{name}" in {language}.yaml has the name of a style; rename it.')


def prompts_and_seeds(
    entry: dict, task: dict, language: str, protocol: str, style: str, shots: int, report
) -> list[tuple[str, int]]:
    """Return (prompt, seed) of each evaluation with these settings, in the order of the language's file.

    A protocol without words has the default alone. With `all`, a layout takes the variants that the language has; a
    listed name that it lacks is an error. Seeds cross with prompts; `paired` gives each prompt a seed of its own if
    there are few-shot examples to draw. `report(key, message)` every mistake.
    """
    wanted = entry.get("prompts", DEFAULT_PROMPT)
    names = [DEFAULT_PROMPT]
    if wanted != DEFAULT_PROMPT and _has_words(task, protocol, style):
        available = _covering(task, language, PROTOCOLS[protocol].letters, report)
        if not available:
            return []
        listed = available if wanted == ALL_PROMPTS else _as_list(wanted)
        for name in listed:
            if name not in available:
                hint = suggest(name, available)
                report("prompts", f'prompt "{name}" not found for {protocol} in {language}.yaml.{hint}')
        names = [name for name in available if name in listed]
        if entry["seeds"] == PAIRED:
            return [(name, available.index(name) if shots else 0) for name in names]
    seeds = [0] if entry["seeds"] == PAIRED else _as_list(entry["seeds"])
    return [(name, seed) for name in names for seed in seeds]


def _has_words(task: dict, protocol: str, style: str) -> bool:
    """Return whether the items are shown with words of the language, which a variant could change."""
    has_style = style in PROTOCOLS[protocol].styles
    has_layout = usual_layout(task["item_type"], letters=PROTOCOLS[protocol].letters) is not None
    return has_style and has_layout and uses_prompt_lines(protocol, style)


def _reason(task: dict, protocols: list[str], styles: list[str]) -> str:
    names = " or ".join(protocols)
    if usual_layout(task["item_type"], letters=False) is None and not any(PROTOCOLS[p].letters for p in protocols):
        return f"{names} shows the items of {task['task']} without words around them"
    if any(uses_prompt_lines(protocol, DEFAULT_PROMPT) for protocol in protocols):
        return f"{names} has no prompts in the style {' or '.join(styles)}"
    return f"{names} shows items without words around them"


def _covering(task: dict, language: str, letters: bool, report) -> list[str]:
    try:
        return covering(language, task["item_type"], letters=letters)
    except ConfigError as error:
        report("prompts", str(error))
        return []


def _as_list(value) -> list:
    return value if isinstance(value, list) else [value]
