"""Labels of speakers on responses, from filled sheets, and estimates from them and automatic scores of all items.

The labels of a model are used if they are those of the first clusters in the order of the draw (`data.load.draw_key`):
items that were chosen otherwise are no sample. A label belongs to the texts that were read: an item with its gold and a
response.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from vernacular.comparison.schema import ESTIMATES, HUMAN
from vernacular.comparison.sheets import CORRECT, GRADES, PAIRS, Label, Responses
from vernacular.core.errors import first_of, format_count
from vernacular.core.tables import decimals, finite_or_none, percent
from vernacular.metrics.metric import Metric, display_name
from vernacular.metrics.schema import value_arrays
from vernacular.statistics.intervals import cluster_codes
from vernacular.statistics.labels import MIN_CLUSTERS, Agreement, Estimate, agreement, corrected, labels_alone

MISSING_SHARE = 0.05  # share of the items before the last label without one


@dataclass(frozen=True)
class Score:
    """An automatic score of one model's items."""

    values: np.ndarray  # (n,) NaN where there is none
    sign: float = 1.0  # -1: lower is better
    unit: str | None = None
    headline: bool = False


def item_scores(responses: Responses, tables: Sequence[pa.Table], metrics: Sequence[Metric]) -> dict[str, Score]:
    """Return the automatic scores of a model's items by name, those that `metrics` declares in their order.

    The first table is TASK_RESULTS of the evaluation, of which the metrics with a direction are scores. Further ones,
    such as the values of a judge, are of the same kind, and all their values are scores.
    """
    known = {metric.name: metric for metric in metrics}
    scores: dict[str, Score] = {}
    for number, table in enumerate(tables):
        for name, values in sorted(value_arrays(table).items()):
            metric = known.get(name)
            if metric and (metric.higher_is_better is None or metric.corpus or metric.of_dataset):
                continue
            if name in scores or ":" in name or (metric is None and number == 0):
                continue
            array = responses.of_items(table, values)
            array[np.isinf(array)] = np.nan
            if not np.isnan(array).all():
                sign = -1.0 if metric and metric.higher_is_better is False else 1.0
                scores[name] = Score(array, sign, *((metric.unit, metric.headline) if metric else ()))
    order = list(known)
    return dict(sorted(scores.items(), key=lambda each: order.index(each[0]) if each[0] in known else len(order)))


@dataclass(frozen=True)
class Drawn:
    """Labels of a prefix of the order, (n,) NaN where there is none, and what is known of them."""

    values: np.ndarray
    clusters: np.ndarray  # (n,) codes in this order
    n_missing: int  # items before the last label without one
    problem: str | None  # why they are no sample


def drawn_labels(values: np.ndarray, keys: list[str], ids: list[str]) -> Drawn:
    """Return the labels of the first complete clusters; a cluster that the annotators have not finished is left out."""
    clusters = cluster_codes(keys, len(keys))
    has_label = ~np.isnan(values)
    last = clusters[has_label].max(initial=-1)
    if last > 0 and not has_label[clusters == last].all():
        has_label &= clusters < last
        last = clusters[has_label].max(initial=-1)
    read = clusters <= last
    missing = np.flatnonzero(read & ~has_label)
    problem = None
    if len(missing) > MISSING_SHARE * read.sum():
        late = next((i for i in np.flatnonzero(has_label) if i > missing[0]), None)
        where = f"{ids[missing[0]]} of the same cluster" if late is None else f"{ids[missing[0]]} before it"
        labeled = ids[np.flatnonzero(has_label)[-1] if late is None else late]
        counted = f"{len(missing)} of {format_count(int(read.sum()), 'item')} are missing"
        problem = (
            f"the labels are not those of the first items in the order of the draw: {labeled} has one, {where} has "
            f"none ({counted}; at most {percent(MISSING_SHARE, 0)} may be)"
        )
    return Drawn(np.where(has_label, values, np.nan), clusters, len(missing), problem)


@dataclass
class Estimated:
    """The estimates of one evaluation, and notes on the labels."""

    rows: list[dict]  # per ESTIMATES
    notes: list[str]


