"""Classification of external results by this workflow's rules, and their matching to its items."""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_uppercase

from vernacular.core.tables import percent
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.metrics.spans import Choice, choose_option, correct_options, per_length
from vernacular.protocols.generation.metrics import answer_metrics, normalize
from vernacular.protocols.registry import PROTOCOLS
from vernacular.types import Item

# protocols without `external` are excluded: of acceptability, only raw surprisals would be comparable
SUPPORTED_PROTOCOLS = tuple(name for name, protocol in PROTOCOLS.items() if protocol.external)


@dataclass(frozen=True)
class ExternalResult:
    """External result of one item."""

    location: str  # file and line, for messages
    texts: tuple[str, ...]  # all texts of the item in the file: fields, prompt, options, in order
    item_id: str | None = None  # as in this workflow's results
    continuations: tuple[tuple[str, str], ...] = ()  # (context, continuation) of each scored option
    scores: tuple[float, ...] | None = None  # log-likelihood (nats) of each of `continuations`
    greedy: bool | None = None  # single continuations only: each token is the most probable one
    prediction: str | None = None
    correct: bool | None = None
    is_judged: bool = False  # `correct` takes precedence over what follows from the prediction


def build_row(item_row: dict, result: ExternalResult, protocol: str, item: Item | None = None) -> tuple[dict, bool]:
    """Return the TASK_RESULTS row of an external result, and whether the file itself classifies it differently.

    `item_row` is this workflow's row of the item, `item` has the answers of one without options. A result that cannot
    be read, such as a prediction that is not one of the options, has no values and a flag; one of an item without gold
    has neither.
    """
    row = dict.fromkeys(TASK_RESULTS.schema.names) | {"prediction": result.prediction, "metrics": {}}
    row |= {name: item_row[name] for name in ("item_id", "cluster_id", "category", "prompt", "choices", "gold")}
    external = PROTOCOLS[protocol].external
    if external == "word":
        _add_word_metrics(row, result)
    elif external == "text":
        _add_text_metrics(row, result, item)
    else:
        _add_option_metrics(row, result, protocol)
    if not row["metrics"] and row["flags"] is None and row["gold"]:
        row["flags"] = "error: no output that can be classified"
    correct = row["metrics"].get("exact_match" if external == "text" else "accuracy")
    return row, correct is not None and result.correct is not None and bool(correct) != result.correct


def _add_word_metrics(row: dict, result: ExternalResult) -> None:
    if result.scores is None or len(result.scores) != 1 or not math.isfinite(result.scores[0]):
        row["flags"] = "error: no log-likelihood of the word"
        return
    row["metrics"] = {"surprisal": -result.scores[0], "coverage": 1.0}
    if result.greedy is not None:
        row["metrics"]["greedy"] = float(result.greedy)


def _add_text_metrics(row: dict, result: ExternalResult, item: Item | None) -> None:
    """Set the text metrics. Similarities to the options are unknown, and so is the choice derived from them."""
    shown = (item or {"target": None}) | {name: row[name] for name in ("choices", "gold")}
    if result.prediction is not None:
        row["metrics"] = answer_metrics(shown, result.prediction)
    if result.correct is not None and (result.is_judged or not (row["choices"] and row["metrics"])):
        row["metrics"]["exact_match"] = float(result.correct)
    if not row["choices"] and "exact_match" in row["metrics"]:
        row["correct"] = row["metrics"]["exact_match"] == 1.0


def _add_option_metrics(row: dict, result: ExternalResult, protocol: str) -> None:
    correct_indices = correct_options(row["choices"], row["gold"])
    if result.scores is not None:
        scores = _scores_in_item_order(row["choices"], result)
        if scores is None:
            row["flags"] = "error: options differ from those of the item"
            return
        choice = choose_option(scores, correct_indices)
        row["option_scores"] = scores
        row["metrics"] = choice.outcome()
        if PROTOCOLS[protocol].by_length:
            for unit in ("char", "byte"):
                by_length = choose_option(per_length(scores, row["choices"], unit), correct_indices)
                row["metrics"] |= by_length.outcome(f"accuracy_{unit}")
    else:
        choice = _predicted_option(row, result, protocol, correct_indices)
        row["metrics"] = choice.outcome()
        if result.correct is not None:
            row["metrics"] = {"accuracy": float(result.correct)}
        elif result.prediction is not None and not choice.predicted_indices:
            row["flags"] = "error: the prediction is not one of the options"
    row |= {"predicted_indices": choice.predicted_indices or None, "tie": choice.tie}
    row["correct"] = None if "accuracy" not in row["metrics"] else bool(row["metrics"]["accuracy"])
    if row["prediction"] is None and choice.predicted_indices:
        labels = ascii_uppercase if PROTOCOLS[protocol].letters else row["choices"]
        row["prediction"] = " | ".join(labels[i] for i in choice.predicted_indices)


def _predicted_option(row: dict, result: ExternalResult, protocol: str, correct_indices: list[int]) -> Choice:
    """Return the option that a prediction names by its text or, for protocols that show letters, by its letter."""
    prediction = result.prediction or ""
    options = row["choices"]

    def chosen(index: int) -> Choice:
        return choose_option([float(i == index) for i in range(len(options))], correct_indices)

    for fold in (normalize_unicode, normalize):
        indices = [i for i, option in enumerate(options) if fold(option) and fold(option) == fold(prediction)]
        if indices and len({normalize_unicode(options[i]) for i in indices}) == 1:
            return chosen(indices[0])
    letter = normalize_unicode(prediction).strip("().:[]").upper()
    if PROTOCOLS[protocol].letters and len(letter) == 1 and letter in ascii_uppercase[: len(options)]:
        return chosen(ascii_uppercase.index(letter))
    return Choice([], None)


