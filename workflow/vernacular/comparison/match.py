"""Which of our items is an answer about? By its texts, an id deciding between items of the same words; else by id.

An answer is about an item if everything that makes up the item, its context, its question and each of its options, is
found in what the file says of it; or if it says our prompt word for word; or has its id and says nothing that is not in
the item. First as written (but for blanks and Unicode compatibility), then once more without case and punctuation for
what is left.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from vernacular.comparison.outside import Answer
from vernacular.metrics.generation import normalised

LEAST = 0.8  # share of matched items below which results are not of the same evaluation


@dataclass(frozen=True)
class Matched:
    """Answers by item id, and what became of the others."""

    answers: dict[str, Answer]
    n_answers: int
    n_items: int
    unmatched: int  # answers about none of our items
    ambiguous: int  # about several, equally
    repeated: int  # about an item that had an answer already

    @property
    def share(self) -> float:
        """Of the items that could have matched: all of the file's, or all of ours, whichever are fewer."""
        possible = min(self.n_answers, self.n_items)
        return len(self.answers) / possible if possible else 0.0


def match(answers: list[Answer], items: list[dict], prompts: dict[str, str]) -> Matched:
    """`items`: rows per ITEMS that are evaluated; `prompts`: item_id -> prompt of our results, of those asked."""
    items = [item for item in items if item["item_id"] in prompts]
    found: dict[str, Answer] = {}
    outcome: dict[int, str] = {}
    for number, answer in enumerate(answers):
        if answer.item_id in prompts and not answer.texts:
            outcome[number] = _take(found, [answer.item_id], answer)
    for fold in (as_written, normalised):
        left = [number for number in range(len(answers)) if outcome.get(number, "unmatched") == "unmatched"]
        index = _Index(items if left else [], prompts, fold)
        for number in left:
            outcome[number] = _take(found, index.about(answers[number]), answers[number])
    counts = Counter(outcome.values())
    return Matched(found, len(answers), len(prompts), counts["unmatched"], counts["ambiguous"], counts["repeated"])


def as_written(text: str) -> str:
    """Compatibility forms united (NFKC), blanks made single."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _take(found: dict[str, Answer], about: list[str], answer: Answer) -> str:
    if len(about) != 1:
        return "ambiguous" if about else "unmatched"
    if about[0] in found:
        return "repeated"
    found[about[0]] = answer
    return "matched"


class _Index:
    """Our items by each of their texts."""

    def __init__(self, items: list[dict], prompts: dict[str, str], fold: Callable[[str], str]):
        self.fold = fold
        self.parts: dict[str, list[str]] = {}
        self.prompt = {item_id: fold(prompt) for item_id, prompt in prompts.items()}
        self.by_text: dict[str, set[str]] = {}
        for item in items:
            texts = [item["context"], item["question"], *item["choices"]]
            parts = [part for part in map(fold, texts) if part]
            self.parts[item["item_id"]] = parts
            for part in filter(None, {*parts, self.prompt[item["item_id"]]}):
                self.by_text.setdefault(part, set()).add(item["item_id"])

    def about(self, answer: Answer) -> list[str]:
        """Ids of the items that the answer may be about: one if all is well."""
        texts = [self.fold(text) for text in answer.texts]
        whole = " ".join(texts)
        said = set(texts)
        # the rarest text first: it leaves the fewest items to look at
        near = sorted((self.by_text[text] for text in said if text in self.by_text), key=len)
        for candidates in near:
            fitting = [item_id for item_id in candidates if self._fits(item_id, whole, said)]
            if answer.item_id in fitting:
                return [answer.item_id]
            if fitting:
                # an item whose texts are part of another's fits too: the one of which more is said is meant
                sizes = {item_id: sum(map(len, self.parts[item_id])) for item_id in fitting}
                return sorted(item_id for item_id in fitting if sizes[item_id] == max(sizes.values()))
        return [answer.item_id] if answer.item_id in self.parts and self._holds(answer.item_id, texts) else []

    def _holds(self, item_id: str, texts: list[str]) -> bool:
        own = " ".join([*self.parts[item_id], self.prompt[item_id]])
        return all(text in own for text in texts)

    def _fits(self, item_id: str, whole: str, said: set[str]) -> bool:
        return all(part in whole for part in self.parts[item_id]) or self.prompt[item_id] in said
