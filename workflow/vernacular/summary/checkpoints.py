"""Checkpoints of series in the summary: columns of their position in training, and notes on equal weights."""

import pandas as pd

from vernacular.metrics.schema import POSITION

COLUMNS = [name for name, _ in POSITION]


def add_positions(table: pd.DataFrame, checkpoints: dict[str, dict]) -> pd.DataFrame:
    """Return a table with a column `model`, and the columns of `POSITION` added; null for models of no series.

    checkpoints: model -> series, curve, step, tokens, words.
    """
    positions = [checkpoints.get(model, {}) for model in table["model"]]
    columns = {name: [position.get(name) for position in positions] for name in COLUMNS}
    types = {name: object if name in ("series", "curve") else "Int64" for name in COLUMNS}
    return table.assign(**{name: pd.array(values, dtype=types[name]) for name, values in columns.items()})


def equal_weight_notes(models: list[dict], checkpoints: dict[str, dict]) -> list[dict]:
    """Return a note for each set of checkpoints with the same weights: one may have been uploaded under a wrong name.

    models: metadata of the metrics files of all models.
    """
    by_weights: dict[tuple, list[str]] = {}
    for metadata in models:
        if metadata["model"] in checkpoints and (weights := _weights(metadata["record"])):
            by_weights.setdefault(weights, []).append(metadata["model"])
    text = "checkpoints with the same weights, which training changes: one may be stored under a wrong name: "
    return [
        {"model": names[0], "evaluation": None, "kind": "same weights", "note": text + ", ".join(names), "count": None}
        for names in by_weights.values()
        if len(names) > 1
    ]


def _weights(record: dict) -> tuple:
    """Return the hashes of the files with weights, which are the adapter's if there is one."""
    adapter = record.get("adapter")
    listing = adapter["contents"] if adapter else record.get("source_contents") or record.get("contents") or {}
    files = listing.get("files", {})
    is_single_file = "." in files
    suffixes = (".safetensors", ".bin")
    hashes = [entry["sha256"] for name, entry in files.items() if is_single_file or name.endswith(suffixes)]
    return tuple(sorted(hashes))
