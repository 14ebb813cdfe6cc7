"""GGUF files as llama.cpp reads them: the library, what a file contains, and why one cannot be used.

A file is opened by llama.cpp itself, once without its weights: it finds unknown architectures, missing tensors, and
tensors beyond the end of the file. What it would accept and compute something else with is found in the keys.
"""

import ctypes
import functools
import importlib.metadata
import re
import weakref
from pathlib import Path
from types import ModuleType

from vernacular.core.errors import ModelError

DISTRIBUTION = "llama-cpp-python"
_CONVERT = "set dtype: float32, with which its weights are converted for transformers"
# Types of files (F32, F16, Q4_0, Q4_1, Q8_0, Q5_0, Q5_1, BF16) without the kernels that others have for many tokens.
_PLAIN_TYPES = {0, 1, 2, 3, 7, 8, 9, 32}

_lines: list[str] = []  # the last errors and warnings of its log


def version() -> str | None:
    """Return the version of the binding, which names that of llama.cpp; None: not installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def library() -> ModuleType:
    """Return the binding of llama.cpp's C interface, without output to the terminal. Raises ModelError if missing."""
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:  # the others: its library does not fit the machine
        found = "is not installed" if version() is None else f"cannot be loaded ({error})"
        raise ModelError(
            f"llama.cpp, which runs GGUF files, {found}. Run `pip install {DISTRIBUTION}` (it is compiled, in about 10 "
            f"minutes), or {_CONVERT}."
        ) from None

    @llama_cpp.llama_log_callback
    def log(level, text, _):
        if level in (3, 4):  # warnings, errors
            _lines.append(text.decode("utf-8", "replace").strip())
            del _lines[:-20]

    llama_cpp.kept_log_callback = log  # C has a pointer to it
    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return llama_cpp


class Opened:
    """A model that llama.cpp has opened, freed when nothing refers to it; `pointer`: of C."""

    def __init__(self, pointer):
        self.pointer = pointer
        weakref.finalize(self, library().llama_model_free, pointer).atexit = False

    def value(self, key: str, *, of_architecture: bool = False) -> str | None:
        """Return the value of a key, as text; `of_architecture`: of a key below the architecture's name."""
        key = f"{self.value('general.architecture')}.{key}" if of_architecture else key
        buffer = ctypes.create_string_buffer(256)
        size = library().llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if size >= 0 else None

    def number(self, key: str, default: int = 0) -> int:
        """Return the value of a key below the architecture's name that is a number."""
        value = self.value(key, of_architecture=True)
        return int(value) if value and value.isdecimal() else default

    @property
    def distributes_tokens(self) -> bool:
        """Whether tokens are distributed to experts by kernels that round by the number of tokens."""
        return self.number("expert_count") > 0 and library().llama_model_ftype(self.pointer) not in _PLAIN_TYPES


def open_model(name: str, file: Path, *, weights: bool = False, gpu_layers: int = 0) -> Opened:
    """Return the model in a file; without `weights`, its vocabulary, keys and shapes alone.

    Raises ModelError if llama.cpp cannot load it.
    """
    llama = library()
    parameters = llama.llama_model_default_params()
    parameters.n_gpu_layers = gpu_layers
    # weights stay as they are in the file, which is mapped: repacked ones would be a copy of all, and kernels for them
    # round by the number of tokens
    parameters.use_extra_bufts = False
    if not weights:
        parameters.no_alloc, parameters.load_mode = True, llama.LLAMA_LOAD_MODE_NONE
    _lines.clear()
    model = llama.llama_model_load_from_file(str(file).encode(), parameters)
    if not model:
        raise _failure(name, file)
    return Opened(model)


def last_problem() -> str:
    """Return the first of the last errors that llama.cpp logged, without the names of its functions."""
    lines = [re.sub(r"^(\w+: )+|error loading model: ", "", line) for line in _lines]
    return next((line for line in lines if line), "no reason stated").rstrip(".")


