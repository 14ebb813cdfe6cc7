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
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BitsAndBytesConfig

from vernacular.checkpoints import inputs
from vernacular.checkpoints.building import bounded_build
from vernacular.checkpoints.linear_layers import use_onednn
from vernacular.core.errors import MachineError, ModelError, first_of, suggest
from vernacular.core.library_errors import (
    LOADING_ERRORS,
    describe_error,
    is_lost_device,
    is_out_of_memory,
    wrap_library_errors,
)
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.loaded import LoadedModel, wrap
from vernacular.inference.model.tokenization import load_tokenizer

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
    name = record.name
    _check_options(name, record)
    if threads is not None:
        torch.set_num_threads(threads)
    directory = Path(record.directory)
    if not directory.is_dir():
        raise ModelError(
            f"model {name}: directory not found: {directory}. If it was deleted, delete resources/models/{name}.json "
            "as well and run the workflow again."
        )
    inputs.verify(record)
    load_kwargs = {"local_files_only": True, "trust_remote_code": record.trust_remote_code}
    tokenizer = load_tokenizer(record, directory, trust_remote_code=record.trust_remote_code)
    device, device_map = _select_device(name, record)
    model, loading_info = _read_weights(name, directory, record, device, device_map, load_kwargs)
    if missing := sorted(loading_info.get("missing_keys") or []):
        raise ModelError(
            f"model {name}: {len(missing)} of the weights of a {type(model).__name__} not found in {directory} "
            f"({first_of(missing)}); the model may not be a {record.kind} language model. Set its kind, or use a "
            "complete checkpoint."
        )
    if mismatched := sorted(loading_info.get("mismatched_keys") or []):
        key, actual_shape, expected_shape = mismatched[0]
        raise ModelError(
            f"model {name}: {len(mismatched)} of the weights in {directory} do not match its config.json ({key}: "
            f"expected shape {_format_shape(expected_shape)}, got {_format_shape(actual_shape)}). "
            "Correct the config or the weights."
        )
    inputs.verify(record)  # detects files written while the model was read
    loaded = wrap(model.eval().requires_grad_(False), tokenizer, record)
    if use_onednn(model):
        loaded.notes["linear_layers"] = "oneDNN"
    # layers beyond the configured number, or an unused part
    if unexpected := sorted(loading_info.get("unexpected_keys") or []):
        loaded.notes["unused_weights"] = {"count": len(unexpected), "first": unexpected[0]}
    loaded.seconds = time.perf_counter() - started
    return loaded


def _check_options(name: str, record: ModelRecord) -> None:
    for key, allowed in (("kind", KINDS), ("dtype", DTYPES), ("device", DEVICES)):
        value = getattr(record, key) or "auto"
        if value not in allowed:
            raise ModelError(f'model {name}: {key} has the invalid value "{value}".{suggest(value, allowed)}')


def _select_device(name: str, record: ModelRecord) -> tuple[str, str | dict | None]:
    """Return (device, device_map). The device_map reads weights straight to CUDA devices; None: another device."""
    device = record.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise MachineError(f"model {name}: device is cuda, but torch found no CUDA device on this machine.")
    if device == "mps" and not torch.backends.mps.is_available():
        raise MachineError(f"model {name}: device is mps, but torch found no MPS device on this machine.")
    if device != "cuda":
        return device, None
    return device, "auto" if torch.cuda.device_count() > 1 or record.quantization else {"": device}


def _read_weights(name, directory, record, device, device_map, load_kwargs) -> tuple[Any, dict]:
    """Return (model on its device, transformers' loading info with missing and mismatched keys)."""
    kwargs = {
        **load_kwargs,
        "dtype": DTYPES[record.dtype],
        "use_safetensors": None if record.allow_pickle else True,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # reported below in a ModelError that names them
    }
    if device_map:
        kwargs["device_map"] = device_map
    if record.quantization:
        kwargs["quantization_config"] = _quantization(record.quantization)
    transformers_log = logging.getLogger("transformers.modeling_utils")
    level = transformers_log.level
    transformers_log.setLevel(logging.ERROR)  # hides its table of unexpected keys; missing ones raise a ModelError
    try:
        with wrap_library_errors(), bounded_build(record):
            model, loading_info = KINDS[record.kind].from_pretrained(directory, **kwargs)
        _reject_bidirectional(name, record, model)
        return (model if device_map else model.to(device)), loading_info
    except LOADING_ERRORS as error:
        if is_out_of_memory(error):
            raise MachineError(
                f"model {name} does not fit in the memory of {device}. Set dtype: bfloat16 or a quantization, "
                "or use more devices."
            ) from error
        if is_lost_device(error):
            raise MachineError(f"model {name}: {device} failed: {describe_error(error, record)}") from error
        raise ModelError(f"model {name}: {directory} cannot be loaded: {describe_error(error, record)}") from error
    finally:
        transformers_log.setLevel(level)


def _reject_bidirectional(name: str, record: ModelRecord, model) -> None:
    """Raise ModelError for an encoder loaded as a causal model: it attends to the tokens that it predicts."""
    config = model.config
    architectures = getattr(config, "architectures", None) or []
    is_masked_lm = any(architecture.endswith("ForMaskedLM") for architecture in architectures)
    if record.kind == "causal" and is_masked_lm and not getattr(config, "is_decoder", False):
        raise ModelError(f"model {name} is a masked language model ({architectures[0]}). Set kind: masked.")


def _quantization(kwargs: dict):
    """Return transformers' quantization config: by its quant_method, else of bitsandbytes (load_in_* keys)."""
    if "quant_method" in kwargs:
        from transformers.quantizers.auto import AutoQuantizationConfig

        return AutoQuantizationConfig.from_dict(dict(kwargs))
    return BitsAndBytesConfig(**kwargs)


def _format_shape(shape) -> str:
    return " x ".join(map(str, shape))
