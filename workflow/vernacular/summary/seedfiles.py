"""Results in the layout of EleutherAI's lm-evaluation-harness, for the tools that read its results JSON.

A file per model (with adapter and revision): `results` by evaluation, a metric under "name,none" (no filter) and its
standard error under "name_stderr,none". The harness keeps no intervals, so the standard error is half the 95 % interval
over 1.96; each interval itself stands unrounded in results.csv. What has no value is "N/A", as the harness writes it.
"""

import json
import math
import re
from pathlib import Path
from statistics import NormalDist

import pandas as pd

from vernacular.artifacts import replacing
from vernacular.summary.text import plain_text

_Z = NormalDist().inv_cdf(0.975)
_IDENTITY = ["model", "adapter", "model_revision"]


def harness_results(long: pd.DataFrame) -> list[dict]:
    """One harness-style result per model, from the rows over all items; `long` as `tables.collect` gives it."""
    whole = long[long["category"].fillna("") == ""]
    return [_one_model(rows) for _, rows in whole.groupby(_IDENTITY, dropna=False, sort=True)]


def write_harness(folder, long: pd.DataFrame) -> list[Path]:
    """Write `results_{model}.json` per model into `folder`, names made safe and unique; returns the paths."""
    paths = []
    for result in harness_results(long):
        stem = "results_" + re.sub(r"[^\w.-]+", "__", plain_text(result["model_name"]))[:100]
        path, count = Path(folder) / f"{stem}.json", 1
        while str(path).casefold() in {str(taken).casefold() for taken in paths}:
            count += 1
            path = Path(folder) / f"{stem}_{count}.json"
        with replacing(path) as temporary:
            text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
            temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
        paths.append(path)
    return paths


def _one_model(rows: pd.DataFrame) -> dict:
    about = rows.iloc[0]
    result = {
        "results": {},
        "group_subtasks": {},
        "configs": {},
        "versions": {},
        "n-shot": {},
        "higher_is_better": {},
        "n-samples": {},
    }
    for evaluation, values in rows.groupby("evaluation", sort=True):
        first = values.iloc[0]
        better = {row.metric: _plain(row.higher_is_better) for row in values.itertuples()}
        result["group_subtasks"][evaluation] = []
        result["results"][evaluation] = {"alias": evaluation} | _values(values)
        setting = {name: _plain(first[name]) for name in ("task", "language", "protocol", "shots", "seed", "style")}
        signatures = {row.metric: _plain(row.signature) for row in values.itertuples()}
        result["configs"][evaluation] = setting | {"num_fewshot": setting["shots"], "signatures": signatures}
        result["versions"][evaluation] = _plain(first["dataset_revision"])
        result["n-shot"][evaluation] = setting["shots"]
        result["higher_is_better"][evaluation] = better
        result["n-samples"][evaluation] = {"effective": int(values["n"].max())}
    name = about["model"]
    identity = {key: _plain(about[key]) for key in _IDENTITY}
    return result | {"config": {"model": "vernacular", "model_args": identity}, "model_name": name}


def _values(rows: pd.DataFrame) -> dict:
    found = {}
    for row in rows.itertuples():
        error = (row.ci_high - row.ci_low) / (2 * _Z)
        found[f"{row.metric},none"] = row.value if math.isfinite(row.value) else "N/A"
        found[f"{row.metric}_stderr,none"] = error if math.isfinite(error) else "N/A"
    return found


def _plain(value):
    """A JSON value: no NumPy scalars, null where missing."""
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value
