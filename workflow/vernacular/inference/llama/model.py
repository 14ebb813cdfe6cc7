"""A GGUF file that llama.cpp has loaded: its context, passes of tokens, and adapters.

Weights stay in the file, which is mapped, in its quantization. Keys and values are in float32, in one cache, in which
a sequence may share the beginning of another. Flash attention is off: it sums up in another order for few tokens.

The kernels of llama.cpp round alike for each token of a pass, whatever the others are, but not for any number of
tokens: 2 in float32, and 8 with K-quants, take another kernel than fewer. So no pass has fewer than `SMALLEST` tokens
or rows of logits. Whether this suffices, for this file on this machine, is tried when it is loaded; if not (kernels of
a GPU; experts in K-quants, which get as many tokens as the router decides), each text is computed alone.
"""

import contextlib
import ctypes
import functools
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vernacular.checkpoints import inputs
from vernacular.checkpoints import llama_cpp as gguf
from vernacular.core.errors import MachineError, ModelError
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.tokenization import Lengths, TextModel, special_tokens
from vernacular.inference.model.tokenizers import LlamaTokenizer

log = logging.getLogger("vernacular")

SMALLEST = 8  # tokens of a pass
LARGEST = 512  # tokens of a pass, as by default in llama.cpp
_STEP = 256  # tokens by which the length of a context grows
_SEQUENCES, _STATES = 64, 8  # prefixes in memory at a time; the same of models that hold a state for each
_PROBE = 24  # tokens


