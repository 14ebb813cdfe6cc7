"""Classification of external results by this workflow's rules, and their matching to its items."""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_uppercase

from vernacular.comparison.external.results import Answer
from vernacular.metrics.choice import Choice, choose, correct_options
from vernacular.metrics.spans import per_length
from vernacular.protocols.generation.metrics import normalised, textual
from vernacular.protocols.registry import PROTOCOLS
from vernacular.types import Item

# protocols without `external` are excluded: of acceptability, only raw surprisals would be comparable
JUDGED = tuple(name for name, protocol in PROTOCOLS.items() if protocol.external)


def row_of(ours: dict, answer: Answer, protocol: str) -> tuple[dict, bool]:
    """Return the TASK_RESULTS row of an external result, and whether the file itself classifies it differently.

    `ours` is this workflow's row of the item. A result that cannot be read, such as a prediction that is not one of the
    options, has no values and a flag.
    """
    row = {name: ours[name] for name in ("item_id", "cluster_id", "category", "prompt", "choices", "gold")}
    row |= {
        "option_scores": None,
        "prediction": answer.prediction,
        "predicted_indices": None,
        "correct": None,
        "tie": None,
    }
    row |= {"metrics": {}, "flags": None}
    external = PROTOCOLS[protocol].external
    if external == "word":
        _of_a_word(row, answer)
    elif external == "text":
        _of_a_text(row, answer)
    else:
        _of_options(row, answer, protocol)
    if not row["metrics"] and row["flags"] is None:
        row["flags"] = "error: no output that can be classified"
    judged = row["metrics"].get("exact_match" if external == "text" else "accuracy")
    return row, judged is not None and answer.correct is not None and bool(judged) != answer.correct


def _of_a_word(row: dict, answer: Answer) -> None:
    if answer.scores is None or len(answer.scores) != 1 or not math.isfinite(answer.scores[0]):
        row["flags"] = "error: no log-likelihood of the word"
        return
    row["metrics"] = {"surprisal": -answer.scores[0], "coverage": 1.0}
    if answer.greedy is not None:
        row["metrics"]["greedy"] = float(answer.greedy)


def _of_a_text(row: dict, answer: Answer) -> None:
    """Set the text metrics. Similarities to the options are unknown, and so is the choice derived from them."""
    references = [row["choices"][i] for i in correct_options(row["choices"], row["gold"])]
    if answer.prediction is None or not references:
        if answer.correct is not None:
            row["metrics"] = {"exact_match": float(answer.correct)}
        return
    row["metrics"] = textual(answer.prediction, references)


def _of_options(row: dict, answer: Answer, protocol: str) -> None:
    right = correct_options(row["choices"], row["gold"])
    if answer.scores is not None:
        scores = _in_our_order(row["choices"], answer)
        if scores is None:
            row["flags"] = "error: options differ from those of the item"
            return
        choice = choose(scores, right)
        row["option_scores"] = scores
        row["metrics"] = choice.outcome()
        if PROTOCOLS[protocol].by_length:
            for unit in ("char", "byte"):
                row["metrics"] |= choose(per_length(scores, row["choices"], unit), right).outcome(f"accuracy_{unit}")
    else:
        choice = _named(row, answer, protocol, right)
        row["metrics"] = choice.outcome()
        if answer.correct is not None:
            row["metrics"] = {"accuracy": float(answer.correct)}
        elif answer.prediction is not None and not choice.predicted:
            row["flags"] = "error: the prediction is not one of the options"
    row |= {"predicted_indices": choice.predicted or None, "tie": choice.tie}
    row["correct"] = None if "accuracy" not in row["metrics"] else bool(row["metrics"]["accuracy"])
    if row["prediction"] is None and choice.predicted:
        names = ascii_uppercase if PROTOCOLS[protocol].letters else row["choices"]
        row["prediction"] = " | ".join(names[i] for i in choice.predicted)


def _named(row: dict, answer: Answer, protocol: str, right: list[int]) -> Choice:
    """Return the option that a prediction names by its text or, for protocols that show letters, by its letter."""
    said = answer.prediction or ""
    for fold in (as_written, normalised):
        chosen = [i for i, option in enumerate(row["choices"]) if fold(option) and fold(option) == fold(said)]
        if chosen and len({as_written(row["choices"][i]) for i in chosen}) == 1:
            return choose([float(i == chosen[0]) for i in range(len(row["choices"]))], right)
    letter = said.strip().rstrip(".)").upper()
    if PROTOCOLS[protocol].letters and len(letter) == 1 and letter in ascii_uppercase[: len(row["choices"])]:
        place = ascii_uppercase.index(letter)
        return choose([float(i == place) for i in range(len(row["choices"]))], right)
    return Choice([], None)


