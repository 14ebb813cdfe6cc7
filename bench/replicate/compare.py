"""Our values beside those of the tools: differences, equal decisions, and the reason of each value that differs."""

import math
from dataclasses import dataclass
from pathlib import Path

from vernacular.core import artifacts
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import METRICS, TASK_RESULTS

TOLERANCE = 1e-4  # nats, bits, or a similarity from 0 to 1
TIE = 1e-4  # scores of options closer than this are a tie between the tools: float noise can decide it

# Known differences, by key. Each is established for the value at hand, not for a group of values.
REASONS = {
    "boundary": "a token crosses the end of the prompt, so that the tool scores a part of the candidate or nothing",
    "absent": "a form of several tokens in a masked model: Grew-TSE removes the later tokens, we mask them",
    "split": "a token crosses the end of the context (our flag `boundary`): the tool splits the text elsewhere",
    "bow": "in the tool, only a space begins a word; here, as in the paper, also other whitespace, and EOS ends one",
    "dropped": "the tool has no value: its tokens do not spell the last word",
    "rounded": "the tool rounds means to four decimals",
    "tie": "two options are closer than 1e-4: float noise decides",
    "float": "float32: over 1e-4, and less than 1e-6 of the value, or 2e-5 per token on each side",
}
PER_TOKEN, RELATIVE = 2e-5, 1e-6  # float noise of sums, of each side, as in bench/lm_eval_values.py


@dataclass(frozen=True)
class Comparison:
    """One value of a tool and ours."""

    reference: dict
    ours: object
    difference: float | None  # of numbers; None for decisions and texts
    equal: bool
    reason: str | None  # of a value that differs, key of REASONS; None: unexplained

    @property
    def is_decision(self) -> bool:
        """Whether a decision or a text is compared, which is equal or not."""
        return self.difference is None


class Run:
    """Our results per item, from the Parquet files of a run."""

    def __init__(self, directory: Path):
        self.results, self.cache = directory / "results", {}

    def rows(self, model: str, evaluation: str) -> dict[str, dict]:
        """Return {item ID: row of results/MODEL/tasks/EVALUATION.parquet}."""
        return self._read(self.results / model / "tasks" / f"{evaluation}.parquet", TASK_RESULTS, "item_id")

    def scores(self, model: str, evaluation: str) -> dict[str, list[dict]]:
        """Return {item ID: rows of results/MODEL/scores/EVALUATION.parquet}."""
        path = self.results / model / "scores" / f"{evaluation}.parquet"
        if path not in self.cache:
            self.cache[path] = {}
            for row in artifacts.read(path, SCORES).to_pylist() if path.exists() else []:
                self.cache[path].setdefault(row["item_id"], []).append(row)
        return self.cache[path]

    def value(self, reference: dict):
        """Return our value of a reference; None if we have none."""
        column, evaluation = reference["column"], reference["evaluation"]
        if reference["item"] is None:
            metrics = self._read(self.results / reference["model"] / "metrics.parquet", METRICS, None)
            found = [row for row in metrics if row["evaluation"] == evaluation and not row["category"]]
            return next((row["value"] for row in found if row["metric"] == column), None)
        row = self.rows(reference["model"], evaluation)[reference["item"]]
        if column == "chosen":
            return row["predicted_indices"]
        if column in ("prompt", "prediction"):
            return row[column]
        name, _, index = column.partition(":")
        if name == "option_scores":
            return row["option_scores"] and row["option_scores"][int(index)]
        return dict(row["metrics"]).get(column)

    def _read(self, path: Path, kind, key: str | None):
        if path not in self.cache:
            rows = artifacts.read(path, kind).to_pylist()
            self.cache[path] = {row[key]: row for row in rows} if key else rows
        return self.cache[path]


def compare(run: Run, references: list[dict]) -> list[Comparison]:
    """Compare each value of the tools with ours."""
    choices: dict[tuple, list[float]] = {}  # scores of the options, for ties
    for reference in references:
        if reference["column"].startswith(("option_scores", "loglik_")):
            choices.setdefault(_item(reference), []).append(reference["value"])
    return [_compare(run, reference, choices.get(_item(reference), [])) for reference in references]


def _item(reference: dict) -> tuple:
    return tuple(reference[name] for name in ("tool", "method", "model", "evaluation", "item"))


def _compare(run: Run, reference: dict, scores: list[float]) -> Comparison:
    ours, value = run.value(reference), reference["value"]
    if value is None:
        return Comparison(reference, ours, None, False, reference["reason"])
    if reference["column"] == "chosen":
        equal, difference = ours == [value], None
    elif isinstance(value, str) or reference["column"].startswith(("accuracy", "greedy")) or _is_accuracy(reference):
        equal, difference = ours == value, None
    elif ours is None or math.isinf(value):
        return Comparison(reference, ours, math.inf, False, reference["reason"])
    else:
        difference = abs(ours - value)
        equal = difference <= TOLERANCE
    return Comparison(
        reference, ours, difference, equal, None if equal else _reason(run, reference, difference, scores)
    )


def _is_accuracy(reference: dict) -> bool:
    return reference["column"].endswith("_accuracy")


def _reason(run: Run, reference: dict, difference: float | None, scores: list[float]) -> str | None:
    """Return why a value differs; None if no known difference applies to it."""
    if reference["reason"]:
        return reference["reason"]
    best = sorted(scores, reverse=True)
    if difference is None:
        return "tie" if len(best) > 1 and best[0] - best[1] < TIE else None
    if reference["item"] is None:
        return None
    rows = run.scores(reference["model"], reference["evaluation"]).get(reference["item"], [])
    index = reference["column"].partition(":")[2]
    rows = [row for row in rows if not index or row["role"].endswith(f":{index}")]
    n_tokens = max((len(row["tokens"] or ()) for row in rows), default=0)  # none if it could not be scored
    if difference <= max(2 * PER_TOKEN * n_tokens, RELATIVE * abs(reference["value"])):
        return "float"
    if any("boundary" in (row["flags"] or "") for row in rows):
        return "split"
    return None
