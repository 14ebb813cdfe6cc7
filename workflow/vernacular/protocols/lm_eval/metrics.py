"""Metrics of lm-eval as metrics of Vernacular, for intervals and paired comparisons.

lm-eval computes the values (`vernacular/lm_eval/evaluation.py`). The per-item results contain what its aggregations
need, so that resamples need no lm-eval: means, and the corpus statistics below. A metric with another aggregation has a
value, but is not compared.
"""

from pathlib import Path

import numpy as np

from vernacular.core import artifacts
from vernacular.metrics.corpus import matthews_corrcoef
from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import TASK_RESULTS


def perplexity(logliks: np.ndarray) -> np.ndarray:
    """Compute exp of minus the mean log-likelihood (nats) of the items; (n,) or (resamples, n).

    >>> float(perplexity(np.log([0.5, 0.125])))
    4.0
    """
    with np.errstate(over="ignore"):
        return np.exp(-logliks.mean(axis=-1))


def weighted_perplexity(logliks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute exp of minus the log-likelihood per word or byte: `weights` are their numbers per item.

    >>> float(weighted_perplexity(np.log([0.5, 0.125]), np.array([1.0, 1.0])))
    4.0
    """
    with np.errstate(over="ignore"):
        return np.exp(-logliks.sum(axis=-1) / weights.sum(axis=-1))


def bits_per_byte(logliks: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Compute the surprisal in bits per byte.

    >>> float(bits_per_byte(np.log([0.5, 0.125]), np.array([1.0, 1.0])))
    2.0
    """
    return -logliks.sum(axis=-1) / sizes.sum(axis=-1) / np.log(2)


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the mean of the subtasks' means if `weights` are one over the size of each item's subtask.

    >>> float(weighted_mean(np.array([1.0, 0.0, 1.0]), np.array([0.5, 0.5, 1.0])))
    0.75
    """
    return (values * weights).sum(axis=-1) / weights.sum(axis=-1)


def f1(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Compute the F1 score of class 1, of the classes 0 and 1; 0 without a 1 on either side.

    >>> float(f1(np.array([1.0, 1, 0]), np.array([1.0, 0, 1])))
    0.5
    """
    hits = ((gold == 1) & (predicted == 1)).sum(axis=-1)
    total = (gold == 1).sum(axis=-1) + (predicted == 1).sum(axis=-1)
    return np.divide(2 * hits, total, out=np.zeros_like(total, dtype=float), where=total > 0)


# by the name of lm-eval's aggregation: the function, and the number of values per item
CORPUS = {
    "perplexity": (perplexity, 1),
    "weighted_perplexity": (weighted_perplexity, 2),
    "bits_per_byte": (bits_per_byte, 2),
    "matthews_corrcoef": (matthews_corrcoef, 2),
    "f1": (f1, 2),
    "weighted_mean": (weighted_mean, 2),
}


def to_metric(definition: dict) -> Metric:
    """Return a metric from its definition in the metadata of results, where `corpus` is a name in CORPUS, or None."""
    function = CORPUS[definition["corpus"]][0] if definition["corpus"] else None
    return Metric(**definition | {"corpus": function, "needs": tuple(definition["needs"])})


def tool_metrics(directory: Path, models: list[str], evaluation: str) -> list[Metric]:
    """Return the metrics of an evaluation that any model's results in `directory` define, also those of judges."""
    paths = (directory / model / "tasks" / f"{evaluation}.parquet" for model in models)
    definitions = {each["name"]: each for path in paths for each in artifacts.metadata(path, TASK_RESULTS).metrics}
    return [to_metric(definition) for definition in definitions.values()]


def tool_documents(directory: Path, models: list[str], evaluation: str) -> str | None:
    """Return a hash of the documents that another tool has read for an evaluation; None without, or if unavailable."""
    for model in models:
        metadata = artifacts.metadata(directory / model / "tasks" / f"{evaluation}.parquet", TASK_RESULTS)
        if metadata.dataset and metadata.dataset.source.tasks is not None:
            return metadata.dataset.source.sha256
    return None
