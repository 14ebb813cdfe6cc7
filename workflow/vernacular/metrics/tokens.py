"""How the tokenizer of a model divides texts: counts per item, from stored tokens and offsets.

Counted are the scored texts of an item (all of its options, both sentences of a pair) and its prompt. The special
tokens that a tokenizer adds are part of the prompt only.
"""

import re
import unicodedata

from vernacular.metrics.bits import span_text
from vernacular.metrics.spans import Span, by_item, text_lengths
from vernacular.types import Item, Request, Role, Score, skipped_reason

_WORDS = re.compile(r"\S+")
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # a byte that SentencePiece's fallback writes as a token
_INSERTED = "▁"
_UNKNOWN = {"[UNK]", "<unk>", "<UNK>", "unk"}  # where the file of the scores does not name the token
_TEXTS = ("texts", "tokens", "bytes", "characters", "words", "countable_words", "split_words", "byte_tokens",
          "unknown_tokens")  # fmt: skip
_PROMPT = ("prompt_tokens", "prompt_bytes", "prompt_characters")


def token_counts(
    items: list[Item],
    requests: list[Request],
    outputs: list[Score],
    results: list[dict],
    *,
    roles: tuple[str, ...],
    unknown_token: str | None = None,
) -> list[dict]:
    """Return a row per item, without the columns that name the evaluation (TOKENS).

    Args:
        results: Rows per TASK_RESULTS, whose bits are copied.
        roles: Kinds of the roles whose texts are counted; of several, the last one that was scored. Empty: the prompt
            only, as for generated text, or a letter, which is a label.
        unknown_token: The tokenizer's token for text that is not in its vocabulary.
    """
    spans = by_item(requests, outputs) if roles else {}
    prompts = _first_requests(requests, outputs)
    bits = {row["item_id"]: _bits(row["metrics"]) for row in results}
    rows = []
    for item in items:
        item_id = item["item_id"]
        if item_id not in prompts:
            continue
        counts = _sum([_span_counts(span, unknown_token) for span in _counted(spans.get(item_id, {}), roles)])
        columns = {"item_id": item_id, "cluster_id": item["cluster_id"]}
        rows.append({**columns, **counts, **_prompt_counts(*prompts[item_id]), "bits": bits.get(item_id)})
    return rows


def _counted(spans: dict[str, Span], roles: tuple[str, ...]) -> list[Span]:
    by_kind: dict[str, list[Span]] = {}
    for name, span in spans.items():
        if skipped_reason(name) is None and span.score and span.score.get("tokens"):
            by_kind.setdefault(Role.parse(name).kind, []).append(span)
    return next((by_kind[kind] for kind in reversed(roles) if kind in by_kind), [])


def _sum(counts: list[dict]) -> dict[str, int | None]:
    """Return the sums of all counts; None if there are none, or if one of them is unknown."""
    columns = {name: [row[name] for row in counts] for name in _TEXTS}
    return {name: sum(values) if values and None not in values else None for name, values in columns.items()}


def _span_counts(span: Span, unknown_token: str | None) -> dict[str, int | None]:
    text, start = span_text(span)
    tokens, offsets = span.score["tokens"], span.score["offsets"]
    return {
        "texts": 1,
        **count_tokens(text, tokens, [(low - start, high - start) for low, high in offsets]),
        "unknown_tokens": _unknown(tokens, span.score["flags"] or "", unknown_token),
    }


