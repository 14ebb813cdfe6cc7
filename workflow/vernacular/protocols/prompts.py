"""Prompts out of items: the lines of `workflow/prompts/{language}.yaml`, put in the order of the task's layout.

A prompt is the item's text, its options where they are shown, and a cue ("Resposta:") without a trailing blank; the
answer follows after one blank. Demonstrations are such prompts with their answers, set apart by an empty line.
"""

import functools
from pathlib import Path

from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.yaml import read
from vernacular.protocols.request_rows import continue_with
from vernacular.types import Item

FOLDER = WORKFLOW / "prompts"

# each line of a prompts file and the text it takes; None: a cue or heading without one
LINES = {
    "passage": "{context}",
    "question": "{question}",
    "story": "{context}",
    "sentence": "{context}",
    "options": None,
    "option": "{option}",
    "answer": None,
    "ending": None,
    "summary": None,
    "word": None,
    "letter": None,
    "complete": None,
}

# layout: (line that holds the context, cue before the answer); "" = the context stands bare, None = nothing follows it
LAYOUTS = {
    "question": ("passage", "answer"),
    "passage": ("passage", "answer"),
    "truth": ("passage", "answer"),
    "story": ("story", "ending"),
    "pair": ("", "ending"),
    "sentence": ("sentence", "answer"),
    "summary": ("passage", "summary"),
    "cloze": ("sentence", "word"),
    "target_word": ("sentence", "word"),
    "continuation": ("", None),
}


@functools.cache  # asked for each evaluation of a grid
def load_labels(language: str, folder: Path = FOLDER) -> dict[str, str]:
    """The prompt lines of a language. Raises ConfigError if there are none, or a line is missing or malformed."""
    path = Path(folder) / f"{language}.yaml"
    labels = prompt_lines(language, folder)
    if labels is None:
        have = ", ".join(sorted(file.stem for file in Path(folder).glob("*.yaml")))
        raise ConfigError(
            f'there are no prompts for language "{language}" (there are for {have}).\n'
            f"Copy one of them to {display_path(path)} and write its lines as a speaker of the language would."
        )
    if not isinstance(labels, dict):
        raise ConfigError(f"{path}: expected one `line: text` a row.")
    for name, field in LINES.items():
        text = labels.get(name)
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"{path}: the line `{name}` is missing or empty.")
        if field and text.count(field) != 1:
            raise ConfigError(f"{path}: the line `{name}` must hold {field} once, found {text!r}.")
    return labels


@functools.cache
def prompt_lines(language: str, folder: Path = FOLDER) -> dict | None:
    """What a language's prompts file says, comments and layout aside; None where there is no such file."""
    path = Path(folder) / f"{language}.yaml"
    return read(path)[0] if path.is_file() else None


def query(item: Item, layout: str, labels: dict, shown: list[str] | None) -> str:
    """The item as a prompt that ends in the cue of its layout; `shown` are the options in the order to show them."""
    where, cue = LAYOUTS[layout]
    lines = []
    if item["context"]:
        lines.append(labels[where].replace("{context}", item["context"]) if where else item["context"].rstrip())
    if item["question"]:
        lines.append(labels["question"].replace("{question}", item["question"]))
    if shown:
        lines.append(labels["options"])
        lines += [labels["option"].replace("{option}", option) for option in shown]
    if cue:
        lines.append(labels[cue])
    return "\n".join(lines)


def cue(layout: str, labels: dict) -> str:
    """The cue alone: what an option follows when nothing is known of the question."""
    name = LAYOUTS[layout][1]
    return labels[name] if name else ""


def answer_index(item: Item) -> int | None:
    """The option a demonstration answers with: the best answer where the set names one, else the first right one."""
    if item["target"] in item["choices"]:
        return item["choices"].index(item["target"])
    return item["gold"][0] if item["gold"] else None


def answer(item: Item) -> str | None:
    """The text a demonstration answers with; None where the right answer is not known."""
    index = answer_index(item)
    return item["choices"][index] if index is not None else (item["target"] or None)


def demonstration(prompt: str, reply: str, language: str) -> str:
    """A prompt with its answer and the empty line that ends it."""
    return "".join(continue_with(prompt, reply, language)) + "\n\n"


def shown_order(item: Item, layout: str, seed: int) -> list[int]:
    """Indices of the options in the order to show them.

    As upstream has them, but for `truth` items, whose right answers come first: those are shuffled per item by hash, so
    that the order depends on the item, the seed and the options' texts and on nothing else.
    """
    order = list(range(len(item["choices"])))
    if layout == "truth":
        order.sort(key=lambda i: (fingerprint([seed, item["item_id"], item["choices"][i]]), i))
    return order
