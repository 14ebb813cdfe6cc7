"""Diagnosis of one model's results of one evaluation: symptoms that explain its value, from stored rows.

It names what is seen ("397 of 400 answers are “no”"), not who is to blame: one value cannot show that. Rows are counted
while the metrics read them; nothing is run, and nothing is read twice. What could not move the value is not reported:
a count appears if its share is at least half the width of the value's interval.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr

from vernacular.core.metadata import FAILURE, INFORMATION, WARNING, Diagnosis, Example, LabelCount, Profile
from vernacular.metrics.language import BLOCKS, LanguageMeter
from vernacular.metrics.metric import CHANCE, display_name
from vernacular.protocols.generation.metrics import normalize
from vernacular.protocols.lm_eval.metrics import matthews_corrcoef
from vernacular.protocols.registry import PROTOCOLS
from vernacular.statistics.intervals import wilson
from vernacular.types import Generation, Item, Request, Result, Role, Score, skipped_reason

_COUNTED = "above 2 % with 95 % confidence, and at least half the width of the value's interval; failure: 10 %"
# the codes in the order of causes, each with its threshold
THRESHOLDS = {
    "template": "any prompt",
    "marker": "any answer; failure: 2 %",
    "truncated": _COUNTED,
    "empty": _COUNTED,
    "format": _COUNTED,
    "refusal": "5 %; phrase lists miss many refusals and match other texts",
    "language": "5 points more than the gold answers, with 95 % confidence; failure: 20 points",
    "echo": _COUNTED,
    "loop": _COUNTED,
    "same_text": "half as many distinct texts as answers, and half as many as gold answers; failure: 5 %",
    "dropped": _COUNTED,
    "label_mass": "median of 0.5; failure: 0.1",
    "constant": "25 points between the shares of predicted and gold labels (total variation), p < .01; failure: one "
    "label in 95 % of the items, and no gold label in more than 80 %",
    "position": "standard deviation of recall of 10 points, p < .01",
    "length": "0.1 of the ranks, p < .01; or between normalizations 10 points, and half the width of the interval",
    "below_chance": "p < .01; failure: p < .001",
    "majority": "interval includes the majority baseline, or is below it",
    "protocols": "intervals that do not overlap",
}
CODES = tuple(THRESHOLDS)

_EXAMPLES, _EXCERPT = 3, 120  # items per code; characters of a text
_OPEN_STYLES = ("open", "simil-eval-open")
_MIN_WORDS = 20  # of a text that can repeat itself, and of a run of words from the prompt
_LABELS = 12  # largest number of distinct gold texts that count as labels
_PERMUTATIONS = 2_000
_MIN_UNITS = {"language_correct": 20, BLOCKS: 5}  # responses or blocks whose language is compared with the gold's
_Z = 1.959964  # of a 95 % interval
_MASKED = "[invalid]"  # of lm-eval's filters: no answer was found
_FORMS = r"(?:<\|?/?[a-zA-Z_][\w .]*\|?>|\[/?(?:INST|THINK|SYS|USER|ASSISTANT)\]|◁/?think▷)"
_MARKER = re.compile(rf"\s*(?:{_FORMS}|(?:analysis|thought|assistant|user|system)(?=$|[\n:<A-ZА-Я]|final))")
_TEMPLATE_TOKENS = re.compile(
    r"<\|(?:im_start|start_header_id|user|assistant|turn|channel|start)\|?>|<start_of_turn>|\[INST\]"
)
_TWO_BOS = re.compile(r"(<[^<>\s]{1,40}>)\s*\1")
REASONED = ("closed", "unclosed", "reopened")  # states of the reasoning of a generation


@dataclass(frozen=True)
class Subject:
    """What is known of an evaluation of a model before its rows."""

    protocol: str
    style: str = "default"
    refusals: tuple[str, ...] = ()  # beginnings of refusals, in the language and in English
    has_chat_template: bool | None = None


class _Found:
    """The items with a symptom: their number, the first three, and what was found how often."""

    def __init__(self):
        self.count, self.examples, self.texts = 0, [], Counter()

    def add(self, item: str, text: str, kind: str = "") -> None:
        self.count += 1
        self.texts[kind or shortened(text, 40)] += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(Example(item=item, text=shortened(text)))


def shortened(text: str, limit: int = _EXCERPT) -> str:
    """Return a text in one line, of at most `limit` characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "…"