def count_tokens(text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> dict[str, int]:
    """Count what a tokenizer makes of a text; `offsets`: characters [start, end) of each token in the text.

    A word is a run of characters other than whitespace; `countable_words` are those with a letter or digit. Such a
    word is split if two or more tokens have a character between its first and its last letter or digit: the
    punctuation around it may be a token of its own. A byte token is part of a character.

    >>> offsets = [(0, 1), (1, 6), (6, 8), (8, 9), (9, 10)]
    >>> counts = count_tokens("O corazón.", ["O", " cora", "zó", "n", "."], offsets)
    >>> counts["tokens"], counts["bytes"], counts["characters"], counts["words"], counts["split_words"]
    (5, 11, 10, 2, 1)
    >>> count_tokens("ш", ["Ñ", "Ī"], [(0, 1), (0, 1)])["byte_tokens"]
    2
    """
    lengths, offsets = text_lengths(text), _without_inserted(tokens, offsets)
    words = [match.span() for match in _WORDS.finditer(text)]
    cores = [core for core in (_core(text, *word) for word in words) if core]
    return {
        "tokens": len(tokens),
        "bytes": lengths["byte"],
        "characters": lengths["char"],
        "words": len(words),
        "countable_words": len(cores),
        "split_words": _count_split(cores, offsets),
        "byte_tokens": _count_bytes(tokens, offsets),
    }


def _without_inserted(tokens: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the offsets with those of an inserted space (▁ before a text) empty: it has those of the next token."""
    following = [*offsets[1:], *((end, end) for _, end in offsets[-1:])]
    return [
        (low, low) if token == _INSERTED and after < high else (low, high)
        for token, (low, high), (after, _) in zip(tokens, offsets, following, strict=True)
    ]


def _core(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the part of a word from its first letter or digit to its last; None if it has none."""
    inside = [i for i in range(start, end) if unicodedata.category(text[i])[0] in "LMN"]
    return (inside[0], inside[-1] + 1) if inside else None


def _count_split(words: list[tuple[int, int]], offsets: list[tuple[int, int]]) -> int:
    """Return the number of words in which two or more tokens have characters; both lists are in reading order."""
    n_split = position = 0
    for start, end in words:
        while position < len(offsets) and offsets[position][1] <= start:
            position += 1
        n_tokens, index = 0, position
        while index < len(offsets) and offsets[index][0] < end:
            n_tokens += offsets[index][1] > max(start, offsets[index][0])
            index += 1
        n_split += n_tokens > 1
    return n_split


def _count_bytes(tokens: list[str], offsets: list[tuple[int, int]]) -> int:
    """Return the number of tokens that begin or end inside a character, or are written as a byte."""
    edges = [(0, 0), *offsets, (offsets[-1][1],) * 2] if offsets else []
    return sum(
        bool(_BYTE.fullmatch(token)) or (low < high and (low < before[1] or after[0] < high))
        for token, before, (low, high), after in zip(tokens, edges, edges[1:], edges[2:], strict=False)
    )


# the characters by which byte-level tokenizers write bytes (GPT-2): printable ones for themselves
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE}
_BYTE_OF |= {chr(256 + n): byte for n, byte in enumerate(byte for byte in range(256) if byte not in _PRINTABLE)}


def readable_token(token: str) -> str:
    """Return what the name of a token in its vocabulary stands for; of a part of a character after a space, its bytes.

    >>> readable_token("ĠO"), readable_token("ĠÐĶÐ°"), readable_token("▁é"), readable_token("Ð"), readable_token("ĠØ")
    (' O', ' Да', ' é', 'Ð', ' <0xD8>')
    """
    is_byte_level = all(letter in _BYTE_OF for letter in token)
    try:
        return bytes(_BYTE_OF[letter] for letter in token).decode() if is_byte_level else token.replace(_INSERTED, " ")
    except UnicodeDecodeError:  # a part of a character, or letters of another vocabulary, which has no Ġ
        return _escape_bytes(bytes(_BYTE_OF[letter] for letter in token)) if "Ġ" in token else token


def readable_tokens(text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> list[str]:
    """Return what each token stands for in a text: its characters; of a part of a character, its bytes.

    `offsets`: characters [start, end) of each token in the text. A token without a character of its own is the name of
    the vocabulary, with spaces for ▁.

    >>> readable_tokens("a eñe", ["a", "ĠeÃ", "±", "e"], [(0, 1), (1, 4), (3, 4), (4, 5)])
    ['a', ' e<0xC3>', '<0xB1>', 'e']
    """
    edges = [(0, 0), *offsets, (len(text), len(text))]
    readable = []
    for token, before, (low, high), after in zip(tokens, edges[:-2], offsets, edges[2:], strict=True):
        if low < high and before[1] <= low and high <= after[0]:
            readable.append(text[low:high])
        elif not _BYTE.fullmatch(token) and all(letter in _BYTE_OF for letter in token):
            readable.append(_escape_bytes(bytes(_BYTE_OF[letter] for letter in token)))
        else:
            readable.append(token.replace(_INSERTED, " "))
    return readable


def _escape_bytes(data: bytes) -> str:
    """Return the characters of bytes, and those that are no character as <0x..>."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(f"<0x{ord(letter) - 0xDC00:02X}>" if "\udc80" <= letter <= "\udcff" else letter for letter in text)


def _unknown(tokens: list[str], flags: str, unknown_token: str | None) -> int | None:
    """Return the number of unknown tokens; None if there are some, but the name of the token is not known."""
    if "unknown token" not in flags:
        return 0
    names = {unknown_token} if unknown_token else _UNKNOWN
    return sum(token in names for token in tokens) or None


def _first_requests(requests: list[Request], outputs: list[dict]) -> dict[str, tuple[Request, dict]]:
    """Return the first request of each item that has an output, with the output."""
    by_key = {(output["item_id"], output["role"]): output for output in outputs}
    first: dict[str, tuple[Request, dict]] = {}
    for request in requests:
        output = by_key.get((request["item_id"], request["role"]))
        if output is not None and output["n_prompt_tokens"] is not None:
            first.setdefault(request["item_id"], (request, output))
    return first


def _prompt_counts(request: Request, output: dict) -> dict[str, int | None]:
    """Return tokens, bytes and characters before the scored or generated text; None if it was truncated."""
    if "truncated" in (output["flags"] or ""):
        return dict.fromkeys(_PROMPT)
    text = request["prefix"] + request["text"] if output["rendered"] is None else output["rendered"]
    if offsets := output.get("offsets"):
        text = text[: offsets[0][0]]
    lengths = text_lengths(text)
    return dict(zip(_PROMPT, (output["n_prompt_tokens"], lengths["byte"], lengths["char"]), strict=True))


def _bits(values: list | dict) -> float | None:
    """Return the bits of an item's correct text; of several values, that of the text without its prompt."""
    values = dict(values)
    names = ("bits", "answer_bits", "pseudo_bits", "pseudo_answer_bits")
    return next((values[name] for name in names if name in values), None)
