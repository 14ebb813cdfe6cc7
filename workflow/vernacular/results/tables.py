"""The tables of a run as DataFrames."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

from vernacular.comparison.align import align
from vernacular.comparison.curves.schema import DECIDING_METRICS
from vernacular.comparison.schema import BETWEEN_LANGUAGES, CHANGES, COMPARISONS, LANGUAGE_ITEMS, PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import DataError, suggest
from vernacular.core.tables import to_frame
from vernacular.inference.schema import SCORES
from vernacular.metrics.metric import COUNT
from vernacular.metrics.schema import RESULTS, TASK_RESULTS
from vernacular.metrics.tokens import readable_tokens
from vernacular.protocols.schema import REQUESTS
from vernacular.statistics.sequential import hash_order, sequential

FLAG_TEXT = {"flags": "flag_text"}  # name of a column in DataFrames


def summary_table(directory, name: str, kind: artifacts.Kind) -> pd.DataFrame:
    """Return a table of the summary. Raises ArtifactError if it does not exist or is damaged."""
    return to_frame(artifacts.read(Path(directory) / "summary" / f"{name}.parquet", kind))


def values(directory) -> pd.DataFrame:
    """Return every value: one row per model, evaluation, metric and category ("" is all items), unrounded.

    Columns as in `results.csv` (docs/tables.md): shares from 0 to 1, surprisal in nats.

    Raises:
        ArtifactError: The summary does not exist or is damaged.
    """
    return summary_table(directory, "results", RESULTS)


def comparisons(directory) -> pd.DataFrame:
    """Return the paired comparisons: one row per pair of models, evaluation, metric and category.

    A difference is candidate minus baseline; `p_holm` is set for headline metrics over all items (docs/comparisons.md).

    Raises:
        ArtifactError: The comparisons do not exist or are damaged.
    """
    return summary_table(directory, "comparisons", COMPARISONS)


def between_languages(directory) -> pd.DataFrame:
    """Return the consistency of each model between languages: one row per model, language, reference and metric.

    A row of a pair has a `baseline`; its value is a difference, `model` minus baseline (docs/comparisons.md).

    Raises:
        ArtifactError: The run has no parallel task in several languages, or the file is damaged.
    """
    return summary_table(directory, "between_languages", BETWEEN_LANGUAGES)


def language_items(directory) -> pd.DataFrame:
    """Return the items that models answer correctly in the reference language and not in another, most models first.

    Errors as in `between_languages`.
    """
    return summary_table(directory, "language_items", LANGUAGE_ITEMS)


def deciding_metrics(directory) -> pd.DataFrame:
    """Return how well each stored metric orders the series of a run, and its models (`axis` "item"), by evaluation.

    Raises:
        ArtifactError: The run has no summary, or a file is damaged.
    """
    has_series = Path(directory, "summary", "deciding_metrics.parquet").exists()
    names = ["deciding_metrics"] * has_series + ["deciding_models"]
    tables = (artifacts.read(Path(directory, "summary", f"{name}.parquet"), DECIDING_METRICS) for name in names)
    return to_frame(pa.concat_tables(tables))


def changes(directory, baseline: str, candidate: str) -> pd.DataFrame:
    """Return the items that improved or regressed between two compared models, the largest regressions first.

    Raises:
        DataError: The two models were not compared.
        ArtifactError: The file is damaged.
    """
    pair = f"{baseline}--{candidate}"
    path = Path(directory) / "comparisons" / pair / "changes.parquet"
    if not path.exists():
        pairs = sorted(entry.parent.name for entry in Path(directory).glob("comparisons/*/changes.parquet"))
        raise DataError(f'{directory}: comparison "{pair}" not found.{suggest(pair, pairs)}')
    return to_frame(artifacts.read(path, CHANGES))


def items(directory, model: str, evaluation: str) -> pd.DataFrame:
    """Return one model's results per item, with a column for each per-item metric.

    Columns: `item_id`, `prompt`, `choices`, `gold` (indices), `option_scores` (nats, or similarity), `prediction`,
    `correct`, `tie`, `flag_text` and others; then the metrics by name.

    Raises:
        DataError: The model or the evaluation has no results.
        ArtifactError: The file is damaged.
    """
    return item_frame(artifacts.read(find_results(directory, model, "tasks", evaluation), TASK_RESULTS))


def item_frame(table: pa.Table) -> pd.DataFrame:
    """Return the rows of a task-results file with a column per metric."""
    values = [dict(row or ()) for row in table["metrics"].to_pylist()]
    metrics = pd.DataFrame([{name: row[name] for name in row if COUNT not in name} for row in values])
    # `frame.flags` is an attribute of pandas
    return pd.concat([table.drop_columns(["metrics"]).to_pandas(), metrics], axis=1).rename(columns=FLAG_TEXT)


def measures(frame: pd.DataFrame) -> list[str]:
    """Return the columns of items that are metrics."""
    return [name for name in frame if name not in (*TASK_RESULTS.schema.names, *FLAG_TEXT.values())]


def tokens(directory, model: str, evaluation: str) -> pd.DataFrame:
    """Return the scored tokens of one model: one row per token of each scored span.

    Columns: `item_id`, `role` ("choice:0", "sentence", …), `position` (0 is the first token of the span), `token` (its
    text; of a part of a character, its bytes: <0xC3>), `logprob` (nats; NaN where no token precedes it), `surprisal`
    (its negative), `is_greedy`, `flag_text`.

    Raises:
        DataError: The model or the evaluation has no scores, as those of generated text, or scores of earlier texts.
        ArtifactError: The file is damaged.
    """
    scores, metadata = artifacts.read_all(scored := find_results(directory, model, "scores", evaluation), SCORES)
    path = Path(directory) / "requests" / f"{evaluation}.parquet"
    if metadata.requests not in (None, artifacts.metadata(path)["fingerprint"]):
        raise DataError(f"{scored}: scores of earlier texts than those in {path}. Evaluate the model again.")
    texts = artifacts.read(path, REQUESTS, columns=["item_id", "role", "prefix", "text"], dictionary_columns=["prefix"])
    return token_frame(scores, texts.to_pylist())


def token_frame(scores: pa.Table, requests: list[dict]) -> pd.DataFrame:
    """Return a row per token of scores; `requests` have item_id, role, prefix and text."""
    texts = {(row["item_id"], row["role"]): row["prefix"] + row["text"] for row in requests}
    frame = scores.select(["item_id", "role", "logprobs", "is_greedy", "flags"]).to_pandas()
    columns = (scores[name].to_pylist() for name in ("item_id", "role", "rendered", "tokens", "offsets"))
    frame["token"] = [
        readable_tokens(texts[item, role] if rendered is None else rendered, tokens or [], offsets or [])
        for item, role, rendered, tokens, offsets in zip(*columns, strict=True)
    ]
    frame["position"] = [range(len(row)) for row in frame["token"]]
    # a request without outputs has one row, with its flags
    frame = frame.explode(["token", "logprobs", "is_greedy", "position"], ignore_index=True)
    frame["logprob"] = frame["logprobs"].astype("float32")
    frame["surprisal"] = -frame["logprob"]
    return frame[["item_id", "role", "position", "token", "logprob", "surprisal", "is_greedy", "flags"]].rename(
        columns=FLAG_TEXT
    )


def prompts(directory) -> pd.DataFrame:
    """Return the means over several prompts: one row per model or pair of models, evaluation and metric.

    A row of a pair has a `baseline`; its values are differences, candidate (`model`) minus baseline (docs/prompts.md).

    Raises:
        ArtifactError: The comparisons do not exist or are damaged.
    """
    return summary_table(directory, "prompts", PROMPTS)


def evidence(directory, baseline: str, candidate: str, evaluation: str, metric: str = "accuracy") -> pd.DataFrame:
    """Return how the evidence of a difference grows, one row per cluster of items that both have with the same texts.

    The clusters are in the order in which `limit` takes them. If `evidence` reaches 20 in any row, the models differ at
    a level of 0.05, however often the growing results are looked at (docs/comparisons.md, "Stopping early"). It holds
    for this prompt, one pair and one metric from 0 to 1 per item.

    Columns: `cluster`, `n` (items so far), `difference` (mean of the cluster, candidate minus baseline), `evidence`,
    `low` and `high` (confidence sequence of the difference).

    Raises:
        DataError: A model or the evaluation has no results, or the metric is not one of single items from 0 to 1.
        ArtifactError: A file is damaged.
    """
    paths = {model: find_results(directory, model, "tasks", evaluation) for model in (baseline, candidate)}
    both, sides = align({model: artifacts.read(path, TASK_RESULTS) for model, path in paths.items()})
    for model, side in sides.items():
        if metric not in (known := [name for name in side.values if COUNT not in name]):
            raise DataError(f'{model}: no metric "{metric}" per item in {evaluation}.{suggest(metric, known)}')
    left, right = sides[baseline], sides[candidate]
    frame = pd.DataFrame({"left": left.value(metric), "right": right.value(metric)})[left.text_id == right.text_id]
    frame = frame.dropna()
    if not frame.stack().between(0, 1).all():
        raise DataError(f"{evaluation}: {metric} is not a number from 0 to 1.")
    names = [f"item {name}" if label is None else label for name, label in zip(both.ids, both.clusters, strict=True)]
    differences = (frame["right"] - frame["left"]).groupby(pd.Series(names))
    clusters = {name: group.to_numpy() for name, group in differences}
    labels = list(clusters)
    labels = [labels[position] for position in hash_order(labels)]
    found = sequential([clusters[label] for label in labels], labels)
    columns = {"cluster": labels, "n": found.n_items, "difference": found.differences, "evidence": found.evidence}
    return pd.DataFrame(columns | {"low": found.low, "high": found.high})


def find_results(directory, model: str, kind: str, evaluation: str) -> Path:
    """Return the file of a model's evaluation. Raises DataError with the closest names if it does not exist."""
    root = Path(directory)
    path = root / model / kind / f"{evaluation}.parquet"
    if path.exists():
        return path
    models = sorted(entry.parent.name for entry in root.glob("*/metrics.parquet"))
    if model not in models:
        raise DataError(f'{root}: model "{model}" not found.{suggest(model, models)}')
    names = sorted(entry.stem for entry in path.parent.glob("*.parquet"))
    raise DataError(f'{path.parent}: evaluation "{evaluation}" not found.{suggest(evaluation, names)}')
