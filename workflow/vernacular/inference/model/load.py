"""Loading of evaluated models, with output-changing options recorded, and switching between a base and its adapters.

A base model in memory is used for itself and for each of its adapters, with the same tensors, one after the other.
Before each model, the checksums of all parameters and buffers and the module tree are compared with those taken when
the base was loaded. If they differ, the base is loaded again. PEFT inserts its modules into the base in place, so all
modules of the base are recorded before and restored after; tensors that PEFT overwrites (trained biases, weights from
which PiSSA subtracts its components) are not, hence the checksums.

The tensors of the loaded model are compared with those in its files (`checkpoints/source_check.py`).

Nothing is downloaded: a model is a directory (or a GGUF file in one) that an earlier step stored on disk. Weights are
read from safetensors unless pickles are allowed, code in a model directory is not run unless allowed, and a checkpoint
with missing weights is rejected instead of being completed with random ones.
"""

import contextlib
import gc
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.quantizers.auto import AutoQuantizationConfig

from vernacular.checkpoints import inputs
from vernacular.checkpoints.adapters import apply_adapter, unknown_settings
from vernacular.checkpoints.files import bounded_build
from vernacular.checkpoints.linear_layers import use_onednn
from vernacular.checkpoints.source_check import check_tensors, unread_settings
from vernacular.core.errors import MachineError, ModelError, first_of
from vernacular.core.library_errors import (
    LOADING_ERRORS,
    describe_error,
    is_lost_device,
    is_out_of_memory,
    wrap_library_errors,
)
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.loaded import LoadedModel, tokenizer_fields, wrap
from vernacular.inference.model.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from peft import PeftModel  # not at run time: a base without adapters does not need it

KINDS = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}


def load(record: ModelRecord, *, threads: int | None = None) -> LoadedModel:
    """Load the model that `record` describes, whose files are compared with it before and after.

    Raises ModelError if something is missing, changed, invalid, pickled or not trusted, and MachineError if the device
    is unavailable, fails, or lacks memory.
    """
    started = time.perf_counter()
    transformers.logging.disable_progress_bar()  # progress bars clutter the log
    name = record.name
    if threads is not None:
        torch.set_num_threads(1 if record.deterministic else threads)
    directory = Path(record.directory)
    if not directory.is_dir():
        advice = f"If it was deleted, delete resources/models/{name}.json as well and run the workflow again."
        raise ModelError(f"model {name}: directory not found: {directory}. {advice}")
    inputs.verify(record)
    loading: list[str] = []
    tokenizer = load_tokenizer(record, directory, trust_remote_code=record.trust_remote_code, notes=loading)
    model, loading_info = _read_weights(name, directory, record, *_select_device(name, record))
    if missing := sorted(loading_info.get("missing_keys") or []):
        raise ModelError(
            f"model {name}: {len(missing)} of the weights of a {type(model).__name__} not found in {directory} "
            f"({first_of(missing)}); the model may not be a {record.kind} language model. Set its kind, or use a "
            "complete checkpoint."
        )
    if mismatched := sorted(loading_info.get("mismatched_keys") or []):
        key, *shapes = mismatched[0]
        actual, expected = (" x ".join(map(str, shape)) for shape in shapes)
        raise ModelError(
            f"model {name}: {len(mismatched)} of the weights in {directory} do not match its config.json ({key}: "
            f"expected shape {expected}, got {actual}). Correct the config or the weights."
        )
    unexpected = sorted(loading_info.get("unexpected_keys") or [])
    check_tensors(name, model, directory, unexpected, allow_pickle=record.allow_pickle)
    loading += unread_settings(model, directory, name)
    inputs.verify(record)  # detects files written while the model was read
    loaded = wrap(model.eval().requires_grad_(False), tokenizer, record)
    if use_onednn(model):
        loaded.notes["linear_layers"] = "oneDNN"
    # layers beyond the configured number, or an unused part
    if unexpected:
        loaded.notes["unused_weights"] = {"count": len(unexpected), "first": unexpected[0]}
    for note in loading:
        log.warning("model %s: %s.", name, note)
    loaded.notes |= {"loading": loading} if loading else {}
    loaded.seconds = time.perf_counter() - started
    return loaded


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


