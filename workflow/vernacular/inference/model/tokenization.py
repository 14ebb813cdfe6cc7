"""Tokenization of a full string: token IDs, character offsets and special tokens.

The offsets of a tokenizer that has none are reconstructed from its decoding; a text for which that cannot be verified
is rejected.

`Lengths` tells what a model computes differently in longer texts, from its config: which texts may share a batch,
prefix or cache. RoPE of type longrope (Phi-3, MiniCPM) has other frequencies for all positions once the longest text of
a batch exceeds a threshold; dynamic NTK has other frequencies for each length above one, and keeps them until a short
text is read. Texts that share a forward pass or cached keys must therefore be in the same *regime*. Attention windows
and chunks change nothing for other texts, but implementations of caches and masks differ on their two sides:
self-checks compare both. BigBird's sparse attention begins at a threshold, too, and ends for good after the first
shorter text.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import cycle, islice
from typing import Any, TypeVar

import numpy as np

from vernacular.core.errors import ModelError
from vernacular.core.model_record import ModelRecord

_SWITCHING, _GROWING = ("longrope", "su"), ("dynamic",)  # "su": an earlier name of longrope
_WINDOWS = ("sliding_window", "attention_chunk_size", "window_size", "local_attention", "sliding_window_size",
            "attention_window_size")  # fmt: skip


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens at which a model's computation changes."""

    switches: tuple[int, ...] = ()  # longer texts have other positions, ascending
    growth: int | None = None  # above it, each length has its own positions, which the model keeps for the next text
    windows: tuple[int, ...] = ()  # tokens that a token of a local attention layer attends to

    @property
    def varies(self) -> bool:
        """Whether positions depend on the length."""
        return bool(self.switches) or self.growth is not None

    def first(self, length: int) -> int:
        """Return the smallest length whose positions are those of `length`.

        >>> Lengths(switches=(64,)).first(64), Lengths(switches=(64,)).first(70), Lengths(growth=64).first(70)
        (0, 65, 70)
        """
        if self.growth is not None and length > self.growth:
            return length
        return max((switch + 1 for switch in self.switches if length > switch), default=0)

    def last(self, length: int) -> int | None:
        """Return the largest length whose positions are those of `length`; None: no limit.

        >>> Lengths(switches=(64,)).last(60), Lengths(switches=(64,)).last(65), Lengths(growth=64).last(70)
        (64, None, 70)
        """
        if self.growth is not None and length > self.growth:
            return length
        limits = [switch for switch in (*self.switches, self.growth) if switch is not None and length <= switch]
        return min(limits, default=None)


def read_lengths(config) -> Lengths:
    """Return the lengths at which the computation of a model with this config changes."""
    config = config.get_text_config(decoder=True)
    switches, growth = set(), None
    for parameters in _rope_parameters(config):
        kind = parameters.get("rope_type", parameters.get("type"))
        limit = getattr(config, "max_position_embeddings", None)
        if kind in _SWITCHING:
            original = getattr(config, "original_max_position_embeddings", None)
            switches.add(parameters.get("original_max_position_embeddings") or original or limit)
        elif kind in _GROWING and not parameters.get("alpha"):  # with alpha (Hunyuan), the frequencies are fixed
            growth = limit
    if getattr(config, "attention_type", None) == "block_sparse":  # BigBird: full attention in shorter texts
        growth = (5 + 2 * config.num_random_blocks) * config.block_size  # the random blocks depend on the length
    values = [value for name in _WINDOWS for value in config_values(config, name)]
    windows = {value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 1}
    return Lengths(tuple(sorted(switches - {None})), growth, tuple(sorted(windows)))


def config_values(config, name: str) -> list:
    """Return the value of a config's attribute, or those of its layers if they differ (Gemma 4); [] if it has none."""
    try:
        values = [getattr(config, name, None)]
    except RuntimeError:  # of transformers: the attribute is per layer
        layers = (config.per_layer_config[index] for index in range(config.num_hidden_layers))
        values = [getattr(layer, name, None) for layer in layers]
    return [value for value in values if value is not None]