class Diagnoser:
    """Counts the symptoms of one evaluation in parts of its rows; `diagnose` returns those that explain its value."""

    def __init__(self, subject: Subject):
        self.subject, self.protocol = subject, PROTOCOLS[subject.protocol]
        self.found = {code: _Found() for code in CODES}
        self.n_rows = self.n_responses = self.n_prompts = 0
        self.states: Counter[str] = Counter()  # of reasoning
        self.answers: Counter[str] = Counter()
        self.gold_texts: Counter[str] = Counter()
        self.choices: dict[tuple, None] = {}  # distinct lists of options; of several, only that there are
        self.decisions: list[tuple[str, int, int]] = []  # item, correct and chosen option (-1: none, or a tie)
        self.texts: list[tuple[str, str, str]] = []  # item without options, correct text and answer, normalized
        self.masses: list[float] = []
        self.top_tokens: Counter[str] = Counter()
        self.ranks: list[float] = []  # rank of the chosen option's length minus the gold's, of the possible range
        self.lengths: list[tuple[float, float, float]] = []  # characters: chosen, gold, mean of the options
        self.chosen: dict[str, tuple[int, str]] = {}  # position in the dataset and text by item, see `disagreement`

    def add(self, items: list[Item], requests: list[Request], outputs: list, rows: list[Result]) -> None:
        """Count the symptoms of some items, with all of their rows."""
        item_by_id = {item["item_id"]: item for item in items}
        request_by_key = {(request["item_id"], request["role"]): request for request in requests}
        outputs_by_item: dict[str, list] = {}
        for output in outputs:
            outputs_by_item.setdefault(output["item_id"], []).append(output)
        for row in rows:
            item, own = item_by_id[row["item_id"]], outputs_by_item.get(row["item_id"], [])
            self._add_row(row, item, own)
            for number, output in enumerate(own):
                request = request_by_key.get((output["item_id"], output["role"]))
                if request is None or skipped_reason(output["role"]) is not None:
                    continue
                self._add_prompt(request, output)
                if (
                    self.protocol.generates
                    and output["raw_output"] is not None
                    and "error" not in (output["flags"] or "")
                ):
                    self._add_response(row if not number else None, item, request, output)

    def _add_row(self, row: Result, item: Item, outputs: list) -> None:
        """Count the choice of an item, its labels and lengths, and whether it was dropped."""
        self.n_rows += 1
        flags, chosen, gold = row["flags"] or "", row["predicted_indices"] or [], row["gold"]
        if dropped := next((part for part in flags.split("; ") if part.startswith(("error", "truncated"))), None):
            self.found["dropped"].add(row["item_id"], dropped, dropped.partition(":")[0])
        elif row["tie"]:
            self.found["dropped"].add(row["item_id"], "tie: " + " | ".join(row["choices"][i] for i in chosen), "tie")
        if not row["choices"]:
            return
        if len(self.choices) < 2:
            self.choices[tuple(row["choices"])] = None
        if len(chosen) == 1:
            text = row["choices"][chosen[0]]
            self.chosen[row["item_id"]] = item["choices"].index(text) if text in item["choices"] else -1, text
        if not self.protocol.generates:
            choice = chosen[0] if len(chosen) == 1 else -1
            self._add_decision(row["item_id"], gold, choice)
            if row["option_scores"] and (self.protocol.letters or _are_single_tokens(outputs)):
                self.masses.append(min(1.0, sum(map(math.exp, row["option_scores"]))))
                self.top_tokens.update(_top_token(outputs))
            if gold and choice >= 0:
                self._add_lengths([len(text) for text in row["choices"]], gold, choice)

    def _add_decision(self, item: str, gold: list[int], choice: int) -> None:
        if gold:
            self.decisions.append((item, choice if choice in gold else gold[0], choice))

    def _add_lengths(self, lengths: list[int], gold: list[int], choice: int) -> None:
        ranks = [
            sum(other < length for other in lengths) + sum(other == length for other in lengths) / 2
            for length in lengths
        ]
        gold_rank = sum(ranks[i] for i in gold) / len(gold)
        self.ranks.append((ranks[choice] - gold_rank) / (len(lengths) - 1) if len(lengths) > 1 else 0.0)
        gold_length = sum(lengths[i] for i in gold) / len(gold)
        self.lengths.append((lengths[choice], gold_length, sum(lengths) / len(lengths)))

    def _add_prompt(self, request: Request, output: Score | Generation) -> None:
        self.n_prompts += 1
        rendered, item = output["rendered"], request["item_id"]
        kind = None
        if rendered is not None:
            if _TWO_BOS.match(rendered):
                kind = "begin with two BOS tokens"
        elif self.protocol.generates and self.subject.has_chat_template:
            kind = "are plain text, although the model has a chat template"
        elif token := _TEMPLATE_TOKENS.search(request["text"]):
            kind = f"are plain text with the template token {token.group()}"
        if "system turn" in (output["flags"] or ""):
            kind = "lost their system turn, which the template rejects"
        if output.get("think_state") in REASONED and not (request["decoding"] or {}).get("temperature"):
            kind = "are decoded greedily with reasoning, which many models repeat endlessly"
        if kind:
            self.found["template"].add(item, (rendered or request["text"])[:_EXCERPT], kind)

    def _add_response(self, row: Result | None, item: Item, request: Request, output: Generation) -> None:
        """Count the symptoms of a generated text; `row` has what was extracted from it, if it is the item's first."""
        self.n_responses += 1
        raw, answer, state = output["raw_output"], output["output"] or "", output.get("think_state")
        extracted = answer if row is None or row["prediction"] is None else row["prediction"]
        self.states[state or "none"] += 1

        def add(code: str, text: str = answer) -> None:
            self.found[code].add(item["item_id"], text)

        if (marker := _MARKER.match(answer)) and normalize(answer) not in map(normalize, _references(item)):
            self.found["marker"].add(item["item_id"], answer, marker.group().strip())
        is_correct = row is not None and row["correct"]
        is_complete = is_correct or len(extracted) < len(answer)  # something ended it
        is_cut = output["finish_reason"] == "length" and request["max_new_tokens"] is not None and not is_complete
        if state == "unclosed" or is_cut:
            add("truncated", raw[-_EXCERPT:])
        elif not (answer if self.protocol.tool else extracted).strip():
            add("empty", raw)
        elif self._lacks_answer(row, item, request, extracted):
            add("format")
        words = raw.split()
        if repeats(raw, words):
            add("loop", raw)
        folded = " ".join(answer.casefold().replace("’", "'").split()[:12])
        if any(folded.startswith(phrase) for phrase in self.subject.refusals):
            add("refusal")
        if copies(answer, request["text"], [item["context"], *item["choices"]]):
            add("echo")
        if answer.strip():
            self.answers[normalize(answer)] += 1
            self.gold_texts.update(list(map(normalize, _references(item)))[:1])
        self._add_label(item, extracted)

    def _add_label(self, item: Item, answer: str) -> None:
        if len(self.choices) == 1:
            found = [
                i for i, option in enumerate(item["choices"]) if _begins_with(normalize(answer), normalize(option))
            ]
            self._add_decision(item["item_id"], item["gold"], found[0] if len(found) == 1 else -1)
        elif not item["choices"] and item["target"]:
            self.texts.append((item["item_id"], normalize(item["target"]), normalize(answer)))

    def _lacks_answer(self, row: Result | None, item: Item, request: Request, answer: str) -> bool:
        """Return whether no answer can be found in a response: none of the options, if the prompt shows them."""
        if self.subject.protocol == "choice":
            return row is not None and not row["predicted_indices"]
        if self.protocol.tool:
            return answer == _MASKED
        if not item["choices"] or not all(option in request["text"] for option in item["choices"]):
            return False
        text = f" {normalize(answer)} "
        return not any(f" {normalize(option)} " in text for option in item["choices"])

    def diagnose(
        self, values: Iterable[dict], majority: float | None = None, meter: LanguageMeter | None = None
    ) -> list[Diagnosis]:
        """Return the diagnoses that explain the value, failures first, then in the order of causes.

        Args:
            values: Rows per METRICS of the evaluation; those over all items are read.
            majority: Accuracy of always choosing the most common gold.
            meter: Of the language of generated texts.
        """
        overall = [value for value in values if not value["category"] and value["value"] is not None]
        headline = next((value for value in overall if value["headline"]), None)
        half_width = _half_width(headline)
        found = [*self._counted(half_width), *self._of_template(), *self._of_labels()]
        found += self._of_lengths(overall, half_width)
        if meter is not None:
            found += self._of_language(overall, meter)
        if headline is not None:
            found += _below_chance(headline, majority)
        return sorted(found, key=order)

    def _counted(self, half_width: float) -> Iterable[Diagnosis]:
        n = self.n_responses
        unclosed, has_parser = self.states["unclosed"], self.protocol.tool or self.subject.protocol == "choice"
        nouns = {
            "truncated": "end before their answer is complete"
            + (f" (the reasoning of {unclosed} is unclosed)" if unclosed else ""),
            "empty": "are empty",
            "format": ("have no answer that can be extracted" if has_parser else "contain none of the options"),
            "echo": "repeat their prompt",
            "loop": "repeat themselves",
        }
        for code, phrase in nouns.items():
            yield from self._of_count(code, n, f"responses {phrase}", half_width)
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.found["dropped"].texts.most_common())
        text = f"items lost few-shot examples or their score, or are ties ({kinds})"
        yield from self._of_count("dropped", self.n_rows, text, half_width)
        marker, refusal = self.found["marker"], self.found["refusal"]
        if marker.count:
            [(text, _)] = marker.texts.most_common(1)
            phrase = f"answers begin with a marker of the model's format, most often “{text}”"
            yield self._diagnosis("marker", marker.count >= 0.02 * n, n, f"{_of(marker.count, n)} {phrase}.")
        if n and refusal.count >= 0.05 * n:
            text = f"{_of(refusal.count, n)} answers begin like a refusal (suspected, by a list of phrases)."
            yield self._diagnosis("refusal", False, n, text)
        distinct, n_answers, n_gold = len(self.answers), self.answers.total(), self.gold_texts.total()
        own_share = len(self.gold_texts) / n_gold if n_gold else 1.0
        is_open = self.subject.style in _OPEN_STYLES or bool(self.protocol.tool)
        if self.protocol.generates and is_open and n_answers >= _MIN_WORDS:
            share = distinct / n_answers
            if share < 0.5 and share < own_share / 2:
                [(text, count)] = self.answers.most_common(1)
                sentence = (
                    f"{n_answers} answers have {distinct} distinct texts; “{shortened(text, 40)}” occurs {count} times."
                )
                yield self._diagnosis("same_text", share < 0.05, n_answers, sentence, count=n_answers - distinct)

    def _of_count(self, code: str, n: int, phrase: str, half_width: float) -> Iterable[Diagnosis]:
        count = self.found[code].count
        if count and wilson(count, n)[0] > 0.02 and count / n >= half_width:
            yield self._diagnosis(code, count >= 0.1 * n, n, f"{_of(count, n)} {phrase}.")

    def _of_template(self) -> Iterable[Diagnosis]:
        found = self.found["template"]
        if found.count:
            parts = [f"{_of(count, self.n_prompts)} prompts {kind}" for kind, count in found.texts.most_common()]
            yield self._diagnosis("template", False, self.n_prompts, "; ".join(parts) + ".")

    def _of_language(self, values: list[dict], meter: LanguageMeter) -> Iterable[Diagnosis]:
        rows = {row["metric"]: row for row in values}
        names = ["language_correct", BLOCKS]  # of single responses, else of joined ones
        name = next((name for name in names if name in rows and rows[name]["n"] >= _MIN_UNITS[name]), None)
        if name is None or f"{name}_gold" not in rows:
            return
        row, expected = rows[name], rows[f"{name}_gold"]["value"]
        if expected - row["value"] < 0.05 or row["ci_high"] >= expected:
            return
        counts = meter.blocks.found if name == BLOCKS else meter.answered
        others = ", ".join(f"{language} {n}" for language, n in counts.most_common() if language != meter.language)
        n, noun = row["n"], "blocks of joined short responses" if name == BLOCKS else "responses"
        count = n - round(row["value"] * n)
        text = (
            f"{_of(count, n)} {noun} are not in the language of the items, {meter.language} ({others}); of the correct "
            f"answers, {_percent(1 - expected)} by the same rule."
        )
        examples = [Example(item=item, text=shortened(text)) for item, text in meter.wrong[:_EXAMPLES]]
        is_failure = expected - row["value"] >= 0.2
        yield self._diagnosis("language", is_failure, n, text, count=count, examples=examples)

    def _of_labels(self) -> Iterable[Diagnosis]:
        names, items, gold, chosen = self._labels()
        if self.masses and (self.protocol.letters or len(self.choices) == 1):
            median = float(np.median(self.masses))
            if median < 0.5:
                top = self.top_tokens.most_common(1)
                most = (
                    f" The most probable token is “{top[0][0]}” in {_of(top[0][1], self.top_tokens.total())} items."
                    if top
                    else ""
                )
                text = f"All labels together have a median probability of {median:.2g}.{most}"
                yield self._diagnosis("label_mass", median < 0.1, len(self.masses), text, share=median)
        predicted = chosen[chosen >= 0]
        if len(predicted) < 2 or len(names) < 2:
            return
        n, noun = len(chosen), "answers" if self.protocol.generates else "choices"
        shares, gold_shares = (np.bincount(codes, minlength=len(names)) / len(codes) for codes in (predicted, gold))
        excess = shares - gold_shares
        label = int(excess.argmax())
        count, p_gold = int((chosen == label).sum()), float(gold_shares[label])
        probability = len(names) * float(bdtrc(count - 1, len(predicted), p_gold))
        variation = float(np.abs(excess).sum() / 2)
        if variation >= 0.25 and probability < 0.01:
            is_failure = shares.max() >= 0.95 and gold_shares.max() <= 0.8
            hits, others = (
                int(((chosen == label) & (gold == label)).sum()),
                int(((chosen == gold) & (chosen != label)).sum()),
            )
            correlation = float(matthews_corrcoef(gold.astype(float), chosen.astype(float)))
            text = (
                f"{_of(count, n)} {noun} are “{names[label]}” (gold: {int((gold == label).sum())}): accuracy = "
                f"({hits} correct “{names[label]}” + {others} others) / {n} = {_percent((hits + others) / n)}; "
                f"MCC {correlation:.3f}."
            )
            examples = [
                Example(item=items[i], text=f"gold {names[gold[i]]}, predicted {names[label]}")
                for i in np.flatnonzero((chosen == label) & (gold != label))[:_EXAMPLES]
            ]
            yield self._diagnosis("constant", is_failure, n, text, count=count, examples=examples)
        if self.protocol.letters:
            yield from self._of_positions(names, gold, chosen)

    def _labels(self) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
        """Return the names of labels, the items, and of each the gold and the predicted label (-1: none).

        Labels are letters, options that all items share, or a few distinct correct texts; otherwise there are none.
        """
        decisions, names = [], []
        if self.protocol.letters or len(self.choices) == 1:
            decisions = self.decisions
            n_labels = max((max(gold, choice) + 1 for _, gold, choice in decisions), default=0)
            names = [chr(65 + i) for i in range(n_labels)] if self.protocol.letters else list(*self.choices)
        elif len(distinct := dict.fromkeys(gold for _, gold, _ in self.texts)) <= min(_LABELS, len(self.texts) / 5):
            names = list(distinct)
            codes = {name: code for code, name in enumerate(names)}
            decisions = [(item, codes[gold], codes.get(answer, -1)) for item, gold, answer in self.texts]
        gold, chosen = np.array([row[1:] for row in decisions], int).reshape(-1, 2).T
        return names if decisions else [], [row[0] for row in decisions], gold, chosen

    def _of_positions(self, names: list[str], gold: np.ndarray, chosen: np.ndarray) -> Iterable[Diagnosis]:
        sizes = np.bincount(gold, minlength=len(names))
        hits = np.bincount(gold[gold == chosen], minlength=len(names))
        used = sizes >= 5
        if used.sum() < 2:
            return
        recalls = hits[used] / sizes[used]
        spread = float(recalls.std())
        rng = np.random.default_rng(0)
        draws = rng.multivariate_hypergeometric(
            sizes[used], int(hits[used].sum()), size=_PERMUTATIONS, method="marginals"
        )
        p = (1 + int(((draws / sizes[used]).std(axis=1) >= spread - 1e-12).sum())) / (1 + _PERMUTATIONS)
        if spread >= 0.1 and p < 0.01:
            labels = (name for name, is_used in zip(names, used, strict=True) if is_used)
            parts = ", ".join(f"{name} {_percent(recall)}" for name, recall in zip(labels, recalls, strict=True))
            text = f"Recall by position of the correct option: {parts} (standard deviation {_points(spread)}, {_p(p)})."
            yield self._diagnosis("position", False, len(gold), text, share=spread)

    def _of_lengths(self, values: list[dict], half_width: float) -> Iterable[Diagnosis]:
        if len(self.choices) < 2:  # labels, whose lengths are those of their names
            return
        ranks = np.array(self.ranks)
        moved = np.count_nonzero(ranks)
        mean = float(ranks.mean()) if len(ranks) else 0.0
        # a sign flip of each difference: the sum has the variance of the sum of squares
        p = 2 * float(ndtr(-abs(ranks.sum()) / math.sqrt(float(ranks @ ranks)))) if moved else 1.0
        parts = []
        if moved >= 10 and abs(mean) >= 0.1 and p < 0.01:
            word = "longer" if mean > 0 else "shorter"
            parts.append(
                f"chosen options are {word} than correct ones, by {abs(mean):.2f} of the ranks on average ({_p(p)})"
            )
        names = ("accuracy", "accuracy_token", "accuracy_char", "accuracy_byte", "acc", "acc_norm", "acc_bytes")
        accuracies = {row["metric"]: row["value"] for row in values if row["metric"] in names}
        if accuracies:
            low, high = (function(accuracies, key=accuracies.get) for function in (min, max))
            if accuracies[high] - accuracies[low] >= max(0.1, half_width):
                shown = (f"{display_name(name)} {_percent(accuracies[name])}" for name in (low, high))
                parts.append(f"accuracy depends on the normalization by length: {', '.join(shown)}")
        if parts:
            text = "; ".join(parts)
            yield self._diagnosis("length", False, len(ranks), text[0].upper() + text[1:] + ".", share=abs(mean))

    def _diagnosis(
        self, code: str, is_failure, n: int, sentence: str, *, share=None, count: int | None = None, examples=None
    ) -> Diagnosis:
        found = self.found[code]
        count = count if count is not None else found.count or None
        return Diagnosis(
            code=code,
            severity=FAILURE if is_failure else WARNING,
            sentence=sentence,
            threshold=THRESHOLDS[code],
            count=count,
            n=n,
            share=share if share is not None else None if count is None else count / n,
            examples=found.examples if examples is None else examples,
        )

    def profile(self) -> Profile:
        """Return how the model answers: its labels and their probability, and the length of what it chooses."""
        names, _, gold, chosen = self._labels()
        labels = [
            LabelCount(label=shortened(name, 40), predicted=int((chosen == i).sum()), gold=int((gold == i).sum()))
            for i, name in enumerate(names)
        ]
        has_mass = self.masses and (self.protocol.letters or len(self.choices) == 1)
        lengths = (
            [float(mean) for mean in np.mean(self.lengths, axis=0)] if len(self.choices) > 1 and self.lengths else None
        )
        return Profile(
            labels=labels,
            without_label=int((chosen < 0).sum()),
            label_mass=float(np.median(self.masses)) if has_mass else None,
            top_tokens=dict(self.top_tokens.most_common(5)) if has_mass else {},
            lengths=lengths,
        )


