"""Provenance sheet: legend, models, datasets and metrics, the spread between few-shot seeds, and the notes."""

import math

import pandas as pd
from openpyxl.styles import Alignment, Font
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.summary.cells import TITLE, print_landscape, put_text
from vernacular.summary.grid import sort_key
from vernacular.summary.sheet import LEGEND

_DERIVED_SECTIONS = {  # section: columns of the long table whose distinct rows it lists
    "models": ["model", "base", "adapter", "model_revision"],
    "datasets": ["task", "language", "dataset_revision"],
    "metrics": ["metric", "unit", "higher_is_better", "metric_group", "signature"],
}


def write_provenance(sheet: Worksheet, long: pd.DataFrame, provenance: dict) -> None:
    """Write the legend, sections derived from `long` (models, datasets, metrics, seeds) and `provenance` to `sheet`.

    A value of `provenance` may be one value, a dict (a row per key) or a list of dicts (a table); deeper values are
    written as text.
    """
    sections = {"legend": LEGEND}
    for title, columns in _DERIVED_SECTIONS.items():
        rows = long[columns].drop_duplicates().sort_values(columns, key=sort_key)
        sections[title] = rows.to_dict("records")
    spread = seed_spread(long)
    if not spread.empty:
        sections["spread between few-shot seeds"] = spread.to_dict("records")
    row = 1
    for title, content in [*sections.items(), *provenance.items()]:
        put_text(sheet, row, 1, title).font = TITLE
        for line in _section_lines(content):
            row += 1
            for column, (text, bold) in enumerate(line, 1):
                cell = _put_value(sheet, row, column, text)
                cell.alignment = Alignment(vertical="top", wrap_text=column > 1)
                if bold:
                    cell.font = Font(name="Calibri", bold=True)
        row += 2
    for letter, width in zip("ABCDE", (34, 24, 44, 20, 60), strict=True):
        sheet.column_dimensions[letter].width = width
    print_landscape(sheet)


def _section_lines(content):
    """Return the lines of one section, as (value, bold) cells."""
    if isinstance(content, dict):
        return [[(key, False), (value, False)] for key, value in content.items()]
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        columns = list(dict.fromkeys(column for row in content for column in row))
        return [
            [(column, True) for column in columns],
            *([(row.get(column), False) for column in columns] for row in content),
        ]
    values = content if isinstance(content, list) else [content]
    return [[(value, False)] for value in values]


def _put_value(sheet: Worksheet, row: int, column: int, value):
    if value is None or (not isinstance(value, dict | list) and pd.isna(value)):
        return sheet.cell(row, column)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return sheet.cell(row, column, value)
    return put_text(sheet, row, column, value)


_GROUP_COLUMNS = [
    "model",
    "adapter",
    "model_revision",
    "task",
    "language",
    "protocol",
    "shots",
    "style",
    "prompt",
    "metric",
]
_SEED_COLUMNS = [*_GROUP_COLUMNS, "seeds", "n_seeds", "mean", "sd", "lowest", "highest"]


def seed_spread(long: pd.DataFrame) -> pd.DataFrame:
    """Return one row per value that was measured with several seeds, over all items; empty if no seed was varied.

    `sd` is the sample standard deviation (n - 1) between seeds, a rough estimate with two or three seeds. `n_seeds` is
    the number of seeds that gave a value; `mean`, `lowest` and `highest` are over those.
    """
    all_items = long[(long["category"].fillna("") == "") & long["value"].notna()]
    if all_items.empty:
        return pd.DataFrame(columns=_SEED_COLUMNS)
    groups = all_items.sort_values("seed").groupby(_GROUP_COLUMNS, dropna=False, sort=True)
    spread = groups.agg(
        seeds=("seed", lambda seeds: " ".join(map(str, seeds))),
        n_seeds=("seed", "nunique"),
        mean=("value", "mean"),
        sd=("value", "std"),
        lowest=("value", "min"),
        highest=("value", "max"),
    )
    return spread[spread["n_seeds"] > 1].reset_index()


_NOTE_COLUMNS = ["model", "evaluation", "kind", "note", "count"]