def _rope_parameters(config) -> list[dict]:
    """Return the RoPE parameters: one dict, or one per layer type."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if not isinstance(parameters, dict):
        return []
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return nested or [parameters]


T = TypeVar("T")


@dataclass(kw_only=True)
class TextModel:
    """What is known of a model where its texts are prepared; nothing is computed with it."""

    record: ModelRecord
    kind: str  # "causal", "masked" or "seq2seq"
    tokenizer: Any  # transformers PreTrainedTokenizerBase, or of the same interface; None: unknown
    max_length: int | None  # context length in tokens; None: unknown
    tokenizer_limit: bool = False  # whether max_length is the tokenizer's, and the model's own is larger or none
    n_embeddings: int  # rows of the input embeddings; token IDs are smaller
    bos_id: int | None = None  # the token that "bos: always" or "auto" prepends; None if the tokenizer has none
    eos_id: int | None = None
    adds_bos: bool = False  # whether the tokenizer itself begins a text with bos_id
    start_ids: tuple[int, ...] = ()  # of an encoder-decoder: what its decoder reads before a text
    target_length: int | None = None  # the same: tokens that its decoder reads at most; None: unlimited
    forces_end: bool = False  # the same: whether the last of the tokens to generate is always the one that ends a text
    as_lm_eval: bool = False  # whether texts are those of lm-eval, whose rules they follow
    sentinel_id: int | None = None  # the same: the token in place of a word to fill in; None: it fills in none
    template_error: str | None = None  # of a chat template that does not finish
    _of_template: dict = field(default_factory=dict, repr=False, compare=False)

    def of_template(self, name: str, compute: Callable[[], T]) -> T:
        """Return what follows from the chat template and the settings of the record, computed once."""
        key = name, str(getattr(self.tokenizer, "chat_template", None)), str(self.record.rendering)
        if key not in self._of_template:
            self._of_template[key] = compute()
        return self._of_template[key]

    @property
    def n_outputs(self) -> int:
        """Number of tokens that can be predicted: their IDs are smaller."""
        return self.n_embeddings

    def metadata(self) -> dict:
        """Return the metadata of the model for an artifact."""
        names = ("name", "revision", "fingerprint")
        record = {name: getattr(self.record, name) for name in names}
        return record | {"kind": self.kind, "max_length": self.max_length}

    @property
    def lengths(self) -> Lengths:
        """The lengths of texts at which the computation changes."""
        return Lengths()


def special_tokens(tokenizer) -> dict:
    """Return the fields of TextModel that describe the special tokens of a tokenizer."""
    ids, bos_id = tokenizer("a")["input_ids"], tokenizer.bos_token_id
    # False for tokenizers like BERT's, whose first token is CLS and which define no BOS
    adds_bos = bos_id is not None and ids[:1] == [bos_id]
    return {"bos_id": bos_id, "eos_id": tokenizer.eos_token_id, "adds_bos": adds_bos}


@lru_cache(maxsize=8)
def control_tokens(
    tokenizer, *, only_special: bool = True, template: str = "", ends: frozenset[int] = frozenset()
) -> tuple[dict[str, int], re.Pattern]:
    """Return (a tokenizer's special tokens, or all added ones, with their IDs; the pattern of any, as a group).

    Tokens that end texts (also the IDs `ends`), or that its chat template (or `template`) writes, are special however
    they were added. Added tokens of whitespace or letters, such as those of a language, control nothing.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {})  # none: unknown, as of a server
    written = (
        f"{getattr(tokenizer, 'chat_template', None) or ''}{getattr(tokenizer, 'eos_token', None) or ''}{template}"
    )
    control = [each for each in added.items() if each[1].special or not only_special or each[1].content in written]
    ids = {token.content: index for index, token in control} | {
        token.content: index for index, token in added.items() if index in ends
    }
    ids = {text: index for text, index in ids.items() if text.strip() and not text.isalnum()}
    longest_first = sorted(ids, key=len, reverse=True)
    return ids, re.compile(f"({'|'.join(map(re.escape, longest_first))})" if ids else r"(?!)()")


