"""Results of a run as pandas DataFrames, for notebooks and scripts.

    >>> from vernacular import results
    >>> results.values("results").query("language == 'gl' and headline")                       # doctest: +SKIP
    >>> results.items("results", "llama-2-gl", "openbookqa.gl.options.0shot")                   # doctest: +SKIP
    >>> results.comparisons("results").query("significant")                                     # doctest: +SKIP
    >>> results.tokens("results", "llama-2-gl", "cola.gl.acceptability.0shot")                  # doctest: +SKIP

The argument `directory` is the directory that the workflow writes, `results`. Files are verified when they are read: a
damaged or moved file raises ArtifactError, which names it.
"""

from pathlib import Path

import pandas as pd

from vernacular.comparison.schema import CHANGES, COMPARISONS
from vernacular.core import artifacts
from vernacular.core.errors import DataError, suggest
from vernacular.core.tables import to_frame
from vernacular.inference.schema import SCORES
from vernacular.metrics.schema import RESULTS, TASK_RESULTS


def values(directory) -> pd.DataFrame:
    """Return every value: one row per model, evaluation, metric and category ("" is all items), unrounded.

    Columns as in `results.csv` (docs/tables.md): shares from 0 to 1, surprisal in nats.

    Raises:
        ArtifactError: The summary does not exist or is damaged.
    """
    return to_frame(artifacts.read(Path(directory) / "summary" / "results.parquet", RESULTS))


def comparisons(directory) -> pd.DataFrame:
    """Return the paired comparisons: one row per pair of models, evaluation, metric and category.

    A difference is candidate minus baseline; `p_holm` is set for headline metrics over all items (docs/comparisons.md).

    Raises:
        ArtifactError: The comparisons do not exist or are damaged.
    """
    return to_frame(artifacts.read(Path(directory) / "summary" / "comparisons.parquet", COMPARISONS))


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
    `correct`, `tie`, `flags` and others; then the metrics by name.

    Raises:
        DataError: The model or the evaluation has no results.
        ArtifactError: The file is damaged.
    """
    path = _find(directory, model, "tasks", evaluation)
    table = artifacts.read(path, TASK_RESULTS)
    metrics = pd.DataFrame([dict(row or ()) for row in table["metrics"].to_pylist()])
    return pd.concat([table.drop_columns(["metrics"]).to_pandas(), metrics], axis=1)


def tokens(directory, model: str, evaluation: str) -> pd.DataFrame:
    """Return the scored tokens of one model: one row per token of each scored span.

    Columns: `item_id`, `role` ("choice:0", "sentence", …), `position` (0 is the first token of the span), `token`,
    `logprob` (nats; NaN where no token precedes it), `surprisal` (its negative), `is_greedy`, `flags`.

    Raises:
        DataError: The model or the evaluation has no scores; evaluations of generated text have none.
        ArtifactError: The file is damaged.
    """
    columns = ["item_id", "role", "tokens", "logprobs", "is_greedy", "flags"]
    path = _find(directory, model, "scores", evaluation)
    frame = artifacts.read(path, SCORES).select(columns).to_pandas()
    frame["position"] = [range(len(row)) for row in frame["tokens"]]
    frame = frame.explode(["tokens", "logprobs", "is_greedy", "position"], ignore_index=True)
    frame = frame.rename(columns={"tokens": "token", "logprobs": "logprob"}).dropna(subset="token")
    frame["logprob"] = frame["logprob"].astype("float32")
    frame["surprisal"] = -frame["logprob"]
    columns = ["item_id", "role", "position", "token", "logprob", "surprisal", "is_greedy", "flags"]
    return frame[columns].reset_index(drop=True)


def _find(directory, model: str, kind: str, evaluation: str) -> Path:
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