def _read_weights(name, directory, record, device, device_map) -> tuple[Any, dict]:
    """Return (model on its device, transformers' loading info with missing and mismatched keys)."""
    kwargs = {
        "local_files_only": True,
        "trust_remote_code": record.trust_remote_code,
        "dtype": record.dtype,
        "use_safetensors": None if record.allow_pickle else True,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # reported by `load`, which names them
    }
    if device_map:
        kwargs["device_map"] = device_map
    if record.quantization:
        kwargs["quantization_config"] = AutoQuantizationConfig.from_dict(dict(record.quantization))
    transformers_log = logging.getLogger("transformers.modeling_utils")
    level = transformers_log.level
    transformers_log.setLevel(logging.ERROR)  # hides its table of unexpected keys; missing ones raise a ModelError
    try:
        with wrap_library_errors(), bounded_build(record):
            model, loading_info = KINDS[record.kind].from_pretrained(directory, **kwargs)
        return (model if device_map else model.to(device)), loading_info
    except LOADING_ERRORS as error:
        if is_out_of_memory(error):
            advice = "Set dtype: bfloat16 or a quantization, or use more devices."
            raise MachineError(f"model {name} does not fit in the memory of {device}. {advice}") from error
        if is_lost_device(error):
            raise MachineError(f"model {name}: {device} failed: {describe_error(error, record)}") from error
        raise ModelError(f"model {name}: {directory} cannot be loaded: {describe_error(error, record)}") from error
    finally:
        transformers_log.setLevel(level)


log = logging.getLogger("vernacular")


class Base:
    """The loaded base model of `record`; verified if it is `shared` by several. Raises what `load` raises."""

    def __init__(self, record: ModelRecord, *, threads: int | None = None, shared: bool = True):
        self.record = record | {"adapter": None}
        self.threads, self.shared = threads, shared
        self.reloads: list[dict] = []  # one entry per reload: the model before it, and what differed
        self._last_model: str | None = None  # the model evaluated last
        self._state: ModelState | None = None
        self.loaded: LoadedModel | None = None
        self._load()

    @contextlib.contextmanager
    def model(self, record: ModelRecord) -> Iterator[LoadedModel]:
        """Verify the base, then yield the model of `record`: the base itself or one of its adapters.

        Raises ModelError if the adapter cannot be applied, or the base not reloaded, so that `loaded` is None.
        """
        self.verify()
        self._last_model = record.name
        context = use_adapter(self.loaded, record) if record.adapter else contextlib.nullcontext(self.loaded)
        with context as loaded:
            try:
                yield loaded
            finally:
                self.loaded.evaluations = loaded.evaluations

    def verify(self) -> None:
        """Reload the base if it differs from what was loaded. Raises what `load` raises."""
        if self.loaded is None:
            self._load()
        elif self._last_model is not None:
            if not self.shared:
                raise ValueError(f"{self.record.name} was loaded for a single model, and another model was requested.")
            if changed := self._state.differences(model_state(self.loaded.model)):
                self._reload(changed)
        self._last_model = None

    def _reload(self, changed: list[str]) -> None:
        name, summary = self.record.name, f"{len(changed)} of the base's tensors and modules ({first_of(changed)})"
        log.warning("model %s: %s changed %s. Loading the base again.", name, self._last_model, summary)
        self.reloads.append({"after": self._last_model, "changed": len(changed), "first": changed[0]})
        self.loaded = None
        gc.collect()  # modules and PEFT's modules are in reference cycles
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self._load()

    def _load(self) -> None:
        loaded = load(self.record, threads=self.threads)
        if self.shared:
            state = model_state(loaded.model)
            # tensors without a checksum cannot be compared and are taken as loaded
            known = {name for name, (*_, value) in self._state.tensors.items() if value is None} if self._state else {}
            if self._state and (changed := [name for name in self._state.differences(state) if name not in known]):
                raise ModelError(
                    f"model {self.record.name}: {self.record.directory} changed while the job ran: "
                    f"{len(changed)} of its tensors ({first_of(changed)}) differ from those loaded before. "
                    "Run the workflow again."
                )
            self._state = self._state or state
        if self.reloads:
            loaded.notes["base_loaded_again"] = {"times": len(self.reloads), **self.reloads[-1]}
        self.loaded = loaded