def order(diagnosis: Diagnosis) -> tuple[int, int]:
    """Return the sort key of a diagnosis: failures first, then in the order of causes."""
    return (FAILURE, WARNING, INFORMATION).index(diagnosis.severity), CODES.index(diagnosis.code)


def disagreement(diagnosers: Sequence[Diagnoser], values: Sequence[dict]) -> list[Diagnosis]:
    """Return the diagnosis `protocols` if the accuracies by `letters` and by `choice` differ beyond their intervals.

    Both arguments are of the two, in this order; `values` are their headline rows per METRICS. Cohen's kappa is that of
    the positions of the chosen options in the dataset.
    """
    (letters, choice), (first, second) = diagnosers, values
    common = [item for item in letters.chosen if item in choice.chosen]
    intervals = [(row["ci_low"], row["ci_high"]) for row in values]
    if not common or any(bound is None for interval in intervals for bound in interval):
        return []
    (low, high), (other_low, other_high) = intervals
    if low <= other_high and other_low <= high:
        return []
    a, b = (np.array([diagnoser.chosen[item][0] for item in common]) for diagnoser in (letters, choice))
    agreement = float((a == b).mean())
    by_chance = sum(float((a == label).mean() * (b == label).mean()) for label in np.union1d(a, b))
    kappa = (agreement - by_chance) / (1 - by_chance) if by_chance < 1 else 1.0
    sentence = (
        f"The same items: {_percent(first['value'])} by letters, {_percent(second['value'])} by choice; they agree on "
        f"{_percent(agreement)} of {len(common)} items (kappa {kappa:.2f})."
    )
    differing = [item for item, is_equal in zip(common, a == b, strict=True) if not is_equal]
    examples = [
        Example(item=item, text=f"{shortened(letters.chosen[item][1], 60)} / {shortened(choice.chosen[item][1], 60)}")
        for item in differing[:_EXAMPLES]
    ]
    return [
        Diagnosis(
            code="protocols",
            severity=WARNING,
            sentence=sentence,
            threshold=THRESHOLDS["protocols"],
            count=len(differing),
            n=len(common),
            share=len(differing) / len(common),
            examples=examples,
        )
    ]


