"""The files of a publication (`vernacular publish`): its models, and their records in the format of Every Eval Ever.

Planning reads these; it does not read the results per item (`publications.py`), whose libraries take longer to import.
"""

import json
from pathlib import Path

from vernacular.core.errors import DataError, suggest
from vernacular.core.paths import display_path

_RECORDS = "data/vernacular/*/*/*.json"


def is_publication(path: Path) -> bool:
    """Return whether `path` is a directory that `vernacular publish` wrote."""
    return (path / "data" / "vernacular").is_dir() and (path / "tables" / "results.parquet").is_file()


def published_models(path: Path) -> dict[str, list[Path]]:
    """Return the files of each model of a publication: its record, and its results per item if there are any.

    Raises DataError if a record cannot be read.
    """
    return {
        _record(file)["model_info"]["name"]: [
            file,
            *[samples for samples in [file.with_name(f"{file.stem}_samples.jsonl")] if samples.exists()],
        ]
        for file in sorted(path.glob(_RECORDS))
    }


def published_signatures(path: Path, model: str) -> dict[tuple[str, str], str]:
    """Return the signatures of a model's values, by evaluation and metric."""
    return {
        (result["evaluation_name"], result["metric_config"]["metric_name"]): signature
        for result in _record(published_models(path)[model][0])["evaluation_results"]
        if (signature := result["metric_config"]["additional_details"].get("signature"))
    }


def check_model(path: Path, model: str | None) -> str | None:
    """Return why the model of an entry of `external_results:` is not valid; None if it is."""
    if not is_publication(path):
        return None if model is None else "model requires a directory that `vernacular publish` wrote as the path."
    models = published_models(path)
    if model is not None and model not in models:
        return f'"{model}" is not in this publication.{suggest(model, models)}'
    return None


def _record(file: Path) -> dict:
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{display_path(file)}: cannot be read ({error}).") from None
