"""Data file `provenance`: models, datasets, how each evaluation was run, notes, and the cost of each job.

A report is published: paths of the machine that made it, and addresses of private servers, are shortened.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

from vernacular.core.metadata import ItemsMetadata, ModelInfo, ResultsMetadata
from vernacular.core.model_record import ModelRecord
from vernacular.core.paths import publishable
from vernacular.report.data_files import Row, record

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


def dataset_info(metadata: ItemsMetadata | None) -> dict | None:
    """Describe the source of one evaluation's items, from the `dataset` of its results' metadata."""
    if not metadata:
        return None
    source, rows = metadata.source, metadata.rows
    locations = (source.repository, source.url, source.file, source.directory, source.kind)
    info = {
        **{name: getattr(metadata, name) for name in ("task", "language", "limit", "citation")},
        **{name: getattr(source, name) for name in ("kind", "config", "split", "revision", "sha256", "license")},
        "from": publishable(next(filter(None, locations))),
        "read": rows.read,
        "items": rows.evaluated,
        "dropped": sum(rows.dropped.values()),
        "repaired": sum(rows.repaired.values()),
    }
    return record("Dataset", info)


def run_info(model: int, evaluation: int, metadata: ResultsMetadata) -> dict:
    """Describe how one evaluation of one model was run, from the metadata of its results."""
    info = {"model": model, "evaluation": evaluation}
    if not metadata.outcome.is_complete:
        return record("Run", info | {"reason": publishable(metadata.outcome.reason)})
    inference = metadata.inference
    engine, counters, loaded = inference.engine, inference.counters, inference.model or ModelInfo(name="")
    strategies = [strategy.get("used") for strategy in engine.strategies or []] or [engine.strategy]
    info |= {
        "strategy": ", ".join(dict.fromkeys(str(strategy) for strategy in strategies if strategy)),
        "fallback": publishable("; ".join(engine.fallback)),
        "engine": engine.name or f"scorer {engine.version or ''}".strip(),
        **{name: getattr(loaded, name) for name in ("dtype", "device", "quantization", "torch", "transformers")},
        "code": "custom, trusted" if loaded.remote_code else None,
        "items": metadata.items,
        "requests": counters.requests,
        "tokens": counters.tokens_computed,
        "generated": counters.tokens_generated,
        "seconds": counters.seconds,
        "flags": [Row.FlagCount(flag=flag, count=count) for flag, count in metadata.flags.items()],
        "skipped": len(metadata.skipped),
    }
    return record("Run", info)


def benchmark_files(directory: Path, models: Iterable[str] | None) -> list[Path]:
    """Return Snakemake's benchmark files, `{stage}/{job}.tsv`.

    models: models and bases of this config; files of others remain of an earlier state of the config. None: all files.
    """
    files, names = sorted(directory.glob("*/*.tsv")), set(models or ())
    return [
        path
        for path in files
        if models is None
        or path.stem in names
        or path.stem.rpartition(".")[0] in names  # a shard
        or path.parent.name in (path.stem, "encoder")
    ]


def job_costs(directory: Path | None, models: Iterable[str] | None = None) -> list[dict]:
    """Return the cost of each job from `benchmark_files`: seconds, peak memory in MB, CPU seconds."""
    jobs = []
    for path in benchmark_files(directory, models) if directory else []:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                costs = {name: _parse_number(row.get(key)) for name, key in _COST_COLUMNS.items()}
                jobs.append(record("Job", {"stage": path.parent.name, "job": path.stem, **costs}))
    return jobs


_COST_COLUMNS = {"seconds": "s", "memory": "max_rss", "cpu": "cpu_time"}


def _parse_number(text: str | None) -> float | None:
    """Parse a number of a benchmark file; jobs too short to be measured have "-" or "NA", which give None."""
    return None if text in (None, "", "-", "NA") else round(float(text), 2)
