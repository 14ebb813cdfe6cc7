"""Rows of plain text files: the file is one text, or empty lines separate texts."""

import re
from collections.abc import Iterator

_EMPTY_LINES = re.compile(r"\n(?:[ \t]*\n)+")


def read_text(text: str, name: str) -> Iterator[tuple[str, dict]]:
    """Yield one row, whose column `text` is the whole file; lines end in \\n."""
    yield name, {"text": _with_unix_lines(text)}


def read_paragraphs(text: str, name: str) -> Iterator[tuple[str, dict]]:
    """Yield a row per paragraph, with its location for messages.

    >>> list(read_paragraphs("a\\nb\\n\\n \\nc\\n", "f.txt"))
    [('f.txt, paragraph 1', {'text': 'a\\nb'}), ('f.txt, paragraph 2', {'text': 'c'})]
    """
    paragraphs = filter(None, (part.strip("\n") for part in _EMPTY_LINES.split(_with_unix_lines(text))))
    for number, paragraph in enumerate(paragraphs, start=1):
        yield f"{name}, paragraph {number}", {"text": paragraph}


def _with_unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


TEXT_READERS = {"txt": read_text, "paragraphs": read_paragraphs}
