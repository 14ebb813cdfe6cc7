"""Checks of `external_results:` that the schema cannot express."""

import os
from pathlib import Path

from vernacular.comparison.external.published_files import check_model, is_publication, published_models
from vernacular.comparison.external.results import result_files
from vernacular.config.files import Files
from vernacular.config.models import check_name
from vernacular.core.errors import DataError
from vernacular.core.names import portable_problem, quoted


def read_external_results(files: Files, values: dict, models: dict) -> dict[str, dict]:
    """Return `external_results:` with expanded paths, and report missing files and names in use.

    A publication of several models, of which none is named, becomes an entry `name-model` for each of them. One whose
    files are not valid remains: `check` reports why, and in a run its values are missing, and only these.
    """
    taken = {model.casefold() for model in (*values["models"], *models)}
    entries: dict[str, dict] = {}
    for name, entry in values["external_results"].items():

        def report(keys, message: str, name=name):
            files.report(("external_results", name, *keys), message)

        if name.casefold() in taken:
            report((), f'"{name}" is a model of this config; choose another name.')
            continue
        check_name(name, lambda keys, message: files.report(("external_results", *keys), message))
        entry["path"] = os.path.expanduser(entry["path"])
        if not os.path.exists(entry["path"]):
            report(("path",), f"file or directory not found: {entry['path']}.")
            continue
        try:
            expanded = _expand(name, entry, report)
        except DataError as error:
            if not is_publication(Path(entry["path"])):
                report(("path",), str(error))
                continue
            expanded = _expected(name, entry, values.get("comparisons") or [])
        for side in expanded:
            if side.casefold() in taken:
                report((), f'the publication has several models, and the name "{side}" is in use; choose another name.')
            taken.add(side.casefold())
        entries |= expanded
    return entries


def _expand(name: str, entry: dict, report) -> dict[str, dict]:
    """Return the entries that one entry of the config stands for. Raises DataError if its files are not valid."""
    path, model = Path(entry["path"]), entry.get("model")
    if message := check_model(path, model):
        report(("model",), message)
        return {}
    if not is_publication(path):
        result_files(path)
        return {name: entry}
    models = [model] if model is not None else list(published_models(path))
    names = [name] if len(models) == 1 else [f"{name}-{each}" for each in models]
    for side, each in zip(names, models, strict=True):
        if problem := portable_problem(side):
            report(("path",), f"model {quoted(each)}: {quoted(side)} {problem}; give each model an entry with model:.")
    return {side: {"path": entry["path"], "model": each} for side, each in zip(names, models, strict=True)}


def _expected(name: str, entry: dict, comparisons: list) -> dict[str, dict]:
    """Return the entries of a publication whose models are not known: those that comparisons name."""
    sides = [side for pair in comparisons if isinstance(pair, dict) for side in (pair["baseline"], pair["candidate"])]
    sides = [side for value in sides for side in ([value] if isinstance(value, str) else value)]
    named = [each for each in dict.fromkeys(sides) if each.startswith(f"{name}-") and not portable_problem(each)]
    named = [] if "model" in entry else named
    models = {side: side.removeprefix(f"{name}-") for side in named} or {name: entry.get("model")}
    return {side: {"path": entry["path"], "model": model} for side, model in models.items()}
