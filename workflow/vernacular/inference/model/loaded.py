"""The loaded model: its properties, and the allowed difference between two computations of one log-probability."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from vernacular.core.errors import ModelError
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.encoder_decoder import decoder_fields
from vernacular.inference.model.tokenization import Lengths, TextModel, read_lengths, special_tokens

# Names of what a text continues from, in a model's signature and outputs: in transformers since 5.24; before, and in
# remote code; there, of Mamba; of RWKV
STATES = ("cache", "past_key_values", "cache_params", "state")

_LENGTH_KEYS = ("max_encoder_position_embeddings", "max_position_embeddings", "n_positions", "max_seq_len",
                "max_sequence_length", "seq_length")  # fmt: skip
_NO_LENGTH = re.compile(r"(dim|heads?|layers?|hidden_size|intermediate_size|vocab_size|experts|rank|ids?)$")
_SMALLEST = 16  # tokens; texts of a few times as many are compared in any case
_UNLIMITED = 1_000_000  # tokenizers without a limit report 1e30


@dataclass(kw_only=True)
class LoadedModel(TextModel):
    """A model in memory, with the properties that scoring and generation use."""

    model: Any  # transformers PreTrainedModel, in eval mode
    device: torch.device  # of the input IDs
    seconds: float = 0.0  # loading time
    notes: dict = field(default_factory=dict)  # additional metadata of the artifacts
    evaluations: int = 0  # completed since the model was loaded
    checks: dict = field(default_factory=dict)  # what was found out about the model, once per load, as by self-checks
    strategy: str | None = None  # of the last evaluation that was scored
    on_batch: Callable[[], None] = lambda: None  # called after each batch that the device was given

    @property
    def title(self) -> str:
        """The name and class of the model, for messages."""
        return f"model {self.record.name}: a {type(self.model).__name__}"

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the forward pass."""
        return self.model.dtype

    @property
    def body(self) -> torch.nn.Module:
        """The model below its output head, as its own forward calls it; of an encoder-decoder, the encoder."""
        parts = {"causal": "get_decoder", "seq2seq": "get_encoder"}
        return getattr(self.model, parts[self.kind])() if self.kind in parts else self.model.base_model

    def read(self, ids: torch.Tensor, **kwargs) -> Any:
        """Return the outputs for texts [rows, tokens], which the decoder of an encoder-decoder reads as well."""
        return self.model(input_ids=ids, **({"decoder_input_ids": ids} if self.kind == "seq2seq" else {}), **kwargs)

    @cached_property
    def n_outputs(self) -> int:
        """Rows of the output head, which may be fewer than those of the input embeddings (Apertus 1.5)."""
        return min(self.n_embeddings, getattr(self.model.get_output_embeddings(), "out_features", self.n_embeddings))

    @property
    def stated_end_ids(self) -> set[int]:
        """The tokens that end a text by the model's config, and by that of its generation."""
        values = [getattr(c, "eos_token_id", None) for c in (self.model.generation_config, self.model.config)]
        ids = [token for value in values for token in (value if isinstance(value, list | tuple) else [value])]
        return {token for token in ids if isinstance(token, int)}

    @cached_property
    def without_cache(self) -> dict[str, bool]:
        """Arguments of a forward pass that stores no state, which not every architecture can create (BLT)."""
        return {"use_cache": False} if "use_cache" in self.model.config.to_dict() else {}

    @cached_property
    def lengths(self) -> Lengths:
        """The lengths of texts at which the computation changes."""
        return read_lengths(self.model.config)

    def has_threshold(self, low: int, high: int) -> bool:
        """Return whether something may change in the computation of texts from `low` to below `high` tokens.

        It may at an integer of the config, or at a small multiple: there, a window, chunks or a selection of tokens may
        begin, whatever its name is, unless that is one of other sizes.
        """
        values = list(self.model.config.get_text_config(decoder=True).to_dict().items())
        for name, value in values:  # which grows
            nested = value.items() if isinstance(value, dict) else ()
            values += nested or [(name, item) for item in (value if isinstance(value, list | tuple) else ())]
        sizes = {n for name, n in values if type(n) is int and n >= _SMALLEST and not _NO_LENGTH.search(str(name))}
        return any(low <= n * factor < high for n in sizes for factor in (1, 2, 3, 4))

    @property
    def depends_on_batch(self) -> bool:
        """Whether texts are computed singly: outputs depend on the batch by more than float noise, or must be equal."""
        return self.rounds_by_batch or self.record.deterministic

    @cached_property
    def rounds_by_batch(self) -> bool:
        """Whether a token's outputs depend on all tokens of its pass.

        LLM.int8() (Dettmers et al. 2022) multiplies in 16 bits the columns in which any token has an outlier.
        """
        layers = (m for m in self.model.modules() if type(m).__name__ == "Linear8bitLt")
        return any(layer.state.threshold > 0 for layer in layers)

    def computed_alone(self, n_tokens: int) -> bool:
        """Return whether a text of so many tokens shares no pass with others."""
        return self.depends_on_batch

    def reads_all(self, n_tokens: int, n_targets: int) -> bool:
        """Return whether the last token of a text is read, although nothing is predicted from it."""
        return False

    @property
    def precision(self) -> torch.dtype:
        """The floating-point type whose rounding two computations of one text may differ by."""
        return torch.bfloat16 if self.rounds_by_batch else self.dtype

    @torch.inference_mode()
    def forget_lengths(self) -> None:
        """Make the model forget the lengths that it has read: they would change how it computes the next text."""
        if self.lengths.growth is not None:  # positions that grow with the length, until one token is read
            self.read(torch.zeros(1, 1, dtype=torch.long, device=self.device))
        if hasattr(self.body, "set_attention_type"):  # BigBird, which leaves sparse attention after a short text
            self.body.set_attention_type(self.model.config.attention_type)

    @property
    def is_asynchronous(self) -> bool:
        """Whether a forward pass returns before it is computed, as on a GPU."""
        return self.device.type == "cuda"

    @property
    def _converted_tokenizer(self) -> str | None:
        """The SentencePiece file that transformers converts, in a way that depends on its version; None: as it is."""
        directory = self.record.tokenizer_directory
        if not directory or not getattr(self.tokenizer, "is_fast", False) or Path(directory, "tokenizer.json").exists():
            return None
        return next((path.name for path in sorted(Path(directory).glob("*.model"))), None)

    def metadata(self) -> dict:
        """Return the metadata of the model and the machine for an artifact."""
        return super().metadata() | {
            "architecture": type(self.model).__name__,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "quantization": self.record.quantization,
            "attention": getattr(self.model.config, "_attn_implementation", None),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "threads": torch.get_num_threads(),
            "remote_code": self.record.trust_remote_code,
            "converted_tokenizer": self._converted_tokenizer,
            **self.notes,
        }


