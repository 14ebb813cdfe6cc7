"""From new tokens to text: decoding as a continuation of the prompt, where it stops, and which part is the answer."""

_CONTEXT = 8  # prompt tokens decoded along, so that the blank before the first new word is not lost


def continuation(tokenizer, prompt_ids: list[int], new_ids: list[int]) -> str:
    """The text that `new_ids` add after `prompt_ids`, special tokens left out.

    SentencePiece decoders drop the blank of a text's first word, which in a continuation is a real one; hence the
    difference of two decodings rather than the decoding of the new tokens alone.
    """
    before = prompt_ids[-_CONTEXT:]
    start = _decode(tokenizer, before)
    whole = _decode(tokenizer, before + new_ids)
    return whole[len(start) :] if whole.startswith(start) else _decode(tokenizer, new_ids)


def stop_at(raw: str, stops: list[str], *, after_blank: bool) -> int | None:
    """Where in `raw` the first stop string begins, or None; with `after_blank`, not within its opening blanks.

    A chat model may open its turn with an empty line, which ends a line but no answer.

    >>> stop_at("a mazá\\nPregunta", ["\\n"], after_blank=False)
    6
    >>> stop_at("\\n\\na mazá\\n", ["\\n"], after_blank=True)
    8
    """
    start = len(raw) - len(raw.lstrip()) if after_blank else 0
    found = [raw.find(stop, start) for stop in stops if stop]
    return min((at for at in found if at >= 0), default=None)


def answer_of(raw: str, stops: list[str], *, after_blank: bool) -> str:
    """`raw` up to its first stop string, outer blanks removed."""
    return raw[: stop_at(raw, stops, after_blank=after_blank)].strip()


def _decode(tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