def repeats(text: str, words: list[str]) -> bool:
    """Return whether a text of 20 words or more repeats itself: half of its 4-grams, or a line three times in a row."""
    if len(words) < _MIN_WORDS:
        return False
    grams = list(zip(*(words[i:] for i in range(4)), strict=False))
    if 1 - len(set(grams)) / len(grams) >= 0.5:
        return True
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return any(len(list(group)) >= 3 for _, group in itertools.groupby(lines))


def copies(answer: str, prompt: str, excluded: list[str]) -> bool:
    """Return whether an answer has 20 consecutive words, or 80 % of its 8-grams, of the prompt without some texts."""
    words = normalize(answer).split()
    if len(words) < 8:
        return False
    for text in sorted(filter(None, excluded), key=len, reverse=True):
        prompt = prompt.replace(text, "\n")
    source = normalize(prompt).split()
    if len(source) < 8:
        return False
    known = {tuple(source[i : i + 8]) for i in range(len(source) - 7)}
    is_known = [tuple(words[i : i + 8]) in known for i in range(len(words) - 7)]
    run = max((len(list(group)) for found, group in itertools.groupby(is_known) if found), default=0)
    return sum(is_known) >= 0.8 * len(is_known) or run >= _MIN_WORDS - 7


def _below_chance(headline: dict, majority: float | None) -> Iterable[Diagnosis]:
    """Yield the diagnoses of a value below chance, and of one that does not exceed the majority baseline."""
    value, low, high, n = (headline[name] for name in ("value", "ci_low", "ci_high", "n"))
    chance, name = headline["chance_level"], display_name(headline["metric"])
    if chance is None or high is None:
        return
    is_accuracy = headline["metric"].partition("_")[0] not in CHANCE
    shown, shown_chance = (_percent(x) if headline["unit"] == "share" else f"{x:.3f}" for x in (value, chance))
    p = None
    if is_accuracy and high > low:  # items of a cluster count less: as many as give a Wilson interval of this width
        half_width = (high - low) / 2
        effective = _Z**2 * (value * (1 - value) / half_width**2 if value else (1 - high) / high)
        effective = min(n, round(effective))
        p = float(bdtr(math.floor(value * effective), effective, chance))
    if high < chance and (p is None or p < 0.01):
        yield Diagnosis(
            code="below_chance",
            severity=FAILURE if p is not None and p < 0.001 else WARNING,
            sentence=f"{name} of {shown} is below the chance level of {shown_chance}"
            + (f" ({_p(p)})" if p is not None else "")
            + ": as with inverted or shifted gold labels, or a constant answer of a rare label.",
            threshold=THRESHOLDS["below_chance"],
            n=n,
        )
    if is_accuracy and majority is not None and low <= majority:
        yield Diagnosis(
            code="majority",
            severity=INFORMATION,
            sentence=f"{name} of {shown} does not exceed {_percent(majority)}, that of always choosing the most common "
            "gold.",
            threshold=THRESHOLDS["majority"],
            n=n,
            share=majority,
        )


