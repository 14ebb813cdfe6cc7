"""Tokenization of a full string: token IDs, character offsets and special tokens.

`encode` returns IDs and offsets, `with_bos` applies the BOS policy to them, and `span_tokens` finds the tokens of a
character span. `prompt_ids` returns the IDs for generation, by the same rules, without offsets. The offsets of a
tokenizer that has none are reconstructed from its decoding; a text for which that cannot be verified is rejected.
"""

from dataclasses import dataclass

from vernacular.core.errors import ModelError
from vernacular.inference.model.loaded import LoadedModel

BOS_POLICIES = ("auto", "always", "never", "eos")


@dataclass(frozen=True)
class Encoded:
    """A tokenized text."""

    ids: list[int]
    offsets: list[tuple[int, int] | None]  # characters [start, end) of each token; None: an added special token
    words: list[int | None]  # index of each token's word, as counted by the tokenizer; None: special

    @property
    def lead(self) -> int:
        """Number of added special tokens before the text."""
        return next((i for i, offset in enumerate(self.offsets) if offset is not None), len(self.offsets))

    @property
    def tail(self) -> int:
        """Number of added special tokens after the text."""
        return next((i for i, offset in enumerate(reversed(self.offsets)) if offset is not None), len(self.offsets))

    def slice(self, start: int, stop: int) -> "Encoded":
        """Return the tokens from `start` to before `stop`."""
        return Encoded(self.ids[start:stop], self.offsets[start:stop], self.words[start:stop])

    def prepend(self, token_id: int) -> "Encoded":
        """Return a copy with one more special token in front."""
        return Encoded([token_id, *self.ids], [None, *self.offsets], [None, *self.words])


class AlignmentError(Exception):
    """Failure to reproduce a text from the tokens of a tokenizer without offsets."""


def bos_policy(loaded: LoadedModel) -> str:
    """Return the record's BOS policy. Raises ModelError if it is unknown or needs a token that the tokenizer lacks.

    "auto": as the tokenizer does; if it adds nothing and a text is scored from its first character, its BOS token is
    prepended if it has one (otherwise, the first token is not scored). "always": BOS before every text. "never":
    removed if the tokenizer adds it. "eos": the EOS token in place of BOS, if the tokenizer adds no special token.
    """
    policy, name = loaded.option("bos", "auto"), loaded.record["name"]
    if policy not in BOS_POLICIES:
        raise ModelError(
            f'model {name}: expected {", ".join(BOS_POLICIES[:-1])} or {BOS_POLICIES[-1]} as bos, got "{policy}".'
        )
    if policy == "always" and loaded.bos_id is None:
        raise ModelError(f"model {name}: bos is always, but its tokenizer has no BOS token. Set bos: eos or auto.")
    if policy == "eos" and loaded.eos_id is None:
        raise ModelError(f"model {name}: bos is eos, but its tokenizer has no EOS token. Set bos: auto.")
    return policy


def encode(loaded: LoadedModel, text: str, *, add_special_tokens: bool = True, needs_offsets: bool = True) -> Encoded:
    """Return IDs and offsets of `text`, as the tokenizer computes them.

    `add_special_tokens` False: a chat template has already added special tokens. `needs_offsets` False: only special
    tokens matter, so that missing offsets are not reconstructed. Raises AlignmentError if a tokenizer without offsets
    does not reproduce the text.
    """
    tokenizer = loaded.tokenizer
    if tokenizer.is_fast:
        encoding = tokenizer(text, add_special_tokens=add_special_tokens, verbose=False).encodings[0]
        offsets = [
            None if sequence_id is None else offset
            for sequence_id, offset in zip(encoding.sequence_ids, encoding.offsets, strict=True)
        ]
        return Encoded(encoding.ids, offsets, encoding.word_ids)
    plain_ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    offsets = reconstruct_offsets(tokenizer, plain_ids, text) if needs_offsets else [(0, len(text))] * len(plain_ids)
    full_ids = tokenizer(text, add_special_tokens=True, verbose=False)["input_ids"] if add_special_tokens else plain_ids
    n_plain = len(plain_ids)
    lead = next((i for i in range(len(full_ids) - n_plain + 1) if full_ids[i : i + n_plain] == plain_ids), None)
    if lead is None:
        raise AlignmentError("its special tokens change the other tokens")
    tail = len(full_ids) - lead - n_plain
    words = [text[: start + 1].lstrip().count(" ") for start, _ in offsets]
    return Encoded(full_ids, [None] * lead + offsets + [None] * tail, [None] * lead + words + [None] * tail)


