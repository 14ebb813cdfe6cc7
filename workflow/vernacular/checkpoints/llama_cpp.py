"""GGUF files as llama.cpp reads them: the library, what a file contains, and why one cannot be used.

A file is opened by llama.cpp itself, once without its weights: it finds unknown architectures, missing tensors, and
tensors beyond the end of the file. What it would accept and compute something else with (a part of a split model, an
embedding model) is found in the keys of the header.
"""

import ctypes
import functools
import importlib.metadata
import re
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

from vernacular.core.errors import ModelError

DISTRIBUTION = "llama-cpp-python"
INSTALL = f"pip install {DISTRIBUTION}"
_OTHER_WAY = "set dtype: float32, with which its weights are converted for transformers"
_WARNING, _ERROR = 3, 4  # levels of its log
_TYPES = {
    0: ctypes.c_uint8, 1: ctypes.c_int8, 2: ctypes.c_uint16, 3: ctypes.c_int16, 4: ctypes.c_uint32, 5: ctypes.c_int32,
    6: ctypes.c_float, 7: ctypes.c_bool, 10: ctypes.c_uint64, 11: ctypes.c_int64, 12: ctypes.c_double,
}  # fmt: skip
_STRING, _ARRAY = 8, 9
# Types of weights whose products with several tokens at a time are computed by another kernel than those with a few:
# of experts, to which a text's tokens are distributed, these are as many as its neighbors decide.
_PLAIN_TYPES = {0, 1, 2, 3, 6, 7, 8, 30}  # F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, BF16


class _InitParameters(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


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
            f"llama.cpp, which runs GGUF files, {found}. Run `{INSTALL}` (it is compiled, in about 10 minutes), or "
            f"{_OTHER_WAY}."
        ) from None

    @llama_cpp.llama_log_callback
    def log(level, text, _):
        if level in (_WARNING, _ERROR):
            _lines.append(text.decode("utf-8", "replace").strip())
            del _lines[:-20]

    llama_cpp.kept_log_callback = log  # C has a pointer to it
    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return llama_cpp


@dataclass(frozen=True)
class Header:
    """What the header of a GGUF file states."""

    values: dict = field(default_factory=dict)  # numbers and texts, without arrays
    types: dict[str, int] = field(default_factory=dict)  # of each tensor, by name

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    def of_architecture(self, key: str, default=None):
        """Return the value of a key below the architecture's name."""
        return self.values.get(f"{self.architecture}.{key}", default)

    @property
    def depends_on_batch(self) -> bool:
        """Whether the outputs for a text depend, in their rounding, on how its tokens are divided into passes."""
        return any("_exps" in name and kind not in _PLAIN_TYPES for name, kind in self.types.items())

    @property
    def switch(self) -> int | None:
        """Number of tokens above which a context has other positions (longrope); None: none."""
        if "rope_factors_long.weight" not in self.types:
            return None
        return self.of_architecture("rope.scaling.original_context_length", self.of_architecture("context_length"))


def read_header(name: str, file: Path) -> Header:
    """Return the header of a GGUF file. Raises ModelError if it is not complete, or llama.cpp is not installed."""
    lib = library().llama_cpp._lib
    functions = SimpleNamespace(**{key: getattr(lib, f"gguf_{key}") for key in _FUNCTIONS})
    for key, (result, arguments) in _FUNCTIONS.items():
        function = getattr(functions, key)
        function.restype, function.argtypes = result, arguments
    _lines.clear()
    context = functions.init_from_file(str(file).encode(), _InitParameters(True, None))
    if not context:
        raise _damaged(name, file)
    try:
        values = {}
        for index in range(functions.get_n_kv(context)):
            kind = functions.get_kv_type(context, index)
            key = functions.get_key(context, index).decode("utf-8", "replace")
            if kind == _STRING:
                values[key] = functions.get_val_str(context, index).decode("utf-8", "replace")
            elif kind != _ARRAY:
                values[key] = _TYPES[kind].from_address(functions.get_val_data(context, index)).value
        tensors = range(functions.get_n_tensors(context))
        types = {functions.get_tensor_name(context, i).decode(): functions.get_tensor_type(context, i) for i in tensors}
        return Header(values, types)
    finally:
        functions.free(context)