def has_logged(text: str) -> bool:
    """Return whether one of the last errors and warnings contains a text."""
    return any(text in line for line in _lines)


def _keys(file: Path) -> dict:
    """Return the keys of a file that llama.cpp does not read as a model; {}: it cannot be read."""
    import gguf

    try:
        return {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items() if name[:4] != "toke"}
    except Exception:  # noqa: BLE001 (of any class: the file is damaged)
        return {}


def _failure(name: str, file: Path) -> ModelError:
    """Return why llama.cpp has not loaded a file."""
    problem, begin = last_problem(), f"model {name}: {file.name}"
    if unknown := re.search(r"unknown model architecture: '(.*)'", problem):
        installed = f"{DISTRIBUTION} {version()} does not support its architecture, {unknown.group(1)}"
        return ModelError(f"{begin}: {installed}. Install a later version, or {_CONVERT}.")
    keys = _keys(file)
    if found := _kind_problem(
        str(keys.get("general.type", "model")), str(keys.get("general.architecture")), int(keys.get("split.count", 1))
    ):
        return ModelError(f"{begin} {found}")
    if not keys or re.search(r"file bounds|failed to (read|load)|magic|corrupt|incomplete", problem):
        return ModelError(
            f"{begin} cannot be read as GGUF ({problem}); the download may be incomplete. Download it again."
        )
    return ModelError(f"{begin} cannot be loaded by {DISTRIBUTION} {version()}: {problem}.")


def _kind_problem(kind: str, architecture: str, parts: int) -> str | None:
    """Return why a file is no complete model of language; None if it is one."""
    if parts > 1:
        return f"is one of {parts} parts of a split model. Join them with `llama-gguf-split --merge`."
    if kind == "mmproj" or architecture == "clip":
        return "is the projector of a vision model. Set the file of its language model."
    if kind == "adapter":
        return "is an adapter. Set it as adapter of a model that is its base."
    return None if kind == "model" else f"contains {kind}, no model. Set the file of the model."


def check_model(name: str, file: Path, kind: str) -> dict:
    """Return {kind, architecture, bytes, parameters} of a causal model in a GGUF file, whose weights are not read.

    Raises ModelError if it is damaged, a part of a model, of another kind, or not supported.
    """
    llama, opened = library(), open_model(name, file)
    architecture, parts = opened.value("general.architecture"), int(opened.value("split.count") or 1)
    problem = _kind_problem(opened.value("general.type") or "model", architecture, parts)
    is_causal = opened.value("attention.causal", of_architecture=True) != "false" and not opened.number("pooling_type")
    if llama.llama_model_has_encoder(opened.pointer) or llama.llama_model_is_diffusion(opened.pointer) or not is_causal:
        problem = f"is an embedding or masked model ({architecture}). Only causal models are run by llama.cpp."
    if llama.llama_vocab_type(llama.llama_model_get_vocab(opened.pointer)) == llama.LLAMA_VOCAB_TYPE_NONE:
        problem = "has no tokenizer. Convert the model again, with it."
    if problem is None and kind == "masked":
        problem = "is a causal model. Remove kind: masked."
    if problem:
        raise ModelError(f"model {name}: {file.name} {problem}")
    parameters = int(llama.llama_model_n_params(opened.pointer))
    return {"kind": "causal", "architecture": architecture, "bytes": file.stat().st_size, "parameters": parameters}


def check_adapter(name: str, file: Path, base: Path) -> None:
    """Raise ModelError if a file is not a LoRA adapter in GGUF for the architecture of the model in `base`."""
    keys, expected = _keys(file), open_model(name, base).value("general.architecture")
    if keys.get("general.type") != "adapter" or keys.get("adapter.type") != "lora":
        raise ModelError(f"model {name}: {file.name} is not a LoRA adapter. Set its file, or a model as source.")
    if (found := keys.get("general.architecture")) != expected:
        message = f"expected an adapter of {expected}, its base's architecture, got one of {found}"
        raise ModelError(f"model {name}: {file.name}: {message}.")
