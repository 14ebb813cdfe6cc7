"""What a pattern demands of one word: part of speech, lemma, form, features, relation."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from vernacular.data.treebank.sentences import Word

_TEXTS = ("upos", "deprel", "lemma", "form", "xpos")  # the ones that exclude most first


@dataclass(frozen=True)
class Node:
    """Constraints on a word; `assume` are features it is taken to have where it has none."""

    texts: tuple[tuple[str, Callable[[str], bool]], ...]
    features: tuple[tuple[str, object], ...]  # (name, set of values | True: has it | False: lacks it)
    unwanted: tuple["Node", ...]
    assume: dict[str, str]

    @classmethod
    def of(cls, spec: dict) -> "Node":
        """The constraints under the keys of a node in a pattern file; what is not mentioned does not matter.

        Everything under `not` is a reason of its own to refuse a word.
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
    """Says whether a text is any of those wanted, in which a * stands for any characters.

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
