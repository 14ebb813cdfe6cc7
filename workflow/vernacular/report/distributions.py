"""Distributions over the items of one evaluation, for the plots of the task view.

Histograms of the measure that sorts the items, calibration of the choice between options, and surprisal by position
and by length. Bins and edges are the same for all models, so that their plots can be compared.
"""

import math
from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from vernacular.core.tables import is_finite
from vernacular.metrics.corpus import calibrated_error, expected_calibration_error, overconfidence
from vernacular.report.data_files import Row, record, round_all, round_significant
from vernacular.report.item_details import UNSCORED, ItemOutcomes
from vernacular.types import Role

N_BINS = 24  # of a histogram; one or two more if zero is inside
N_CONFIDENCE_BINS = 10
N_LENGTH_BINS = 8
MAX_POSITION = 40  # words


def histograms(outcomes_by_model: dict[int, ItemOutcomes]) -> list:
    """Return a Row.Histogram per model.

    Values outside the 0.5 % and 99.5 % quantiles are counted in the first and last bin, so that an outlier does not
    compress the other bins.
    """
    rows = []
    for measure in dict.fromkeys(result.measure for result in outcomes_by_model.values() if result.measure):
        selected = {model: result for model, result in outcomes_by_model.items() if result.measure == measure}
        all_values = np.array(
            [value for result in selected.values() for value in result.measure_values if value is not None], dtype=float
        )
        edges = bin_edges(*np.quantile(all_values, [0.005, 0.995]))
        for model, result in selected.items():
            values = np.array([np.nan if value is None else value for value in result.measure_values], dtype=float)
            outcomes = np.array(result.outcomes)
            counts = []
            for outcome in sorted(set(result.outcomes)):
                in_outcome = values[(outcomes == outcome) & np.isfinite(values)]
                bins = np.histogram(np.clip(in_outcome, edges[0], edges[-1]), edges)[0]
                counts.append(Row.OutcomeBins(outcome=int(outcome), bins=bins.tolist()))
            edges_shown = round_all(edges.tolist(), 4)
            rows.append(Row.Histogram(model=model, measure=measure, edges=edges_shown, counts=counts))
    return rows


def bin_edges(low: float, high: float, bins: int = N_BINS) -> np.ndarray:
    """Return the edges of equal bins from `low` to `high`, moved outward so that zero is an edge if it is inside.

    >>> bin_edges(-1.0, 2.0, bins=4).tolist()
    [-1.5, -0.75, 0.0, 0.75, 1.5, 2.25]
    """
    high = high if high > low else low + 1
    if not low < 0 < high:
        return np.linspace(low, high, bins + 1)
    step = (high - low) / bins
    return step * np.arange(np.floor(low / step), np.ceil(high / step) + 1)


def calibration(model: int, rows: Iterable[dict]):
    """Return the Row.Calibration of a model's choices between options: its expected calibration error, the mean
    confidence and accuracy in each bin, the error expected of a perfectly calibrated model, and, signed, the mean
    confidence - accuracy.

    The confidence is the highest probability of an option among all options of the item (softmax of their
    log-likelihoods). Bins of confidence are those of the error (Guo et al. 2017); empty ones are omitted. None if no
    item has scores and a known correct option.
    """
    pairs = [
        (_highest_probability(row["option_scores"]), row["correct"])
        for row in rows
        if row["correct"] is not None and row["option_scores"] and all(map(is_finite, row["option_scores"]))
    ]
    if not pairs:
        return None
    confidence, correct = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    bin_index = np.maximum(np.ceil(confidence * N_CONFIDENCE_BINS) - 1, 0)
    bins = []
    for i in np.unique(bin_index):
        chosen = bin_index == i
        means = round_all([confidence[chosen].mean(), correct[chosen].mean()])
        bins.append(Row.ConfidenceBin(confidence=means[0], accuracy=means[1], n=int(chosen.sum())))
    error = float(expected_calibration_error(confidence, correct, N_CONFIDENCE_BINS))
    expected = float(calibrated_error(confidence, N_CONFIDENCE_BINS))
    signed = float(overconfidence(confidence, correct))
    error, expected, signed = round_all([error, expected, signed])
    return Row.Calibration(model=model, error=error, bins=bins, expected=expected, signed=signed)


def _highest_probability(scores: list[float]) -> float:
    """Return the highest value of the softmax of `scores`.

    >>> round(_highest_probability([math.log(0.2), math.log(0.6)]), 6)
    0.75
    """
    best = max(scores)
    return 1 / sum(math.exp(score - best) for score in scores)


