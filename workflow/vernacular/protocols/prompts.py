"""Prompts of items: the lines of `prompts/{language}.yaml` (`prompts_directory`), in the order of the task's layout.

These lines are the variant `default`. Another one, a block under `variants`, is a complete template for each layout
that it covers: with {context}, {question} and {options}, and the options' heading and form of the default where it
gives none. A line of a template whose field is empty is left out; text of an item is never read as a template.

A prompt is the item's text, its options if they are shown, and a cue ("Resposta:") without a trailing space; the answer
follows after one space. Few-shot examples are such prompts with their answers, separated by an empty line.
"""

import functools
import re
import shlex
from pathlib import Path

from vernacular.core import validate
from vernacular.core.errors import ConfigError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.languages import fallbacks, neighbors, prompts_file
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.validate import Problems
from vernacular.core.yaml import read
from vernacular.protocols.request_rows import RequestSettings, continue_with, turn
from vernacular.types import Item

PROMPTS_DIR = WORKFLOW / "prompts"
WORDINGS = "wordings"  # key of a prompts file with what constants of task files are called (data/tasks.py)
VARIANTS = "variants"  # key of a prompts file with other ways to ask
REFUSALS = "refusals"  # key with beginnings of refusals, which no prompt contains; all other keys are the default
ANSWERS = "answers"  # key with words around the letter in a response, which no prompt contains
CHOICE = "choice"  # line that only one protocol needs, and that a file may lack
_CUE = "{cue}"  # stands for the line `letter` in it
REVIEWED = "reviewed"  # name of the speaker who has read the default, and the date; false until then
ENGLISH = "en"

NAMES = "names"  # key with names of languages, for translations

ENTITIES, ENTITY_TYPES = "entities", "entity_types"  # cue of named entities, and the keys of the answer by type
_SEPARATE = (VARIANTS, WORDINGS, REVIEWED, REFUSALS, ANSWERS, CHOICE, NAMES, ENTITIES, ENTITY_TYPES)

# each line of a prompts file: the field that it contains (None: a cue or heading), and what it is for, for translators
_LINES = {
    "passage": ("{context}", "heads a text that questions are about, or that is summarized"),
    "question": ("{question}", "heads a question"),
    "story": ("{context}", "heads the beginning of a story, which the model ends"),
    "sentence": ("{context}", "heads a sentence, with a gap if a word is missing"),
    "options": (None, "heads the list of options; they follow, one per line"),
    "option": ("{option}", "one option of that list"),
    "answer": (None, "the model continues it with the answer to a question"),
    "ending": (None, "the model continues it with the end of a story, or with one of two sentences"),
    "summary": (None, "the model continues it with a summary of the text"),
    "word": (None, "the model continues it with the missing word"),
    "letter": (None, "the model continues it with the letter of an option: A, B, …"),
    "complete": (None, "instruction above a text whose last word is missing"),
}
LINES = {name: field for name, (field, _) in _LINES.items()}
PURPOSES = {name: purpose for name, (_, purpose) in _LINES.items()}

# item type: (line of the context, cue before the answer); "" = the context without a line, None = no cue
LAYOUTS = {
    "question": ("passage", "answer"),
    "passage": ("passage", "answer"),
    "multi_answer": ("passage", "answer"),
    "open_question": ("passage", "answer"),
    "story": ("story", "ending"),
    "pair": ("", "ending"),
    "sentence": ("sentence", "answer"),
    "summary": ("passage", "summary"),
    "cloze": ("sentence", "word"),
    "target_word": ("sentence", "word"),
    "continuation": ("", None),
    "text": ("", None),
    "translation": ("source", "translation"),
    "entities": ("sentence", ENTITIES),
}


def prompts_directory(language: str, task: dict) -> Path:
    """Return the directory with the prompt lines of a language, beside the task or shipped, or for them."""
    own = Path(task["directory"]).absolute() / "prompts"
    is_shipped = prompts_file(language, PROMPTS_DIR) or own.parent == WORKFLOW / "tasks"
    return PROMPTS_DIR if is_shipped and not prompts_file(language, own) else own


def language_pair(task: dict, language: str) -> tuple[str, str] | None:
    """Return the languages from and into which a task translates items of a language; None if it does not."""
    if "pair" in task or task["item_type"] != "translation":
        return tuple(task["pair"]) if "pair" in task else None
    columns = task["languages"][language]["columns"]
    return columns["source_language"], columns["target_language"]