_POINTER, _INDEX = ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS = {
    "init_from_file": (_POINTER, [ctypes.c_char_p, _InitParameters]),
    "free": (None, [_POINTER]),
    "get_n_kv": (_INDEX, [_POINTER]),
    "get_key": (ctypes.c_char_p, [_POINTER, _INDEX]),
    "get_kv_type": (ctypes.c_int, [_POINTER, _INDEX]),
    "get_val_str": (ctypes.c_char_p, [_POINTER, _INDEX]),
    "get_val_data": (_POINTER, [_POINTER, _INDEX]),
    "get_n_tensors": (_INDEX, [_POINTER]),
    "get_tensor_name": (ctypes.c_char_p, [_POINTER, _INDEX]),
    "get_tensor_type": (ctypes.c_int, [_POINTER, _INDEX]),
}


class Opened:
    """A model that llama.cpp has opened, freed when nothing refers to it; `pointer`: of C."""

    def __init__(self, pointer):
        self.pointer = pointer
        weakref.finalize(self, library().llama_model_free, pointer).atexit = False


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
        raise _damaged(name, file)
    return Opened(model)


def last_problem() -> str:
    """Return the first of the last errors that llama.cpp logged, without the names of its functions."""
    lines = [re.sub(r"^(\w+: )+|error loading model: ", "", line) for line in _lines]
    return next((line for line in lines if line), "no reason stated").rstrip(".")


def _damaged(name: str, file: Path) -> ModelError:
    problem = last_problem()
    if unknown := re.search(r"unknown model architecture: '(.*)'", problem):
        return ModelError(
            f"model {name}: {file.name}: {DISTRIBUTION} {version()} does not support its architecture, "
            f"{unknown.group(1)}. Install a later version, or {_OTHER_WAY}."
        )
    if re.search(r"file bounds|failed to (read|load)|magic|corrupt|incomplete", problem):
        return ModelError(
            f"model {name}: {file.name} cannot be read as GGUF ({problem}); the download may be incomplete. Download "
            "it again."
        )
    return ModelError(f"model {name}: {file.name} cannot be loaded by {DISTRIBUTION} {version()}: {problem}.")


def check_model(name: str, file: Path, kind: str) -> dict:
    """Return {kind, architecture, bytes, parameters} of a causal model in a GGUF file, whose weights are not read.

    Raises ModelError if it is damaged, a part of a model, of another kind, or not supported.
    """
    header = read_header(name, file)

    def reject(problem: str, advice: str) -> None:
        raise ModelError(f"model {name}: {file.name} {problem}. {advice}")

    if (count := header.values.get("split.count", 1)) > 1:
        number = header.values.get("split.no", 0) + 1
        reject(f"is part {number} of {count} of a split model", "Join them with `llama-gguf-split --merge`.")
    file_type, architecture = header.values.get("general.type", "model"), header.architecture
    if file_type == "adapter":
        reject("is an adapter", "Set it as adapter of a model that is its base.")
    if file_type == "mmproj" or architecture == "clip":
        reject("is the projector of a vision model", "Set the file of its language model.")
    if file_type != "model":
        reject(f"contains {file_type}, no model", "Set the file of the model.")
    if header.of_architecture("pooling_type", 0) or header.of_architecture("attention.causal", True) is False:
        reject("is an embedding or masked model", "Only causal models are run by llama.cpp; use the original model.")
    if kind == "masked":
        reject("is a causal model", "Remove kind: masked.")
    llama = library()
    opened = open_model(name, file)
    if llama.llama_model_has_encoder(opened.pointer) or llama.llama_model_is_diffusion(opened.pointer):
        reject(f"is no causal model ({architecture})", "Only causal models are run by llama.cpp.")
    parameters = int(llama.llama_model_n_params(opened.pointer))
    size = file.stat().st_size
    return {"kind": "causal", "architecture": architecture, "bytes": size, "parameters": parameters}


def check_adapter(name: str, file: Path, base: Path) -> None:
    """Raise ModelError if a file is not a LoRA adapter in GGUF for the architecture of the model in `base`."""
    header, expected = read_header(name, file), read_header(name, base).architecture
    if header.values.get("general.type") != "adapter" or header.values.get("adapter.type") != "lora":
        raise ModelError(
            f"model {name}: {file.name} is not a LoRA adapter. Set its file, or a complete model as source."
        )
    if header.architecture != expected:
        found = f"expected an adapter of {expected}, its base's architecture, got one of {header.architecture}"
        raise ModelError(f"model {name}: {file.name}: {found}.")
