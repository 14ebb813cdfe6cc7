"""Choice among options by their scores; a tie is a separate outcome, not a choice of the first option."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

# Scores closer than this are equal (nats). Log-probabilities are stored as float32 and summed in float64, so that a
# text scored twice has exactly the same sum; different texts are rarely this close by chance.
TIE = 1e-6


@dataclass(frozen=True)
class Choice:
    """The chosen options and whether the choice is correct."""

    predicted_indices: list[int]  # all options within TIE of the best; [] if the options could not be scored
    correct: bool | None  # None: no known gold, or nothing predicted; False for a tie with an incorrect option

    @property
    def tie(self) -> bool | None:
        return len(self.predicted_indices) > 1 if self.predicted_indices else None

    def outcome(self, name: str = "accuracy") -> dict[str, float]:
        """Return an item's values: {name: 0 or 1} if correctness is known, {"tie:" + name: 1} if there is a tie."""
        values = {} if self.correct is None else {name: float(self.correct)}
        return values | ({f"tie:{name}": 1.0} if self.tie else {})


def choose_option(scores: list[float] | None, correct: list[int]) -> Choice:
    """Choose the option with the highest score; `correct`: indices of the correct options, empty if unknown.

    >>> choose_option([-2.0, -1.0, -1.0], [1]).predicted_indices, choose_option([-2.0, -1.0, -1.0], [1]).correct
    ([1, 2], False)
    >>> choose_option([-2.0, -1.0, -1.0], [1, 2]).correct
    True
    """
    predicted_indices = best_indices(scores)
    if not correct or not predicted_indices:
        return Choice(predicted_indices, None)
    return Choice(predicted_indices, set(predicted_indices) <= set(correct))


def best_indices(scores: list[float] | None) -> list[int]:
    """Return the indices within TIE of the highest score; [] if there are no scores, or one of them is NaN."""
    if not scores or any(math.isnan(score) for score in scores):
        return []
    maximum = max(scores)
    return [i for i, score in enumerate(scores) if score == maximum or maximum - score <= TIE]


def probabilities(scores: list[float]) -> np.ndarray:
    """Return the softmax of the scores, (n,); NaN if all of them are minus infinity."""
    with np.errstate(invalid="ignore"):
        return softmax(scores)


def correct_options(options: list[str], gold: list[int]) -> list[int]:
    """Return the indices of the gold options and of options with the same text, which are correct as well.

    >>> correct_options([" voza", "voz", "voza"], [0])
    [0, 2]
    """
    texts = {options[i].strip() for i in gold if 0 <= i < len(options)}
    return [i for i, option in enumerate(options) if option.strip() in texts]


def margin(scores: list[float | None], correct: list[int]) -> float | None:
    """Return the best correct score minus the best incorrect one, ignoring NaN; None if either is missing."""
    labeled_scores = [
        (i in correct, score) for i, score in enumerate(scores) if score is not None and not math.isnan(score)
    ]
    good, bad = ([score for is_correct, score in labeled_scores if is_correct is group] for group in (True, False))
    return max(good) - max(bad) if good and bad else None
