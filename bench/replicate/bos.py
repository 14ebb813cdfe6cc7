"""Both settings of `bos` on the same items: how far values move, and which decisions change.

Evidence for the default, `bos: auto` (docs/reproduce.md). For texts that are scored from their beginning, the models
`smollm2` and `smollm2-never` differ in this setting alone.
"""

from dataclasses import dataclass
from statistics import median

from replicate.compare import Run

WITH, WITHOUT = "smollm2", "smollm2-never"
# task: its values per item (pooled), the metric of the evaluation, and the decision per item
ACCEPTABILITY = (("surprisal",), "difsur", None)
BARE = (("surprisal_good_bare", "surprisal_bad_bare"), "accuracy_bare", "accuracy_bare")
PAIR = (("surprisal_good", "surprisal_bad"), "accuracy", "accuracy")
TASKS = {"cola": ACCEPTABILITY, "multiblimp": PAIR, "global_piqa": BARE, "xstorycloze": BARE}


@dataclass(frozen=True)
class Effect:
    """The effect of BOS on one evaluation; values in nats, metrics in percent."""

    task: str
    language: str
    n: int
    median: float
    largest: float
    metric: str
    value_with: float
    value_without: float
    changed: int | None  # decisions that change; None if there are no decisions


def effects(run: Run, evaluations: list[dict]) -> list[Effect]:
    """Return the effect on each evaluation whose texts are scored from their first word."""
    found = []
    for evaluation in evaluations:
        if evaluation["task"] in TASKS and evaluation["protocol"] in ("acceptability", "minimal_pair"):
            found.append(_effect(run, evaluation))
    return sorted(found, key=lambda effect: (effect.task, effect.language))


def _effect(run: Run, evaluation: dict) -> Effect:
    columns, metric, decision = TASKS[evaluation["task"]]
    rows = [
        {item: dict(row["metrics"]) for item, row in run.rows(model, evaluation["id"]).items()}
        for model in (WITH, WITHOUT)
    ]
    moved = [abs(rows[0][item][name] - rows[1][item][name]) for item in rows[0] for name in columns]
    changed = sum(rows[0][item][decision] != rows[1][item][decision] for item in rows[0]) if decision else None
    values = []
    for model in (WITH, WITHOUT):
        reference = {"model": model, "evaluation": evaluation["id"], "item": None, "column": metric}
        values.append(run.value(reference) * (1 if metric == "difsur" else 100))
    return Effect(
        evaluation["task"], evaluation["language"], len(rows[0]), median(moved), max(moved), metric, *values, changed
    )
