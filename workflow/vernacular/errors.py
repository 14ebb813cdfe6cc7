"""Mistakes a person can mend, one class per kind; the message is the one or two lines they read.

`cli.py` and the Snakefile print the message and exit 1. Anything else that escapes is our bug and keeps its traceback.
"""

import difflib
import re


class UserError(Exception):
    """A mistake to be mended by the person who runs the workflow; never shown with a traceback."""


class ConfigError(UserError):
    """`config.yaml` or a task file says something that cannot be done."""

    def __init__(self, sentence: str):
        super().__init__(_showable(sentence))


class DataError(UserError):
    """A data set is missing, gated, unreachable, or not in the layout its task file declares."""


class ModelError(UserError):
    """A model or adapter cannot be found, loaded, or asked what the evaluation asks."""


class ArtifactError(UserError):
    """A file of ours is truncated, of another kind, or not what its metadata claims."""


def closest(word: str, allowed) -> str:
    """A sentence naming the allowed value nearest to `word`, or all of them: ' Did you mean "gl"?'"""
    names = sorted(map(str, allowed))
    near = difflib.get_close_matches(str(word), names, n=1)
    if near:
        return f' Did you mean "{near[0]}"?'
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f" Allowed: {shown}." if names else ""


# what a file holds may do things to a terminal, and fill it
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ENDLESS = re.compile(r"(\S{100})\S{200,}")


def _showable(sentence: str) -> str:
    """`sentence` with control characters spelt out, and what a word has beyond 300 characters left out."""
    sentence = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", sentence)
    return _ENDLESS.sub(r"\1…", sentence)