def estimates(
    evaluation: str,
    labels: Sequence[Label],
    tables: Mapping[str, Sequence[pa.Table]],
    pairs: Iterable[tuple[str, str]],
    metrics: Sequence[Metric],
) -> Estimated:
    """Return values of models and paired differences, from the labels of one evaluation and each automatic score.

    Args:
        tables: TASK_RESULTS by model, each followed by further tables with scores of the same items.
        pairs: (baseline, candidate).
    """
    if len(scales := sorted({label.scale for label in labels})) > 1:
        return Estimated([], [f"labels on two scales ({', '.join(scales)}); use one of them. They are not used."])
    [scale] = scales
    found = _Found(evaluation, scale, labels, {model: Responses(own[0]) for model, own in tables.items()})
    scores = {model: item_scores(found.responses[model], own, metrics) for model, own in tables.items()}
    for model in [] if scale == PAIRS else tables:
        responses = found.responses[model]
        values = np.array([found.mean.get(key, np.nan) for key in responses.response_ids], dtype=float)
        if not np.isnan(values).all():
            drawn = drawn_labels(values, responses.keys, responses.ids)
            found.add(None, model, drawn, scores[model])
    for baseline, candidate in pairs:
        if baseline in tables and candidate in tables:
            first, second = found.responses[baseline], found.responses[candidate]
            rows = {item: j for j, item in enumerate(second.ids)}
            at = [(i, rows[item]) for i, item in enumerate(first.ids) if item in rows]
            values = found.differences(first, second, at)
            if np.isnan(values).all():
                continue
            i, j = [i for i, _ in at], [j for _, j in at]
            drawn = drawn_labels(values, [first.keys[row] for row in i], [first.ids[row] for row in i])
            differences = {
                name: replace(score, values=scores[candidate][name].values[j] - score.values[i])
                for name, score in scores[baseline].items()
                if name in scores[candidate]
            }
            found.add(baseline, candidate, drawn, differences)
    return Estimated(found.rows, found.all_notes())


class _Found:
    """The labels of one evaluation on one scale, and the rows that they give."""

    def __init__(self, evaluation: str, scale: str, labels: Sequence[Label], responses: dict[str, Responses]):
        self.evaluation, self.scale, self.labels, self.responses = evaluation, scale, labels, responses
        self.rows: list[dict] = []
        self.notes: list[str] = []
        self.by_response: dict[str, dict[str, float]] = {}  # response -> annotator -> value
        for label in labels:
            self.by_response.setdefault(label.responses, {})[label.annotator] = label.value
        pairs = {(label.response_id, label.annotator, label.label) for label in labels}
        if twice := len(pairs) - len({pair[:2] for pair in pairs}):
            responses = format_count(twice, "response")
            self.notes.append(f"{responses} with two labels by one annotator in several sheets: the last is used.")
        self.mean = {key: sum(values.values()) / len(values) for key, values in self.by_response.items()}
        self.annotators = sorted({label.annotator for label in labels})
        self.agreement = self._agreement()

    def _agreement(self) -> Agreement:
        clusters = {label.responses: label.item_id for label in self.labels}
        keys = {item: key for own in self.responses.values() for item, key in zip(own.ids, own.keys, strict=True)}
        rows = [[own.get(name, np.nan) for own in self.by_response.values()] for name in self.annotators]
        values = np.array(rows, dtype=float)
        labels = [keys.get(clusters[key], clusters[key]) for key in self.by_response]
        return agreement(values, labels, ordinal=self.scale != CORRECT)

    def differences(self, first: Responses, second: Responses, at: list[tuple[int, int]]) -> np.ndarray:
        """Return candidate minus baseline; equal responses do not differ, and are not read in pairs."""
        keys = [(first.response_ids[i], second.response_ids[j]) for i, j in at]
        if self.scale != PAIRS:
            return np.array([self.mean.get(b, np.nan) - self.mean.get(a, np.nan) for a, b in keys], dtype=float)
        values = np.full(len(keys), np.nan)
        for number, (a, b) in enumerate(keys):
            low, high = sorted((a, b))
            preferred = self.mean.get(f"{low} {high}", np.nan)  # of `low`
            values[number] = preferred if low == b else -preferred
        equal = np.array([a == b for a, b in keys], dtype=bool)
        read = [i for i, value in enumerate(values) if not np.isnan(value)]
        if read:  # equal responses among those that were read, by whole clusters
            last = first.keys[at[read[-1]][0]]
            values[[i for i, (row, _) in enumerate(at) if equal[i] and first.keys[row] <= last]] = 0.0
        return values

    def add(self, baseline: str | None, model: str, drawn: Drawn, scores: dict[str, Score]) -> None:
        """Add the row of the labels alone, and one for each score."""
        side = model if baseline is None else f"{model} minus {baseline}"
        if drawn.problem:
            hint = f"`vernacular labels {self.evaluation}` writes the missing rows"
            self.notes.append(f"{side}: labels not used: {drawn.problem}. {hint}.")
            return
        values, clusters, has_label = drawn.values, drawn.clusters, ~np.isnan(drawn.values)
        alone, n_clusters = labels_alone(values, clusters), len(np.unique(clusters[has_label]))
        is_share = self.scale == CORRECT and baseline is None
        common = dict.fromkeys(ESTIMATES.schema.names) | {
            "baseline": baseline,
            "model": model,
            "evaluation": self.evaluation,
            "unit": "score" if self.scale == GRADES else "share",
            "n_labels": int(has_label.sum()),
            "n_clusters": n_clusters,
            "n_missing": drawn.n_missing,
            "n": len(values),
            "annotators": len(self.annotators),
            "alpha": finite_or_none(self.agreement.alpha),
            "alpha_low": finite_or_none(self.agreement.low),
            "alpha_high": finite_or_none(self.agreement.high),
            "n_agreement": self.agreement.n,
        }
        row = common | numbers(alone, alone, is_share, paired=baseline is not None)
        row |= {"metric": HUMAN, "headline": True}
        self.rows.append(row | {"sentence": _sentence(row, None)})
        lead = next((name for name, score in scores.items() if score.headline), None)  # not the one that fits best
        for name, score in scores.items():
            known = ~np.isnan(score.values)
            mean = float(score.values[known].mean()) if known.any() else 0.0
            filled = np.where(known, score.values, mean)  # any score keeps the coverage
            estimate = corrected(values, score.sign * filled, clusters) if n_clusters >= MIN_CLUSTERS else alone
            row = common | numbers(estimate, alone, is_share, paired=baseline is not None)
            row |= {
                "metric": f"{HUMAN}_by_{name}",
                "score": name,
                "headline": name == lead,
                "score_only": mean if known.any() else None,
                "rho": _correlation(values[has_label & known], score.values[has_label & known]),
                "n_scored": int(known.sum()),
            }
            self.rows.append(row | {"sentence": _sentence(row, score)})
        if n_clusters < MIN_CLUSTERS:
            few = format_count(n_clusters, "labeled cluster")
            self.notes.append(f"{side}: {few}: the estimate is that of the labels alone below {MIN_CLUSTERS}.")
        if drawn.n_missing:
            self.notes.append(f"{side}: {format_count(drawn.n_missing, 'item')} before the last label without one.")

    def all_notes(self) -> list[str]:
        """Return what was read by whom, and then what was not used."""
        current = {key for own in self.responses.values() for key in own.response_ids}
        outdated = sorted({label.item_id for label in self.labels if not current.issuperset(label.response_id.split())})
        files = ", ".join(sorted({label.file for label in self.labels}))
        items = format_count(len({label.item_id for label in self.labels}), "item")
        text = f"{files}: {format_count(len(self.labels), 'label')} on {items} by {', '.join(self.annotators)}"
        found = self.agreement
        if found.n and np.isnan(found.alpha):
            text += f", agreement not defined: one value only on {format_count(found.n, 'response')}"
        elif found.n:
            interval = "" if np.isnan(found.low) else f" ({found.low:.2f} to {found.high:.2f})"
            responses = format_count(found.n, "response")
            text += f", agreement {found.alpha:.2f}{interval} on {responses} (Krippendorff's alpha)"
        notes = [f"{text}.", *self.notes]
        if outdated:
            read = f"labels on {format_count(len(outdated), 'item')} ({first_of(outdated)})"
            notes.append(f"{read}: another version of the item or response was read, and they are not used.")
        return notes


