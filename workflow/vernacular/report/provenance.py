"""Data file `provenance`: models, datasets, how each evaluation was run, notes, and the cost of each job."""

import csv
from pathlib import Path

from vernacular.report.leaderboard import Numbers

_MODEL = ("name", "source", "revision", "architecture", "kind", "bytes", "fingerprint", "base", "unavailable")


def models(records: list[dict]) -> list[dict]:
    """Return one row per model record: where the model comes from and its exact version."""
    return [
        {name: record.get(name) for name in _MODEL}
        | {f"adapter_{key}": (record.get("adapter") or {}).get(key) for key in ("source", "revision")}
        for record in records
    ]


def data_set(facts: dict | None) -> dict | None:
    """Describe the source of one evaluation's items, from the `dataset` of its results' metadata."""
    if not facts:
        return None
    source, rows = facts["source"], facts["rows"]
    named = ("repository", "url", "file", "folder")
    return {
        "task": facts["task"],
        "language": facts["language"],
        "limit": facts.get("limit"),
        "from": next((source[key] for key in named if source.get(key)), source["kind"]),
        "kind": source["kind"],
        "config": source.get("config"),
        "split": source.get("split"),
        "revision": source.get("revision"),
        "sha256": source.get("sha256"),
        "license": source.get("license"),
        "citation": facts.get("citation"),
        "read": rows["read"],
        "items": rows["taken"],
        "dropped": sum(rows["dropped"].values()),
        "repaired": sum(rows["repaired"].values()),
    }


def run(model: int, evaluation: int, facts: dict) -> dict:
    """Describe how one evaluation of one model was run, from the metadata of its results."""
    found = {"model": model, "evaluation": evaluation}
    for key in ("unavailable", "not_applicable"):
        if key in facts:
            return found | {"reason": facts[key]}
    inference = facts.get("inference", {})
    engine, counters, machine = (inference.get(key, {}) for key in ("engine", "counters", "model"))
    used = [each.get("used") for each in engine.get("strategies", [])] or [engine.get("strategy")]
    return found | {
        "strategy": ", ".join(dict.fromkeys(str(each) for each in used if each)),
        "asked": engine.get("strategy_asked"),
        "fallback": "; ".join(map(str, engine.get("fallback", []))),
        "engine": engine.get("name") or f"scorer {engine.get('version', '')}".strip(),
        "dtype": machine.get("dtype"),
        "device": machine.get("device"),
        "quantization": machine.get("quantization"),
        "code": "custom, trusted" if machine.get("remote_code") else None,
        "torch": machine.get("torch"),
        "transformers": machine.get("transformers"),
        "items": facts.get("items"),
        "requests": counters.get("requests"),
        "tokens": counters.get("tokens_computed"),
        "generated": counters.get("tokens_generated"),
        "seconds": counters.get("seconds"),
        "flags": [[flag, count] for flag, count in facts.get("flags", {}).items()],
        "skipped": len(facts.get("skipped", {})),
    }


def jobs(folder: Path | None) -> list[dict]:
    """Return the cost of each job from Snakemake's benchmark files: seconds, peak memory in MB, CPU seconds."""
    found = []
    for path in sorted(folder.glob("*/*.tsv")) if folder else []:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                figures = {name: _figure(row.get(key)) for name, key in _FIGURES.items()}
                found.append({"stage": path.parent.name, "job": path.stem, **figures})
    return found


def note_rows(notes: list[dict], numbers: Numbers) -> list[dict]:
    """Return the summary's notes with models and evaluations by number."""
    return [
        {
            "model": numbers.models.number(note["model"]),
            "evaluation": None if note["evaluation"] is None else numbers.evaluations.number(note["evaluation"]),
            "kind": note["kind"],
            "note": note["note"],
            "count": note["count"],
        }
        for note in notes
    ]


_FIGURES = {"seconds": "s", "memory": "max_rss", "cpu": "cpu_time"}


def _figure(text: str | None) -> float | None:
    """Parse a number of a benchmark file; jobs too short to be measured have "-" or "NA", which give None."""
    return None if text in (None, "", "-", "NA") else round(float(text), 2)