def entity_types(task: dict, language: str) -> tuple[str, ...]:
    """Return the types of entities that are listed for items of a language; () for items of another type."""
    if task["item_type"] != "entities":
        return ()
    return tuple(task["languages"][language]["columns"]["types"])


def language_of_lines(language: str, style: str, task: dict) -> str:
    """Return the language of the lines around the items: that of the output, or English if the style states it.

    >>> task = {"item_type": "question"}
    >>> language_of_lines("ast", "default", task), language_of_lines("ast", "english-open", task)
    ('ast', 'en')
    """
    pair = language_pair(task, language)
    return ENGLISH if style.startswith("english") else pair[1] if pair else language


@functools.cache  # called for each evaluation of a grid
def load_labels(language: str, directory: Path = PROMPTS_DIR) -> dict[str, str]:
    """Return the prompt lines of a language. Raises ConfigError if they are not found, or a line is invalid."""
    path = prompts_file(language, directory) or Path(directory) / f"{language}.yaml"
    labels = prompt_lines(language, directory)
    if labels is None:
        available = ", ".join(sorted(file.stem for file in PROMPTS_DIR.glob("*.yaml")))
        command = f"vernacular init {shlex.quote(display_path(path))} --prompts-from gl"
        raise ConfigError(
            f'prompts for the language "{language}" not found (available: {available}).\n'
            f"`{command}` writes the lines to translate; `styles: english` shows the items with English lines."
        )
    if not isinstance(labels, dict):
        raise ConfigError(f"{display_path(path)}: expected a mapping with one `line: text` per row.")
    if missing := [name for name in LINES if not isinstance(text := labels.get(name), str) or not text.strip()]:
        names = ", ".join(f"`{name}`" for name in missing)
        subject = f"the lines {names} are" if len(missing) > 1 else f"the line {names} is"
        raise ConfigError(f"{display_path(path)}: {subject} missing or empty. Add the text.")
    for name, field in LINES.items():
        if field and (text := labels[name]).count(field) != 1:
            raise ConfigError(f"{display_path(path)}: expected {field} once in the line `{name}`, got {text!r}.")
    reviewer = reviewed(language, directory)
    if not (reviewer is None or reviewer is False or isinstance(reviewer, str)):
        expected = "expected the reviewer's name and the date, or false, for `reviewed`"
        raise ConfigError(f"{display_path(path)}: {expected}, got {reviewer!r}.")
    return labels


@functools.cache
def reviewed(language: str, directory: Path = PROMPTS_DIR) -> object:
    """Return who has read the default lines, and when; False: no speaker; None: not stated, or the file is invalid."""
    path = prompts_file(language, directory)
    content = read(path)[0] if path else None
    return content.get(REVIEWED) if isinstance(content, dict) else None


@functools.cache
def prompt_lines(language: str, directory: Path = PROMPTS_DIR) -> dict | None:
    """Return the default of a language's prompts file, without comments and formatting; None if it does not exist."""
    path = prompts_file(language, directory)
    content = read(path)[0] if path else None
    if not isinstance(content, dict):
        return content
    return {name: text for name, text in content.items() if name not in _SEPARATE}