def numbers(estimate: Estimate, alone: Estimate, is_share: bool, *, paired: bool) -> dict:
    """Return the columns of an estimate, and of that of the labels alone."""
    (low, high), (low_alone, high_alone) = (each.interval(proportion=is_share) for each in (estimate, alone))
    ratio = (estimate.variance / alone.variance) ** 0.5 if alone.variance > 0 else float("nan")
    return {
        "value": min(max(estimate.value, 0.0), 1.0) if is_share else estimate.value,
        "ci_low": finite_or_none(low),
        "ci_high": finite_or_none(high),
        "p_value": estimate.p_value() if paired else None,
        "labels_only": alone.value,
        "labels_only_low": finite_or_none(low_alone),
        "labels_only_high": finite_or_none(high_alone),
        "weight": estimate.weight,
        "ratio": None if estimate is alone else finite_or_none(ratio),
    }


def _correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    if len(first) < 3 or not first.std() or second.std() < 1e-12:
        return None
    return finite_or_none(float(np.corrcoef(first, second)[0, 1]))


def _sentence(row: dict, score: Score | None) -> str:
    """Return all three estimates in a sentence: the score's mean alone is none of the speakers' judgment."""
    is_difference = row["baseline"] is not None

    def shown(value: float | None, unit: str | None) -> str:
        if value is None:
            return "–"
        if unit != "share":
            return decimals(value, 3, signed=is_difference)
        return f"{decimals(100 * value, signed=True)} points" if is_difference else percent(value)

    def estimate(*names: str) -> str:
        value, low, high = (shown(row[name], row["unit"]) for name in names)
        return f"{value} ({low.removesuffix(' %').removesuffix(' points')} to {high})"

    labels = format_count(row["n_labels"], "label")
    alone = f"{labels} alone {estimate('labels_only', 'labels_only_low', 'labels_only_high')}"
    if row["metric"] == HUMAN:
        return f"By {alone}."
    size = shown(row["score_only"], score.unit)
    both = f"by {labels} and this score {estimate('value', 'ci_low', 'ci_high')}; "
    if row["weight"] is None:
        both, alone = "", f"{alone}, too few to use this score"
    direction = " (lower is better)" if score.sign < 0 else ""
    agrees = "" if row["rho"] is None else f" It agrees with speakers at ρ = {row['rho']:.2f}{direction}."
    return f"By {display_name(row['score'])} {size}; {both}by {alone}.{agrees}"
