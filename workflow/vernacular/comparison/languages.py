"""Parallel tasks between languages: what a model answers to the same items in another language, and what it loses.

The items of a parallel task with the same ID are translations of each other, with the options in the same order. What
differs in the number of options or in the gold is excluded and counted; if that is most of a language, its options are
in another order, and nothing is compared. A fault of a translation counts as inconsistency: the items that are correct
in the reference language and incorrect here are listed, to be read.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

import numpy as np
import pyarrow as pa

from vernacular.core.errors import first_of, format_count
from vernacular.core.tables import finite_or_none, rows_of
from vernacular.data.audit import REFERENCE
from vernacular.metrics.spans import TIE, correct_options
from vernacular.statistics.consistency import means, rank_c, unrelated_rank_c
from vernacular.statistics.intervals import cluster_codes
from vernacular.types import SETTING

METRICS = ("rank_c", "same_if_both_incorrect", "correct_if_correct_there")
MOST_LANGUAGES = 12  # of a task, of which all pairs are compared; of more, those with the reference language
_LEAST_SHARE = 0.5  # of the items in both languages, whose options and gold must be comparable

_COLUMNS = ("item_id", "cluster_id", "prompt", "choices", "gold", "option_scores", "prediction", "predicted_indices",
            "correct")  # fmt: skip


@dataclass
class _Language:
    """The items of one evaluation, and what each model answers to them, by item ID."""

    evaluation: str
    texts: dict[str, dict] = field(default_factory=dict)
    answers: dict[str, dict[str, dict]] = field(default_factory=dict)  # by model


def groups(evaluations: Mapping[str, Mapping]) -> list[dict[str, str]]:
    """Return the evaluations that differ in the language only, as {language: evaluation}."""
    found: dict[tuple, dict[str, str]] = {}
    for name, setting in evaluations.items():
        key = tuple(setting[column] for column in SETTING if column != "language")
        found.setdefault(key, {})[setting["language"]] = name
    return list(found.values())


def compare_languages(
    group: Mapping[str, str],
    results: Mapping[str, Mapping[str, pa.Table]],
    pairs: Sequence[tuple[str, str]],
    settings: Mapping[str, Mapping],
) -> tuple[list[dict], list[dict], list[str]]:
    """Return (BETWEEN_LANGUAGES rows, LANGUAGE_ITEMS rows, reasons why a language is not compared) of one group.

    Args:
        group: Language -> evaluation.
        results: Model -> evaluation -> TASK_RESULTS.
        pairs: Baselines and candidates.
        settings: Columns of each evaluation.
    """
    languages = {language: _read(name, results) for language, name in group.items()}
    reference = REFERENCE if REFERENCE in group else min(group)  # fields of a stage have no order
    ids = sorted(set().union(*(each.texts for each in languages.values())))
    clusters = [
        next((each.texts[i]["cluster_id"] for each in languages.values() if i in each.texts), None) for i in ids
    ]
    codes = cluster_codes(clusters, len(ids))
    rows, items, reasons = [], [], {}
    for here, there in permutations(languages, 2):
        if reference not in (here, there) and len(languages) > MOST_LANGUAGES:
            continue
        compared = _Pair(languages[here], languages[there], ids)
        labels = settings[group[here]] | {"evaluation": group[here], "reference": there}
        if compared.reason is None:
            rows += [labels | row for row in compared.rows(codes, pairs if there == reference else ())]
            items += [labels | row for row in compared.items()] if there == reference else []
        elif there == reference:
            reasons.setdefault(compared.reason, []).append(here)
    notes = []
    for reason, (first, *others) in reasons.items():
        also = f"; the same in {first_of(others, 8)}" if others else ""
        notes.append(f"{group[first]}: not compared with {reference}: {reason}{also}")
    return rows, items, notes


def _read(evaluation: str, results: Mapping[str, Mapping[str, pa.Table]]) -> _Language:
    found = _Language(evaluation)
    for model, tables in results.items():
        answers = found.answers[model] = {}
        for row in rows_of(tables[evaluation].select(_COLUMNS)):
            answers[row["item_id"]] = row
            found.texts.setdefault(row["item_id"], row)
    return found


class _Pair:
    """The items of two languages."""

    def __init__(self, here: _Language, there: _Language, ids: list[str]):
        self.here, self.there = here, there
        shared = [i for i, item in enumerate(ids) if item in here.texts and item in there.texts]
        compared = [i for i in shared if _options(here.texts[ids[i]]) == _options(there.texts[ids[i]])]
        self.ids, self.indices = [ids[i] for i in compared], np.array(compared, dtype=int)
        self.n_items, self.n_excluded = len(ids), len(shared) - len(compared)
        self.models = [name for name in here.answers if here.answers[name] and there.answers.get(name)]
        self.reason = self._reason(len(shared))

    def _reason(self, n_shared: int) -> str | None:
        """Return why the languages are not compared; None if they are."""
        if not self.models:
            return "no model has results in both languages"
        if not n_shared:
            return "no item has the same ID"
        if len(self.ids) < _LEAST_SHARE * n_shared:
            return (
                f"{self.n_excluded} of {format_count(n_shared, 'item')} with the same ID have another number of "
                "options, or the gold at another position"
            )
        both = (rows for model in self.models for _, *rows in self._both(model))
        if any(all(map(_is_scored, rows)) or all(row["correct"] is not None for row in rows) for rows in both):
            return None
        return "no model has scores of the options, or a known answer, to the same item in both languages"

    def _both(self, model: str) -> Iterator[tuple[int, dict, dict]]:
        """Yield (index, row here, row there) of the compared items that a model has in both languages."""
        here, there = self.here.answers[model], self.there.answers[model]
        for index, item in zip(self.indices, self.ids, strict=True):
            if item in here and item in there:
                yield index, here[item], there[item]

    def rows(self, codes: np.ndarray, pairs: Sequence[tuple[str, str]]) -> Iterator[dict]:
        """Yield the rows of each model and of each pair of these, without the columns of the evaluation."""
        values, chances = zip(*map(self._values, self.models), strict=True)
        codes = np.unique(codes[self.indices], return_inverse=True)[1]
        found, chance = means(np.hstack(values)[self.indices], codes), np.concatenate(chances)
        columns = {(model, metric): i for i, (model, metric) in enumerate(product(self.models, METRICS))}
        counts = {"n_compared": len(self.indices), "n_excluded": self.n_excluded}
        for (model, metric), i in columns.items():
            numbers = (found.value[i], *found.interval(i), chance[i])
            row = dict(zip(("value", "ci_low", "ci_high", "chance"), map(finite_or_none, numbers), strict=True))
            yield counts | row | {"model": model, "baseline": "", "metric": metric, "n": int(found.n[i])}
        for (baseline, candidate), metric in product(pairs, METRICS):
            if baseline in self.models and candidate in self.models:
                first, second = columns[baseline, metric], columns[candidate, metric]
                numbers = map(finite_or_none, found.difference(first, second))
                row = dict(zip(("value", "ci_low", "ci_high", "p_value"), numbers, strict=True))
                row |= {"model": candidate, "baseline": baseline, "metric": metric}
                yield counts | row | {"n": int(min(found.n[first], found.n[second]))}

    def _values(self, model: str) -> tuple[np.ndarray, list[float]]:
        """Return the values per item (n, metrics), NaN where an item does not enter, and those of unrelated answers."""
        values, chance = np.full((2, self.n_items, len(METRICS)), np.nan)
        scored: dict[int, list[tuple]] = {}  # by number of options
        for index, here, there in self._both(model):
            if _is_scored(here) and _is_scored(there):
                scored.setdefault(len(here["choices"]), []).append(
                    (index, here["option_scores"], there["option_scores"])
                )
            if here["correct"] is None or there["correct"] is None:
                continue
            chance[index, 2] = here["correct"]
            if there["correct"]:
                values[index, 2] = here["correct"]
            chosen = [row["predicted_indices"] or () for row in (here, there)]
            correct = [correct_options(row["choices"], row["gold"]) for row in (here, there)]
            # incorrect by another score than that of the choice, or by its form, an answer may have chosen the gold
            is_other = all(len(own) == 1 and own[0] not in gold for own, gold in zip(chosen, correct, strict=True))
            if not here["correct"] and not there["correct"] and is_other:
                values[index, 1] = chosen[0] == chosen[1]
                chance[index, 1] = 1 / (len(here["choices"]) - len(correct[0]))
        for n_options, own in scored.items():
            indices, *scores = (np.array(column) for column in zip(*own, strict=True))
            values[indices, 0], chance[indices, 0] = rank_c(*scores, tie=TIE), unrelated_rank_c(n_options)
        return values, [float(column[~np.isnan(column)].mean()) if (~np.isnan(column)).any() else np.nan
                        for column in chance.T]  # fmt: skip

    def items(self) -> list[dict]:
        """Return the items that a model answers there and not here: first those of most models."""
        found: dict[str, list[tuple[str, str | None]]] = {}
        known: Counter = Counter()
        for model in self.models:
            for _, here, there in self._both(model):
                if here["correct"] is not None and there["correct"]:
                    known[here["item_id"]] += 1
                    if not here["correct"]:
                        found.setdefault(here["item_id"], []).append((model, here["prediction"]))
        rows = []
        for item, own in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
            here, there = self.here.texts[item], self.there.texts[item]
            row = dict(zip(("models", "predictions"), map(list, zip(*own, strict=True)), strict=True))
            row |= {name: here[name] for name in ("item_id", "choices", "gold")}
            row |= {"text": here["prompt"], "reference_text": there["prompt"], "reference_choices": there["choices"]}
            rows.append(row | {"n_models": known[item]})
        return rows


def _options(row: dict) -> tuple[int, list[int]]:
    return len(row["choices"]), sorted(row["gold"])


def _is_scored(row: dict) -> bool:
    """Return whether all options of a row have a score."""
    scores = row["option_scores"] or ()
    return len(scores) == len(row["choices"]) > 1 and not any(x is None or np.isnan(x) for x in scores)