def additional_lines(
    names: tuple[str, ...],
    language: str,
    directory: Path = PROMPTS_DIR,
    pair: tuple[str, str] | None = None,
    types: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return lines of a language by name, and of a translation between a `pair`; {} without a file.

    The lines of a translation are the names of its languages with a colon; those of `types` of entities are what an
    answer calls them. Raises ConfigError if one is missing or invalid.
    """
    path = prompts_file(language, directory)
    content = read(path)[0] if path and (names or pair) else {}
    lines = {name: content.get(name) for name in names} if isinstance(content, dict) and path else {}
    for name, text in lines.items():
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"{display_path(path)}: the line `{name}` is missing or empty. Add the text.")
        if name == CHOICE and text.count(_CUE) != 1:
            raise ConfigError(f"{display_path(path)}: expected {_CUE} once in the line `{name}`, got {text!r}.")
    if pair and path and isinstance(content, dict):
        source, target = (_language_name(content.get(NAMES), tag, path) for tag in pair)
        lines |= {"source": f"{source}: {{context}}", "translation": f"{target}:"}
    if types and path and isinstance(content, dict):
        lines |= _entity_words(content.get(ENTITY_TYPES), types, path)
    return lines


def _entity_words(words, types: tuple[str, ...], path: Path) -> dict[str, str]:
    known = {name: text for name, text in (words if isinstance(words, dict) else {}).items() if isinstance(text, str)}
    if missing := [name for name in types if not known.get(name, "").strip()]:
        raise ConfigError(
            f'{display_path(path)}: word for entities of the type "{missing[0]}" not found. '
            f"Add `{ENTITY_TYPES}: {{{missing[0]}: …}}`."
        )
    if len({known[name].casefold() for name in types}) < len(types):
        raise ConfigError(f"{display_path(path)}: expected another word under `{ENTITY_TYPES}` for each type.")
    return {f"{ENTITY_TYPES}.{name}": known[name] for name in types}


def _language_name(names, language: str, path: Path) -> str:
    known = names if isinstance(names, dict) else {}
    name = next((known[tag] for tag in fallbacks(language) if tag in known), None)
    if not isinstance(name, str) or not name.strip() or "{" in name:
        raise ConfigError(
            f'{display_path(path)}: name of the language "{language}" not found. Add `{NAMES}: {{{language}: …}}`.'
        )
    return name


def answer_words(language: str) -> list[dict[str, list[str]]]:
    """Return words around the letter in responses to items of a language: in it, its neighbors and English."""
    codes = (*fallbacks(language), *neighbors(language), ENGLISH)
    # of a language with two scripts, both
    names = dict.fromkeys(name for code in codes for name in (code, f"{code}-Cyrl", code.removesuffix("-Cyrl")))
    contents = [read(path)[0] for name in names if (path := PROMPTS_DIR / f"{name}.yaml").is_file()]
    return [content[ANSWERS] for content in contents if content.get(ANSWERS)]


def refusal_phrases(language: str) -> list[str]:
    """Return beginnings of refusals in a language and in English, case-folded; in English only without a file."""
    paths = [PROMPTS_DIR / f"{code}.yaml" for code in dict.fromkeys((*fallbacks(language), ENGLISH))]
    contents = [read(path)[0] for path in paths if path.is_file()]
    return [phrase.casefold() for content in contents for phrase in content.get(REFUSALS, ())]


def query(item: Item, settings: RequestSettings, options: list[str] | None = None) -> str:
    """Return an item's prompt, which ends in the cue of its layout; `options`: the texts, in display order."""
    labels = settings.labels
    if "templates" in labels:
        lines = [labels["option"].replace("{option}", option) for option in options or ()]
        heading = [labels["options"]] if labels["options"] else []
        return fill(template(item, settings), item, "\n".join([*heading, *lines]) if lines else "")
    context_line, cue = LAYOUTS[settings.item_type]
    lines = []
    if item["context"]:
        context = item["context"]
        lines.append(labels[context_line].replace("{context}", context) if context_line else context.rstrip())
    if item["question"]:
        lines.append(labels["question"].replace("{question}", item["question"]))
    if options:
        lines.append(labels["options"])
        lines += [labels["option"].replace("{option}", option) for option in options]
    if cue:
        lines.append(labels[cue])
    return "\n".join(lines)


def template(item: Item, settings: RequestSettings, *, letters: bool = False) -> str:
    """Return a variant's template for an item. Raises ConfigError if the variant has none."""
    name = layout(settings.item_type, letters=letters, context=bool(item["context"]))
    if name not in settings.labels["templates"]:
        raise ConfigError(f"item {item['item_id']} has the layout {name}, which this prompt variant does not cover.")
    return settings.labels["templates"][name]


def cue(item: Item, settings: RequestSettings) -> str:
    """Return the cue alone, after which an option is scored without the question."""
    if "templates" in settings.labels:
        return cue_of(template(item, settings))
    name = LAYOUTS[settings.item_type][1]
    return settings.labels[name] if name else ""


def gold_index(item: Item) -> int | None:
    """Return the option that answers a few-shot example: the best answer if known, else the first correct one."""
    if item["target"] in item["choices"]:
        return item["choices"].index(item["target"])
    return item["gold"][0] if item["gold"] else None


def gold_text(item: Item) -> str | None:
    """Return the text that answers a few-shot example; None if the correct answer is unknown."""
    index = gold_index(item)
    return item["choices"][index] if index is not None else (item["target"] or None)


def example(prompt: str, answer: str, language: str, message: str | None = None) -> tuple[str, list[dict]]:
    """Return a few-shot example as text, which ends in an empty line, and as chat turns, of which the first may differ.

    >>> example("Capital?", "Lugo", "gl")[0]
    'Capital? Lugo\\n\\n'
    """
    text = "".join(continue_with(prompt, answer, language)) + "\n\n"
    return text, [turn("user", message or prompt), turn("assistant", answer)]


def display_order(item: Item, settings: RequestSettings) -> list[int]:
    """Return the indices of the options in display order: that of the dataset, except for `multi_answer` items.

    These list correct answers first, so they are shuffled by hash, which depends on item, seed and texts only.
    """
    order = list(range(len(item["choices"])))
    if settings.item_type == "multi_answer":
        order.sort(key=lambda i: (fingerprint([settings.seed, item["item_id"], item["choices"][i]]), i))
    return order


FIELDS = ("context", "question", "options")
# fields that a template must contain once, by layout
LAYOUT_FIELDS = {
    "passage": FIELDS,
    "question": ("question", "options"),
    "story": ("context", "options"),
    "pair": ("context", "options"),
    "sentence": ("context", "options"),
    "cloze": ("context", "options"),
    "summary": ("context",),
    "letters_passage": FIELDS,
    "letters_question": ("question", "options"),
}
_FIELD = re.compile(r"\{(\w*)\}")


def layout(item_type: str, *, letters: bool, context: bool = True) -> str | None:
    """Return the layout of an item, by its type and whether it has a context; None if its type has no words to vary.

    >>> layout("multi_answer", letters=False, context=False), layout("passage", letters=True)
    ('question', 'letters_passage')
    """
    if item_type in ("passage", "question", "multi_answer", "open_question"):
        name = "passage" if context else "question"
        return f"letters_{name}" if letters else name
    if letters:
        return "letters_passage"
    return {"target_word": "cloze"}.get(item_type, item_type if item_type in LAYOUT_FIELDS else None)


def usual_layout(item_type: str, *, letters: bool) -> str | None:
    """Return the layout that the items of a type usually have: a question has no passage."""
    return layout(item_type, letters=letters, context=item_type not in ("question", "multi_answer", "open_question"))


def problem(template: str, layout_name: str) -> str | None:
    """Return what is invalid in a template, or None."""
    required, found = LAYOUT_FIELDS[layout_name], _FIELD.findall(template)
    for name in found:
        if name not in required:
            listed = ", ".join(f"{{{field}}}" for field in required)
            return f"{{{name}}} is not a field of this layout; expected {listed}"
    for name in required:
        if found.count(name) != 1:
            return f"expected {{{name}}} once, got {found.count(name)}"
    cue = cue_of(template)
    if _FIELD.search(cue) or not cue.strip() or cue != cue.rstrip():
        return "expected a last line with the cue alone, without a space at its end"
    return None


def cue_of(template: str) -> str:
    """Return the last line, after which the answer follows."""
    return template.rpartition("\n")[2]


def fill(template: str, item: Item, options: str) -> str:
    """Return the prompt of an item; `options` is the text of its options, "" if they are not shown.

    Raises ConfigError if the item has a text for which the template has no field.
    """
    values = {"context": item["context"].rstrip(), "question": item["question"], "options": options}
    fields = _FIELD.findall(template)
    for name, value in values.items():
        if value and name not in fields:
            raise ConfigError(f"item {item['item_id']} has a {name}, for which its prompt has no {{{name}}}.")
    lines = []
    for line in template.split("\n"):
        names = _FIELD.findall(line)
        if names and not any(values[name] for name in names):
            continue
        lines.append(_FIELD.sub(lambda match: values[match[1]], line))
    return "\n".join(lines)


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
    """Return the variants with words for the layout of an item type, the default first; [] if nothing can vary."""
    layout = usual_layout(item_type, letters=letters)
    if layout is None:
        return []
    return [DEFAULT, *(name for name, block in variants(language, directory).items() if layout in block)]


def variant_labels(language: str, name: str, directory: Path = PROMPTS_DIR) -> dict:
    """Return the default's lines that a variant uses, and its templates; raise ConfigError for an unknown name."""
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