class SurprisalProfile:
    """Surprisals of one model by position and length of the text; only correct options count."""

    def __init__(self):
        self.totals, self.counts = np.zeros(MAX_POSITION), np.zeros(MAX_POSITION, int)
        self.lengths, self.nats = array("q"), array("d")  # characters and surprisal of each text that is fully scored

    def add(self, tokens: dict, spans: dict, gold: dict[str, list[int]]) -> None:
        """Add the texts of some items.

        Args:
            tokens: As returned by `pack_surprisals`.
            spans: Text and start of each span, by item and role.
            gold: Correct options by item.
        """
        for text, lengths, hundredths in _correct_spans(tokens, spans, gold):
            nats = np.array(hundredths) / 100
            if UNSCORED not in hundredths:
                self.lengths.append(len(text))
                self.nats.append(nats.sum())
            words, scored = _word_surprisals(text, np.array(lengths), nats, np.array(hundredths) != UNSCORED)
            words, scored = words[:MAX_POSITION], scored[:MAX_POSITION]
            self.totals[: len(words)] += np.where(scored, words, 0.0)
            self.counts[: len(words)] += scored


def surprisal_profiles(profiles: dict[int, SurprisalProfile]) -> dict:
    """Return Row.Profile of the models: by position of Row.WordMean, and by length of Row.LengthMean.

    Position: mean surprisal of the words at each position of the scored text (nats; words are separated by whitespace).
    Length: mean surprisal per character of the texts in each range of lengths (characters). Only correct options count.
    Empty lists where the texts do not differ in that respect.
    """
    positions = {
        model: [
            Row.WordMean(
                word=i + 1, nats=round_significant(profile.totals[i] / profile.counts[i]), n=int(profile.counts[i])
            )
            for i in np.flatnonzero(profile.counts).tolist()
        ]
        for model, profile in profiles.items()
    }
    several_words = max((len(rows) for rows in positions.values()), default=0) > 2
    by_position = [Row.Profile(model=model, points=rows) for model, rows in positions.items() if rows and several_words]
    return record("Surprisal", {"position": by_position, "length": _by_length(profiles)})


def _correct_spans(tokens: dict, spans: dict, gold: dict) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield [text from the first token on, token lengths, hundredths of nats] of correct options and other texts."""
    for item, entries in tokens.items():
        for entry in entries:
            index = Role.parse(entry.role).index
            if index is None or not gold[item] or index in gold[item]:
                text = entry.skip if isinstance(entry.skip, str) else spans[item, entry.role][0][entry.skip :]
                yield text[: sum(entry.lengths)], entry.lengths, entry.hundredths


def _word_surprisals(text: str, lengths: np.ndarray, nats: np.ndarray, scored: np.ndarray) -> tuple:
    """Return the surprisal of each word, and whether all of its tokens are scored; a token belongs to its last word.

    >>> _word_surprisals("a bc", np.array([1, 2, 1]), np.array([1.0, 2.0, 4.0]), np.array([True] * 3))[0].tolist()
    [1.0, 6.0]
    """
    if not text:
        return np.zeros(0), np.zeros(0, bool)
    is_space = np.array([character.isspace() for character in text])
    word_of_char = np.cumsum(~is_space & np.concatenate(([True], is_space[:-1]))) - 1
    ends = np.minimum(np.cumsum(lengths), len(text))
    word = np.maximum(word_of_char[np.maximum(ends, 1) - 1], 0)
    return np.bincount(word, nats), np.bincount(word, ~scored) == 0


def _by_length(profiles: dict[int, SurprisalProfile]) -> list:
    """Return the mean surprisal per character in ranges of length with about the same number of texts."""
    lengths = np.concatenate([np.zeros(0, int), *(profile.lengths for profile in profiles.values())])
    if not len(lengths):
        return []
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, N_LENGTH_BINS + 1)).round())
    if len(edges) < 4:
        return []
    rows = []
    for model, profile in profiles.items():
        if not len(profile.lengths):
            continue
        length, nats = np.array(profile.lengths, dtype=float), np.array(profile.nats)
        bin_index = np.clip(np.searchsorted(edges, length, side="right") - 1, 0, len(edges) - 2)
        ranges = []
        for i in np.unique(bin_index):
            chosen = bin_index == i
            per_character = round_significant(float((nats[chosen] / length[chosen]).mean()))
            low, high = int(edges[i]), int(edges[i + 1])
            ranges.append(Row.LengthMean(low=low, high=high, nats=per_character, n=int(chosen.sum())))
        rows.append(Row.Profile(model=model, points=ranges))
    return rows
