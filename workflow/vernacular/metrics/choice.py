"""The choice among options by their scores: a tie is its own outcome and never goes to the first option."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

# Scores closer than this are equal (nats). Log-probabilities are stored as float32 and summed in float64, where one
# text asked twice gives exactly the same number; different texts are rarely this close by accident.
TIE = 1e-6


@dataclass(frozen=True)
class Choice:
    """What was chosen and whether it was right."""

    predicted: list[int]  # all options within TIE of the best; [] where nothing could be scored
    correct: bool | None  # None: no right option known, or nothing predicted; a tie with a wrong option is False

    @property
    def tie(self) -> bool | None:
        return len(self.predicted) > 1 if self.predicted else None

    def outcome(self, name: str = "accuracy") -> dict[str, float]:
        """Values of an item: {name: 0 or 1} where it is known, {"tie:" + name: 1} where several share the best."""
        values = {} if self.correct is None else {name: float(self.correct)}
        return values | ({f"tie:{name}": 1.0} if self.tie else {})


def choose(scores: list[float] | None, right: list[int]) -> Choice:
    """The option with the highest score; `right` are the indices of the right ones, empty where they are not known.

    >>> choose([-2.0, -1.0, -1.0], [1]).predicted, choose([-2.0, -1.0, -1.0], [1]).correct
    ([1, 2], False)
    >>> choose([-2.0, -1.0, -1.0], [1, 2]).correct
    True
    """
    predicted = best(scores)
    if not right or not predicted:
        return Choice(predicted, None)
    return Choice(predicted, set(predicted) <= set(right))


def best(scores: list[float] | None) -> list[int]:
    """Indices within TIE of the highest score; [] where there are none, or one of them is not a number."""
    if not scores or any(math.isnan(score) for score in scores):
        return []
    top = max(scores)
    return [i for i, score in enumerate(scores) if score == top or top - score <= TIE]


def probabilities(scores: list[float]) -> np.ndarray:
    """(n,) the scores' softmax; NaN where all of them are minus infinity."""
    with np.errstate(invalid="ignore"):
        return softmax(scores)


def correct_options(options: list[str], gold: list[int]) -> list[int]:
    """Indices of the gold options and of any others of the same text: a duplicate of a correct option is correct.

    >>> correct_options([" voza", "voz", "voza"], [0])
    [0, 2]
    """
    texts = {options[i].strip() for i in gold if 0 <= i < len(options)}
    return [i for i, option in enumerate(options) if option.strip() in texts]


def margin(scores: list[float | None], correct: list[int]) -> float | None:
    """Best correct score minus best incorrect score, among those that are numbers; None where either is missing."""
    known = [(i in correct, score) for i, score in enumerate(scores) if score is not None and not math.isnan(score)]
    good, bad = ([score for right, score in known if right is wanted] for wanted in (True, False))
    return max(good) - max(bad) if good and bad else None