def state_name(function: Callable) -> str | None:
    """Return the name under which a forward pass, or what prepares its inputs, takes a state; None if under none.

    Under another name, many would ignore it: they take any argument.
    """
    parameters = inspect.signature(function).parameters
    return next((name for name in STATES if name in parameters), None)


def wrap(model, tokenizer, record: ModelRecord) -> LoadedModel:
    """Return a LoadedModel of a model that is already in memory (tests, models created by other code)."""
    embeddings = model.get_input_embeddings().weight
    return LoadedModel(
        model=model,
        kind=record.kind,
        device=embeddings.device,
        n_embeddings=embeddings.shape[0],
        record=record,
        **tokenizer_fields(model, tokenizer, record),
    )


def tokenizer_fields(model, tokenizer, record: ModelRecord) -> dict:
    """Return the fields of LoadedModel that depend on the tokenizer: its special tokens, and the limits of a text."""
    limit, tokenizer_limit = _limits(model, tokenizer, record)
    return (
        special_tokens(tokenizer)
        | decoder_fields(model, tokenizer, record)
        | {
            "tokenizer": tokenizer,
            "max_length": min(filter(None, (limit, tokenizer_limit)), default=None),
            "tokenizer_limit": tokenizer_limit is not None and (limit is None or tokenizer_limit < limit),
        }
    )


def _limits(model, tokenizer, record: ModelRecord) -> tuple[int | None, int | None]:
    """Return (the smaller limit of the config and the record, that of the tokenizer) in tokens, None without one."""
    is_causal, config = record.kind != "seq2seq", model.config  # otherwise, of the encoder
    config = config.get_text_config(decoder=True) if is_causal else getattr(config, "encoder", config).get_text_config()
    limits = [getattr(config, key, None) for key in _LENGTH_KEYS]
    limits = [limit for limit in limits if isinstance(limit, int) and limit > 0][:1]
    positions = next((m for n, m in model.named_modules() if n.endswith("position_embeddings")), None)
    if limits and getattr(positions, "padding_idx", None) is not None:
        # positions of RoBERTa-like models start after the padding index: the rows up to it cannot be used
        limits[0] = min(limits[0], positions.weight.shape[0] - positions.padding_idx - 1)
    if record.max_length:
        limits.append(record.max_length)
    tokenizer_limit = tokenizer.model_max_length
    is_limited = isinstance(tokenizer_limit, int) and 0 < tokenizer_limit < _UNLIMITED
    return min(limits, default=None), tokenizer_limit if is_limited else None


