"""Estimates of the memory, walltime and GPUs of a model's job on a cluster, from its parameters and its requests.

    weights   parameters × bytes each (4 in float32, 2 in 16 bits, 1 or about 0.55 if quantized)
    memory    4 GB for Python, torch and the data, and 1.3 times the weights
    GPUs      enough for 1.2 times the weights and 4 GB of activations
    minutes   10 for the start, and 2 operations per parameter and token at a conservative speed; a generated token
              counts as NEW_TOKEN prompt tokens, and the budget of reasoning as generated where a chat asks for it

Memory and minutes increase with `attempt`, so that a retry gets more than an estimate that was too low. Estimates are
high rather than low; a job that ends early frees its resources.
"""

import functools
import json
from math import ceil
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.metadata import RequestsMetadata
from vernacular.core.model_record import EFFORT, SWITCHES
from vernacular.protocols.schema import REQUESTS, reasoning_tokens, request_cost

_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "8bit": 1.0, "4bit": 0.55}
# per second: one slow core; a fifteenth of an A100's nominal rate; a quarter of that for texts computed one by one
OPERATIONS = {"cpu": 2e10, "gpu": 2e13, "8bit": 5e12}
_SNAKEMAKE_MB = 500  # Snakemake's own process, which counts toward the job's memory
_MAX_MINUTES = 7 * 24 * 60  # minutes; a cluster with a lower limit reports an error


def memory_mb(record: Path, settings: dict, attempt: int) -> int:
    """Return the host memory of a model's job in MB; raise FileNotFoundError if the model is not fetched yet."""
    return ceil((4000 + 1.3 * _weight_bytes(record, settings) / 1e6) * attempt) + _SNAKEMAKE_MB


def minutes(records: list[Path], requests: list[Path], settings: dict, attempt: int) -> int:
    """Return the walltime, in minutes, of the job of a base and its adapters, or of one shard of it."""
    models = [_read(path) for path in records]
    parameters = models[0].get("parameters") or 0
    tokens = sum(_tokens(path, model, settings) for model in models for path in requests) / settings["shards"]
    on_gpu = "8bit" if settings["quantization"] == "8bit" else "gpu"
    speed = OPERATIONS["cpu" if settings["device"] == "cpu" else on_gpu]
    return min(_MAX_MINUTES, ceil(10 + 2 * parameters * tokens / speed / 60) * attempt)


def gpus(record: Path, settings: dict, gpu_memory_gb: float) -> int:
    """Return the number of GPUs of a model's job: as configured, else derived from its weights; 0 for device: cpu."""
    if settings["device"] == "cpu":
        return 0
    if (configured := settings.get("gpus")) is not None:
        return configured
    return max(1, ceil((1.2 * _weight_bytes(record, settings) / 1e9 + 4) / gpu_memory_gb))


def _weight_bytes(record: Path, settings: dict) -> float:
    model = _read(record)
    name = settings["quantization"] if settings["quantization"] != "none" else settings["dtype"]
    n_bytes = model.get("bytes") or 0
    return model["parameters"] * _BYTES[name] if name in _BYTES and model.get("parameters") else n_bytes


def _tokens(path, model: dict, settings: dict) -> float:
    path = Path(path)  # Snakemake's inputs are strings
    metadata = _metadata(path, path.stat().st_mtime_ns)  # stat raises FileNotFoundError; its time invalidates the cache
    if metadata is None:
        return 0.0
    new = metadata.new_tokens
    if metadata.has_turns and settings.get("chat") is not False and _reasons(model, settings):
        new += reasoning_tokens(metadata, settings.get("gen_kwargs"))
    return request_cost(metadata.characters, new)


def _reasons(model: dict, settings: dict) -> bool:
    """Return whether chats with a model ask for reasoning: by its settings, else by the default of its template."""
    if settings.get("think_end_token") == "none":
        return False
    arguments = settings.get("chat_template_args") or {}
    given = [settings.get("enable_thinking"), *(arguments.get(name) for name in SWITCHES)]
    given += [arguments[EFFORT] != "none"] if EFFORT in arguments else []
    return bool(next((value for value in given if value is not None), model.get("reasons")))


@functools.lru_cache(maxsize=100_000)
def _metadata(path: Path, _mtime_ns: int) -> RequestsMetadata | None:
    try:
        return artifacts.metadata(path, REQUESTS)
    except ArtifactError:  # damaged: reported by the job that reads it
        return None


def _read(record: Path) -> dict:
    with open(record, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError:  # damaged: reported by the job that reads it
            return {}
