"""Command `join`: the publications of several groups as one leaderboard."""

import pandas as pd

from vernacular.core import artifacts
from vernacular.core.errors import DataError, UserError, format_count
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import RESULTS
from vernacular.summary.grid import collect, to_arrow, wide
from vernacular.summary.workbook import write_leaderboard

_COMPARABLE = {"dataset_revision": "dataset revisions", "signature": "signatures"}  # if these are equal


def join(args) -> str:
    """Write the tables of all publications in a folder: results.csv, wide.csv, leaderboard.xlsx and notes.csv.

    A model of a name that several publications use is named `name (publication)`. Values of one evaluation and metric
    that are not comparable, because they were computed from other data or in another way, are noted.

    Raises:
        DataError: The folder contains no publication.
        UserError: The directory to write is not empty.
    """
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out}: exists and is not empty. Choose another name, or remove it.")
    paths = sorted(args.folder.glob("*/tables/results.parquet"))
    if not paths:
        raise DataError(f"{args.folder}: no publications found (expected folders written by `vernacular publish`).")
    publications = {path.parents[1].name: to_frame(artifacts.read(path, RESULTS, allow_moved=True)) for path in paths}
    values = collect([to_arrow(frame) for frame in _renamed(publications).values()])
    notes = _differences(values)
    args.out.mkdir(parents=True, exist_ok=True)
    write_csv(args.out / "results.csv", values)
    write_csv(args.out / "wide.csv", wide(values))
    write_csv(args.out / "notes.csv", notes)
    provenance = {"publications": [_describe(name, frame) for name, frame in publications.items()]}
    write_leaderboard(args.out / "leaderboard.xlsx", values, provenance | {"notes": notes.to_dict("records")})
    note = f"; {format_count(len(notes), 'difference')} in notes.csv" if len(notes) else ""
    models = format_count(values["model"].nunique(), "model")
    return f"join: {models} of {format_count(len(paths), 'publication')} in {args.out}{note}"


def _renamed(publications: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the values with a unique name for each model, also where it is the base of an adapter."""
    names = [name for frame in publications.values() for name in frame["model"].unique()]
    shared = {name for name in names if names.count(name) > 1}
    renamed = {}
    for publication, frame in publications.items():
        new = {name: f"{name} ({publication})" for name in shared}
        renamed[publication] = frame.assign(
            **{column: frame[column].map(lambda name, new=new: new.get(name, name)) for column in ("model", "base")}
        )
    return renamed


def _differences(values: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each evaluation and metric whose values are not comparable between models."""
    rows = []
    all_items = values[values["category"].fillna("") == ""]
    for (evaluation, metric), group in all_items.groupby(["evaluation", "metric"], sort=False):
        for column, noun in _COMPARABLE.items():
            models = group.groupby(column, dropna=False)["model"].agg(", ".join)
            if len(models) > 1:
                texts = [f"{value} ({names})" for value, names in models.items()]
                rows.append({"evaluation": evaluation, "metric": metric, "note": f"{noun}: {'; '.join(texts)}"})
    return pd.DataFrame(rows, columns=["evaluation", "metric", "note"])


def _describe(name: str, frame: pd.DataFrame) -> dict[str, str]:
    return {
        "publication": name,
        "models": ", ".join(frame["model"].unique()),
        "evaluations": format_count(frame["evaluation"].nunique(), "evaluation"),
    }