# Tolerance of a log-probability between two computations (nats): for the largest difference in full precision, and for
# the mean difference in half precision, where single improbable tokens differ by tenths with the shape of the batch. An
# incorrect mask or position shifts most tokens of a text, and by more.
_NOISE = {torch.float64: 1e-6, torch.float32: 2e-3, torch.float16: 0.05, torch.bfloat16: 0.15}
_SINGLE_TOKEN = 5  # factor: tolerance of a single token's difference in half precision, relative to the mean's


@dataclass(frozen=True)
class Agreement:
    """Outcome of comparing log-probabilities with those of a reference computation (differences in nats)."""

    agrees: bool
    compared: int  # number of values whose reference is not NaN
    largest: float  # NaN if a value is NaN
    mean: float
    deviation: float  # the difference that was compared with the tolerance


def agreement(
    values: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype, *, few_values: bool = False
) -> Agreement:
    """Compare log-probabilities with those of a reference computation.

    Values whose reference is NaN are excluded; the outcome is a disagreement if no value is left, or if one is NaN.
    `few_values`: there are too few values for a mean, so that the largest difference is compared in every precision.

    >>> agreement(torch.tensor([-1.0, -2.0]), torch.tensor([-1.0005, float("nan")]), torch.float32).agrees
    True
    >>> agreement(torch.tensor([-1.0, -2.0]), torch.tensor([-1.01, -2.0]), torch.float32).agrees
    False
    """
    a, b = values.cpu().double(), reference.cpu().double()  # not every device has float64
    differences = (a - b).abs().masked_fill(a == b, 0.0)[~b.isnan()]  # equal infinities: no difference
    if not len(differences):
        return Agreement(False, 0, *[float("nan")] * 3)
    largest, mean = float(differences.max()), float(differences.mean())
    full_precision = dtype in (torch.float32, torch.float64)
    deviation = largest if full_precision or few_values else mean
    tolerance = _NOISE[dtype] * (_SINGLE_TOKEN if few_values and not full_precision else 1)
    agrees = deviation <= tolerance and bool(differences.isfinite().all())
    return Agreement(agrees, len(differences), largest, mean, deviation)


# What the forward pass of an architecture raises for inputs that it does not support.
MODEL_ERRORS = (ValueError, TypeError, RuntimeError, LookupError, AttributeError, AssertionError, ImportError)

_PROBE = 8  # tokens


@torch.inference_mode()
def check_is_causal(loaded: LoadedModel, tokens) -> None:
    """Raise ModelError if predictions depend on later tokens, as an encoder's; checked once per load.

    `tokens`: of a text, or those that a decoder reads after any prompt. A model that raises an error is left to the
    self-checks; rounding by batch cannot be checked.
    """
    if "causal" in loaded.checks or len(tokens) < 2 or loaded.rounds_by_batch:
        return
    ids = torch.tensor([[int(token) for token in tokens[:_PROBE]]], device=loaded.device)
    changed = ids.clone()
    changed[0, -1] = ids[0, 0] if ids[0, 0] != ids[0, -1] else (ids[0, -1] + 1) % loaded.n_embeddings
    name = "decoder_input_ids" if loaded.kind == "seq2seq" else "input_ids"
    try:
        logits = [
            loaded.model(**{"input_ids": ids, name: row}, **loaded.without_cache).logits for row in (ids, changed)
        ]
        reference, values = (each[0, : ids.shape[1] - 1].float().log_softmax(-1) for each in logits)
    except MODEL_ERRORS:
        return
    top = reference.topk(min(20, reference.shape[-1])).indices
    result = agreement(values.gather(-1, top).flatten(), reference.gather(-1, top).flatten(), loaded.precision)
    if result.compared and not result.agrees:
        raise ModelError(
            f"model {loaded.record.name}: with its config, a {type(loaded.model).__name__} reads later tokens when "
            "it predicts one, so it is not a causal language model. If it is a masked one, set kind: masked."
        )
    loaded.checks["causal"] = True
