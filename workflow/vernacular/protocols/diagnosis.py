"""Diagnosis of one model's results of one evaluation: symptoms that explain its value, from stored rows.

It names what is seen ("397 of 400 answers are “no”"), not who is to blame: one value cannot show that. Nothing is run,
and no row is read again. What could not move the value is not reported: a count appears if its share is at least half
the width of the value's interval.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr

from vernacular.core.errors import shortened
from vernacular.core.metadata import FAILURE, INFORMATION, WARNING, Diagnosis, Example
from vernacular.core.tables import decimals, p_value_text, percent
from vernacular.metrics.corpus import matthews_corrcoef
from vernacular.metrics.language import BLOCKS, LanguageMeter
from vernacular.metrics.metric import CHANCE, display_name
from vernacular.protocols.observations import EXCERPT, MIN_WORDS, N_EXAMPLES, Observations
from vernacular.statistics.intervals import wilson
from vernacular.types import OPTIONS_ONLY

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
    "constant": "25 points between the shares of predicted and gold labels (total variation), p < 0.01; failure: one "
    "label in 95 % of the items, and no gold label in more than 80 %",
    "position": "standard deviation of recall of 10 points, p < 0.01; where all rotations of the options are scored, "
    "10 points between the mean probabilities of the letters and equal ones (total variation), p < 0.01",
    "length": "0.1 of the ranks, p < 0.01; or between normalizations 10 points, and half the width of the interval",
    "below_chance": "p < 0.01; failure: p < 0.001",
    "majority": "interval includes the majority baseline, or is below it",
    "protocols": "intervals that do not overlap",
}
CODES = tuple(THRESHOLDS)

_PERMUTATIONS = 2_000
_MIN_ROTATED = 10  # items
_MIN_UNITS = {"language_correct": 20, BLOCKS: 5}  # responses or blocks whose language is compared with the gold's
_Z = 1.959964  # of a 95 % interval


class Diagnoser(Observations):
    """Observations, and the diagnoses that explain the value of their evaluation."""

    def diagnose(
        self, values: Iterable[dict], majority: float | None = None, meter: LanguageMeter | None = None
    ) -> list[Diagnosis]:
        """Return the diagnoses that explain the value, failures first, then in the order of causes.

        `values`: rows per METRICS; `majority`: accuracy of always choosing the most common gold.
        """
        overall = [value for value in values if not value["category"] and value["value"] is not None]
        headline = next((value for value in overall if value["headline"]), None)
        # half the width of a share's interval: what a share of items must be to move the value by more
        has_interval = headline is not None and headline["unit"] == "share" and headline["ci_low"] is not None
        half_width = (headline["ci_high"] - headline["ci_low"]) / 2 if has_interval else 0.0
        found = [*self._counted(half_width)]
        if not self.subject.style.endswith(OPTIONS_ONLY):  # what is chosen without the question explains nothing
            found += [*self._of_labels(), *self._of_lengths(overall, half_width)]
        if meter is not None:
            found += self._of_language(overall, meter)
        compared = (row for row in overall if row["headline"] and row["chance_level"] not in (None, 1))
        if (row := next(compared, None)) is not None:
            found += self._below_chance(row, majority)
        return sorted(found, key=order)

    def _counted(self, half_width: float) -> Iterable[Diagnosis]:
        n, found = self.n_responses, self.found
        unclosed = f" (the reasoning of {self.n_unclosed} is unclosed)" if self.n_unclosed else ""
        phrases = {
            "truncated": f"end before their answer is complete{unclosed}",
            "empty": "are empty",
            "format": "have no answer that can be extracted" if self.has_parser else "contain none of the options",
            "echo": "repeat their prompt",
            "loop": "repeat themselves",
        }
        for code, phrase in phrases.items():
            yield from self._of_count(code, n, f"responses {phrase}", half_width)
        kinds = ", ".join(f"{kind} {count}" for kind, count in found["dropped"].texts.most_common())
        text = f"items lost few-shot examples or their score, or are ties ({kinds})"
        yield from self._of_count("dropped", self.n_rows, text, half_width)
        if count := found["template"].count:
            kinds = found["template"].texts.items()
            parts = [f"{_of(number, self.n_prompts)} prompts {kind}" for kind, number in kinds]
            yield self._diagnosis("template", False, self.n_prompts, "; ".join(parts) + ".")
        if count := found["marker"].count:
            [(marker, _)] = found["marker"].texts.most_common(1)
            text = f"{_of(count, n)} answers begin with a marker of the model's format, most often “{marker}”."
            yield self._diagnosis("marker", count >= 0.02 * n, n, text)
        if n and (count := found["refusal"].count) >= 0.05 * n:
            text = f"{_of(count, n)} answers begin like a refusal (suspected, by a list of phrases)."
            yield self._diagnosis("refusal", False, n, text)
        n, n_gold = self.answers.total(), self.gold_texts.total()
        if n >= MIN_WORDS and (self.subject.style.endswith("open") or self.protocol.tool):
            share, own_share = len(self.answers) / n, len(self.gold_texts) / n_gold if n_gold else 1.0
            [(answer, count)] = self.answers.most_common(1)
            most = f"“{shortened(answer, 40)}” occurs {count} times"
            text = f"{n} answers have {len(self.answers)} distinct texts; {most}."
            if share < 0.5 and share < own_share / 2:
                examples = [Example(item=item, text=shortened(answer, EXCERPT)) for item in self.answered[answer]]
                count = n - len(self.answers)
                yield self._diagnosis("same_text", share < 0.05, n, text, count=count, examples=examples)

    def _of_count(self, code: str, n: int, phrase: str, half_width: float) -> Iterable[Diagnosis]:
        count = self.found[code].count
        if count and wilson(count, n)[0] > 0.02 and count / n >= half_width:
            yield self._diagnosis(code, count >= 0.1 * n, n, f"{_of(count, n)} {phrase}.")

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
            f"answers, {percent(1 - expected)} by the same rule."
        )
        examples = [Example(item=item, text=shortened(text, EXCERPT)) for item, text in meter.wrong[:N_EXAMPLES]]
        is_failure = expected - row["value"] >= 0.2
        yield self._diagnosis("language", is_failure, n, text, count=count, examples=examples)

    def _of_labels(self) -> Iterable[Diagnosis]:
        names, items, gold, chosen = self.labels()
        if self.masses and self.has_labels:
            median = float(np.median(list(self.masses.values())))
            if median < 0.5:
                top = self.top_tokens.most_common(1)
                in_items = _of(top[0][1], self.top_tokens.total()) if top else ""
                most = f" The most probable token is “{top[0][0]}” in {in_items} items." if top else ""
                text = f"All labels together have a median probability of {median:.2g}.{most}"
                lowest = sorted(self.masses.items(), key=lambda entry: entry[1])[:N_EXAMPLES]
                examples = [Example(item=item, text=f"all labels: {mass:.2g}") for item, mass in lowest]
                n = len(self.masses)
                yield self._diagnosis("label_mass", median < 0.1, n, text, share=median, examples=examples)
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
            hits = int(((chosen == label) & (gold == label)).sum())
            others = int(((chosen == gold) & (chosen != label)).sum())
            correlation = float(matthews_corrcoef(gold.astype(float), chosen.astype(float)))
            text = (
                f"{_of(count, n)} {noun} are “{names[label]}” (gold: {int((gold == label).sum())}): accuracy = "
                f"({hits} correct “{names[label]}” + {others} others) / {n} = {percent((hits + others) / n)}; "
                f"MCC {correlation:.3f}."
            )
            examples = [
                Example(item=items[i], text=f"gold {names[gold[i]]}, predicted {names[label]}")
                for i in np.flatnonzero((chosen == label) & (gold != label))[:N_EXAMPLES]
            ]
            yield self._diagnosis("constant", is_failure, n, text, count=count, examples=examples)
        if self.places:
            yield from self._of_rotations()
        elif self.protocol.letters:
            yield from self._of_positions(names, items, gold, chosen)

    def _of_rotations(self) -> Iterable[Diagnosis]:
        """Yield that letters are preferred: all options were offered with each, in as many items."""
        n_letters = Counter(map(len, self.places.values())).most_common(1)[0][0]
        items = [item for item, shares in self.places.items() if len(shares) == n_letters]
        excess = np.array([self.places[item] for item in items]) - 1 / n_letters
        means = excess.mean(axis=0)
        letter, variation = int(np.abs(means).argmax()), float(np.abs(means).sum() / 2)
        if len(items) < _MIN_ROTATED or variation < 0.1:
            return
        # a sign flip of each item's excess, as of `length`; of the largest of all letters
        deviation = math.sqrt(float(excess[:, letter] @ excess[:, letter]))
        p = min(1.0, n_letters * 2 * float(ndtr(-abs(excess[:, letter].sum()) / deviation)))
        if p < 0.01:
            parts = ", ".join(f"{chr(65 + i)} {percent(mean + 1 / n_letters)}" for i, mean in enumerate(means))
            text = (
                f"Mean probability of the letters over all rotations of the options: {parts} (without a preference "
                f"{percent(1 / n_letters)} each; total variation {_points(variation)}, {p_value_text(p)})."
            )
            farthest = np.argsort(-np.abs(excess[:, letter]), kind="stable")[:N_EXAMPLES]
            shares = {i: percent(excess[i, letter] + 1 / n_letters) for i in farthest}
            examples = [Example(item=items[i], text=f"{chr(65 + letter)} {shares[i]}") for i in farthest]
            yield self._diagnosis("position", False, len(items), text, share=variation, examples=examples)

    def _of_positions(
        self, names: list[str], items: list[str], gold: np.ndarray, chosen: np.ndarray
    ) -> Iterable[Diagnosis]:
        sizes = np.bincount(gold, minlength=len(names))
        hits = np.bincount(gold[gold == chosen], minlength=len(names))
        used = sizes >= 5
        if used.sum() < 2:
            return
        recalls = hits[used] / sizes[used]
        spread = float(recalls.std())
        rng = np.random.default_rng(0)
        n_hits = int(hits[used].sum())
        draws = rng.multivariate_hypergeometric(sizes[used], n_hits, size=_PERMUTATIONS, method="marginals")
        p = (1 + int(((draws / sizes[used]).std(axis=1) >= spread - 1e-12).sum())) / (1 + _PERMUTATIONS)
        if spread >= 0.1 and p < 0.01:
            labels = (name for name, is_used in zip(names, used, strict=True) if is_used)
            parts = ", ".join(f"{name} {percent(recall)}" for name, recall in zip(labels, recalls, strict=True))
            spread_text = f"standard deviation {_points(spread)}, {p_value_text(p)}"
            text = f"Recall by position of the correct option: {parts} ({spread_text})."
            lowest = np.flatnonzero(used)[recalls.argmin()]
            examples = [
                Example(item=items[i], text=f"gold {names[lowest]}, predicted {names[chosen[i]]}")
                for i in np.flatnonzero((gold == lowest) & (chosen != lowest) & (chosen >= 0))[:N_EXAMPLES]
            ]
            yield self._diagnosis("position", False, len(gold), text, share=spread, examples=examples)

    def _of_lengths(self, values: list[dict], half_width: float) -> Iterable[Diagnosis]:
        if len(self.choices) < 2:  # labels, whose lengths are those of their names
            return
        ranks = np.array(list(self.ranks.values()))
        moved = np.count_nonzero(ranks)
        mean = float(ranks.mean()) if len(ranks) else 0.0
        # a sign flip of each difference: the sum has the variance of the sum of squares
        p = 2 * float(ndtr(-abs(ranks.sum()) / math.sqrt(float(ranks @ ranks)))) if moved else 1.0
        parts = []
        if moved >= 10 and abs(mean) >= 0.1 and p < 0.01:
            word = "longer" if mean > 0 else "shorter"
            by = f"{abs(mean):.2f} of the ranks on average ({p_value_text(p)})"
            parts.append(f"chosen options are {word} than correct ones, by {by}")
        names = ("accuracy", "accuracy_token", "accuracy_char", "accuracy_byte", "acc", "acc_norm", "acc_bytes")
        accuracies = {row["metric"]: row["value"] for row in values if row["metric"] in names}
        if accuracies:
            low, high = (function(accuracies, key=accuracies.get) for function in (min, max))
            if accuracies[high] - accuracies[low] >= max(0.1, half_width):
                shown = (f"{display_name(name)} {percent(accuracies[name])}" for name in (low, high))
                parts.append(f"accuracy depends on the normalization by length: {', '.join(shown)}")
        if parts:
            text = "; ".join(parts)
            farthest = sorted(self.ranks, key=lambda item: self.ranks[item], reverse=mean > 0)[:N_EXAMPLES]
            examples = [Example(item=item, text=shortened(self.chosen[item][1], EXCERPT)) for item in farthest]
            text = f"{text[0].upper()}{text[1:]}."
            yield self._diagnosis("length", False, len(ranks), text, share=abs(mean), examples=examples)

    def _below_chance(self, headline: dict, majority: float | None) -> Iterable[Diagnosis]:
        """Yield the diagnoses of a value below chance, and of one that does not exceed the majority baseline."""
        value, low, high, n = (headline[name] for name in ("value", "ci_low", "ci_high", "n"))
        chance, name = headline["chance_level"], display_name(headline["metric"])
        if high is None:
            return
        is_accuracy = headline["metric"].partition("_")[0] not in CHANCE
        shown, shown_chance = (percent(x) if headline["unit"] == "share" else f"{x:.3f}" for x in (value, chance))
        p = None
        if is_accuracy and high > low:  # items of a cluster count less: as many as give a Wilson interval of this width
            half_width = (high - low) / 2
            effective = _Z**2 * (value * (1 - value) / half_width**2 if value else (1 - high) / high)
            effective = min(n, round(effective))
            p = float(bdtr(math.floor(value * effective), effective, chance))
        highest = sorted((row for row in self.surprisals if row[1]), reverse=True)[:N_EXAMPLES]  # acceptable sentences
        surprising = [Example(item=i, text=f"acceptable, surprisal {value:.1f} nats") for value, _, i in highest]
        examples = self.incorrect.examples or surprising
        if high < chance and (p is None or p < 0.01):
            known = f" ({p_value_text(p)})" if p is not None else ""
            constant = ", or a constant answer of a rare label" if is_accuracy else ""
            text = (
                f"{name} of {shown} is below the chance level of {shown_chance}{known}: as with inverted or "
                f"shifted gold labels{constant}."
            )
            is_failure = p is not None and p < 0.001
            yield self._diagnosis("below_chance", is_failure, n, text, examples=examples)
        if is_accuracy and majority is not None and low <= majority:
            most = f"{percent(majority)}, that of always choosing the most frequent correct answer"
            text = f"{name} of {shown} does not significantly exceed {most}."
            majority_row = self._diagnosis("majority", False, n, text, share=majority, examples=examples)
            yield replace(majority_row, severity=INFORMATION)

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


def order(diagnosis: Diagnosis) -> tuple[int, int]:
    """Return the sort key of a diagnosis: failures first, then in the order of causes."""
    return (FAILURE, WARNING, INFORMATION).index(diagnosis.severity), CODES.index(diagnosis.code)


def disagreement(diagnosers: Sequence[Diagnoser], values: Sequence[dict]) -> list[Diagnosis]:
    """Return the diagnosis `protocols` if accuracies by `letters` and `choice` differ beyond their intervals.

    Both arguments are of the two, in this order; `values` are headline rows per METRICS.
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
        f"The same items: {percent(first['value'])} by letters, {percent(second['value'])} by choice; they agree on "
        f"{percent(agreement)} of {len(common)} items (kappa {kappa:.2f})."
    )
    differing = [item for item, is_equal in zip(common, a == b, strict=True) if not is_equal]
    examples = []
    for item in differing[:N_EXAMPLES]:
        texts = (shortened(each.chosen[item][1], 60) for each in (letters, choice))
        examples.append(Example(item=item, text=" / ".join(texts)))
    return [letters._diagnosis("protocols", False, len(common), sentence, count=len(differing), examples=examples)]


def _of(count: int, n: int) -> str:
    return f"{count} of {n}"


def _points(share: float) -> str:
    return f"{decimals(100 * share)} points"
