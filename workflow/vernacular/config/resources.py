"""How much memory, time and how many GPUs a model's job asks a cluster for, from its size and from what it is asked.

    weights   parameters × bytes each (4 in float32, 2 in 16 bits, 1 or about 0.55 when quantised)
    memory    4 GB for Python, torch and the data, and 1.3 times the weights
    GPUs      enough for 1.2 times the weights and 4 GB of activations
    minutes   10 for the start, and 2 operations per parameter and token at a cautious speed; a generated token counts
              as NEW_TOKEN read ones

Every figure grows with `attempt`: what an estimate missed, the second try gets. They are meant to be too large rather
than too small; a job that ends early frees its place.
"""

import functools
import json
from math import ceil
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.protocols.schema import request_cost

_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "8bit": 1.0, "4bit": 0.55}
OPERATIONS = {"cpu": 2e10, "gpu": 2e13}  # per second: one slow core, and a fifteenth of what an A100 promises
_SNAKEMAKE_MB = 500  # Snakemake runs beside the job and counts as its memory
_NOTHING = {"characters": 0, "new_tokens": 0}
_LONGEST = 7 * 24 * 60  # minutes; a cluster that allows less says so


def memory_mb(record: Path, settings: dict, attempt: int) -> int:
    """Host memory of a model's job, MB. Raises FileNotFoundError where the model is not fetched yet."""
    return ceil((4000 + 1.3 * _weights(record, settings) / 1e6) * attempt) + _SNAKEMAKE_MB


def minutes(records: list[Path], requests: list[Path], settings: dict, attempt: int) -> int:
    """Walltime of a base's job with its adapters, or of one shard of it."""
    parameters = _read(records[0]).get("parameters") or 0
    tokens = sum(_tokens(path) for path in requests) * len(records) / settings["shards"]
    speed = OPERATIONS["cpu" if settings["device"] == "cpu" else "gpu"]
    return min(_LONGEST, ceil(10 + 2 * parameters * tokens / speed / 60) * attempt)


def gpus(record: Path, settings: dict, gpu_memory_gb: float) -> int:
    """GPUs a model's job asks for: those its settings name, else what its weights need; none for device: cpu."""
    if settings["device"] == "cpu":
        return 0
    if (named := settings.get("gpus")) is not None:
        return named
    return max(1, ceil((1.2 * _weights(record, settings) / 1e9 + 4) / gpu_memory_gb))


def _weights(record: Path, settings: dict) -> float:
    found = _read(record)
    name = settings["quantization"] if settings["quantization"] != "none" else settings["dtype"]
    stored = found.get("bytes") or 0
    return found["parameters"] * _BYTES[name] if name in _BYTES and found.get("parameters") else stored


def _tokens(path) -> float:
    path = Path(path)  # Snakemake's inputs are strings
    return _tokens_of(path, path.stat().st_mtime_ns)  # stat raises FileNotFoundError, and notices a new file


@functools.lru_cache(maxsize=100_000)
def _tokens_of(path: Path, _changed: int) -> float:
    try:
        asked = artifacts.metadata(path).get("size") or _NOTHING
    except ArtifactError:  # damaged: its job names it
        asked = _NOTHING
    return request_cost(asked["characters"], asked["new_tokens"])


def _read(record: Path) -> dict:
    with open(record, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError:  # damaged: its job names it
            return {}
