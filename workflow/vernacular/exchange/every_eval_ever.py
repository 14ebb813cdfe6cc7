"""Results in the Every Eval Ever format (evalevalai.com), which leaderboards and meta-analyses exchange.

There is one file per model, under the path required by the data store: `data/vernacular/{owner}/{model}/{uuid}.json`.
The UUID is derived from the content, so that equal results have the same file. A model without a Hub ID is under
`local/`, and local paths and addresses of private servers are omitted. Values that the format does not support (missing
values, metrics without a better direction) are omitted and counted in `source_metadata`. With results per item,
`{uuid}_samples.jsonl` is beside it.

The files follow version 0.3.0 of the schema and are compatible with 0.2.2, the version before.

A line of `{uuid}_samples.jsonl` is one item and one metric that has a value per item; metrics of a whole
dataset (ROC AUC, difsur) have no lines. The format requires whether an item is correct: for a share, whether it is 1;
for other metrics, what the result states. Items for which this is unknown are omitted and counted.
"""

import hashlib
import itertools
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import pyarrow as pa

from vernacular import __version__
from vernacular.core.artifacts import replacing
from vernacular.core.fingerprint import fingerprint
from vernacular.core.names import directory_name, portable_problem
from vernacular.core.paths import is_public_address, publishable
from vernacular.core.tables import is_finite, iter_rows, plain_text
from vernacular.exchange.lm_eval_results import by_model, write_json
from vernacular.metrics.metric import UNIT_RANGES
from vernacular.metrics.schema import value_arrays
from vernacular.types import DEFAULT_PROMPT, SETTING

_ROWS_AT_A_TIME = 1_000
SCHEMA_VERSION = "0.3.0"
_UNITS = {"share": "proportion"}  # name in Every Eval Ever
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def every_eval_ever(
    long: pd.DataFrame, models: list[dict], datasets: list[dict] | None = None, timestamp: float | None = None
) -> list[dict]:
    """Return one record per model (with adapter and revision), with the values over all items.

    Args:
        long: Results as returned by `grid.combine_tables`.
        models: Dicts with "name" and, if known, "source", "revision", "architecture", "parameters", "fingerprint",
            "base", "adapter source", "adapter revision", "engine", "engine version", and of a model behind a server
            "served model" and "served file".
        datasets: Datasets as returned by `provenance.dataset_sources`.
        timestamp: Seconds since 1970; None: now.
    """
    models_by_name = {model["name"]: model for model in models}
    # of a dataset with and without a limit, the complete one
    by_size = sorted(datasets or [], key=lambda row: row["items"])
    datasets_by_key = {(row["task"], row["language"]): row for row in by_size}
    retrieved = f"{time.time() if timestamp is None else timestamp:.0f}"
    described = [(rows, models_by_name.get(rows[0]["model"], {})) for rows in by_model(long)]
    return [_record(rows, model, datasets_by_key, retrieved) for rows, model in described]


