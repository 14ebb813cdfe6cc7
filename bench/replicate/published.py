"""Published values of models on the Hub, and ours: `make replicate HUB=1` runs them, `published.csv` lists them.

A group is one run: its models on its evaluations, with the real data.
"""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

CITATIONS = {
    "card": "model card of HuggingFaceTB/SmolLM2-135M (evaluated with lighteval)",
    "blimp": "Warstadt et al. 2020, BLiMP (TACL 8), table 3",
    "pythia": "EleutherAI/pythia, evals/pythia-v1 (Apache-2.0), commit a19eecb8",
}
TWO = 2.0  # standard errors within which values agree


@dataclass(frozen=True)
class Published:
    """A row of published.csv; values are shares, `stderr` may be computed from them and the number of items."""

    group: str
    model: str
    source: str
    evaluations: tuple[str, ...]  # "lm_eval:NAME" or "task:NAME"; of several, the value is their mean
    metric: str
    shots: int
    value: float
    stderr: float
    n: tuple[int, ...]
    citation: str
    note: str


def read() -> list[Published]:
    """Return the published values."""
    found = []
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            value, n = float(row["published"]), tuple(int(part) for part in row["n"].split("+"))
            stderr = float(row["stderr"]) if row["stderr"] else standard_error([value] * len(n), n)
            found.append(
                Published(row["group"], row["model"], row["source"], tuple(row["evaluation"].split("+")), row["metric"],
                          int(row["shots"]), value, stderr, n, CITATIONS[row["citation"]], row["note"])
            )  # fmt: skip
    return found


def standard_error(shares, n) -> float:
    """Return the standard error of the mean of k shares over n items each: sqrt(sum p (1 - p) / (n - 1)) / k.

    >>> round(standard_error([0.5], [101]), 4), round(standard_error([0.5, 0.5], [101, 101]), 4)
    (0.05, 0.0354)
    """
    return math.sqrt(sum(p * (1 - p) / (size - 1) for p, size in zip(shares, n, strict=True))) / len(n)


def config(rows: list[Published], lm_eval_python: str) -> dict:
    """Return the config of the run of a group."""
    evaluations = list(dict.fromkeys((evaluation, row.shots) for row in rows for evaluation in row.evaluations))
    entries = []
    for evaluation, shots in evaluations:
        kind, _, name = evaluation.partition(":")
        entries.append({"lm_eval": name, "shots": shots} if kind == "lm_eval" else {"task": name})
    return {
        "models": {row.model: {"source": row.source, "dtype": "float32"} for row in rows},
        "data": "hub",
        "lm_eval": {"python": lm_eval_python},
        "evaluations": entries,
    }


@dataclass(frozen=True)
class Replicated:
    """A published value and ours; `value` and `stderr` are None if there is none."""

    published: Published
    value: float | None
    stderr: float | None
    missing: str | None = None  # why there is no value

    @property
    def distance(self) -> float:
        """The difference in standard errors of the difference."""
        return (self.value - self.published.value) / math.hypot(self.stderr, self.published.stderr)

    @property
    def explanation(self) -> str:
        """What the difference says."""
        if self.value is None:
            return self.missing or "no value"
        if abs(self.distance) <= TWO:
            return "within two standard errors"
        return f"{abs(self.distance):.1f} standard errors: {self.published.note}"


def replicate(rows: list[Published], values: list[dict]) -> list[Replicated]:
    """Join published values with `values`, rows of a run's results.parquet (value, n by model, task and metric)."""
    by_key = {
        (row["model"], row["task"], row["metric"]): row
        for row in values
        if not row["category"] and row["prompt"] != "all"
    }
    found = []
    for row in rows:
        names = [evaluation.partition(":")[2] for evaluation in row.evaluations]
        ours = [by_key.get((row.model, name, row.metric)) for name in names]
        absent = [name for name, value in zip(names, ours, strict=True) if value is None or value["value"] is None]
        if absent:
            found.append(Replicated(row, None, None, f"no value of {', '.join(absent)}"))
            continue
        shares = [value["value"] for value in ours]
        stderr = standard_error(shares, [value["n"] for value in ours])
        found.append(Replicated(row, sum(shares) / len(shares), stderr))
    return found