def _half_width(headline: dict | None) -> float:
    """Return half the width of a share's interval: what a share of items must be to move the value by more; else 0."""
    if headline is None or headline["unit"] != "share" or headline["ci_low"] is None:
        return 0.0
    return (headline["ci_high"] - headline["ci_low"]) / 2


def _references(item: Item) -> list[str]:
    """Return the correct texts of an item: its gold options, or its target."""
    return [item["choices"][i] for i in item["gold"]] if item["choices"] else [item["target"]] if item["target"] else []


def _begins_with(text: str, label: str) -> bool:
    return bool(label) and f"{text} ".startswith(f"{label} ")


def _are_single_tokens(outputs: list) -> bool:
    """Return whether the scored options of an item are single tokens."""
    spans = [row["tokens"] for row in outputs if row["role"].startswith("choice:")]
    return bool(spans) and all(span is not None and len(span) == 1 for span in spans)


def _top_token(outputs: list) -> list[str]:
    """Return the most probable token in place of the labels; [] if it was not stored."""
    for row in outputs:
        is_choice = row["role"].startswith("choice:") and not Role.parse(row["role"]).rotation
        if is_choice and row.get("top_tokens"):
            return [_readable(token) for token in row["top_tokens"][:1] if token is not None]
    return []


def _readable(token: str) -> str:
    """Return a token with the marks of its vocabulary for white space replaced.

    >>> _readable("ĠO"), _readable("Ċ")
    (' O', '\\\\n')
    """
    for mark, text in (("Ġ", " "), ("▁", " "), ("Ċ", "\\n"), ("ĉ", "\\t")):
        token = token.replace(mark, text)
    return token


def _of(count: int, n: int) -> str:
    return f"{count} of {n}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _p(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".", 1)
