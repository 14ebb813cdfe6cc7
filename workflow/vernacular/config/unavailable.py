"""Deletion of files that state why something is unavailable, at the end of a run, so that the next one tries again.

To Snakemake such a file is complete, and so is everything computed from it. Planning deletes nothing; the Snakefile
calls this module at the end of a run, successful or not.
"""

import logging
from collections.abc import Collection, Iterator
from pathlib import Path

from vernacular.checkpoints.inputs import DELETED, is_deleted
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.model_record import read_model
from vernacular.core.records import failures, outcomes
from vernacular.core.written import COMPLETE

log = logging.getLogger("vernacular")

_KINDS = ("lm_eval", "requests", "scores", "generations", "similarity", "tasks")  # directories of a file per evaluation


def clear_unavailable(resources: Path, results: Path, names: Collection[str] | None = None) -> list[Path]:
    """Delete files that state why something is unavailable, damaged files, and the files computed from either.

    Snakemake recreates a file only if something missing depends on it, so a placeholder is deleted with its
    descendants, up to the per-item results.

    Args:
        names: Models, evaluations, items and encoders of the config: files of other names may be a user's. None: all.

    Returns:
        The deleted paths.
    """
    candidates = [
        *_items(resources),
        *_records(resources, results),
        *_similarities(results),
        *_tool_results(results),
        *_requests(results),
        *_inference(results),
        *_restored(resources, results),
        *_metrics(results),
        *_comparisons(results),
    ]
    candidates = [path for path in dict.fromkeys(candidates) if names is None or _is_output(path, names)]
    deleted = [path for path in candidates if path.exists()]
    for path in deleted:
        log.info("deleted %s", path)
        path.unlink(missing_ok=True)
    return deleted


def _is_output(path: Path, names: Collection[str]) -> bool:
    """Return whether a rule writes a file for a model, evaluation, dataset or encoder of these names."""
    *_, model, kind, _ = path.parts
    if path.name == "metrics.parquet":
        return kind in names
    if path.suffix == ".parquet":
        is_shared = kind in ("items", "requests")
        return path.stem in names and (is_shared or (model in names and kind in _KINDS))
    return path.stem in names or kind in names or path.name == COMPLETE  # records, status files


def _items(resources: Path) -> Iterator[Path]:
    for path in sorted((resources / "items").glob("*.parquet")):
        if _is_unavailable(path):  # the requests built from it state the reason, too
            yield path


def _records(resources: Path, results: Path) -> Iterator[Path]:
    for path in sorted([*resources.glob("models/*.json"), *resources.glob("encoders/*.json")]):
        try:
            unavailable = read_model(path).unavailable
        except ArtifactError:
            unavailable = True
        if unavailable:
            yield path
            yield from results.glob(f"{path.stem}/*/*.parquet") if path.parent.name == "models" else ()


def _similarities(results: Path) -> Iterator[Path]:
    for path in sorted(results.glob("*/similarity/*.parquet")):
        try:
            has_missing_metrics = artifacts.metadata(path).get("missing_metrics")
        except ArtifactError:
            has_missing_metrics = True
        if has_missing_metrics:
            yield from (path, path.parents[1] / "tasks" / path.name)


def _tool_results(results: Path) -> Iterator[Path]:
    for path in sorted(results.glob("*/lm_eval/*.parquet")):
        if _is_unavailable(path):
            yield from (path, path.parents[1] / "tasks" / path.name)


def _requests(results: Path) -> Iterator[Path]:
    for path in sorted((results / "requests").glob("*.parquet")):
        if _is_unavailable(path):
            yield from (path, *results.glob(f"*/*/{path.stem}.parquet"))


def _inference(results: Path) -> Iterator[Path]:
    for path in sorted((results / "inference_status").glob("*/*.json")):
        try:
            failed = failures(path)
        except ArtifactError:
            yield path
            continue
        for model, reasons in failed.items():
            for evaluation in reasons:
                yield from (path, *results.glob(f"{model}/*/{evaluation}.parquet"))


def _restored(resources: Path, results: Path) -> Iterator[Path]:
    """Yield what lacks evaluations of a deleted checkpoint that exists again."""
    for path in sorted((results / "inference_status").glob("*/*.json")):
        try:
            outcomes_by_model = outcomes(path)
        except ArtifactError:  # deleted by `_inference`
            continue
        for model, by_evaluation in outcomes_by_model.items():
            missing = [evaluation for evaluation, outcome in by_evaluation.items() if outcome == DELETED]
            if missing and _exists(resources / "models" / f"{model}.json"):
                yield path
                for evaluation in missing:
                    yield from results.glob(f"{model}/*/{evaluation}.parquet")


def _exists(record: Path) -> bool:
    try:
        return not is_deleted(read_model(record))
    except ArtifactError:
        return False


def _metrics(results: Path) -> Iterator[Path]:
    for path in sorted(results.glob("*/metrics.parquet")):
        try:
            evaluations = artifacts.metadata(path).get("evaluations", {})
        except ArtifactError:
            yield path
            continue
        yield from (path.parent / "tasks" / f"{e}.parquet" for e, note in evaluations.items() if "unavailable" in note)


def _comparisons(results: Path) -> Iterator[Path]:
    """Yield what marks comparisons as complete, if external results are missing from them; the tables remain."""
    try:
        failed = artifacts.metadata(results / "summary" / "comparisons.parquet").get("failures")
    except ArtifactError:
        return
    if failed:
        yield results / "comparisons" / COMPLETE


def _is_unavailable(path: Path) -> bool:
    """Return whether an artifact states why it has no rows, or cannot be read."""
    try:
        return "unavailable" in artifacts.metadata(path)
    except ArtifactError:
        return True
