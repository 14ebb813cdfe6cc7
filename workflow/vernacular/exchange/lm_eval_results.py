"""Results in the format of EleutherAI's lm-evaluation-harness, for tools that read its results JSON.

There is one file per model (with adapter and revision): `results` by evaluation, each metric as "name,none" (no filter;
metrics of lm-eval itself have theirs) and its standard error as "name_stderr,none". lm-eval has no intervals, so the
standard error is half the 95% interval divided by 1.96, except for a mean over prompts, which has one of its own. The
unrounded interval is in results.csv. A missing value is "N/A", as in lm-eval.
"""

import json
import math
import re
from pathlib import Path

import pandas as pd

from vernacular.core.artifacts import replacing
from vernacular.core.tables import plain_text
from vernacular.exchange.aggregates import Z_95
from vernacular.metrics.schema import is_from_samples
from vernacular.types import DEFAULT_PROMPT, SETTING

_IDENTITY_COLUMNS = ["model", "adapter", "model_revision"]


def lm_eval_results(long: pd.DataFrame) -> list[dict]:
    """Return one result per model in lm-eval's format, from the rows over all items of the long table."""
    return [_model_results(rows) for rows in by_model(long)]


def by_model(long: pd.DataFrame) -> list[list[dict]]:
    """Return the rows over all items of each model (with adapter and revision), by name; missing values: None."""
    all_items = long[long["category"].fillna("") == ""].astype(object)
    models: dict[tuple, list[dict]] = {}
    for row in all_items.where(all_items.notna(), None).to_dict("records"):
        models.setdefault(tuple(row[name] or "" for name in _IDENTITY_COLUMNS), []).append(row)
    return [models[identity] for identity in sorted(models)]


def write_lm_eval_results(directory, long: pd.DataFrame) -> list[Path]:
    """Write `results_{model}.json` per model to `directory`, with portable and unique names; return the paths."""
    Path(directory).mkdir(parents=True, exist_ok=True)  # created, and empty, if no model is available
    paths = []
    for result in lm_eval_results(long):
        stem = "results_" + re.sub(r"[^\w.-]+", "__", plain_text(result["model_name"]))[:100]
        path, count = Path(directory) / f"{stem}.json", 1
        while str(path).casefold() in {str(existing).casefold() for existing in paths}:
            count += 1
            path = Path(directory) / f"{stem}_{count}.json"
        paths.append(write_json(path, result))
    return paths


def write_json(path, content: dict) -> Path:
    """Write strict JSON atomically; a lone surrogate in a name is escaped."""
    with replacing(path) as temporary:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
    return Path(path)


def _model_results(rows: list[dict]) -> dict:
    evaluations: dict[str, list[dict]] = {}
    for row in sorted(rows, key=lambda row: (row["evaluation"], row["metric"])):
        evaluations.setdefault(row["evaluation"], []).append(row)
    first_rows = {evaluation: values[0] for evaluation, values in evaluations.items()}
    return {
        "results": {name: {"alias": _alias(values[0])} | _values(values) for name, values in evaluations.items()},
        "group_subtasks": {name: [] for name in evaluations},
        "configs": {name: _config(values) for name, values in evaluations.items()},
        "versions": {name: row["dataset_revision"] for name, row in first_rows.items()},
        "n-shot": {name: row["shots"] for name, row in first_rows.items()},
        "higher_is_better": {
            name: {row["metric"]: row["higher_is_better"] for row in values} for name, values in evaluations.items()
        },
        "n-samples": {name: {"effective": max(row["n"] for row in values)} for name, values in evaluations.items()},
        "config": {"model": "vernacular", "model_args": {key: rows[0][key] for key in _IDENTITY_COLUMNS}},
        "model_name": rows[0]["model"],
    }


def _alias(row: dict) -> str:
    return row["evaluation"] + (" (samples)" if is_from_samples(row["dataset_revision"]) else "")


def _config(rows: list[dict]) -> dict:
    setting = {name: rows[0][name] for name in SETTING if name != "prompt" or rows[0][name] != DEFAULT_PROMPT}
    signatures = {row["metric"]: row["signature"] for row in rows}
    return setting | {"num_fewshot": setting["shots"], "signatures": signatures}


def _values(rows: list[dict]) -> dict:
    values = {}
    for row in rows:
        value, low, high = (row[name] if row[name] is not None else math.nan for name in ("value", "ci_low", "ci_high"))
        stderr = row.get("se") or (high - low) / (2 * Z_95)
        metric, _, filter_name = row["metric"].partition(",")  # lm-eval's own metrics may have a filter
        filter_name = filter_name or "none"
        values[f"{metric},{filter_name}"] = value if math.isfinite(value) else "N/A"
        values[f"{metric}_stderr,{filter_name}"] = stderr if math.isfinite(stderr) else "N/A"
    return values
