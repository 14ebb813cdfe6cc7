"""A base model in memory, and the models that are evaluated with it.

The base itself and each of its adapters use the same tensors, one after the other. Before each model, the checksums of
all parameters and buffers and the module tree are compared with those taken when the base was loaded. If they differ,
the base is loaded again.
"""

import contextlib
import gc
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from vernacular.core.errors import ModelError, first_of
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.adapter import use_adapter
from vernacular.inference.model.load import load
from vernacular.inference.model.loaded import LoadedModel

log = logging.getLogger("vernacular")


class Base:
    """The loaded base model of `record`.

    `shared`: it is used by several models; otherwise, nothing is verified. Raises what `load` raises.
    """

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

        Raises ModelError if the adapter cannot be applied, or if the base had to be reloaded and could not be; in the
        latter case `loaded` is None.
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
            if self._state and (changed := [n for n in self._state.differences(state) if self._comparable(n)]):
                raise ModelError(
                    f"model {self.record.name}: {self.record.directory} changed while the job ran: "
                    f"{len(changed)} of its tensors ({first_of(changed)}) differ from those loaded before. "
                    "Run the workflow again."
                )
            self._state = self._state or state
        if self.reloads:
            loaded.notes["base_loaded_again"] = {"times": len(self.reloads), **self.reloads[-1]}
        self.loaded = loaded

    def _comparable(self, name: str) -> bool:
        return name not in self._state.tensors or self._state.tensors[name][-1] is not None


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
        names = []
        for entries, other_entries in ((self.tensors, other.tensors), (self.modules, other.modules)):
            names += [
                name for name in entries.keys() | other_entries.keys() if entries.get(name) != other_entries.get(name)
            ]
        names += [name for name, (*_, checksum) in self.tensors.items() if checksum is None]
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
    """Return the checksum of a tensor's bits, an int64 scalar on its device; None if the bits are not accessible.

    It depends on the bits in the order of the tensor's indices, not on strides, device or step size. Weights offloaded
    to disk ("meta") and weights wrapped by a quantization library have no accessible bits.
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