@lru_cache(maxsize=256)
def _found(pattern: re.Pattern, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pattern.findall(text)))


def control_token_flag(loaded: TextModel, texts: Iterable[str]) -> str | None:
    """Return the flag of texts of an item in which the tokenizer reads control tokens (HTML <s>, <mask>), or None.

    Their tokens are not changed: other tools read them so, too. None, if the tokenizer reads none in texts.
    """
    tokenizer, ends = loaded.tokenizer, frozenset(getattr(loaded, "stated_end_ids", ()))
    if not getattr(tokenizer, "reads_control_tokens", True):
        return None
    _, pattern = control_tokens(tokenizer, template=loaded.record.chat_template or "", ends=ends)
    found = dict.fromkeys(token for text in texts for token in _found(pattern, text))
    return f"control token: the text contains {', '.join(list(found)[:3])}" if found else None


class Rendered(str):
    """The text of a chat template, in which a tokenizer reads control tokens, except in the texts of the turns."""

    __slots__ = ("own",)  # the texts of the turns

    @classmethod
    def of(cls, tokenizer, text: str, own: Iterable[str]) -> str:
        """Return `text`, marked if the tokenizer reads no control tokens in other texts."""
        if getattr(tokenizer, "reads_control_tokens", True):
            return text
        marked = cls(text)
        marked.own = tuple(own)
        return marked


SPECIAL = -1  # in place of the offsets and of the word of a special token that the tokenizer added


@dataclass(frozen=True, eq=False)
class Encoded:
    """A tokenized text, as int32 arrays."""

    ids: np.ndarray  # [n]
    offsets: np.ndarray  # [n, 2]: characters [start, end) of each token; SPECIAL: an added special token
    words: np.ndarray  # [n]: index of each token's word, as counted by the tokenizer; SPECIAL: special

    @classmethod
    def of(cls, ids: list[int], offsets: list[tuple[int, int] | None], words: list[int | None]) -> "Encoded":
        """Return the arrays of lists in which None marks a special token."""
        offsets = [(SPECIAL, SPECIAL) if offset is None else offset for offset in offsets]
        words = [SPECIAL if word is None else word for word in words]
        return cls(np.array(ids, np.int32), np.array(offsets, np.int32).reshape(-1, 2), np.array(words, np.int32))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lead(self) -> int:
        """Number of added special tokens before the text."""
        return self._n_special(self.offsets[:, 0])

    @cached_property
    def tail(self) -> int:
        """Number of added special tokens after the text."""
        return self._n_special(self.offsets[::-1, 0])

    def _n_special(self, starts: np.ndarray) -> int:
        is_text = starts != SPECIAL
        return int(is_text.argmax()) if is_text.any() else len(starts)

    def slice(self, start: int, stop: int) -> "Encoded":
        """Return the tokens from `start` to before `stop`."""
        return Encoded(self.ids[start:stop], self.offsets[start:stop], self.words[start:stop])

    def prepend(self, token_id: int) -> "Encoded":
        """Return a copy with one more special token in front."""
        added = Encoded.of([token_id], [None], [None])
        pairs = ((added.ids, self.ids), (added.offsets, self.offsets), (added.words, self.words))
        return Encoded(*map(np.concatenate, pairs))


class AlignmentError(Exception):
    """Failure to reproduce a text from the tokens of a tokenizer without offsets."""


def bos_policy(loaded: TextModel) -> str:
    """Return the record's BOS policy. Raises ModelError if it needs a token that the tokenizer lacks.

    "auto": as the tokenizer does; if it adds nothing and a text is scored from its first character, its BOS token is
    prepended if it has one (otherwise, the first token is not scored). "always": BOS before every text. "never":
    removed if the tokenizer adds it. "eos": the EOS token in place of BOS, if the tokenizer adds no special token.
    """
    policy, name = loaded.record.bos, loaded.record.name
    if policy == "always" and loaded.bos_id is None:
        raise ModelError(f"model {name}: bos is always, but its tokenizer has no BOS token. Set bos: eos or auto.")
    if policy == "eos" and loaded.eos_id is None:
        raise ModelError(f"model {name}: bos is eos, but its tokenizer has no EOS token. Set bos: auto.")
    return policy


