"""A run of two series of checkpoints for report tests: minimal pairs in two categories, one checkpoint missing."""

from pathlib import Path

import numpy as np
from vernacular.core.metadata import unavailable
from vernacular.core.model_record import ModelRecord
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import METRICS, RESULTS
from vernacular.protocols.evaluate import PROTOCOL_METRICS
from vernacular.stages.curves import curves

from support import stages
from support.report_run import (
    request_row,
    score_row,
    setting_of,
    task_row,
    write_artifact,
    write_requests,
    write_task_results,
)
from support.scoring import metric_rows

EVALUATION = "pairs.gl.minimal_pair.0shot"
STEPS = [0, 1000, 2000, 4000, 8000, 16_000]
SHARES = {  # series -> category -> share of correct pairs at each step
    "mine": {"agreement": [0.5, 0.55, 0.7, 0.85, 0.95, 0.95], "order": [0.5, 0.5, 0.5, 0.55, 0.7, 0.8]},
    "=other": {"agreement": [0.5, 0.5, 0.55, 0.6, 0.7, 0.75], "order": [0.45, 0.5, 0.5, 0.5, 0.55, 0.6]},
}
MISSING = "=other.step2000"
TOKENS_PER_STEP = 2048
N = 120  # items per category
PAIR = ["Ela come pan moi duro.", "Ela comen pan moi duro."]


def write_run(root: Path, in_words: str = "") -> dict:
    """Write the run's artifacts below `root`, the curve tables by the command; return the arguments of `page.build`.

    `in_words`: a series whose checkpoints state a number of words only.
    """
    results, setting = root / "results", setting_of(EVALUATION)
    items = [(f"{category}-{i}", category) for category in ("agreement", "order") for i in range(N)]
    requests = [request_row(item, f"choice:{c}", "", "", PAIR[c]) for item, _ in items for c in range(2)]
    write_requests(results, EVALUATION, requests)
    checkpoints, long = {}, []
    for series, shares in SHARES.items():
        for k, step in enumerate(STEPS):
            model = f"{series}.step{step}"
            checkpoints[model] = {
                "series": series, "curve": series, "name": f"checkpoint-{step}", "step": step,
                "tokens": step * TOKENS_PER_STEP, "words": None,
            }  # fmt: skip
            if series == in_words:
                checkpoints[model] |= {"step": None, "tokens": None, "words": step}
            rows = [] if model == MISSING else _rows(shares, k)
            notes = {} if rows else {"outcome": unavailable("deleted")}
            write_task_results(results / model, EVALUATION, rows)
            labels = {**setting, "model": model, "evaluation": EVALUATION}
            values = metric_rows(rows, PROTOCOL_METRICS["minimal_pair"].METRICS, labels, {}) if rows else []
            long += values
            metadata = {
                "record": {"name": model, "parameters": 135_000_000},
                "evaluations": {EVALUATION: notes},
                "model": model,
            }
            write_artifact(results / model / "metrics.parquet", METRICS, values, metadata)
            write_artifact(results / model / "scores" / f"{EVALUATION}.parquet", SCORES, _scores(rows), {})
    write_artifact(results / "summary" / "results.parquet", RESULTS, long, {"models": [], "notes": []})
    spec = {"checkpoints": [{"model": m, **c} for m, c in checkpoints.items()], "evaluations": {EVALUATION: setting}}
    curves(stages.arguments(curves, spec=spec, results=results, out=results / "summary"))
    return {
        "results": results,
        "models": list(checkpoints),
        "evaluations": [EVALUATION],
        "records": [ModelRecord(name=name, source=name) for name in checkpoints],
        "changes": {},
        "checkpoints": checkpoints,
    }


def _rows(shares: dict[str, list[float]], k: int) -> list[dict]:
    """Return TASK_RESULTS rows of checkpoint k; items are learned in one order."""
    rows = []
    for category, values in shares.items():
        difficulty = np.random.default_rng(len(category)).permutation(N) / N
        for i in range(N):
            margin = values[k] - difficulty[i]
            is_correct = bool(margin > 0)
            row = task_row(f"{category}-{i}", "", category, {"accuracy": float(is_correct)})
            row |= {"cluster_id": None, "flags": None}
            row |= {
                "choices": PAIR,
                "gold": [0],
                "prediction": PAIR[not is_correct],
                "correct": is_correct,
                "tie": False,
            }
            rows.append(row | {"predicted_indices": [int(not is_correct)], "option_scores": [-9.0, -9.0 - 4 * margin]})
    return rows


def _scores(rows: list[dict]) -> list[dict]:
    lengths = [[len(word) + (k > 0) for k, word in enumerate(text.split())] for text in PAIR]
    return [
        score_row(row["item_id"], f"choice:{c}", 0, lengths[c], [1.0 + c] * len(lengths[c]))
        for row in rows
        for c in (0, 1)
    ]
