"""Words of a sentence that a pattern is about: those that fit its target and stand in its relations to other words."""

from collections.abc import Iterator
from dataclasses import dataclass

from vernacular.data.treebank.nodes import Node
from vernacular.data.treebank.sentences import Sentence, Word


@dataclass(frozen=True)
class Related:
    """A word that must (or, under `without`, must not) be there, and how it is related to the one called `of`."""

    node: Node
    name: str
    relation: str  # head, child, sibling, word
    of: str
    order: str | None  # before, after: in the text, seen from `of`
    within: int | None  # at most so many words away
    agrees: tuple[str, ...]  # features in which it has the target's values


@dataclass(frozen=True)
class Request:
    """A pattern's target, the words it demands and those it forbids."""

    target: Node
    related: tuple[Related, ...]
    without: tuple[Related, ...]

    @classmethod
    def of(cls, pattern: dict) -> "Request":
        """Of a pattern as `load_pattern` gives it."""
        return cls(
            Node.of(pattern["target"]),
            tuple(_related(spec) for spec in pattern.get("related", [])),
            tuple(_related(spec) for spec in pattern.get("without", [])),
        )


@dataclass(frozen=True)
class Match:
    """A word that fits the target; `words` by name (target, and the related ones), None where the relations fail."""

    target: Word
    words: dict[str, Word] | None

    @property
    def distance(self) -> int | None:
        """From the target to the first related word in words of the sentence (1: next to it)."""
        names = [name for name in self.words or {} if name != "target"]
        return abs(self.target.id - self.words[names[0]].id) if names else None


def matches(sentence: Sentence, request: Request) -> Iterator[Match]:
    """Every word that fits the target, in order, with the first words found (from left to right) that are related."""
    for word in sentence.words.values():
        if request.target.fits(word):
            yield Match(word, _assign(sentence, request, {"target": word}, request.related))


def _assign(sentence: Sentence, request: Request, found: dict, left: tuple[Related, ...]) -> dict | None:
    """`found` completed with a word for each of `left` so that nothing forbidden is there; None if that cannot be."""
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
