"""An evaluated model in memory: its properties, how much of it a forward pass may hold, and how exact its numbers are.

Scoring and generation share these rules: the number of tokens in a batch, what follows an out-of-memory error, and how
far two computations of one log-probability may differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import transformers

from vernacular.core.failures import is_out_of_memory
from vernacular.types import ModelRecord

T = TypeVar("T")

# Position embeddings of the RoBERTa family start after the padding index, so that many rows cannot be used.
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text"}
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")
_UNLIMITED = 1_000_000  # tokenizers without a limit say 1e30


@dataclass
class LoadedModel:
    """An evaluated model in memory, with the facts about it that scoring and generation rely on."""

    model: Any  # transformers PreTrainedModel, in eval mode
    tokenizer: Any  # transformers PreTrainedTokenizerBase
    kind: str  # "causal" or "masked"
    device: torch.device  # where input ids go
    max_length: int | None  # tokens the model can read at once; None = no limit known
    bos_id: int | None  # the token "bos: always" or "auto" prepends; None where the tokenizer has none
    eos_id: int | None
    adds_bos: bool  # does the tokenizer itself begin a text with bos_id?
    n_embeddings: int  # rows of the input embeddings: token ids are below
    record: ModelRecord  # what the model step wrote: name, folder, fingerprint, revision, options
    seconds: float = 0.0  # spent loading
    notes: dict = field(default_factory=dict)  # facts found on the way, for the artifact's metadata
    evaluations: int = 0  # done with this load
    checks: dict = field(default_factory=dict)  # outcome of each strategy's self-check, so that it is run once per load

    def option(self, name: str, default=None):
        """An option of the record, or `default` where it is absent or null."""
        value = self.record.get(name)
        return default if value is None else value

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the forward pass."""
        return self.model.dtype

    @property
    def body(self) -> torch.nn.Module:
        """The model below its output head: what its own forward calls."""
        return self.model.get_decoder() if self.kind == "causal" else self.model.base_model

    def facts(self) -> dict:
        """What an artifact's metadata says about the model and the machine."""
        return {
            "name": self.record.get("name"),
            "revision": self.record.get("revision"),
            "fingerprint": self.record.get("fingerprint"),
            "architecture": type(self.model).__name__,
            "kind": self.kind,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "quantization": self.record.get("quantization"),
            "attention": getattr(self.model.config, "_attn_implementation", None),
            "max_length": self.max_length,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "threads": torch.get_num_threads(),
            "remote_code": bool(self.option("trust_remote_code")),
            **self.notes,
        }


def wrap(model, tokenizer, record: ModelRecord) -> LoadedModel:
    """The LoadedModel of a model already in memory (tests, and models that other code made)."""
    embeddings = model.get_input_embeddings().weight
    plain = tokenizer("a")["input_ids"]
    bos = tokenizer.bos_token_id
    # BERT-like tokenizers call it cls; it stands where a BOS would
    adds = bool(plain) and bos is not None and plain[0] == bos
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        kind=record["kind"],
        device=embeddings.device,
        max_length=_max_length(model, tokenizer, record),
        bos_id=bos,
        eos_id=tokenizer.eos_token_id,
        adds_bos=adds,
        n_embeddings=embeddings.shape[0],
        record=record,
    )


def _max_length(model, tokenizer, record: ModelRecord) -> int | None:
    """Tokens the model reads at once: the person's limit, else the smallest that the config and the tokenizer name."""
    config = model.config.get_text_config(decoder=True)
    limits = [getattr(config, key, None) for key in _LENGTH_KEYS]
    limits = [limit for limit in limits if isinstance(limit, int) and limit > 0][:1]
    if limits and config.model_type in _OFFSET_POSITIONS:
        limits[0] -= (config.pad_token_id or 0) + 1
    longest = tokenizer.model_max_length
    if isinstance(longest, int) and 0 < longest < _UNLIMITED:
        limits.append(longest)
    if record.get("max_length"):
        limits.append(record["max_length"])
    return min(limits) if limits else None


SMALLEST_BUDGET = 16  # tokens; a batch that does not fit even so is given up and its requests are flagged

