"""Command `join`: the publications of several groups as one leaderboard."""

import logging
from collections import Counter
from pathlib import Path

import pandas as pd

from vernacular.comparison.external.published_tables import PublishedTables, read_tables
from vernacular.core.errors import ArtifactError, DataError, UserError, format_count
from vernacular.core.names import free_name
from vernacular.core.paths import display_path
from vernacular.core.tables import write_csv
from vernacular.summary.grid import collect, to_arrow, wide
from vernacular.summary.headings import make_headings
from vernacular.summary.prompts import as_questions
from vernacular.summary.workbook import write_leaderboard
from vernacular.types import ALL_PROMPTS

log = logging.getLogger("vernacular")

_COMPARABLE = {"dataset_revision": "dataset revisions", "signature": "signatures"}  # if these are equal


def join(args) -> str:
    """Write the tables of all publications in a folder: results.csv, wide.csv, leaderboard.xlsx and notes.csv.

    A model of a name that several publications use is named `name (publication)`. Values of one evaluation and metric
    that are not comparable, because they were computed from other data or in another way, are noted. The leaderboard
    has means over prompts in their place; single prompts remain where a model has no mean, and are named then. A
    publication that is not valid is left out and noted.

    Raises:
        DataError: The folder contains no publication, or none that is valid.
        UserError: The directory to write is not empty.
    """
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out}: exists and is not empty. Choose another name, or remove it.")
    publications, failed = _read_all(args.folder)
    new_names = _new_names({name: tables.values for name, tables in publications.items()})
    frames = {name: _renamed(tables.values, new_names[name]) for name, tables in publications.items()}
    values = collect([to_arrow(frame) for frame in frames.values()])
    prompts = [
        row | {"model": new_names[name].get(row["model"], row["model"])}
        for name, tables in publications.items()
        for row in tables.prompts
    ]
    differences = [*_differences(values), *_prompt_differences(prompts), *_text_differences(publications)]
    left_out = [
        {"evaluation": None, "metric": None, "note": f"publication {name}: left out: {reason}"}
        for name, reason in failed.items()
    ]
    notes = pd.DataFrame([*left_out, *differences], columns=["evaluation", "metric", "note"])
    args.out.mkdir(parents=True, exist_ok=True)
    write_csv(args.out / "results.csv", values)
    write_csv(args.out / "wide.csv", wide(values, make_headings(values, {}, default_prompt=True)))
    write_csv(args.out / "notes.csv", notes)
    provenance = {"publications": [_describe(name, tables.values) for name, tables in publications.items()]}
    provenance |= {"notes": notes.to_dict("records")}
    questions = _questions(values, prompts)
    headings = make_headings(questions, {}, default_prompt=True)
    write_leaderboard(args.out / "leaderboard.xlsx", questions, provenance, headings=headings)
    note = f"; {format_count(len(differences), 'difference')} in notes.csv" if differences else ""
    note += f"; {format_count(len(failed), 'publication')} left out (notes.csv)" if failed else ""
    models = format_count(values["model"].nunique(), "model")
    return f"join: {models} of {format_count(len(publications), 'publication')} in {args.out}{note}"


def _read_all(directory: Path) -> tuple[dict[str, PublishedTables], dict[str, str]]:
    """Return the publications in a directory by name, and the reasons of those that are not valid.

    Raises:
        DataError: None is valid.
    """
    publications, failed = {}, {}
    for folder in sorted(directory.iterdir()) if directory.is_dir() else ():
        if folder.name.startswith(".") or not any((folder / name).is_dir() for name in ("tables", "data/vernacular")):
            continue
        try:
            publications[folder.name] = _read(folder)
        except UserError as error:
            failed[folder.name] = str(error)
            log.warning("join: %s: left out: %s", folder.name, error)
    if not publications and failed:
        raise DataError(f"{directory}: no valid publications: {'; '.join(failed.values())}")
    if not publications:
        raise DataError(f"{directory}: no publications found (expected folders written by `vernacular publish`).")
    return publications, failed


def _read(folder: Path) -> PublishedTables:
    tables = read_tables(folder)
    try:
        collect([to_arrow(tables.values)])
    except ArtifactError as error:  # two values of one metric
        raise DataError(f"{display_path(folder)}: {error}") from None
    return tables


def _new_names(publications: dict[str, pd.DataFrame]) -> dict[str, dict[str, str]]:
    """Return the new names of models and bases that several publications have, regardless of case, by publication."""
    names = {
        publication: list(dict.fromkeys([*frame["model"], *frame["base"].dropna()]))
        for publication, frame in publications.items()
    }
    counts = Counter(name for each in names.values() for name in {name.casefold() for name in each})
    taken = set(counts)
    return {
        publication: {name: free_name(f"{name} ({publication})", taken) for name in each if counts[name.casefold()] > 1}
        for publication, each in names.items()
    }


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
                texts = [f"{'unknown' if pd.isna(value) else value} ({names})" for value, names in models.items()]
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


def _text_differences(publications: dict[str, PublishedTables]) -> list[dict]:
    """Return a row for each evaluation in which items of one ID have other texts in another publication."""
    rows, first = [], {}
    for publication, tables in publications.items():
        for evaluation, hashes in tables.hashes.items():
            name, known = first.setdefault(evaluation, (publication, hashes))
            common = known.keys() & hashes.keys()
            if n := sum(known[item] != hashes[item] for item in common):
                items = format_count(len(common), "common item")
                note = f"texts: {n} of {items} have another prompt or other answers ({name}, {publication})"
                rows.append({"evaluation": evaluation, "metric": None, "note": note})
    return rows


def _describe(name: str, frame: pd.DataFrame) -> dict[str, str]:
    return {
        "publication": name,
        "models": ", ".join(frame["model"].unique()),
        "evaluations": format_count(frame["evaluation"].nunique(), "evaluation"),
    }