def encode(loaded: TextModel, text: str, *, add_special_tokens=True, needs_offsets=True, is_target=False) -> Encoded:
    """Return IDs and offsets of `text`; special tokens are those of the tokenizer unless a template has added them.

    `is_target`: of a decoder, whose vocabulary may be another one (Marian); without special tokens. Raises
    AlignmentError if a tokenizer without offsets does not reproduce the text, where it `needs_offsets`.
    """
    tokenizer = loaded.tokenizer
    if tokenizer.is_fast:
        return from_encoding(tokenizer(text, add_special_tokens=add_special_tokens, verbose=False).encodings[0])
    texts = {"text_target" if is_target and hasattr(tokenizer, "spm_target") else "text": text}
    plain_ids = tokenizer(**texts, add_special_tokens=False, verbose=False)["input_ids"]
    offsets = reconstruct_offsets(tokenizer, plain_ids, text) if needs_offsets else [(0, len(text))] * len(plain_ids)
    full_ids = tokenizer(text, add_special_tokens=True, verbose=False)["input_ids"] if add_special_tokens else plain_ids
    lead, tail = n_added(full_ids, plain_ids)
    words = [text[: start + 1].lstrip().count(" ") for start, _ in offsets]
    return Encoded.of(full_ids, [None] * lead + offsets + [None] * tail, [None] * lead + words + [None] * tail)


def n_added(full_ids: list[int], plain_ids: list[int]) -> tuple[int, int]:
    """Return the numbers of special tokens before and after a text. Raises AlignmentError if they change its tokens."""
    n_special = len(full_ids) - len(plain_ids)
    for lead in range(n_special + 1):
        if full_ids[lead : lead + len(plain_ids)] == plain_ids:
            return lead, n_special - lead
    raise AlignmentError("its special tokens change the other tokens")


def from_encoding(encoding) -> Encoded:
    """Return the arrays of an `Encoding` of tokenizers."""
    offsets = encoding.offsets
    if None in (sequence_ids := encoding.sequence_ids):  # of added special tokens
        pairs = zip(sequence_ids, offsets, strict=True)
        offsets = [None if sequence_id is None else offset for sequence_id, offset in pairs]
    return Encoded.of(encoding.ids, offsets, encoding.word_ids)


def with_bos(
    loaded: TextModel, encoded: Encoded, *, templated: bool = False, scored_from_start: bool = False
) -> Encoded:
    """Return `encoded` after the special token that the record's BOS policy requires; see `bos_policy`.

    `templated`: a chat template wrote special tokens, so only "always" adds one. `scored_from_start`: the first token
    needs a predecessor.
    """
    policy = bos_policy(loaded)
    if loaded.kind != "causal" or (templated and (policy != "always" or not len(encoded))):
        return encoded
    has_bos = len(encoded) > 0 and encoded.ids[0] == loaded.bos_id
    if policy == "never":
        count = next((i for i, token in enumerate(encoded.ids[: encoded.lead]) if token != loaded.bos_id), encoded.lead)
        return encoded.slice(count, len(encoded))
    if policy == "always":
        return encoded if has_bos else encoded.prepend(loaded.bos_id)
    if has_bos or encoded.lead:
        return encoded
    if policy == "eos":
        return encoded.prepend(loaded.eos_id)
    return encoded.prepend(loaded.bos_id) if scored_from_start and loaded.bos_id is not None else encoded


def prompt_ids(loaded: TextModel, encoded: Encoded, *, templated: bool) -> list[int]:
    """Return the IDs of a prompt under the BOS policy, without closing special tokens, which nothing continues."""
    end = len(encoded) - encoded.tail
    if not end:  # only special tokens: those before an EOS open the text
        end = next((i for i, token in enumerate(encoded.ids) if token == loaded.eos_id), len(encoded))
    return with_bos(loaded, encoded.slice(0, end), templated=templated).ids.tolist()


