"""Pattern matching in dependency trees: words that satisfy constraints, and relations to other words."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from vernacular.data.treebank.sentences import Sentence, Word

_TEXTS = ("upos", "deprel", "lemma", "form", "xpos")  # the most selective first


@dataclass(frozen=True)
class Node:
    """Constraints on a word; `assume` are default values of features that the word does not have."""

    texts: tuple[tuple[str, Callable[[str], bool]], ...]
    features: tuple[tuple[str, object], ...]  # (name, set of values | True: has it | False: lacks it)
    unwanted: tuple["Node", ...]
    assume: dict[str, str]

    @classmethod
    def of(cls, spec: dict) -> "Node":
        """Return the constraints of a node in a pattern file; what it does not list is not constrained.

        Each entry under `not` rejects a word by itself.
        """
        refused = spec.get("not", {})
        reasons = [{key: refused[key]} for key in _TEXTS if key in refused]
        reasons += [{"feats": {name: value}} for name, value in refused.get("feats", {}).items()]
        return cls(
            texts=tuple((key, _matcher(spec[key])) for key in _TEXTS if key in spec),
            features=tuple((name, _values(value)) for name, value in spec.get("feats", {}).items()),
            unwanted=tuple(cls.of(reason) for reason in reasons),
            assume={name: str(value) for name, value in spec.get("assume", {}).items()},
        )

    def fits(self, word: Word) -> bool:
        for key, matches in self.texts:
            if not matches(getattr(word, key)):
                return False
        for name, wanted in self.features:
            value = self.value(word, name)
            if isinstance(wanted, bool):
                if (value is not None) is not wanted:
                    return False
            elif value is None or wanted.isdisjoint(value.split(",")):
                return False
        return not any(reason.fits(word) for reason in self.unwanted)

    def value(self, word: Word, feature: str) -> str | None:
        return word.feats.get(feature, self.assume.get(feature))


def _matcher(wanted) -> Callable[[str], bool]:
    """Return a predicate: whether a text equals any of those wanted, in which * matches any characters.

    >>> [_matcher(["nsubj", "aux:*"])(deprel) for deprel in ("nsubj", "nsubj:pass", "aux:pass")]
    [True, False, True]
    """
    texts = [str(text) for text in (wanted if isinstance(wanted, list) else [wanted])]
    if not any("*" in text for text in texts):
        return frozenset(texts).__contains__
    pattern = re.compile("|".join(".*".join(map(re.escape, text.split("*"))) for text in texts), re.DOTALL)
    return lru_cache(maxsize=10_000)(lambda text: pattern.fullmatch(text) is not None)


def _values(wanted):
    if isinstance(wanted, bool):
        return wanted
    return {str(value) for value in (wanted if isinstance(wanted, list) else [wanted])}


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
            tuple(_related(spec) for spec in pattern.get("related", [])),
            tuple(_related(spec) for spec in pattern.get("without", [])),
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


def _assign(sentence: Sentence, request: Request, found: dict, left: tuple[Related, ...]) -> dict | None:
    """Return `found` with a word for each of `left` such that no forbidden word exists; None if impossible."""
    if not left:
        forbidden = any(any(_candidates(sentence, request, found, one)) for one in request.without)
        return None if forbidden else found
    for word in _candidates(sentence, request, found, left[0]):
        if complete := _assign(sentence, request, {**found, left[0].name: word}, left[1:]):
            return complete
    return None


def _candidates(sentence: Sentence, request: Request, found: dict[str, Word], one: Related) -> Iterator[Word]:
    origin, target = found[one.of], found["target"]
    taken = {word.id for word in found.values()}
    for word in _reached(sentence, origin, one.relation):
        if word.id in taken or not one.node.fits(word):
            continue
        if one.order and (word.id < origin.id) is not (one.order == "before"):
            continue
        if one.within is not None and abs(word.id - origin.id) > one.within:
            continue
        pairs = [(one.node.value(word, name), request.target.value(target, name)) for name in one.agrees]
        if all(a and b and not set(a.split(",")).isdisjoint(b.split(",")) for a, b in pairs):
            yield word


def _reached(sentence: Sentence, origin: Word, relation: str) -> list[Word]:
    if relation == "head":
        return [sentence.words[origin.head]] if origin.head in sentence.words else []
    if relation == "child":
        return sentence.children.get(origin.id, [])
    if relation == "sibling":
        return [word for word in sentence.children.get(origin.head, []) if word.id != origin.id]
    return list(sentence.words.values())


def _related(spec: dict) -> Related:
    return Related(
        Node.of(spec), spec["name"], spec["relation"], spec["of"], spec.get("order"), spec.get("within"),
        tuple(spec.get("agrees", ())),
    )  # fmt: skip