@dataclass(kw_only=True)
class LlamaModel(TextModel):
    """A model in memory; `llama`: the binding."""

    llama: Any
    opened: gguf.Opened
    threads: int
    device: str
    seconds: float = 0.0  # loading time
    evaluations: int = 0  # completed since the model was loaded
    adapter: Any = None  # pointer
    notes: dict = field(default_factory=dict)
    depends_on_batch: bool = False  # whether texts are computed alone
    is_asynchronous = False
    on_batch: Callable[[], None] = lambda: None
    _context: Any = None
    _batch: Any = None
    _release: Any = None  # frees both
    _size: int = 0  # tokens of the context

    @functools.cached_property
    def lengths(self) -> Lengths:
        """The lengths of texts at which positions change: a context has those of its own length."""
        switch = self.opened.number("rope.scaling.original_context_length") // _STEP * _STEP
        return Lengths(switches=(switch,)) if switch else Lengths()

    @property
    def stated_end_ids(self) -> set[int]:
        """The tokens that end a text by the file."""
        return self.tokenizer.end_ids

    @property
    def prefixes(self) -> int:
        """Number of prefixes, each of which continues the one before, in memory at a time."""
        holds_state = self.llama.llama_model_is_recurrent(self.model) or self.llama.llama_model_is_hybrid(self.model)
        return (_STATES if holds_state else _SEQUENCES) - 1

    @property
    def largest(self) -> int:
        """Number of tokens of a pass, at most."""
        return LARGEST if self.depends_on_batch else min(LARGEST, self.record.max_batch_tokens or LARGEST)

    def computed_alone(self, n_tokens: int) -> bool:
        """Return whether a text of so many tokens shares no pass with others."""
        return self.depends_on_batch or n_tokens < SMALLEST

    def reads_all(self, n_tokens: int, n_targets: int) -> bool:
        """Return whether the last token of a text is read, too, so that a pass alone has all of its tokens."""
        return n_tokens <= SMALLEST or (self.depends_on_batch and n_targets > 1)

    def open_context(self, n_tokens: int) -> None:
        """Make room for a text of so many tokens, with the positions of its length, in an empty cache.

        Raises MachineError if memory does not suffice.
        """
        size = -(-(n_tokens + SMALLEST) // _STEP) * _STEP
        if (last := self.lengths.last(n_tokens)) is not None:
            size = min(size, last)
        is_fitting = self.lengths.first(size) == self.lengths.first(self._size)
        if self._context is not None and is_fitting and size <= self._size:
            self.llama.llama_memory_clear(self.memory, True)
            return
        self.close_context()
        self._check_memory(size)
        parameters = self.llama.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = size, LARGEST, LARGEST
        parameters.n_seq_max = self.prefixes + 1
        parameters.n_threads = parameters.n_threads_batch = self.threads
        parameters.type_k = parameters.type_v = self.llama.GGML_TYPE_F32
        parameters.flash_attn_type = self.llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.kv_unified = parameters.swa_full = parameters.no_perf = True
        self._context = self.llama.llama_init_from_model(self.model, parameters)
        if not self._context:
            raise MachineError(f"{self._title}: no context of {size} tokens: {gguf.last_problem()}. Set max_length.")
        self._size = size
        self._batch = self.llama.llama_batch_init(LARGEST, 0, 1)
        self._release = weakref.finalize(self, _free, self.llama, self._context, self._batch)
        self._release.atexit = False
        if self.adapter is not None:
            pointers, scales = (self.llama.llama_adapter_lora_p_ctypes * 1)(self.adapter), (ctypes.c_float * 1)(1.0)
            self.llama.llama_set_adapters_lora(self._context, pointers, 1, scales)

    def close_context(self) -> None:
        """Free the context."""
        if self._context is not None:
            self._release()
            self._context, self._size = None, 0

    @property
    def model(self):
        """The pointer to the model."""
        return self.opened.pointer

    @property
    def memory(self):
        """The cache of the context."""
        return self.llama.llama_get_memory(self._context)

    @property
    def _title(self) -> str:
        return f"model {self.record.name}: {Path(self.record.directory).name}"

    def _check_memory(self, size: int) -> None:
        """Raise MachineError if keys and values of a context do not fit in the memory that is free."""
        llama, of = self.llama, self.opened.number
        heads = max(1, llama.llama_model_n_head(self.model))
        width = llama.llama_model_n_embd(self.model) // heads
        width = of("attention.key_length", width) + of("attention.value_length", width)
        needed = 4 * size * llama.llama_model_n_layer(self.model) * llama.llama_model_n_head_kv(self.model) * width
        available = _available_memory()
        if available is not None and self.device == "cpu" and needed > available:
            raise MachineError(
                f"{self._title}: keys and values of a text of {size} tokens take {needed / 1e9:.1f} GB, and "
                f"{available / 1e9:.1f} GB of memory are free. Set max_length, or use a larger machine."
            )

    def set_adapter(self, pointer) -> None:
        """Apply an adapter to all that follows; None: the base alone."""
        self.close_context()
        self.adapter = pointer

    def share(self, source: int, target: int) -> None:
        """Let the sequence `target` begin with all of `source`."""
        self.llama.llama_memory_seq_cp(self.memory, source, target, -1, -1)

    def drop(self, sequence: int) -> None:
        """Remove a sequence."""
        self.llama.llama_memory_seq_rm(self.memory, sequence, -1, -1)

    def read(self, ids: np.ndarray, start: int, sequence: int, rows: np.ndarray, *, fills: bool = False) -> np.ndarray:
        """Read tokens as the positions from `start` of a sequence; return the logits after some of them.

        `rows`: indices of `ids`, ascending; `fills`: the sequence is not continued, so that more tokens may follow to
        make SMALLEST. Returns float32 [rows, vocabulary], valid until the next call. Raises ModelError if llama.cpp
        fails.
        """
        parts, position = [], 0
        while position < len(ids):
            size = min(self.largest, len(ids) - position)
            if 0 < len(ids) - position - size < SMALLEST:
                size -= SMALLEST  # the last pass has at least as many
            own = rows[(rows >= position) & (rows < position + size)] - position
            logits = self._pass(ids[position : position + size], start + position, sequence, own, fills=fills)
            position += size
            parts.append(logits if len(parts) == 0 and position == len(ids) else logits.copy())
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _pass(self, ids: np.ndarray, start: int, sequence: int, rows: np.ndarray, *, fills: bool) -> np.ndarray:
        n_read = len(ids)
        if fills and not self.computed_alone(start + n_read):
            n_read = max(n_read, SMALLEST)
        n_filled = n_read - len(ids)
        batch, wanted = self._batch, np.zeros(n_read, np.int8)
        wanted[rows] = 1
        if len(rows):
            others = np.flatnonzero(wanted[: len(ids)] == 0)
            n_rows = len(ids) if self.depends_on_batch else SMALLEST
            wanted[others[: max(0, n_rows - len(rows))]] = 1
            wanted[len(ids) :] = 1
        batch.n_tokens = n_read
        as_array = np.ctypeslib.as_array
        as_array(batch.token, (LARGEST,))[:n_read] = np.append(ids, np.repeat(ids[-1:], n_filled))
        as_array(batch.pos, (LARGEST,))[:n_read] = np.arange(start, start + n_read)
        as_array(batch.n_seq_id, (LARGEST,))[:n_read] = 1
        as_array(batch.logits, (LARGEST,))[:n_read] = wanted
        for index in range(n_read):
            batch.seq_id[index][0] = sequence
        if status := self.llama.llama_decode(self._context, batch):
            raise ModelError(
                f"{self._title}: llama.cpp cannot compute a text (status {status}): {gguf.last_problem()}."
            )
        if not len(rows):
            return np.zeros((0, self.n_embeddings), np.float32)
        logits = self.llama.llama_get_logits(self._context)
        found, numbers = as_array(logits, (int(wanted.sum()), self.n_embeddings)), np.cumsum(wanted)[rows] - 1
        is_range = numbers[-1] - numbers[0] + 1 == len(numbers)
        return found[numbers[0] : numbers[-1] + 1] if is_range else found[numbers]  # without a copy, or with one

    def metadata(self) -> dict:
        """Return the metadata of the model and the machine for an artifact."""
        llama = self.llama
        return super().metadata() | {
            "architecture": self.opened.value("general.architecture"),
            "dtype": llama.llama_ftype_name(llama.llama_model_ftype(self.model)).decode(),
            "device": self.device,
            "llama_cpp_python": gguf.version(),
            "instructions": llama.llama_print_system_info().decode().strip(" |"),
            "threads": self.threads,
            **self.notes,
        }


def _free(llama, context, batch) -> None:
    llama.llama_batch_free(batch)
    llama.llama_free(context)


def _available_memory() -> int | None:
    """Return the bytes that are free, or would be without caches of files; None: unknown, as on macOS."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return None


def load(record: ModelRecord, *, threads: int | None = None) -> LlamaModel:
    """Load the GGUF file of a record. Raises ModelError if it cannot be, and MachineError if the device is missing."""
    started = time.perf_counter()
    llama, file = gguf.library(), Path(record.directory)
    if not file.is_file():
        raise ModelError(f"model {record.name}: file not found: {file}.")
    inputs.verify(record)
    offloads = llama.llama_supports_gpu_offload() and record.device != "cpu"
    if record.device in ("cuda", "mps") and not offloads:
        raise MachineError(
            f"model {record.name}: device is {record.device}, but the installed {gguf.DISTRIBUTION} was built without "
            "support of GPUs. Install it again with CMAKE_ARGS=-DGGML_CUDA=on, or set device: cpu."
        )
    opened = gguf.open_model(record.name, file, weights=True, gpu_layers=-1 if offloads else 0)
    loaded = llama_model(record, opened)
    if gguf.has_logged("missing pre-tokenizer"):
        loaded.notes["loading"] = ["tokenizer.ggml.pre is not stated: llama.cpp divides texts in its default way"]
        log.warning("model %s: %s.", record.name, *loaded.notes["loading"])
    threads = 1 if record.deterministic else threads or len(os.sched_getaffinity(0))
    loaded.threads, loaded.device = threads, "gpu" if offloads else "cpu"
    inputs.verify(record)  # detects a file that was written while it was read
    loaded.depends_on_batch = record.deterministic or opened.distributes_tokens or _rounds_by_batch(loaded)
    loaded.seconds = time.perf_counter() - started
    return loaded


def llama_model(record: ModelRecord, opened: gguf.Opened) -> LlamaModel:
    """Return a model that llama.cpp has opened, with its tokenizer, whether or not its weights are read."""
    tokenizer, llama = LlamaTokenizer(opened), gguf.library()
    limits = (llama.llama_model_n_ctx_train(opened.pointer), record.max_length)
    return LlamaModel(
        record=record,
        kind="causal",
        tokenizer=tokenizer,
        max_length=min(filter(None, limits), default=None),
        n_embeddings=len(tokenizer),
        llama=llama,
        opened=opened,
        threads=1,
        device="cpu",
        **special_tokens(tokenizer),
    )


def _rounds_by_batch(loaded: LlamaModel) -> bool:
    """Return whether a text in two passes has other logits than in one, by any bit."""
    ids = np.linspace(1, loaded.n_embeddings - 1, _PROBE).astype(np.int32)
    rows = np.arange(_PROBE)
    loaded.open_context(_PROBE)
    whole = loaded.read(ids, 0, 0, rows).copy()
    loaded.open_context(_PROBE)
    loaded.read(ids[:-SMALLEST], 0, 0, rows[:0])
    loaded.share(0, 1)
    last = loaded.read(ids[-SMALLEST:], _PROBE - SMALLEST, 1, rows[:SMALLEST])
    return not np.array_equal(whole[-SMALLEST:], last, equal_nan=True)


@contextlib.contextmanager
def use_adapter(loaded: LlamaModel, record: ModelRecord) -> Iterator[None]:
    """Apply the adapter of `record`. Raises ModelError if it does not fit, or needs tokens that invoke it."""
    adapter, llama = record.adapter, loaded.llama
    pointer = llama.llama_adapter_lora_init(loaded.model, str(adapter.directory).encode())
    if not pointer:
        raise ModelError(f"model {record.name}: the adapter {adapter.source} does not fit: {gguf.last_problem()}.")
    if llama.llama_adapter_get_alora_n_invocation_tokens(pointer):
        raise ModelError(
            f"model {record.name}: the adapter {adapter.source} is activated by tokens in the text (aLoRA)."
        )
    notes, base, depends = loaded.notes, loaded.record, loaded.depends_on_batch
    loaded.set_adapter(pointer)
    loaded.record = record
    loaded.notes = notes | {"adapter": {key: getattr(adapter, key) for key in ("source", "revision", "type", "rank")}}
    loaded.depends_on_batch = depends or _rounds_by_batch(loaded)
    try:
        yield
    finally:
        loaded.set_adapter(None)
        loaded.record, loaded.notes, loaded.depends_on_batch = base, notes, depends
        llama.llama_adapter_lora_free(pointer)
