"""Joining texts and filling gaps, with the character positions that the scorer needs."""

import re

GAP = re.compile(r"_{2,}")
MASK = re.compile(r"\[MASK\]|<mask>|\[mask\]|<extra_id_0>|<\|mask\|>")
_UNSPACED = {"zh", "yue", "ja", "th", "lo", "km", "my", "bo"}  # written without blanks between words
_CLOSING = ".,;:!?…"
_VOWELS = set("aeiouyáéíóúàèìòùâêôãõüаеиоуыэюяёіїє")


def continue_with(context: str, text: str, language: str) -> tuple[str, str]:
    """(context, continuation): the continuation opens with the one blank between them, where the language has blanks.

    >>> continue_with("A casa é ", "grande.", "gl")
    ('A casa é', ' grande.')
    """
    blank = "" if language in _UNSPACED else " "
    context = context.rstrip()
    return context, (blank if context else "") + text.lstrip()


def fill(text: str, gap: re.Match, word: str, *, capital: bool) -> tuple[str, str, str]:
    """(before, word, after) of `text` with `word` in its `gap`; the blank before the gap belongs to the word.

    Closing punctuation that `word` brings along and the text repeats is left out. With `capital` a word that opens a
    sentence gets a capital, for every candidate alike.

    >>> text = "Ide u __."
    >>> fill(text, GAP.search(text), "školu.", capital=True)
    ('Ide u', ' školu', '.')
    """
    before, after, word = text[: gap.start()], text[gap.end() :], word.strip()
    if after[:1] in _CLOSING and word.endswith(after[:1]):
        word = word.removesuffix(after[:1]).rstrip() or word
    if capital and word and _opens_sentence(before):
        word = word[0].title() + word[1:]  # title, not upper: Georgian has no capitals at the start of a sentence
    if before.endswith(" "):
        before, word = before[:-1], " " + word
    return before, word, after


def _opens_sentence(before: str) -> bool:
    """True after nothing, or after a sentence end that is neither an ordinal ("19.") nor a short form ("npr.")."""
    before = before.rstrip().rstrip("\"'«“„¿¡([—–-").rstrip()
    if not before or before[-1] in "!?…؟":
        return True
    last = before.split()[-1].rstrip(".").lower()
    return before.endswith(".") and any(letter in _VOWELS for letter in last)


def one(pattern: re.Pattern, text: str) -> re.Match | None:
    """The only match of `pattern` in `text`, or None where there is none or more than one."""
    found = list(pattern.finditer(text))
    return found[0] if len(found) == 1 else None