_WORDS_PER_STEP = {"cpu": 2**15}  # 8-byte words per step that fit in a core's cache
_DEFAULT_WORDS_PER_STEP = 2**23  # other devices: 64 MiB, and as much again for each intermediate result
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15  # of SplitMix64, signed


@dataclass(frozen=True)
class ModelState:
    """The contents of a model, comparable with ==; `tensors` has a checksum per parameter and buffer."""

    modules: dict[str, tuple]  # name -> class, training mode, own forward, number of hooks
    tensors: dict[str, tuple]  # name -> (first name with the same memory, dtype, shape, checksum)
    config: str

    def differences(self, other: "ModelState") -> list[str]:
        """Return the sorted names of differing tensors and modules; a tensor without a checksum always differs."""
        names = {name for name, (*_, checksum) in self.tensors.items() if checksum is None}
        for own, others in ((self.tensors, other.tensors), (self.modules, other.modules)):
            names |= {name for name in own.keys() | others.keys() if own.get(name) != others.get(name)}
        return sorted({name or "the model" for name in names} | ({"config"} if self.config != other.config else set()))


def model_state(model: torch.nn.Module) -> ModelState:
    """Return the state of `model`: its modules, its config, and the checksums of all parameters and buffers."""
    modules = {name: _module_state(module) for name, module in model.named_modules(remove_duplicate=False)}
    name_by_memory: dict[tuple, str] = {}
    tensors: dict[str, tuple] = {}
    checksums: dict[str, torch.Tensor | None] = {}
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        in_memory = _in_memory(tensor) and tensor.numel()
        memory_key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()) if in_memory else name
        shared = name_by_memory.setdefault(memory_key, name)
        if shared == name:
            checksums[name] = checksum(tensor)
        tensors[name] = (shared, str(tensor.dtype), tuple(tensor.shape))
    values = _to_integers(checksums)
    config = getattr(model, "config", None)
    return ModelState(
        modules,
        {name: (*entry, values[entry[0]]) for name, entry in tensors.items()},
        config.to_json_string(use_diff=False) if hasattr(config, "to_json_string") else repr(config),
    )


