"""Loading of evaluated models, from local directories, with output-changing options recorded.

Nothing is downloaded: a model is a directory (or a GGUF file in one) that an earlier step stored on disk. Weights are
read from safetensors unless pickles are allowed, code in a model directory is not run unless allowed, and a checkpoint
with missing weights is rejected instead of being completed with random ones.
"""

import logging
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BitsAndBytesConfig

from vernacular.checkpoints import inputs
from vernacular.checkpoints.building import bounded_build
from vernacular.core.errors import MachineError, ModelError, closest
from vernacular.core.failures import ODD_FILES, is_lost_device, is_out_of_memory, library_errors, reason
from vernacular.inference.model.loaded import LoadedModel, wrap
from vernacular.types import ModelRecord

DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
KINDS = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}
DEVICES = ("auto", "cpu", "cuda", "mps")


def load(record: ModelRecord, *, threads: int | None = None) -> LoadedModel:
    """Load the model that `record` describes, with `threads` CPU threads (None: unchanged).

    The files are compared with the record before and after; one is read for that only if its times or inode changed.

    Raises:
        ModelError: The directory or a required package is missing, an option is invalid, files or weights are
            missing, changed or pickled, the architecture does not match the kind, or code in the directory is not
            trusted.
        MachineError: The device is unavailable, fails, or lacks memory.
    """
    started = time.perf_counter()
    transformers.logging.disable_progress_bar()  # progress bars clutter the log
    name = record["name"]
    _check_options(name, record)
    if threads is not None:
        torch.set_num_threads(threads)
    folder = Path(record["folder"])
    if not folder.is_dir():
        raise ModelError(
            f"model {name}: directory not found: {folder}. If it was deleted, delete resources/models/{name}.json as "
            "well and run snakemake again."
        )
    inputs.verify(record)
    source = {"local_files_only": True, "trust_remote_code": bool(record.get("trust_remote_code"))}
    if record.get("gguf_file"):
        source["gguf_file"] = record["gguf_file"]
    try:
        with library_errors():
            tokenizer = AutoTokenizer.from_pretrained(folder, **source)
            tokenizer("a")  # an invalid limit in its config raises only here
    except ODD_FILES as error:
        raise ModelError(
            f"model {name}: the tokenizer in {folder} cannot be loaded: {reason(error, record)}"
        ) from error
    device, device_map = _place(name, record)
    model, report = _read_weights(name, folder, record, device, device_map, source)
    if missing := sorted(report.get("missing_keys") or []):
        raise ModelError(
            f"model {name}: {len(missing)} of the weights of a {type(model).__name__} not found in {folder} "
            f"({missing[0]}, …); the model may not be a {record['kind']} language model. Set its kind, or use a "
            "complete checkpoint."
        )
    if mismatched := sorted(report.get("mismatched_keys") or []):
        key, found, wanted = mismatched[0]
        raise ModelError(
            f"model {name}: {len(mismatched)} of the weights in {folder} do not match its config.json ({key}: expected "
            f"shape {_shape(wanted)}, got {_shape(found)}). Correct the config or the weights."
        )
    inputs.verify(record)  # detects files written while the model was read
    loaded = wrap(model.eval().requires_grad_(False), tokenizer, record)
    if unused := sorted(report.get("unexpected_keys") or []):  # layers beyond the configured number, or an unused part
        loaded.notes["unused_weights"] = {"count": len(unused), "first": unused[0]}
    loaded.seconds = time.perf_counter() - started
    return loaded


def _check_options(name: str, record: ModelRecord) -> None:
    for key, allowed in (("kind", KINDS), ("dtype", DTYPES), ("device", DEVICES)):
        value = record.get(key, "auto")
        if value not in allowed:
            raise ModelError(f'model {name}: {key} has the invalid value "{value}".{closest(value, allowed)}')


def _place(name: str, record: ModelRecord) -> tuple[str, str | None]:
    """Return (device, device_map); device_map is set for several CUDA devices or quantization, else None."""
    device = record.get("device", "auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise MachineError(f"model {name}: device is cuda, but torch found no CUDA device on this machine.")
    if device == "mps" and not torch.backends.mps.is_available():
        raise MachineError(f"model {name}: device is mps, but torch found no MPS device on this machine.")
    many = device == "cuda" and torch.cuda.device_count() > 1
    return device, "auto" if many or (device == "cuda" and record.get("quantization")) else None


def _read_weights(name, folder, record, device, device_map, source) -> tuple[Any, dict]:
    """Return (model on its device, transformers' loading info with missing and mismatched keys)."""
    options = {
        **source,
        "dtype": DTYPES[record.get("dtype", "auto")],
        "use_safetensors": None if record.get("allow_pickle") or record.get("gguf_file") else True,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # reported below in a ModelError that names them
    }
    if device_map:
        options["device_map"] = device_map
    if record.get("quantization"):
        options["quantization_config"] = _quantization(record["quantization"])
    loading = logging.getLogger("transformers.modeling_utils")
    level = loading.level
    loading.setLevel(logging.ERROR)  # hides its table of unexpected keys; missing ones raise a ModelError
    try:
        with library_errors(), bounded_build(record):
            model, report = KINDS[record["kind"]].from_pretrained(folder, **options)
        _refuse_bidirectional(name, record, model)
        return (model if device_map else model.to(device)), report
    except ODD_FILES as error:
        if is_out_of_memory(error):
            raise MachineError(
                f"model {name} does not fit in the memory of {device}. Set dtype: bfloat16 or a quantization, "
                "or use more devices."
            ) from error
        if is_lost_device(error):
            raise MachineError(f"model {name}: {device} failed: {reason(error, record)}") from error
        raise ModelError(f"model {name}: {folder} cannot be loaded: {reason(error, record)}") from error
    finally:
        loading.setLevel(level)


def _refuse_bidirectional(name: str, record: ModelRecord, model) -> None:
    """Raise ModelError for an encoder loaded as a causal model: it attends to the tokens that it predicts."""
    config = model.config
    architectures = getattr(config, "architectures", None) or []
    masked = any(a.endswith("ForMaskedLM") for a in architectures)
    if record["kind"] == "causal" and masked and not getattr(config, "is_decoder", False):
        raise ModelError(f"model {name} is a masked language model ({architectures[0]}). Set kind: masked.")


def _quantization(options: dict):
    """Return transformers' quantization config: by its quant_method, else of bitsandbytes (load_in_* keys)."""
    if "quant_method" in options:
        from transformers.quantizers.auto import AutoQuantizationConfig

        return AutoQuantizationConfig.from_dict(dict(options))
    return BitsAndBytesConfig(**options)


def _shape(size) -> str:
    return " x ".join(map(str, size))
