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
    excluded: tuple["Node", ...]
    assume: dict[str, str]

    @classmethod
    def of(cls, spec: dict) -> "Node":
        """Return the constraints of a node in a pattern file; what it does not list is not constrained.

        Each entry under `not` rejects a word by itself.
        """
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
            elif value is None or expected.isdisjoint(value.split(",")):
                return False
        return not any(exclusion.fits(word) for exclusion in self.excluded)

    def value(self, word: Word, feature: str) -> str | None:
        return word.feats.get(feature, self.assume.get(feature))


def _build_matcher(spec) -> Callable[[str], bool]:
    """Return a predicate: whether a text equals any of those wanted, in which * matches any characters.

    >>> [_build_matcher(["nsubj", "aux:*"])(deprel) for deprel in ("nsubj", "nsubj:pass", "aux:pass")]
    [True, False, True]
    """
    texts = [str(text) for text in (spec if isinstance(spec, list) else [spec])]
    if not any("*" in text for text in texts):
        return frozenset(texts).__contains__
    pattern = re.compile("|".join(".*".join(map(re.escape, text.split("*"))) for text in texts), re.DOTALL)
    return lru_cache(maxsize=10_000)(lambda text: pattern.fullmatch(text) is not None)


def _value_set(spec):
    if isinstance(spec, bool):
        return spec
    return {str(value) for value in (spec if isinstance(spec, list) else [spec])}


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
        has_forbidden_word = any(
            any(_candidates(sentence, request, assignment, related_word)) for related_word in request.without
        )
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
        pairs = [
            (related_word.node.value(word, name), request.target.value(target, name)) for name in related_word.agrees
        ]
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
