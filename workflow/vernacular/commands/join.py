"""Command `join`: the publications of several groups as one leaderboard."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import DataError, UserError, format_count
from vernacular.core.tables import to_frame, write_csv
from vernacular.interop.every_eval_ever_samples import read_hashes
from vernacular.metrics.schema import RESULTS
from vernacular.summary.grid import collect, to_arrow, wide
from vernacular.summary.headings import make_headings
from vernacular.summary.prompts import as_questions
from vernacular.summary.workbook import write_leaderboard
from vernacular.types import ALL_PROMPTS

_COMPARABLE = {"dataset_revision": "dataset revisions", "signature": "signatures"}  # if these are equal


def join(args) -> str:
    """Write the tables of all publications in a folder: results.csv, wide.csv, leaderboard.xlsx and notes.csv.

    A model of a name that several publications use is named `name (publication)`. Values of one evaluation and metric
    that are not comparable, because they were computed from other data or in another way, are noted. The leaderboard
    has means over prompts in their place; single prompts remain where a model has no mean, and are named then.

    Raises:
        DataError: The folder contains no publication.
        UserError: The directory to write is not empty.
    """
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out}: exists and is not empty. Choose another name, or remove it.")
    folders = [path.parents[1] for path in sorted(args.folder.glob("*/tables/results.parquet"))]
    if not folders:
        raise DataError(f"{args.folder}: no publications found (expected folders written by `vernacular publish`).")
    tables = {folder.name: folder / "tables" for folder in folders}
    publications = {name: to_frame(_read(path / "results.parquet", RESULTS)) for name, path in tables.items()}
    new_names = _new_names(publications)
    values = collect([to_arrow(_renamed(frame, new_names[name])) for name, frame in publications.items()])
    prompts = [
        row | {column: new_names[name].get(row[column], row[column]) for column in ("model", "baseline")}
        for name, path in tables.items()
        for row in _read(path / "prompts.parquet", PROMPTS).to_pylist()
    ]
    notes = pd.DataFrame(
        [*_differences(values), *_prompt_differences(prompts), *_text_differences(folders)],
        columns=["evaluation", "metric", "note"],
    )
    args.out.mkdir(parents=True, exist_ok=True)
    write_csv(args.out / "results.csv", values)
    write_csv(args.out / "wide.csv", wide(values, make_headings(values, {}, default_prompt=True)))
    write_csv(args.out / "notes.csv", notes)
    provenance = {"publications": [_describe(name, frame) for name, frame in publications.items()]}
    provenance |= {"notes": notes.to_dict("records")}
    questions = _questions(values, prompts)
    headings = make_headings(questions, {}, default_prompt=True)
    write_leaderboard(args.out / "leaderboard.xlsx", questions, provenance, headings=headings)
    note = f"; {format_count(len(notes), 'difference')} in notes.csv" if len(notes) else ""
    models = format_count(values["model"].nunique(), "model")
    return f"join: {models} of {format_count(len(folders), 'publication')} in {args.out}{note}"


def _read(path: Path, kind: artifacts.Kind) -> pa.Table:
    """Return a table of a publication; without rows if it has none."""
    return artifacts.read(path, kind, allow_moved=True) if path.exists() else kind.schema.empty_table()


def _new_names(publications: dict[str, pd.DataFrame]) -> dict[str, dict[str, str]]:
    """Return the new names of models that several publications have, by publication."""
    names = [name for frame in publications.values() for name in frame["model"].unique()]
    shared = {name for name in names if names.count(name) > 1}
    return {publication: {name: f"{name} ({publication})" for name in shared} for publication in publications}


def _renamed(frame: pd.DataFrame, new: dict[str, str]) -> pd.DataFrame:
    """Return the values with the new names of models, also where one is the base of an adapter."""
    return frame.assign(**{name: frame[name].map(lambda model: new.get(model, model)) for name in ("model", "base")})


def _questions(values: pd.DataFrame, prompts: list[dict]) -> pd.DataFrame:
    """Return the values without the single prompts of a mean, unless another model has a single prompt only."""
    without = as_questions(values, prompts)
    alone = set(without[without["prompt"] != ALL_PROMPTS]["evaluation"])
    questions = set(zip(without["model"], without["evaluation"], strict=True))
    kept = [
        evaluation in alone or (model, evaluation) in questions
        for model, evaluation in zip(values["model"], values["evaluation"], strict=True)
    ]
    return values[pd.Series(kept, index=values.index, dtype=bool)].reset_index(drop=True)


def _differences(values: pd.DataFrame) -> list[dict]:
    """Return a row for each evaluation and metric whose values are not comparable between models."""
    rows = []
    all_items = values[values["category"].fillna("") == ""]
    for (evaluation, metric), group in all_items.groupby(["evaluation", "metric"], sort=False):
        for column, noun in _COMPARABLE.items():
            models = group.groupby(column, dropna=False)["model"].agg(", ".join)
            if len(models) > 1:
                texts = [f"{value} ({names})" for value, names in models.items()]
                rows.append({"evaluation": evaluation, "metric": metric, "note": f"{noun}: {'; '.join(texts)}"})
    return rows


def _prompt_differences(prompts: list[dict]) -> list[dict]:
    """Return a row for each mean that models have over other prompts."""
    models: dict[tuple, dict[str, list[str]]] = {}
    for row in prompts:
        if row["baseline"] is None:
            names = models.setdefault((row["evaluation"], row["metric"]), {})
            names.setdefault(", ".join(sorted(row["prompts"])), []).append(row["model"])
    return [
        {"evaluation": evaluation, "metric": metric, "note": f"prompts: {_listed(sets)}"}
        for (evaluation, metric), sets in models.items()
        if len(sets) > 1
    ]


def _listed(sets: dict[str, list[str]]) -> str:
    return "; ".join(f"{prompts} ({', '.join(names)})" for prompts, names in sets.items())


def _text_differences(folders: list[Path]) -> list[dict]:
    """Return a row for each evaluation in which items of one ID have other texts in another publication."""
    rows, first = [], {}
    for folder in folders:
        for evaluation, hashes in read_hashes(folder).items():
            name, known = first.setdefault(evaluation, (folder.name, hashes))
            common = known.keys() & hashes.keys()
            if n := sum(known[item] != hashes[item] for item in common):
                items = format_count(len(common), "common item")
                note = f"texts: {n} of {items} have another prompt or other answers ({name}, {folder.name})"
                rows.append({"evaluation": evaluation, "metric": None, "note": note})
    return rows


def _describe(name: str, frame: pd.DataFrame) -> dict[str, str]:
    return {
        "publication": name,
        "models": ", ".join(frame["model"].unique()),
        "evaluations": format_count(frame["evaluation"].nunique(), "evaluation"),
    }
