"""Sentences of CoNLL-U files, with the character offsets of their words, and matches of patterns in their trees.

The `conllu` library parses the lines. The text is rebuilt from the tokens (SpaceAfter=No, multiword ranges such as
`2-3 del`), so that offsets are exact by construction and words need not be searched for.
"""

import io
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from conllu.exceptions import ParseException
from conllu.models import Token, TokenList
from conllu.parser import DEFAULT_FIELDS, parse_dict_value, parse_token_and_metadata

from vernacular.core.errors import DataError, first_line
from vernacular.core.fields import as_list
from vernacular.core.names import check_readable
from vernacular.data.readers import read_text


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
    misspelled: bool = False  # by its annotation: Typo, CorrectForm, or split by goeswith


@dataclass
class Sentence:
    """Sentence with its text rebuilt from the tokens; `mismatch`: the file's `# text` differs."""

    id: str
    text: str
    words: dict[int, Word]  # by id, in the order of the text
    file: str
    mismatch: bool = False
    is_stripped: bool = False  # a word of its text is "_": released without its words
    children: dict[int, list[Word]] = field(default_factory=dict)  # by id of the head

    def __post_init__(self):
        for word in self.words.values():
            self.children.setdefault(word.head, []).append(word)


def read_sentences(path, name: str | None = None) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL-U file (also gzipped) in order; without sent_id, with file and number as ID.

    Raises DataError, with the file, `name`, and the number of an invalid sentence.
    """
    path = Path(path)
    name = name or str(path)
    lines = enumerate(io.StringIO(read_text(path, name, "CoNLL-U"), newline=None), start=1)
    groups = itertools.groupby(lines, key=lambda line: bool(line[1].strip()))
    blocks = (list(group) for has_text, group in groups if has_text)
    fields, sentence_number = DEFAULT_FIELDS, 0
    for block in blocks:
        for header in filter(None, (_COLUMNS.match(line) for _, line in block)):
            fields = _fields(header[1], f"{name}, lines {block[0][0]} to {block[-1][0]}")
        if all(line.startswith("#") for _, line in block):
            continue  # of the file, not of a sentence
        sentence_number += 1
        location = f"{name}, sentence {sentence_number} (lines {block[0][0]} to {block[-1][0]})"
        tokens = _parse("".join(line for _, line in block).rstrip(), location, fields)
        yield _sentence(tokens, location, f"{path.name.split('.')[0]}.{sentence_number}", path.name)


_COLUMNS = re.compile(r"# *global\.columns *=(.*)", re.IGNORECASE)
_OPTIONAL = {"xpos", "deps", "misc"}


def _fields(header: str, location: str) -> tuple[str, ...]:
    """Return the columns that a header of CoNLL-U Plus names, those of CoNLL-U in lower case."""
    fields = tuple(name.lower() if name.lower() in DEFAULT_FIELDS else name for name in header.split())
    if missing := [name for name in DEFAULT_FIELDS if name not in fields and name not in _OPTIONAL]:
        raise DataError(f"{location}: global.columns: column {missing[0].upper()} not found.")
    if len(set(fields)) < len(fields):
        raise DataError(f"{location}: global.columns: expected different columns, got{header.rstrip()}.")
    return fields


@lru_cache(maxsize=100_000)
def _features(text: str) -> dict[str, str]:
    return {name: value for name, value in (parse_dict_value(text) or {}).items() if value}


_PARSERS = {  # unused columns stay text; features are cached, because a treebank has few distinct values
    "feats": lambda line, i: _features(line[i]),
    "deps": lambda line, i: line[i],
    "misc": lambda line, i: line[i],
}


_TWO_SPACES = "\ue000"  # replaces two spaces, at which `conllu` splits columns even if a line has tabs


def _parse(block: str, location: str, fields: tuple[str, ...]) -> TokenList:
    has_double_spaces = "\t" in block and "  " in block
    try:
        text = block.replace("  ", _TWO_SPACES) if has_double_spaces else block
        tokens = parse_token_and_metadata(text, fields, field_parsers=_PARSERS)
    except (ParseException, ValueError) as error:  # ValueError: a number with thousands of digits
        raise DataError(f"{location}: not CoNLL-U ({first_line(error)}).") from None
    for mapping in (tokens.metadata, *tokens) if has_double_spaces else ():
        texts = {key: value for key, value in mapping.items() if isinstance(value, str)}
        mapping.update({key: text.replace(_TWO_SPACES, "  ") for key, text in texts.items()})
    return tokens


def _sentence(tokens: TokenList, location: str, fallback: str, file: str) -> Sentence:
    words: dict[int, Word] = {}
    parts: list[str] = []
    offset = 0
    multiword_end = 0  # id of the last word of the current multiword token
    is_stripped = False
    for token in tokens:
        if len(token) < len(tokens.default_fields):
            expected = len(tokens.default_fields)
            raise DataError(f"{location}: expected {expected} columns in each line, got {len(token)}.")
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
            space = "" if "SpaceAfter=No" in token.get("misc", "_").split("|") else " "
            parts += (token["form"], space)
            offset = span[1] + len(space)
            is_stripped |= token["form"] == "_" and token.get("upos") not in ("PUNCT", "SYM")
        if isinstance(token_id, int):
            if token_id in words:
                raise DataError(f"{location}: duplicate ID {token_id}.")
            head = token["head"]
            words[token_id] = Word(
                token_id, token["form"], token["lemma"], token["upos"], token.get("xpos") or "_", token["feats"],
                -1 if head is None else head, token["deprel"], *span, _is_misspelled(token),
            )  # fmt: skip
    for word in [word for word in words.values() if word.deprel.partition(":")[0] == "goeswith"]:
        parts_of_word = (each for each in (word.id, word.head) if each in words)
        words |= {each: words[each]._replace(misspelled=True) for each in parts_of_word}
    text = "".join(parts).rstrip(" ")
    text_comment = tokens.metadata.get("text")
    return Sentence(
        check_readable(tokens.metadata.get("sent_id") or fallback, location, "sent_id"),
        text,
        words,
        file,
        mismatch=text_comment is not None and text_comment.strip() != text.strip(),
        is_stripped=is_stripped,
    )


def _is_misspelled(token: Token) -> bool:
    misc = token.get("misc", "_").split("|")
    return token["feats"].get("Typo") == "Yes" or any(
        each == "Typo=Yes" or each[:12] == "CorrectForm=" for each in misc
    )


_TEXTS = ("upos", "deprel", "lemma", "form", "xpos")  # the most selective first


@dataclass(frozen=True)
class Node:
    """Constraints on a word; `assume` are default values of features that the word does not have."""

    texts: tuple[tuple[str, Callable[[str], bool]], ...]
    features: tuple[tuple[str, object], ...]  # (name, set of values | True: has it | False: lacks it)
    excluded: tuple["Node", ...]
    assume: dict[str, str]

    @classmethod
    def of(cls, spec: dict) -> "Node":
        """Return the constraints of a node in a pattern file; each entry under `not` rejects a word by itself."""
        exclusions = spec.get("not", {})
        exclusion_specs = [{key: exclusions[key]} for key in _TEXTS if key in exclusions]
        exclusion_specs += [{"feats": {name: value}} for name, value in exclusions.get("feats", {}).items()]
        return cls(
            texts=tuple((key, _build_matcher(spec[key])) for key in _TEXTS if key in spec),
            features=tuple((name, _value_set(value)) for name, value in spec.get("feats", {}).items()),
            excluded=tuple(cls.of(exclusion) for exclusion in exclusion_specs),
            assume={name: str(value) for name, value in spec.get("assume", {}).items()},
        )

    def fits(self, word: Word) -> bool:
        for key, matches in self.texts:
            if not matches(getattr(word, key)):
                return False
        for name, expected in self.features:
            value = self.value(word, name)
            if isinstance(expected, bool):
                if (value is not None) is not expected:
                    return False
            elif value is None or expected.isdisjoint([value, *value.split(",")]):  # Int,Rel: one of them, or both
                return False
        return not any(exclusion.fits(word) for exclusion in self.excluded)

    def value(self, word: Word, feature: str) -> str | None:
        return word.feats.get(feature, self.assume.get(feature))


def _build_matcher(spec) -> Callable[[str], bool]:
    """Return a predicate: whether a text equals any of those wanted, in which * matches any characters.

    >>> [_build_matcher(["nsubj", "aux:*"])(deprel) for deprel in ("nsubj", "nsubj:pass", "aux:pass")]
    [True, False, True]
    """
    texts = list(map(str, as_list(spec)))
    if not any("*" in text for text in texts):
        return frozenset(texts).__contains__
    pattern = re.compile("|".join(".*".join(map(re.escape, text.split("*"))) for text in texts), re.DOTALL)
    return lru_cache(maxsize=10_000)(lambda text: pattern.fullmatch(text) is not None)


def _value_set(spec):
    return spec if isinstance(spec, bool) else set(map(str, as_list(spec)))


@dataclass(frozen=True)
class Related:
    """Word that must (or, under `without`, must not) exist, and its relation to the word named `of`."""

    node: Node
    name: str
    relation: str  # head, child, sibling, word
    of: str
    order: str | None  # before, after: in the text, relative to `of`
    within: int | None  # maximum distance from `of`, in words
    agrees: tuple[str, ...]  # features of which it shares a value with the target


@dataclass(frozen=True)
class Request:
    """Target of a pattern, and the words that it requires and forbids."""

    target: Node
    related: tuple[Related, ...]
    without: tuple[Related, ...]

    @classmethod
    def of(cls, pattern: dict) -> "Request":
        """Return the request of a pattern as `load_pattern` returns it."""
        return cls(
            Node.of(pattern["target"]),
            tuple(_parse_related(spec) for spec in pattern.get("related", [])),
            tuple(_parse_related(spec) for spec in pattern.get("without", [])),
        )


@dataclass(frozen=True)
class Match:
    """Word that fits the target; `words` by name (target and related ones), or None if a relation is not satisfied."""

    target: Word
    words: dict[str, Word] | None

    @property
    def distance(self) -> int | None:
        """Distance from the target to the first related word, in words (1: adjacent); None without a related word."""
        names = [name for name in self.words or {} if name != "target"]
        return abs(self.target.id - self.words[names[0]].id) if names else None


def matches(sentence: Sentence, request: Request) -> Iterator[Match]:
    """Yield every word that fits the target, in order, with the first related words from left to right."""
    for word in sentence.words.values():
        if request.target.fits(word):
            yield Match(word, _assign(sentence, request, {"target": word}, request.related))


def _assign(sentence: Sentence, request: Request, assignment: dict, remaining: tuple[Related, ...]) -> dict | None:
    """Return `assignment` with a word for each of `remaining`; None if none fits, or a forbidden word exists."""
    if not remaining:
        forbidden = (_candidates(sentence, request, assignment, word) for word in request.without)
        has_forbidden_word = any(map(any, forbidden))
        return None if has_forbidden_word else assignment
    for word in _candidates(sentence, request, assignment, remaining[0]):
        if complete_assignment := _assign(sentence, request, {**assignment, remaining[0].name: word}, remaining[1:]):
            return complete_assignment
    return None


def _candidates(
    sentence: Sentence, request: Request, assignment: dict[str, Word], related_word: Related
) -> Iterator[Word]:
    origin, target = assignment[related_word.of], assignment["target"]
    used_ids = {word.id for word in assignment.values()}
    for word in _words_by_relation(sentence, origin, related_word.relation):
        if word.id in used_ids or not related_word.node.fits(word):
            continue
        if related_word.order and (word.id < origin.id) is not (related_word.order == "before"):
            continue
        if related_word.within is not None and abs(word.id - origin.id) > related_word.within:
            continue
        node = related_word.node
        pairs = [(node.value(word, name), request.target.value(target, name)) for name in related_word.agrees]
        if all(a and b and not set(a.split(",")).isdisjoint(b.split(",")) for a, b in pairs):
            yield word


def _words_by_relation(sentence: Sentence, origin: Word, relation: str) -> list[Word]:
    if relation == "head":
        return [sentence.words[origin.head]] if origin.head in sentence.words else []
    if relation == "child":
        return sentence.children.get(origin.id, [])
    if relation == "sibling":
        return [word for word in sentence.children.get(origin.head, []) if word.id != origin.id]
    return list(sentence.words.values())


def _parse_related(spec: dict) -> Related:
    return Related(
        Node.of(spec), spec["name"], spec["relation"], spec["of"], spec.get("order"), spec.get("within"),
        tuple(spec.get("agrees", ())),
    )  # fmt: skip