def _scores_in_item_order(options: list[str], result: ExternalResult) -> list[float] | None:
    """Return the scores in the order of `choices`; None if one is missing or the assignment is ambiguous."""
    if len(result.scores) != len(options):
        return None
    for fold in (normalize_unicode, normalize):
        expected = [fold(option) for option in options]
        if len(set(expected)) < len(set(map(normalize_unicode, options))):
            return None
        continuations = [fold(continuation) for _, continuation in result.continuations]
        full_texts = [fold(context + continuation) for context, continuation in result.continuations]
        order = (
            _match_order(expected, continuations)
            or _order_by_letter(expected, continuations, [fold(text) for text in result.texts])
            or _match_order(expected, full_texts)
        )
        if order:
            return [result.scores[i] for i in order]
    return None


def _match_order(expected: list[str], continuations: list[str]) -> list[int] | None:
    """Return the index of each expected text in `continuations`, duplicates in order; None unless both are the same."""
    if sorted(expected) != sorted(continuations):
        return None
    positions: dict[str, list[int]] = {}
    for i, text in enumerate(continuations):
        positions.setdefault(text, []).append(i)
    return [positions[text].pop(0) for text in expected]


def _order_by_letter(expected: list[str], continuations: list[str], texts: list[str]) -> list[int] | None:
    """Return the index of each option's letter if letters were scored: the k-th is the k-th option in the document."""
    letters = [normalize_unicode(letter) for letter in ascii_uppercase[: len(expected)]]
    if [text.upper() for text in continuations] != letters or len(set(expected)) < len(expected):
        return None
    if any(texts.count(text) != 1 for text in expected):
        return None
    display_order = sorted(expected, key=texts.index)
    return [display_order.index(text) for text in expected]


MIN_MATCHED_SHARE = 0.8  # minimum share of matched items for results to be of the same evaluation
TOO_FEW = f"fewer than {percent(MIN_MATCHED_SHARE, 0)}; not used."


@dataclass(frozen=True)
class MatchResult:
    """External results by item ID, and counts of those that were not matched."""

    results: dict[str, ExternalResult]
    n_results: int
    n_items: int
    counts: dict[str, int]  # "unmatched": no item; "ambiguous": several equally well; "repeated": one with a result

    @property
    def share(self) -> float:
        """Return the number of matched items over those of the file or of the evaluation, whichever are fewer."""
        possible = min(self.n_results, self.n_items)
        return len(self.results) / possible if possible else 0.0


def match_items(results: list[ExternalResult], items: list[Item], prompts: dict[str, str]) -> MatchResult:
    """Match external results to items: by ID if a result has no text, otherwise by text, then by normalized text.

    `items`: rows per ITEMS; `prompts`: item_id -> prompt, for the items with results in this workflow.
    """
    items = [item for item in items if item["item_id"] in prompts]
    matched: dict[str, ExternalResult] = {}
    outcomes: dict[int, str] = {}
    for i, result in enumerate(results):
        if result.item_id in prompts and not result.texts:
            outcomes[i] = _assign(matched, [result.item_id], result)
    for fold in (normalize_unicode, normalize):
        remaining = [i for i in range(len(results)) if outcomes.get(i, "unmatched") == "unmatched"]
        index = _TextIndex(items if remaining else [], prompts, fold)
        for i in remaining:
            outcomes[i] = _assign(matched, index.find(results[i]), results[i])
    counts = Counter(outcomes.values())
    counts = {outcome: counts[outcome] for outcome in ("unmatched", "ambiguous", "repeated")}
    return MatchResult(matched, len(results), len(prompts), counts)


def normalize_unicode(text: str) -> str:
    """Normalize to Unicode NFKC and collapse whitespace."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _assign(matched: dict[str, ExternalResult], item_ids: list[str], result: ExternalResult) -> str:
    if len(item_ids) != 1:
        return "ambiguous" if item_ids else "unmatched"
    if item_ids[0] in matched:
        return "repeated"
    matched[item_ids[0]] = result
    return "matched"


class _TextIndex:
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

    def find(self, result: ExternalResult) -> list[str]:
        """Return the IDs of the items that match a result; exactly one if the match is unambiguous."""
        texts = [self.fold(text) for text in result.texts]
        full_text = " ".join(texts)
        text_set = set(texts)
        # the rarest text first: it has the fewest candidates
        candidate_sets = sorted((self.by_text[text] for text in text_set if text in self.by_text), key=len)
        for candidates in candidate_sets:
            matches = [item_id for item_id in candidates if self._matches(item_id, full_text, text_set)]
            if result.item_id in matches:
                return [result.item_id]
            if matches:
                # an item whose texts are contained in those of another fits too: prefer the item with more text
                sizes = {item_id: sum(map(len, self.parts[item_id])) for item_id in matches}
                return sorted(item_id for item_id in matches if sizes[item_id] == max(sizes.values()))
        return [result.item_id] if result.item_id in self.parts and self._contains(result.item_id, texts) else []

    def _contains(self, item_id: str, texts: list[str]) -> bool:
        item_text = " ".join([*self.parts[item_id], self.prompt[item_id]])
        return all(text in item_text for text in texts)

    def _matches(self, item_id: str, full_text: str, text_set: set[str]) -> bool:
        return all(part in full_text for part in self.parts[item_id]) or self.prompt[item_id] in text_set