def with_bos(
    loaded: LoadedModel, encoded: Encoded, *, templated: bool = False, scored_from_start: bool = False
) -> Encoded:
    """Return `encoded` with the special token in front that the record's BOS policy requires.

    `templated`: a chat template wrote the text, special tokens included, so only "always" adds one.
    `scored_from_start`: the first token of the text is scored and needs a predecessor. Masked models use the
    tokenizer's output unchanged. Raises what `bos_policy` raises.
    """
    policy = bos_policy(loaded)
    if loaded.kind != "causal" or (templated and (policy != "always" or not encoded.ids)):
        return encoded
    has_bos = bool(encoded.ids) and encoded.ids[0] == loaded.bos_id
    if policy == "never":
        count = next((i for i, token in enumerate(encoded.ids[: encoded.lead]) if token != loaded.bos_id), encoded.lead)
        return encoded.slice(count, len(encoded.ids))
    if policy == "always":
        return encoded if has_bos else encoded.prepend(loaded.bos_id)
    if has_bos or encoded.lead:
        return encoded
    if policy == "eos":
        return encoded.prepend(loaded.eos_id)
    return encoded.prepend(loaded.bos_id) if scored_from_start and loaded.bos_id is not None else encoded


def prompt_ids(loaded: LoadedModel, text: str, *, templated: bool) -> list[int]:
    """Return the token IDs of a prompt under the BOS policy, without closing special tokens.

    Text after a closing special token would not be a continuation. Raises AlignmentError if the tokenizer's special
    tokens change the others.
    """
    encoded = encode(loaded, text, add_special_tokens=not templated, needs_offsets=False)
    end = len(encoded.ids) - encoded.tail
    if not end:  # only special tokens: those before an EOS open the text
        end = next((i for i, token in enumerate(encoded.ids) if token == loaded.eos_id), len(encoded.ids))
    return with_bos(loaded, encoded.slice(0, end), templated=templated).ids


def reconstruct_offsets(tokenizer, ids: list[int], text: str) -> list[tuple[int, int]]:
    """Reconstruct offsets by decoding increasing prefixes of `ids`.

    Each decoded prefix must be a prefix of `text`, and the last one must equal it; otherwise, raises AlignmentError. A
    token that ends inside a character (bytes of an accented letter) has the offsets of that character, as do the
    character's other tokens.
    """
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


def span_tokens(text: str, offsets: list[tuple[int, int] | None], start: int, end: int) -> tuple[range, bool]:
    """Return (tokens with characters in [start, end), whether one crosses an edge); an empty range: none.

    A token belongs to the span if it contains a character of it that is not whitespace (any character, in a span of
    whitespace). A token that crosses an edge is therefore scored with the span that contains its letters, and no letter
    of a span remains unscored. The crossing is flagged unless the characters beyond the edge are whitespace (" A"
    scored for "A"). A token without characters (a separate ▁ that SentencePiece puts before a text) belongs to the
    following token.
    """
    span_is_whitespace = not text[start:end].strip()
    indices, crosses_edge = [], False
    for index, offset in enumerate(offsets):
        if offset is None or offset[0] >= end or offset[1] <= start:
            continue
        span_text = text[max(start, offset[0]) : min(end, offset[1])]
        outside_text = text[offset[0] : start] + text[end : max(end, offset[1])]
        if not outside_text or span_is_whitespace or span_text.strip():
            indices.append(index)
            crosses_edge |= bool(outside_text.strip())
        else:
            crosses_edge = True  # whitespace at the span's edge is scored with the text next to it
    if not indices:
        return range(0), crosses_edge
    first = indices[0]
    while first > 0 and offsets[first - 1] is not None and offsets[first - 1] == (offsets[first][0],) * 2:
        first -= 1  # zero-width token at the span's start
    return range(first, indices[-1] + 1), crosses_edge