def write_every_eval_ever(
    directory,
    long: pd.DataFrame,
    models: list[dict],
    datasets: list[dict] | None = None,
    timestamp: float | None = None,
    task_results: Callable[[str], Iterable[tuple[str, pa.Table]]] | None = None,
    source: dict[str, str] | None = None,
) -> list[Path]:
    """Write the record of each model below `directory`; return the paths. Other arguments as in `every_eval_ever`.

    Args:
        task_results: Returns the evaluations of a model with their TASK_RESULTS, to write results per item.
        source: Entries of `source_metadata`, which the results do not contain.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)  # created, and empty, if no model is available
    paths = []
    for record in every_eval_ever(long, models, datasets, timestamp):
        record["source_metadata"] |= source or {}
        content = {key: value for key, value in record.items() if key not in ("evaluation_id", "retrieved_timestamp")}
        name = uuid.UUID(hex=fingerprint(content)[:32], version=4)
        path = Path("data", "vernacular", record["model_info"]["id"], f"{name}.json")
        if task_results:
            results = task_results(record["model_info"]["name"])
            _write_samples(Path(directory), path.with_name(f"{name}_samples.jsonl"), results, record)
        paths.append(write_json(Path(directory) / path, record))
    return paths


def _write_samples(root: Path, path: Path, results: Iterable[tuple[str, pa.Table]], record: dict) -> None:
    """Write the results per item, and their file in `record`; the format does not permit a file without lines."""
    omitted: Counter = Counter()
    lines = samples(record, results, omitted)
    if (first := next(lines, None)) is None:
        return
    digest, n_rows = hashlib.sha256(), 0
    with replacing(root / path) as temporary, open(temporary, "wb") as file:
        for line in itertools.chain([first], lines):
            text = json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"
            content = text.encode("utf-8", "backslashreplace")
            file.write(content)
            digest.update(content)
            n_rows += 1
    record["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": path.as_posix(),
        "hash_algorithm": "sha256",
        "checksum": digest.hexdigest(),
        "total_rows": n_rows,
        "additional_details": {f"left out, {reason}": str(count) for reason, count in omitted.items()},
    }


def _record(rows: list[dict], model: dict, datasets: dict[tuple, dict], retrieved: str) -> dict:
    supported = [row for row in rows if row["higher_is_better"] is not None and is_finite(row["value"])]
    n_undirected = sum(row["higher_is_better"] is None for row in rows)
    dropped_counts = {
        "left out, no better direction": n_undirected,
        "left out, no value": len(rows) - len(supported) - n_undirected,
    }
    model_info = _model(rows[0], model)
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"vernacular/{model_info['id']}/{retrieved}",
        "retrieved_timestamp": retrieved,
        "source_metadata": {
            "source_name": "Vernacular",
            "source_type": "evaluation_run",
            "source_organization_name": "not stated",
            "evaluator_relationship": "other",
            "additional_details": _as_text(dropped_counts),
        },
        "eval_library": {"name": "vernacular", "version": __version__},
        "model_info": model_info,
        "evaluation_results": [_result(row, datasets.get((row["task"], row["language"]), {})) for row in supported],
    }


def _model(row: dict, model: dict) -> dict:
    name = plain_text(row["model"])
    source = row["adapter"] or model.get("source") or ""
    is_served = source.startswith(("http://", "https://"))
    hub_id = "/".join(source.partition("@")[0].split("/")[:2])
    is_on_hub = not is_served and _is_hub_id(hub_id)
    is_public = is_on_hub or source.startswith("package:")
    identity = hub_id if is_on_hub else f"local/{directory_name(name)}"
    platform = "HuggingFace" if is_on_hub else None
    details = {
        "deployment_type": "self_deployed",
        "model_availability": "open_weights" if is_public else "unknown",
        "revision": row["model_revision"],
        "source": source if is_public else None,
        "base_model": row["base"],
        **{key: model.get(key) for key in ("architecture", "parameters", "fingerprint")},
    }
    if is_served:
        served_name = publishable(model.get("served model") or "")
        platform = urlsplit(source).hostname if is_public_address(source) else None
        identity = _served_identity(served_name, platform) or identity
        details |= {"served_model": served_name or None, "served_file": model.get("served file")}
        details["deployment_type"] = "externally_managed" if platform else "self_deployed"
    engine = {"name": model.get("engine"), "version": model.get("engine version")}
    return {
        "name": name,
        "id": identity,
        "developer": identity.partition("/")[0],
        **({"inference_platform": platform} if platform else {}),
        **({"inference_engine": _as_text(engine)} if model.get("engine") else {}),
        "additional_details": _as_text(details),
    }


def _served_identity(name: str, platform: str | None) -> str | None:
    """Return the ID of a served model: its name if that is a Hub ID, else its name at a public platform; or None.

    >>> _served_identity("org/name", None), _served_identity("large-2", "api.example.org"), _served_identity("x", None)
    ('org/name', 'api.example.org/large-2', None)
    """
    if _is_hub_id(name):
        return name
    return f"{platform}/{directory_name(name)}" if platform and name else None


def _result(row: dict, dataset: dict) -> dict:
    bounds = UNIT_RANGES.get(row["unit"])
    setting = {key: row[key] for key in SETTING if key != "prompt" or row[key] != DEFAULT_PROMPT}
    metric = {
        "evaluation_description": f"{row['metric']} on {row['task']} ({row['language']}), protocol {row['protocol']}, "
        f"{row['shots']}-shot",
        "metric_id": row["metric"] if row["metric"] == "accuracy" else f"vernacular.{row['metric']}",
        "metric_name": row["metric"],
        "lower_is_better": not row["higher_is_better"],
        "additional_details": _as_text({key: row[key] for key in ("signature", "chance_level", "majority_baseline")}),
    }
    if row["unit"]:
        metric["metric_unit"] = _UNITS.get(row["unit"], row["unit"])
    if bounds and bounds[0] <= row["value"] <= bounds[1]:
        metric |= {"score_type": "continuous", "min_score": bounds[0], "max_score": bounds[1]}
    uncertainty = {"num_samples": row["n"]}
    if is_finite(row["ci_low"]) and is_finite(row["ci_high"]):
        interval = {"lower": row["ci_low"], "upper": row["ci_high"], "confidence_level": 0.95}
        uncertainty["confidence_interval"] = interval
    return {
        "evaluation_result_id": f"{row['evaluation']}/{row['metric']}",
        "evaluation_name": row["evaluation"],
        "source_data": _source(row, dataset),
        "metric_config": metric,
        "score_details": {
            "score": row["value"],
            "details": _as_text({key: row[key] for key in ("n_flagged", "n_ties")}),
            "uncertainty": uncertainty,
        },
        "generation_config": {"additional_details": _as_text(setting)},
    }


def _source(row: dict, dataset: dict) -> dict:
    """Return the source of the items, without local paths."""
    revision = {"revision": row["dataset_revision"], "license": dataset.get("license")}
    is_sample = (row["dataset_revision"] or "").startswith("samples ")  # must not be mistaken for the complete dataset
    name = f"{row['task']} ({row['language']})" + (", a few samples written for Vernacular" if is_sample else "")
    source = {"dataset_name": name, "additional_details": _as_text(revision)}
    if dataset.get("kind") == "hub":
        source |= {"source_type": "hf_dataset", "hf_repo": dataset["from"]}
        source |= {"samples_number": dataset["items"]}
        return source | ({"hf_split": dataset["split"]} if dataset.get("split") else {})
    if dataset.get("kind") == "url":
        return source | {"source_type": "url", "url": [dataset["from"]]}
    return source | {"source_type": "other"}


def _as_text(details: dict) -> dict[str, str]:
    """Return details as text, as the format requires, without missing values."""
    return {key: str(value) for key, value in details.items() if value is not None}


def _is_hub_id(text: str) -> bool:
    """Return whether a text, which a server may have stated, is an owner and a name, and both can be directories.

    >>> _is_hub_id("org/name"), _is_hub_id("org/.."), _is_hub_id("org/nul")
    (True, False, False)
    """
    parts = text.split("/")
    return bool(_HUB_ID.fullmatch(text)) and not any(portable_problem(part.lstrip("_")) for part in parts)


def samples(record: dict, results: Iterable[tuple[str, pa.Table]], omitted: Counter) -> Iterator[dict]:
    """Yield the lines of one model from its evaluations' TASK_RESULTS; count the omitted items, by reason."""
    aggregates: dict[str, list[dict]] = {}
    for result in record["evaluation_results"]:
        aggregates.setdefault(result["evaluation_name"], []).append(result)
    for evaluation, table in results:
        per_item = set(value_arrays(table))
        own = aggregates.get(evaluation, [])
        linked = [result for result in own if result["metric_config"]["metric_name"] in per_item]
        if not linked:
            omitted["no metric with a value per item"] += len(table)
            continue
        for row in iter_rows(table, _ROWS_AT_A_TIME):
            yield from _lines_of_item(record, linked, row, omitted)


