"""Prompt variants: other ways to ask in a language, blocks under `variants` in `workflow/prompts/{language}.yaml`.

The lines of the file itself are the variant `default`. Another variant is a complete prompt for each layout that it
covers (`prompt_template`), with the options' heading and form of the default where it gives none.
"""

import functools
from pathlib import Path

from vernacular.core import validate
from vernacular.core.errors import ConfigError, suggest
from vernacular.core.languages import prompts_file
from vernacular.core.paths import WORKFLOW
from vernacular.core.validate import Problems
from vernacular.core.yaml import read
from vernacular.protocols.prompt_template import LAYOUT_FIELDS, problem, usual_layout
from vernacular.protocols.prompts import PROMPTS_DIR, VARIANTS, prompt_lines

DEFAULT = "default"
_SCHEMA = WORKFLOW / "schemas" / "prompts.schema.yaml"
_SHARED_LINES = ("options", "option", "complete")  # lines of the default that a variant uses


@functools.cache
def variants(language: str, directory: Path = PROMPTS_DIR) -> dict[str, dict]:
    """Return the variants of a language besides the default, by name, in the file's order; {} without a file.

    Raises ConfigError, with file and line, for all invalid blocks and for blocks with the same text.
    """
    path = prompts_file(language, directory)
    if path is None:
        return {}
    content, lines = read(path)
    if not isinstance(content, dict) or VARIANTS not in content:
        return {}
    blocks = content[VARIANTS]
    block_lines = {keys[1:]: line for keys, line in lines.items() if keys[0] == VARIANTS and len(keys) > 1}

    validate.check(blocks, block_lines, validate.schema(_SCHEMA), path)
    problems = Problems()

    def report(keys: tuple, message: str) -> None:
        problems.add(f"{validate.error_location(path, lines, (VARIANTS, *keys))}: {message}.")

    texts: dict[tuple, str] = {}
    for name, block in blocks.items():
        for layout in (layout for layout in LAYOUT_FIELDS if layout in block):
            if message := problem(block[layout], layout):
                report((name, layout), message)
            text = (layout, block[layout], block.get("options"), block.get("option"))
            if (previous := texts.setdefault(text, name)) != name:
                report((name, layout), f"the same text as in {previous}; remove one")
    problems.raise_all()
    return blocks


def covering(language: str, item_type: str, *, letters: bool, directory: Path = PROMPTS_DIR) -> list[str]:
    """Return the names of the variants that have words for the layout of an item type, the default first.

    [] if items of this type are shown without words, so that nothing can vary.
    """
    layout = usual_layout(item_type, letters=letters)
    if layout is None:
        return []
    return [DEFAULT, *(name for name, block in variants(language, directory).items() if layout in block)]


def variant_labels(language: str, name: str, directory: Path = PROMPTS_DIR) -> dict:
    """Return what the prompts of a variant are made of: the lines of the default that it uses, and its templates.

    Raises ConfigError for an unknown name.
    """
    blocks = variants(language, directory)
    if name not in blocks:
        raise ConfigError(f'prompt "{name}" not found in {language}.yaml.{suggest(name, [DEFAULT, *blocks])}')
    block, lines = blocks[name], prompt_lines(language, directory) or {}
    labels = {line: block.get(line, lines[line]) for line in _SHARED_LINES}
    return labels | {"templates": {layout: block[layout] for layout in LAYOUT_FIELDS if layout in block}}


def description(language: str, name: str, directory: Path = PROMPTS_DIR) -> dict:
    """Return how a variant differs from the default, and who has read it: {"differs", "reviewed"}."""
    block = variants(language, directory)[name]
    return {"differs": block["differs"], "reviewed": block.get("reviewed", False)}
