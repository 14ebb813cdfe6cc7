"""User errors, one class per kind, and the log; the message is the one or two lines that the user reads.

`cli.py` and the Snakefile print the message and exit with status 1. Any other exception is a bug and keeps its
traceback, except for what a disk refuses: a full disk, an exceeded quota, a read-only file system, a missing permission
and a failing device are the user's to resolve, and the operating system often reports them without a path.
"""

import contextlib
import difflib
import errno
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path


class UserError(Exception):
    """A mistake to be mended by the person who runs the workflow; never shown with a traceback."""

    def __init__(self, sentence: str):
        super().__init__(_showable(without_secrets(sentence)))


class ConfigError(UserError):
    """`config.yaml` or a task file says something that cannot be done."""

    def __init__(self, sentence: str):
        super().__init__(_ENDLESS.sub(r"\1…", sentence))


class DataError(UserError):
    """A data set is missing, gated, unreachable, or not in the layout its task file declares."""


class ModelError(UserError):
    """A model or adapter cannot be found, loaded, or asked what the evaluation asks."""


class MachineError(ModelError):
    """This machine cannot hold or run the model; another one, or a second try with more memory, may."""


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


def first_line(error: BaseException) -> str:
    """The first line of what a library says, which may fill pages; the error's name where it says nothing.

    >>> first_line(ValueError("no header\\nsee the docs")), first_line(EOFError())
    ('no header', 'EOFError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def is_contained(error: BaseException) -> bool:
    """Return whether an error costs the evaluation or dataset at hand, and nothing else.

    Every Exception does, and the panic of a library in Rust, which is no Exception; Ctrl-C and the end of the process
    do not.
    """
    return isinstance(error, Exception) or is_panic(error)


def is_panic(error: BaseException) -> bool:
    """Return whether an exception is a panic of a library in Rust, whose class no module exports."""
    return (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")


# what a file holds may do things to a terminal, and fill it
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ENDLESS = re.compile(r"(\S{100})\S{200,}")  # of a word of more than 300 characters the first 100 will do


def _showable(sentence: str) -> str:
    """`sentence` with control characters spelt out."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", sentence)


# a part of a query that lets in whoever holds it: token=, X-Amz-Signature=, sig= (Azure), key= (Google)
_KEYS = r"[\w.-]{0,30}(?:token|signature|secret|credential|passw(?:or)?d|pwd|api-?_?key|access-?_?key(?:id)?)"
_KEYS += r"|auth(?:key|orization)?|sig|key"
# (what gives somebody access, what may be shown of it, the same in words); a password may itself hold / or ?
SECRETS = [
    (
        re.compile(r"(\w://)(?:[^/?#\s]*|[^/?#\s:]*:(?!\d*(?:[/?#\s]|$))\S{0,300})@"),
        r"\1…@",
        "an address with a user or password in it would be written into the results.",
    ),
    (
        re.compile(rf"([?&;#](?:{_KEYS})=)[^&;#\s]+", re.IGNORECASE),
        r"\1…",
        "an address with a key, token or signature in it would be written into the results; fetch the file yourself.",
    ),
    (
        re.compile(r"\b(hf_|api_org_)[A-Za-z0-9]{20,}"),
        r"\1…",
        "a token would be written into the results; set HF_TOKEN instead.",
    ),
]


def without_secrets(text: str) -> str:
    """`text` with passwords, keys and tokens left out.

    >>> without_secrets("https://me:pw@h.org/x.csv?v=1&token=abc&w=2")
    'https://…@h.org/x.csv?v=1&token=…&w=2'
    """
    for pattern, shown, _ in SECRETS:
        text = pattern.sub(shown, text)
    return text


_MAKE_ROOM = "Free some space there and run again."
_ALLOW = "Check the permissions of the directory and of the file system."
_ADVICE = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f) and run again.",
    errno.EROFS: _ALLOW,
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.EIO: "The device reports an error; check it, or write elsewhere.",
}


class WriteError(UserError):
    """A file cannot be written; `reason` is the operating system's."""

    def __init__(self, sentence: str, reason: str = ""):
        super().__init__(sentence)
        self.reason = reason

    def __reduce__(self):
        return type(self), (str(self), self.reason)


def refusal(error: OSError, path=None) -> WriteError | None:
    """Return the error to show for `error`, None where it is not a refusal of the disk or its path is unknown.

    Args:
        path: what was being written; without one, the path that the operating system names.
    """
    path = path or error.filename2 or error.filename
    if error.errno not in _ADVICE or path is None:
        return None
    reason = os.strerror(error.errno)  # the text of pyarrow's errors is longer
    return WriteError(f"{os.fsdecode(path)}: cannot be written ({reason}). {_ADVICE[error.errno]}", reason)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Raise WriteError, which names `path`, where the disk refuses what is written inside."""
    try:
        yield
    except OSError as error:
        if (refused := refusal(error, path)) is None:
            raise
        raise refused from error


def log_to(path: Path | None) -> None:
    """Send messages and warnings to `path`; without one, warnings go to the terminal."""
    logging.captureWarnings(True)
    if path:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = _LogFile(path, mode="w", encoding="utf-8", errors="backslashreplace")
        logging.basicConfig(handlers=[file], level=logging.INFO)
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    else:
        logging.basicConfig(level=logging.WARNING)
        form = "%(message)s"
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Discreet(form))


class _LogFile(logging.FileHandler):
    """A log on a full disk ends with one line on the terminal, not with a traceback for each message."""

    refused = False

    def handleError(self, record: logging.LogRecord) -> None:
        refused = refusal(error, self.baseFilename) if isinstance(error := sys.exc_info()[1], OSError) else None
        if refused is None:
            super().handleError(record)
        elif not self.refused:
            self.refused = True
            print(refused, file=sys.stderr)


class _Discreet(logging.Formatter):
    """The clients log every address that they ask, and the Hub sends them on to addresses that hold a signature."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))
