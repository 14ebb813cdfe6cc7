"""Data file `provenance`: models, datasets, how each evaluation was run, notes, and the cost of each job.

A report is published: paths of the machine that made it, and addresses of private servers, are shortened.
"""

import csv
from pathlib import Path

from vernacular.core.model_record import ModelRecord
from vernacular.core.publication import publishable
from vernacular.report.data_files import Row, record
from vernacular.report.leaderboard import ReportIndex

_MODEL_KEYS = ("name", "source", "revision", "architecture", "kind", "bytes", "fingerprint", "base", "unavailable")


def models(records: list[ModelRecord]) -> list[dict]:
    """Return one row per model record: where the model comes from and its exact version."""
    return [
        record(
            "ModelSource",
            {name: publishable(getattr(model, name)) for name in _MODEL_KEYS}
            | {f"adapter_{key}": publishable(getattr(model.adapter, key, None)) for key in ("source", "revision")},
        )
        for model in records
    ]


def dataset_info(metadata: dict | None) -> dict | None:
    """Describe the source of one evaluation's items, from the `dataset` of its results' metadata."""
    if not metadata:
        return None
    source, rows = metadata["source"], metadata["rows"]
    location_keys = ("repository", "url", "file", "directory")
    info = {
        "task": metadata["task"],
        "language": metadata["language"],
        "limit": metadata.get("limit"),
        "from": publishable(next((source[key] for key in location_keys if source.get(key)), source["kind"])),
        "kind": source["kind"],
        "config": source.get("config"),
        "split": source.get("split"),
        "revision": source.get("revision"),
        "sha256": source.get("sha256"),
        "license": source.get("license"),
        "citation": metadata.get("citation"),
        "read": rows["read"],
        "items": rows["evaluated"],
        "dropped": sum(rows["dropped"].values()),
        "repaired": sum(rows["repaired"].values()),
    }
    return record("Dataset", info)


def run_info(model: int, evaluation: int, metadata: dict) -> dict:
    """Describe how one evaluation of one model was run, from the metadata of its results."""
    info = {"model": model, "evaluation": evaluation}
    for key in ("unavailable", "not_applicable"):
        if key in metadata:
            return record("Run", info | {"reason": publishable(metadata[key])})
    inference = metadata.get("inference", {})
    engine, counters, model_info = (inference.get(key, {}) for key in ("engine", "counters", "model"))
    strategies = [strategy.get("used") for strategy in engine.get("strategies", [])] or [engine.get("strategy")]
    info |= {
        "strategy": ", ".join(dict.fromkeys(str(strategy) for strategy in strategies if strategy)),
        "fallback": publishable("; ".join(map(str, engine.get("fallback", [])))),
        "engine": engine.get("name") or f"scorer {engine.get('version', '')}".strip(),
        "dtype": model_info.get("dtype"),
        "device": model_info.get("device"),
        "quantization": model_info.get("quantization"),
        "code": "custom, trusted" if model_info.get("remote_code") else None,
        "torch": model_info.get("torch"),
        "transformers": model_info.get("transformers"),
        "items": metadata.get("items"),
        "requests": counters.get("requests"),
        "tokens": counters.get("tokens_computed"),
        "generated": counters.get("tokens_generated"),
        "seconds": counters.get("seconds"),
        "flags": [Row.FlagCount(flag=flag, count=count) for flag, count in metadata.get("flags", {}).items()],
        "skipped": len(metadata.get("skipped", {})),
    }
    return record("Run", info)


def job_costs(directory: Path | None) -> list[dict]:
    """Return the cost of each job from Snakemake's benchmark files: seconds, peak memory in MB, CPU seconds."""
    jobs = []
    for path in sorted(directory.glob("*/*.tsv")) if directory else []:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                costs = {name: _parse_number(row.get(key)) for name, key in _COST_COLUMNS.items()}
                jobs.append(record("Job", {"stage": path.parent.name, "job": path.stem, **costs}))
    return jobs


def note_rows(notes: list[dict], index: ReportIndex) -> list[dict]:
    """Return the summary's notes with models and evaluations by number."""
    rows = [
        {
            "model": index.models.number(note["model"]),
            "evaluation": None if note["evaluation"] is None else index.evaluations.number(note["evaluation"]),
            "kind": note["kind"],
            "note": publishable(note["note"]),
            "count": note["count"],
        }
        for note in notes
    ]
    return [record("Note", row) for row in rows]


_COST_COLUMNS = {"seconds": "s", "memory": "max_rss", "cpu": "cpu_time"}


def _parse_number(text: str | None) -> float | None:
    """Parse a number of a benchmark file; jobs too short to be measured have "-" or "NA", which give None."""
    return None if text in (None, "", "-", "NA") else round(float(text), 2)