def cycled(ids: list[int], n_tokens: int) -> list[int]:
    """Return `n_tokens` tokens: those of a text, again and again."""
    return list(islice(cycle(ids), n_tokens))


_CONTEXT = 8  # prompt tokens decoded with the new ones, so that the space before the first new word is retained


def decode_continuation(tokenizer, prompt_ids: list[int], new_ids: list[int]) -> str:
    """Return the text that `new_ids` add after `prompt_ids`, without special tokens.

    SentencePiece strips the space before a text, so it is the difference of two decodings. Its decoder loses a run of
    bytes that begins or ends inside a character: the first of them are left out, and the last ones are "\ufffd".
    """
    for start in range(-_CONTEXT, 4 - _CONTEXT):
        context_ids = prompt_ids[start:]
        if "\ufffd" not in (context := _decode(tokenizer, context_ids)):
            break

    def added(n_bytes: int) -> str:
        ids = new_ids[: len(new_ids) - n_bytes]
        full_text = _decode(tokenizer, context_ids + ids)
        text = full_text[len(context) :] if full_text.startswith(context) else _decode(tokenizer, ids)
        return text + "\ufffd" * (n_bytes > 0)

    texts = [added(0)]
    if texts[0].endswith("\ufffd"):
        texts += map(added, range(1, min(3, len(new_ids)) + 1))
    return max(texts, key=lambda text: len(text.replace("\ufffd", "")))


def _decode(tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def reconstruct_offsets(tokenizer, ids: list[int], text: str) -> list[tuple[int, int]]:
    """Return offsets from decoded prefixes of `ids`; a token that ends inside a character has all of it.

    Raises AlignmentError if a decoded prefix is not one of `text`.
    """
    if type(tokenizer).__name__ == "ByT5Tokenizer":  # a token per byte
        offsets = [(index, index + 1) for index, char in enumerate(text) for _ in char.encode("utf-8", "surrogatepass")]
        if len(offsets) == len(ids):
            return offsets
    offsets, end = [], 0
    for count in range(1, len(ids) + 1):
        decoded = tokenizer.decode(ids[:count], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        decoded = decoded.rstrip("\ufffd") if count < len(ids) else decoded
        if not text.startswith(decoded) or len(decoded) < end:
            raise AlignmentError(f"its tokens decode to {decoded[-20:]!r} instead of {text[end : end + 20]!r}")
        offsets.append((end, max(len(decoded), min(end + 1, len(text)))))
        end = len(decoded)
    if end != len(text):
        raise AlignmentError(f"its tokens do not reproduce the end of the text, {text[end:][:20]!r}")
    return offsets


def span_tokens(text: str, offsets: np.ndarray, start: int, end: int) -> tuple[range, bool]:
    """Return (tokens with characters in [start, end), whether one crosses an edge); an empty range: none.

    A token belongs to the span that contains its letters, so that none remains unscored; whitespace alone crosses no
    edge, and a token without characters (▁ before a text) belongs to the one after it. `offsets`: [n, 2], see
    `Encoded`.
    """
    starts, ends = offsets[:, 0], offsets[:, 1]
    selected = (starts < end) & (ends > start) & (starts != SPECIAL)
    span_is_whitespace, crosses_edge = not text[start:end].strip(), False
    for index in np.flatnonzero(selected & ((starts < start) | (ends > end))):  # tokens that cross an edge
        low, high = offsets[index].tolist()
        outside_text = text[low:start] + text[end : max(end, high)]
        if span_is_whitespace or text[max(start, low) : min(end, high)].strip():
            crosses_edge |= bool(outside_text.strip())
        else:
            selected[index] = False  # whitespace at the span's edge is scored with the text next to it
            crosses_edge = True
    indices = np.flatnonzero(selected)
    if not len(indices):
        return range(0), crosses_edge
    first, last = int(indices[0]), int(indices[-1])
    edge = starts[first]
    while first > 0 and starts[first - 1] == ends[first - 1] == edge:
        first -= 1  # zero-width token at the span's start
    return range(first, last + 1), crosses_edge
