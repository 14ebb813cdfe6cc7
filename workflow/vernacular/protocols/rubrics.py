"""Rubrics: how a judge is asked about a response, or about two, in a language; files and requests.

A prompt is a multiple-choice question whose options are the verdicts of the scale: the letter is parsed or scored as in
the protocols `choice` and `letters`. Text of a response is never read as a template.
"""

import re
from pathlib import Path
from string import ascii_uppercase

from vernacular.core.errors import ConfigError
from vernacular.core.languages import prompts_file
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.validate import check, fill_defaults, schema
from vernacular.core.yaml import read
from vernacular.protocols.choice.requests import MAX_NEW_TOKENS
from vernacular.protocols.prompts import additional_lines
from vernacular.protocols.request_rows import RequestSettings, continue_with, generation_requests, score_request, turn
from vernacular.types import Item, Request, Role

RUBRICS_DIR = WORKFLOW / "rubrics"
LETTER = "letter"  # parser
_SCHEMA = WORKFLOW / "schemas" / "rubric.schema.yaml"
_ONE, _PAIR = ("response",), ("first", "second")
_FIELD = re.compile(r"\{(prompt|reference|scale|response|first|second)\}")


def rubrics_directory(name: str) -> Path:
    """Return the directory of a rubric: one of Vernacular, by its name, or a user's, by its path."""
    return RUBRICS_DIR / name if re.fullmatch(r"\w+", name) and (RUBRICS_DIR / name).is_dir() else Path(name)


def load_rubric(directory: Path, language: str) -> dict:
    """Return the fields of a `RubricSpec` in a language, and `reviewed`; raise ConfigError if there are none."""
    path = prompts_file(language, directory)
    if path is None:
        found = ", ".join(sorted(file.stem for file in directory.glob("*.yaml"))) or "none"
        raise ConfigError(f'{display_path(directory)}: no rubric in "{language}" (available: {found}).')
    content, lines = read(path)
    check(content, lines, schema(_SCHEMA), path)
    fill_defaults(content, schema(_SCHEMA))
    name, parser = display_path(path), content["parser"]
    pattern = "" if parser == LETTER else parser
    template, values = content["template"], [float(value) for value in content["scale"].values()]
    fields = _FIELD.findall(template)
    sides = _PAIR if "first" in fields or "second" in fields else _ONE
    expected = [*sides, *([] if pattern else ["scale"])]
    if any(fields.count(field) != 1 for field in expected) or set(fields) & {*_ONE, *_PAIR} != {*sides}:
        listed = " and ".join(f"{{{field}}}" for field in expected)
        raise ConfigError(f"{name}: template: expected {listed} once, or {{first}} and {{second}} to compare two.")
    if sides == _PAIR and not all(0 <= value <= 1 for value in values):
        raise ConfigError(f"{name}: scale: expected values from 0 to 1 to compare two responses, got {values}.")
    if pattern:
        try:
            n_groups = re.compile(pattern).groups
        except re.error as error:
            raise ConfigError(f"{name}: parser: not a regular expression ({error}).") from None
        if n_groups != 1:
            raise ConfigError(f"{name}: parser: expected one group in the regular expression, got {n_groups}.")
    cue, instruction = (content.get(key) for key in ("cue", "instruction"))
    if cue is None or (instruction is None and not pattern):
        prompt_lines = additional_lines(("letter", "choice"), path.stem)
        if not prompt_lines:
            raise ConfigError(f'{name}: no prompt lines in "{path.stem}"; add `cue` and `instruction`.')
        cue = prompt_lines["letter"] if cue is None else cue
        instruction = prompt_lines["choice"] if instruction is None and not pattern else instruction
    return {
        "template": str(template),
        "texts": list(map(str, content["scale"])),
        "values": values,
        "cue": cue,
        "instruction": (instruction or "").replace("{cue}", cue),
        "pattern": pattern,
        "reviewed": content["reviewed"],
    }


def labels(rubric) -> list[str]:
    """Return what a judge names: letters, or the verdicts themselves if an expression finds them."""
    return rubric.texts if rubric.pattern else list(ascii_uppercase[: len(rubric.texts)])


def requests_of(
    item: Item, rubric, language: str, prompt: str, responses: tuple[str, ...], reference: str
) -> list[Request]:
    """Return the requests about a response, or about two in both orders.

    Roles are "response", and of the second order "response:0@1"; where the labels are scored, "choice:i", "choice:i@1".
    `prompt`: to which the responses are; of two, the judged model's is first.
    """
    settings = RequestSettings("", language, 0, "default")
    rows = []
    for order in range(len(responses)):
        shown = responses if order == 0 else responses[::-1]
        names = _PAIR if len(responses) == 2 else _ONE
        scale = "\n".join(f"{label}. {text}" for label, text in zip(ascii_uppercase, rubric.texts, strict=False))
        fields = {"prompt": prompt, "reference": reference, "scale": scale} | dict(zip(names, shown, strict=True))
        body = _FIELD.sub(lambda match, fields=fields: fields.get(match[1], match[0]), rubric.template)
        if rubric.reads == "text":
            text = f"{body}\n\n{rubric.instruction}".rstrip()
            turns = [turn("user", text)]
            (row,) = generation_requests(item, text, settings=settings, messages=turns, max_new_tokens=MAX_NEW_TOKENS)
            rows.append(row | {"role": str(Role("response", 0 if order else None, order))})
            continue
        text = f"{body}\n{rubric.cue}"
        for index, label in enumerate(labels(rubric)):
            left, span = continue_with(text, label, language)
            role = str(Role("choice", index, order))
            rows.append(score_request(item, role, left, span, settings=settings, user=text))
    return rows