# Measured on one CPU core with layers as wide as SmolLM2-135M's: between 256 and 768 tokens a token costs the same, at
# 128 a fifth more.
_CPU_TOKENS = 512
_LARGEST_GPU_BUDGET = 16_384  # tokens; larger batches are no faster and make a stop signal wait


def token_budget(loaded: LoadedModel) -> int:
    """Tokens (padding included) per forward: the record's `batch_tokens`, else what the device's free memory allows."""
    if wanted := loaded.option("batch_tokens"):
        return int(wanted)
    if loaded.device.type != "cuda":
        return _CPU_TOKENS
    free, _ = torch.cuda.mem_get_info(loaded.device)
    return max(_CPU_TOKENS, min(_LARGEST_GPU_BUDGET, int(free * 0.5 / _bytes_per_token(loaded))))


def _bytes_per_token(loaded: LoadedModel) -> int:
    """A generous estimate of what one token adds to a forward: keys and values of all layers, one layer's work."""
    config = loaded.model.config.get_text_config(decoder=True)
    hidden, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    size = loaded.dtype.itemsize
    return size * (2 * hidden * layers + 8 * hidden + 4 * inner)


def release(loaded: LoadedModel) -> None:
    """Give cached blocks back to the device after an out-of-memory error."""
    if loaded.device.type == "cuda":
        torch.cuda.empty_cache()


def within_memory(loaded: LoadedModel, compute: Callable[..., T], *args) -> T | None:
    """Return `compute(*args)`; None where memory ran out, after what it held has been freed."""
    try:
        return compute(*args)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    release(loaded)  # outside the except clause, whose traceback keeps the tensors alive
    return None


def halved(size: int, smallest: int, *, used: int | None = None) -> int | None:
    """Return the size to try after one that ran out of memory; None where `size` is the smallest already.

    `used` is what the failed attempt took of `size`.

    >>> halved(512, 16), halved(512, 16, used=100), halved(20, 16), halved(16, 16)
    (256, 50, 16, None)
    """
    if size <= smallest:
        return None
    return max(smallest, min(size, size if used is None else used) // 2)


# How far two computations of a log-probability may differ (nats) and still be the same number: the largest difference
# in full precision, the mean one in half, where single unlikely tokens differ by tenths with the shape of the batch. A
# wrong mask or position shifts most tokens of a text, by more.
_NOISE = {torch.float64: 1e-6, torch.float32: 2e-3, torch.float16: 0.05, torch.bfloat16: 0.15}
_SINGLE_TOKEN = 5  # times the mean difference: what a single token may differ in half precision


@dataclass(frozen=True)
class Agreement:
    """Outcome of comparing log-probabilities with those of a reference computation (differences in nats)."""

    agrees: bool
    compared: int  # values with a number to agree with
    largest: float  # NaN where a value is NaN
    mean: float
    deviation: float  # what was compared with the tolerance


def agreement(values: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype, *, few: bool = False) -> Agreement:
    """Compare log-probabilities with a reference; `few`: too few values for a mean, so the largest difference counts.

    Values whose reference is NaN are not compared. Without any to compare, or with a NaN among them, nothing agrees.

    >>> agreement(torch.tensor([-1.0, -2.0]), torch.tensor([-1.0005, float("nan")]), torch.float32).agrees
    True
    >>> agreement(torch.tensor([-1.0, -2.0]), torch.tensor([-1.01, -2.0]), torch.float32).agrees
    False
    """
    a, b = values.cpu().double(), reference.cpu().double()  # not every device has float64
    gaps = (a - b).abs().masked_fill(a == b, 0.0)[~b.isnan()]  # equal infinities: no difference
    if not len(gaps):
        return Agreement(False, 0, *[float("nan")] * 3)
    largest, mean = float(gaps.max()), float(gaps.mean())
    full = dtype in (torch.float32, torch.float64)
    deviation = largest if full or few else mean
    tolerance = _NOISE[dtype] * (_SINGLE_TOKEN if few and not full else 1)
    agrees = deviation <= tolerance and bool(gaps.isfinite().all())
    return Agreement(agrees, len(gaps), largest, mean, deviation)