def _lines_of_item(record: dict, linked: list[dict], row: dict, omitted: Counter) -> Iterator[dict]:
    for result in linked:
        name = result["metric_config"]["metric_name"]
        score = row["metrics"].get(name)
        is_correct = row["correct"]
        if result["metric_config"].get("metric_unit") == "proportion":
            is_correct = score == 1
        if not is_finite(score):
            omitted["no value"] += 1
        elif is_correct is None:
            omitted["no correct answer"] += 1
        else:
            yield _line(record, result, row, score, is_correct)


def _line(record: dict, result: dict, row: dict, score: float, is_correct: bool) -> dict:
    protocol = result["generation_config"]["additional_details"]["protocol"]
    texts = {"raw": row["prompt"], "reference": [row["choices"][i] for i in row["gold"] if i < len(row["choices"])]}
    prediction = row["prediction"] or ""
    details = {key: row[key] for key in ("category", "cluster_id", "flags", "tie") if row[key] not in (None, "", False)}
    return {
        "schema_version": record["schema_version"],
        "evaluation_id": record["evaluation_id"],
        "model_id": record["model_info"]["id"],
        "evaluation_name": result["evaluation_name"],
        "evaluation_result_id": result["evaluation_result_id"],
        "sample_id": row["item_id"],
        "sample_hash": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": texts | {"choices": row["choices"] or None},
        "output": {"raw": [prediction]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": prediction,
                "extraction_method": f"vernacular.{protocol}",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": score, "is_correct": bool(is_correct)},
        "metadata": {key: publishable(str(value)) for key, value in details.items()},
    }