def _in_our_order(options: list[str], answer: Answer) -> list[float] | None:
    """Return the scores in the order of `choices`; None if one is missing or the assignment is ambiguous."""
    if len(answer.scores) != len(options):
        return None
    for fold in (as_written, normalised):
        wanted = [fold(option) for option in options]
        if len(set(wanted)) < len(set(map(as_written, options))):
            return None
        said = [fold(continuation) for _, continuation in answer.asked]
        whole = [fold(context + continuation) for context, continuation in answer.asked]
        order = (
            _places(wanted, said)
            or _lettered(wanted, said, [fold(text) for text in answer.texts])
            or _places(wanted, whole)
        )
        if order:
            return [answer.scores[i] for i in order]
    return None


def _places(wanted: list[str], said: list[str]) -> list[int] | None:
    """Return the index in `said` of each of `wanted`, duplicates in order; None unless both hold the same texts."""
    if sorted(wanted) != sorted(said):
        return None
    ways: dict[str, list[int]] = {}
    for i, text in enumerate(said):
        ways.setdefault(text, []).append(i)
    return [ways[text].pop(0) for text in wanted]


def _lettered(wanted: list[str], said: list[str], texts: list[str]) -> list[int] | None:
    """Return the index of each option's letter if letters were scored: the k-th is the k-th option in the document."""
    letters = [as_written(letter) for letter in ascii_uppercase[: len(wanted)]]
    if [text.upper() for text in said] != letters or len(set(wanted)) < len(wanted):
        return None
    if any(texts.count(text) != 1 for text in wanted):
        return None
    shown = sorted(wanted, key=texts.index)
    return [shown.index(text) for text in wanted]


LEAST = 0.8  # minimum share of matched items for results to be of the same evaluation


@dataclass(frozen=True)
class Matched:
    """External results by item ID, and counts of those that were not matched."""

    answers: dict[str, Answer]
    n_answers: int
    n_items: int
    unmatched: int  # match no item
    ambiguous: int  # match several items equally well
    repeated: int  # match an item that already has a result

    @property
    def share(self) -> float:
        """Return the number of matched items over those of the file or of the evaluation, whichever are fewer."""
        possible = min(self.n_answers, self.n_items)
        return len(self.answers) / possible if possible else 0.0


def match(answers: list[Answer], items: list[Item], prompts: dict[str, str]) -> Matched:
    """Match external results to items: by ID if a result has no text, otherwise by text, then by normalized text.

    `items`: rows per ITEMS; `prompts`: item_id -> prompt, for the items with results in this workflow.
    """
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
    """Normalize to Unicode NFKC and collapse whitespace."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _take(found: dict[str, Answer], about: list[str], answer: Answer) -> str:
    if len(about) != 1:
        return "ambiguous" if about else "unmatched"
    if about[0] in found:
        return "repeated"
    found[about[0]] = answer
    return "matched"


class _Index:
    """Index of items by each of their texts."""

    def __init__(self, items: list[Item], prompts: dict[str, str], fold: Callable[[str], str]):
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
        """Return the IDs of the items that match a result; exactly one if the match is unambiguous."""
        texts = [self.fold(text) for text in answer.texts]
        whole = " ".join(texts)
        said = set(texts)
        # the rarest text first: it has the fewest candidates
        near = sorted((self.by_text[text] for text in said if text in self.by_text), key=len)
        for candidates in near:
            fitting = [item_id for item_id in candidates if self._fits(item_id, whole, said)]
            if answer.item_id in fitting:
                return [answer.item_id]
            if fitting:
                # an item whose texts are contained in those of another fits too: prefer the item with more text
                sizes = {item_id: sum(map(len, self.parts[item_id])) for item_id in fitting}
                return sorted(item_id for item_id in fitting if sizes[item_id] == max(sizes.values()))
        return [answer.item_id] if answer.item_id in self.parts and self._holds(answer.item_id, texts) else []

    def _holds(self, item_id: str, texts: list[str]) -> bool:
        own = " ".join([*self.parts[item_id], self.prompt[item_id]])
        return all(text in own for text in texts)

    def _fits(self, item_id: str, whole: str, said: set[str]) -> bool:
        return all(part in whole for part in self.parts[item_id]) or self.prompt[item_id] in said
