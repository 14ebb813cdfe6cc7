"""Values for the pages of models on the Hub: `.eval_results/{task}.yaml`, in the format of huggingface_hub.

Only values of a benchmark on the Hub that a task file names (`benchmark:`) are written, of all its items, for models
and adapters that the Hub has. The format has no field for an interval: it is in the notes, with the settings.
"""

import re
from pathlib import Path

import pandas as pd
import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from vernacular import __version__
from vernacular.core.artifacts import write_text
from vernacular.core.metadata import MetricsMetadata, ModelInfo
from vernacular.core.tables import is_finite
from vernacular.exchange.lm_eval_results import by_model
from vernacular.metrics.schema import is_from_samples

_COMMIT = re.compile("[0-9a-f]{40}")


def write_eval_results(
    directory: Path,
    long: pd.DataFrame,
    repositories: dict[str, str],
    datasets: list[dict],
    metrics: list[MetricsMetadata],
    benchmarks: dict[str, dict],
) -> tuple[dict[str, Path], list[str]]:
    """Write the values of benchmarks of each model below `directory`.

    Args:
        repositories: The Hub's repository of each model of `long` that has one.
        datasets: As `provenance.dataset_sources` returns them.
        metrics: Metadata of the models' values.
        benchmarks: {evaluation: dataset, task_id and metric of the benchmark}.

    Returns:
        The directory to upload for each repository, and why other values of benchmarks are not written.
    """
    sources = {(row["task"], row["language"], row["limit"]): row for row in datasets}
    evaluated = {(each.model, name): results for each in metrics for name, results in each.evaluations.items()}
    written: dict[str, Path] = {}
    left_out: list[str] = []
    models: dict[Path, str] = {}  # of each file: models of a run may be one of the Hub, in another precision
    for row in (row for rows in by_model(long) for row in rows):
        benchmark = benchmarks.get(row["evaluation"])
        if benchmark is None or row["metric"] != benchmark["metric"]:
            continue
        # a directory may be called as a repository is, but has no commit
        is_commit = _COMMIT.fullmatch(row["model_revision"] or "")
        repository = repositories.get(row["model"]) if is_commit else None
        limits = [limit for task, language, limit in sources if (task, language) == (row["task"], row["language"])]
        source = sources.get((row["task"], row["language"], None), {})
        path = directory / (repository or "") / ".eval_results" / f"{row['evaluation']}.yaml"
        reasons = {
            "the model is not on the Hub": repository is None,
            "no value": not is_finite(row["value"]),
            "samples of the package": is_from_samples(row["dataset_revision"]),
            "a limit, or items without a value": limits != [None] or row["n"] != source.get("items"),
            f"not from {benchmark['dataset']}": source.get("from") != benchmark["dataset"],
            f"{repository} has the value of the model {models.get(path)}": path in models,
        }
        if reason := next((text for text, applies in reasons.items() if applies), None):
            left_out.append(f"{row['model']}, {row['evaluation']}: {reason}")
            continue
        entry = EvalResultEntry(
            dataset_id=benchmark["dataset"],
            task_id=benchmark["task_id"],
            value=row["value"],
            dataset_revision=row["dataset_revision"],
            notes=_notes(row, evaluated[row["model"], row["evaluation"]].inference.model),
        )
        write_text(path, yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False))
        written[repository], models[path] = directory / repository, row["model"]
    return written, left_out


def _notes(row: dict, model: ModelInfo | None) -> str:
    low, high = row["ci_low"], row["ci_high"]
    precision = (model and (model.quantized or model.dtype)) or "unknown precision"
    interval = f"95% interval {low:.4g} to {high:.4g}" if is_finite(low) and is_finite(high) else "no interval"
    setting = f"{row['metric']} ({row['unit']}), protocol {row['protocol']}, {row['shots']}-shot, style {row['style']}"
    prompt = f"prompt {row['prompt']}, language {row['language']}, n = {row['n']}, {interval}"
    return f"{setting}, {prompt}, {precision}, model revision {row['model_revision']}, Vernacular {__version__}"
