"""Curves: checkpoints in the order of training, and the axis on which two or more of them can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

AXES = ("step", "tokens", "words")
_COMPARISON_ORDER = ("tokens", "step", "words")  # a step of two runs is the same amount of text only by chance


@dataclass(frozen=True)
class Curve:
    """The checkpoints of one curve; `positions`: axis -> (K,) x, for axes on which all checkpoints have one."""

    name: str
    series: str
    models: list[str]
    positions: dict[str, list[int]]

    @property
    def axis(self) -> str:
        return next(axis for axis in AXES if axis in self.positions)

    @property
    def x(self) -> np.ndarray:
        return np.array(self.positions[self.axis], dtype=float)


def curves_of(checkpoints: dict[str, dict]) -> list[Curve]:
    """Return the curves of a config's checkpoints (model -> series, curve, name, step, tokens, words), in order."""
    models: dict[str, list[str]] = {}
    for model, checkpoint in checkpoints.items():
        models.setdefault(checkpoint["curve"], []).append(model)
    curves = []
    for name, members in models.items():
        positions = {axis: [checkpoints[model][axis] for model in members] for axis in AXES}
        complete = {axis: values for axis, values in positions.items() if None not in values}
        curves.append(Curve(name, checkpoints[members[0]]["series"], members, complete))
    return curves


def common_axis(curves: Sequence[Curve]) -> tuple[str | None, list[int], list[list[str]]]:
    """Return the axis with at least two x in all curves, these x, and each curve's models at them.

    Tokens are preferred to steps. (None, [], …) if there is no such axis.
    """
    for axis in _COMPARISON_ORDER:
        if all(axis in curve.positions for curve in curves):
            by_x = [dict(zip(curve.positions[axis], curve.models, strict=True)) for curve in curves]
            shared = sorted(set.intersection(*(set(models) for models in by_x)))
            if len(shared) >= 2:
                return axis, shared, [[models[x] for x in shared] for models in by_x]
    return None, [], [[] for _ in curves]