def collect_notes(metadata: dict) -> list[dict]:
    """Return one model's notes from the metadata of its metrics file, one row per note.

    kind: "unavailable" (a dataset, model or encoder), "not applicable", "dropped" and "repaired" (rows of the
    dataset), "rows" (warnings about the dataset), "skipped" (items that were skipped), "flagged" (outputs),
    "fallback" (the engine used a fallback strategy), "trusted code" and "unused weights" (of the model itself, reported
    once).
    """
    notes = []

    def add_note(evaluation: str | None, kind: str, text: str, count: int | None = None) -> None:
        notes.append({"model": metadata["model"], "evaluation": evaluation, "kind": kind, "note": text, "count": count})

    for evaluation, evaluation_metadata in metadata["evaluations"].items():
        for key, kind in (("unavailable", "unavailable"), ("not_applicable", "not applicable")):
            if key in evaluation_metadata:
                add_note(evaluation, kind, evaluation_metadata[key])
        for metric, reason in evaluation_metadata.get("missing_metrics", {}).items():
            add_note(evaluation, "unavailable", f"{metric} not computed: {reason}")
        dataset = evaluation_metadata.get("dataset", {})
        for key, kind in (("dropped", "dropped"), ("repaired", "repaired")):
            for reason, count in dataset.get("rows", {}).get(key, {}).items():
                add_note(evaluation, kind, reason, count)
        for warning in dataset.get("warnings", []):
            add_note(evaluation, "rows", warning)
        skipped = list(evaluation_metadata.get("skipped", {}).values())
        for reason in dict.fromkeys(skipped):
            add_note(evaluation, "skipped", reason, skipped.count(reason))
        for flag, count in evaluation_metadata.get("flags", {}).items():
            add_note(evaluation, "flagged", flag, count)
        for fallback in evaluation_metadata.get("inference", {}).get("engine", {}).get("fallback", []):
            add_note(evaluation, "fallback", str(fallback))
    models = [
        evaluation_metadata.get("inference", {}).get("model", {})
        for evaluation_metadata in metadata["evaluations"].values()
    ]
    if any(model.get("remote_code") for model in models):
        add_note(None, "trusted code", "custom code of the model was run (trust_remote_code)")
    if unused_weights := next((model["unused_weights"] for model in models if "unused_weights" in model), None):
        text = f"weights in the checkpoint that the architecture does not use; the first is {unused_weights['first']}"
        add_note(None, "unused weights", text, unused_weights["count"])
    return notes


def mixed_version_notes(models: list[dict]) -> list[dict]:
    """Return a note for each way in which models were computed by different versions of the engine or its libraries.

    models: metadata of their metrics files. Values of one evaluation are compared across models, so all of them should
    come from one version; they do not if some models could not be run again after an upgrade.
    """
    versions: dict[str, dict[str, list[str]]] = {}  # evaluation -> version -> models
    for metadata in models:
        for evaluation, evaluation_metadata in metadata["evaluations"].items():
            if (engine := evaluation_metadata.get("inference", {}).get("engine", {})).get("version"):
                model = evaluation_metadata["inference"].get("model", {})
                libraries = ", ".join(f"{name} {model[name]}" for name in ("torch", "transformers") if name in model)
                version = f"{libraries} (engine {engine['version'][:8]})"
                versions.setdefault(evaluation, {}).setdefault(version, []).append(metadata["model"])
    # scoring and generation have separate versions: group by the models that share a version
    groups: dict[tuple, list[str]] = {}
    for models_by_version in versions.values():
        if len(models_by_version) > 1:
            groups.setdefault(tuple(map(tuple, models_by_version.values())), []).append(
                _describe_versions(models_by_version)
            )
    text = "computed with different versions, which may cause differences between these models: "
    return [
        {
            "model": None,
            "evaluation": None,
            "kind": "mixed versions",
            "note": text + descriptions[0],
            "count": len(descriptions),
        }
        for descriptions in groups.values()
    ]


def _describe_versions(models_by_version: dict[str, list[str]]) -> str:
    return "; ".join(f"{', '.join(models)}: {version}" for version, models in models_by_version.items())


def dataset_sources(metadata: dict) -> list[dict]:
    """Return the source of one model's items by task, language and limit: repository, commit, hash, license, counts."""
    sources = {}
    for evaluation_metadata in metadata["evaluations"].values():
        if dataset := evaluation_metadata.get("dataset"):
            source, rows = dataset["source"], dataset["rows"]
            sources[dataset["task"], dataset["language"], dataset["limit"]] = {
                "task": dataset["task"],
                "language": dataset["language"],
                "limit": dataset["limit"],
                "kind": source["kind"],
                "from": source.get("repository") or source.get("url") or source.get("file") or source["kind"],
                "split": source.get("split"),
                "revision": source.get("revision"),
                "sha256": source["sha256"],
                "license": source.get("license"),
                "citation": dataset.get("citation"),
                "rows read": rows["read"],
                "items": rows["evaluated"],
            }
    return list(sources.values())


def notes_to_frame(notes: list[dict]) -> pd.DataFrame:
    """Return the notes as a table, in the order given."""
    return pd.DataFrame(notes, columns=_NOTE_COLUMNS).astype({"count": "Int64"})