@torch.no_grad()
def checksum(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the checksum of a tensor's bits, int64 on its device; None: offloaded to disk, or wrapped by a library.

    It depends on the bits in the order of the indices, not on strides, device or step size.
    """
    if not _in_memory(tensor):
        return None
    tensor = tensor.data
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    step_words = _WORDS_PER_STEP.get(tensor.device.type, _DEFAULT_WORDS_PER_STEP)
    flat = tensor.contiguous().reshape(-1)
    step = step_words * 8 // flat.element_size()
    for index, offset in enumerate(range(0, flat.numel(), step)):
        words = _as_words(flat[offset : offset + step])
        start = index * step_words + 1
        hashed = torch.arange(start, start + len(words), device=words.device).mul_(_GOLDEN).add_(words)
        for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
            hashed.bitwise_xor_((hashed >> shift).bitwise_and_(2 ** (64 - shift) - 1)).mul_(factor)
        total += hashed.sum()
    return total


def _in_memory(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "meta" and type(tensor.data) is torch.Tensor


def _as_words(flat: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a flat tensor as int64 words, padded with zeros."""
    data = flat.view(torch.uint8)
    if remainder := len(data) % 8:
        data = torch.cat([data, data.new_zeros(8 - remainder)])
    elif data.storage_offset() % 8 or data.data_ptr() % 8:
        data = data.clone()
    return data.view(torch.int64)


def _to_integers(checksums: dict[str, torch.Tensor | None]) -> dict[str, int | None]:
    """Return the checksums as integers, with one transfer per device."""
    values: dict[str, int | None] = dict.fromkeys(checksums)
    for device in {value.device for value in checksums.values() if value is not None}:
        names = [name for name, value in checksums.items() if value is not None and value.device == device]
        values |= zip(names, torch.stack([checksums[name] for name in names]).tolist(), strict=True)
    return values


def _module_state(module: torch.nn.Module) -> tuple:
    attributes = vars(module)
    hooks = {name: value for name, value in attributes.items() if name.endswith("_hooks") and isinstance(value, dict)}
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    return (name, module.training, "forward" in attributes, tuple(len(hooks[key]) for key in sorted(hooks)))


@contextlib.contextmanager
def use_adapter(loaded: LoadedModel, record: ModelRecord) -> Iterator[LoadedModel]:
    """Yield the base with the adapter of `record` applied; afterwards, it has its modules, if not their tensors.

    Raises ModelError if the adapter is rejected, does not fit or cannot run, and MachineError if the device failed.
    """
    saved_modules = _save_modules(loaded.model)
    try:
        peft, has_effect = _apply(loaded, record)  # keep a reference: its modules may hold tensors that layers share
        adapter, fields, notes = record.adapter, {}, dict(loaded.notes)
        loading = [*notes.get("loading", []), *unknown_settings(record.name, adapter.directory)]
        if adapter.own_tokenizer:  # same vocabulary, but its template, special tokens and limits may differ
            tokenizer = load_tokenizer(record, adapter.directory, notes=loading)  # without running code from there
            fields = tokenizer_fields(loaded.model, tokenizer, record)
        notes |= {"loading": list(dict.fromkeys(loading))} if loading else {}
        inputs.verify(record)  # detects files written while the adapter was read
        note = {key: getattr(adapter, key) for key in ("source", "revision", "type", "rank")}
        note |= {} if has_effect else {"without_effect": True}
        yield replace(loaded, record=record, checks={}, notes={**notes, "adapter": note}, **fields)
        del peft
    finally:
        _restore_modules(saved_modules)


def _save_modules(model: torch.nn.Module) -> list[tuple[torch.nn.Module, type, dict[str, tuple[Any, dict | None]]]]:
    """Return each module's class and attributes, and a copy of each dict (children, parameters, hooks)."""

    def saved(value: Any) -> tuple[Any, dict | None]:
        return value, dict(value) if isinstance(value, dict) else None

    return [(m, type(m), {name: saved(value) for name, value in vars(m).items()}) for m in model.modules()]


def _restore_modules(saved_modules) -> None:
    for module, module_class, attributes in saved_modules:
        if type(module) is not module_class:
            module.__class__ = module_class
        vars(module).clear()
        for name, (value, dict_copy) in attributes.items():
            if dict_copy is not None:  # the same dict object: hook handles refer to it
                value.clear()
                value.update(dict_copy)
            vars(module)[name] = value


_PROBE = 8  # tokens
_NO_EFFECT = 1e-6  # difference of logits, relative to the largest: rounding


def _apply(loaded: LoadedModel, record: ModelRecord) -> "tuple[PeftModel, bool]":
    """Apply the adapter; return (PEFT's model, whether any output for a few tokens differs from that of the base)."""
    name, adapter = record.name, record.adapter
    label = f"model {name}: the adapter {adapter.source}"
    inputs.verify(record)
    probe = torch.linspace(0, loaded.n_embeddings - 1, _PROBE, device=loaded.device).long()[None]
    try:
        with torch.inference_mode():
            base_logits = loaded.read(probe).logits
        with wrap_library_errors():
            permissions = {"allow_pickle": adapter.allow_pickle}
            peft, unexpected, missing = apply_adapter(loaded.model, adapter.directory, **permissions)
            # some adapters load but cannot run: OLoRA on a layer that stores its weight transposed
            with torch.inference_mode():
                difference = (loaded.read(probe).logits - base_logits).abs().amax()
            is_rounding = float(difference) <= _NO_EFFECT * float(base_logits.abs().amax())  # False if it is NaN
            # single tokens that are trained need not be among those tested
            trains_tokens = any("trainable_tokens_delta" in name for name, _ in peft.named_parameters())
    except LOADING_ERRORS as error:
        if is_out_of_memory(error):
            raise ModelError(
                f"model {name}: its adapter does not fit in memory in addition to the base. "
                "Set dtype: bfloat16 or a quantization, or use more devices."
            ) from error
        if is_lost_device(error):
            raise MachineError(f"model {name}: {loaded.device} failed: {describe_error(error, record)}") from error
        reason = describe_error(error, record | permissions)
        raise ModelError(f"{label} cannot be applied to {record.base}: {reason}") from error
    for keys, problem in ((unexpected, "have no counterpart in the base"), (missing, "were not found in its files")):
        if keys:
            raise ModelError(
                f"{label} does not fit {record.base}: {len(keys)} of its weights ({first_of(sorted(keys))}) {problem}."
            )
    return peft, trains_tokens or not is_rounding
