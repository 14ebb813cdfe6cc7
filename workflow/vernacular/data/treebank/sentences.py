"""Sentences of CoNLL-U files, with the character offsets of their words.

The `conllu` library parses the lines. The text is rebuilt from the tokens (SpaceAfter=No, multiword ranges such as
`2-3 del`), so that offsets are exact by construction and words need not be searched for.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from conllu.exceptions import ParseException
from conllu.models import TokenList
from conllu.parser import DEFAULT_FIELDS, parse_dict_value, parse_sentences, parse_token_and_metadata

from vernacular.core.errors import DataError, first_line
from vernacular.core.names import check_readable


class Word(NamedTuple):
    """Syntactic word; `start` and `end` are its offsets in the sentence's text, None inside a multiword token."""

    id: int  # 1-based, as in the file
    form: str
    lemma: str
    upos: str
    xpos: str
    feats: dict[str, str]  # shared between words with equal features: must not be modified
    head: int  # id of the head; 0 for the root, -1 if the file has none
    deprel: str
    start: int | None
    end: int | None


@dataclass
class Sentence:
    """Sentence with its text rebuilt from the tokens; `mismatch`: the file's `# text` differs."""

    id: str
    text: str
    words: dict[int, Word]  # by id, in the order of the text
    file: str
    mismatch: bool = False
    children: dict[int, list[Word]] = field(default_factory=dict)  # by id of the head

    def __post_init__(self):
        for word in self.words.values():
            self.children.setdefault(word.head, []).append(word)


def read_sentences(path, name: str | None = None) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL-U file (also gzipped) in order; `name` is the file's name in messages.

    A sentence without sent_id gets the file's name and its number as ID.

    Raises:
        DataError: The file is missing, or not valid CoNLL-U; with the file, and the number of an invalid sentence.
    """
    path = Path(path)
    name = name or str(path)
    try:
        with _open(path) as file:
            lines = _LineCounter(file)
            for sentence_number, block in enumerate(parse_sentences(lines), start=1):
                location = f"{name}, sentence {sentence_number} (it ends before line {lines.count + 1})"
                yield _sentence(
                    _parse(block, location), location, f"{path.name.split('.')[0]}.{sentence_number}", path.name
                )
    except FileNotFoundError:
        raise DataError(f"{name}: file not found.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: cannot be read ({first_line(error)}).") from None


def _open(path: Path):
    with open(path, "rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8-sig") if is_gzipped else open(path, encoding="utf-8-sig")


class _LineCounter:
    """Lines of a file, with the number of lines read so far."""

    def __init__(self, file):
        self.file, self.count = file, 0

    def __iter__(self):
        for line in self.file:
            self.count += 1
            yield line


@lru_cache(maxsize=100_000)
def _features(text: str) -> dict[str, str]:
    return {name: value for name, value in (parse_dict_value(text) or {}).items() if value}


_PARSERS = {  # unused columns stay text; features are cached, because a treebank has few distinct values
    "feats": lambda line, i: _features(line[i]),
    "deps": lambda line, i: line[i],
    "misc": lambda line, i: line[i],
}


_TWO_SPACES = "\ue000"  # replaces two spaces, at which `conllu` splits columns even if a line has tabs


def _parse(block: str, location: str) -> TokenList:
    has_double_spaces = "\t" in block and "  " in block
    try:
        tokens = parse_token_and_metadata(
            block.replace("  ", _TWO_SPACES) if has_double_spaces else block, field_parsers=_PARSERS
        )
    except (ParseException, ValueError) as error:  # ValueError: a number with thousands of digits
        raise DataError(f"{location}: not CoNLL-U ({first_line(error)}).") from None
    for mapping in (tokens.metadata, *tokens) if has_double_spaces else ():
        mapping.update(
            {key: value.replace(_TWO_SPACES, "  ") for key, value in mapping.items() if isinstance(value, str)}
        )
    return tokens


def _sentence(tokens: TokenList, location: str, fallback: str, file: str) -> Sentence:
    words: dict[int, Word] = {}
    parts: list[str] = []
    offset = 0
    multiword_end = 0  # id of the last word of the current multiword token
    for token in tokens:
        if len(token) < len(DEFAULT_FIELDS):
            raise DataError(f"{location}: expected {len(DEFAULT_FIELDS)} columns in each line, got {len(token)}.")
        token_id = token["id"]
        if isinstance(token_id, tuple) and token_id[1] == ".":
            continue  # an empty node (8.1) is not part of the text
        if isinstance(token_id, tuple):
            multiword_end = token_id[2]
        elif token_id is None:
            raise DataError(f"{location}: a line without an ID.")
        span = (None, None)
        if isinstance(token_id, tuple) or token_id > multiword_end:
            span = (offset, offset + len(token["form"]))
            space = "" if "SpaceAfter=No" in token["misc"].split("|") else " "
            parts += (token["form"], space)
            offset = span[1] + len(space)
        if isinstance(token_id, int):
            if token_id in words:
                raise DataError(f"{location}: duplicate ID {token_id}.")
            head = token["head"]
            words[token_id] = Word(
                token_id, token["form"], token["lemma"], token["upos"], token["xpos"] or "_", token["feats"],
                -1 if head is None else head, token["deprel"], *span,
            )  # fmt: skip
    text = "".join(parts).rstrip(" ")
    text_comment = tokens.metadata.get("text")
    return Sentence(
        check_readable(tokens.metadata.get("sent_id") or fallback, location, "sent_id"),
        text,
        words,
        file,
        mismatch=text_comment is not None and text_comment.strip() != text.strip(),
    )
