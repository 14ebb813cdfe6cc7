"""User errors: one class per kind, each with a message of one or two lines.

`cli.py` and the Snakefile print the message and exit with status 1. Any other exception is a bug and keeps its
traceback, except for errors of the file system: the user can resolve a full disk, an exceeded quota, a read-only file
system, a missing permission and a failing device, and the operating system often reports them without a path.
"""

import contextlib
import difflib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path


class UserError(Exception):
    """Base class of errors that the user can fix; shown without a traceback."""

    def __init__(self, message: str):
        super().__init__(escape_controls(redact_secrets(message)))


class ConfigError(UserError):
    """Invalid or unsupported content of `config.yaml` or a task file."""

    def __init__(self, message: str):
        super().__init__(_LONG_WORD.sub(r"\1…", message))


class DataError(UserError):
    """Dataset that is missing, gated, unreachable, or not in the layout that its task file specifies."""


class ModelError(UserError):
    """Model or adapter that cannot be found, loaded, or evaluated as configured."""


class MachineError(ModelError):
    """Failure of this machine to load or run the model; another machine, or a retry with more memory, may succeed."""


class ServerError(ModelError):
    """Server of a model that cannot be reached, denies access, or keeps failing; a later run may succeed."""


class ArtifactError(UserError):
    """File of this workflow that is missing, damaged, of another kind, or inconsistent with its metadata."""


class RowsError(ArtifactError, DataError):
    """Rows that do not fit the schema of their file; of several files that a job makes, it affects this one only."""


def suggest(word: str, allowed, otherwise: str | None = None) -> str:
    """Return a hint for a message: ' Did you mean "gl"?' for the closest allowed value, else the first 12 of them.

    `otherwise` is a sentence that replaces the list, if the values are too many.
    """
    names = sorted(map(str, allowed))
    word = str(word)[:300]
    if matches := difflib.get_close_matches(word, names, n=3):
        # of equally close ones, that with the same beginning: gl rather than lg for glg
        ratios = {name: difflib.SequenceMatcher(None, name, word).ratio() for name in matches}
        closest = max(matches, key=lambda name: (ratios[name], word.startswith(name)))
        return f' Did you mean "{closest}"?'
    if otherwise:
        return f" {otherwise}"
    return f" Allowed: {first_of(names, 12)}." if names else ""


def check_known(noun: str, name: str, allowed, where: str = "") -> None:
    """Raise UserError, with the closest one, unless `name` is allowed; `where`: the beginning of the message."""
    if name not in allowed:
        raise UserError(f'{where}{noun} "{name}" not found.{suggest(name, allowed)}')


def check_at_least(least: float, **options: float | None) -> None:
    """Raise UserError if one of the options of a command is less than `least`; None: it is not given."""
    for name, value in options.items():
        if value is not None and not value >= least:
            raise UserError(f"--{name.replace('_', '-')}: expected at least {least}, got {value:g}.")


def shortened(text: str, limit: int) -> str:
    """Return a text in one line, of at most `limit` characters.

    >>> shortened("a text\\nof two lines", 10)
    'a text of…'
    """
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "…"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, which may fill pages, without a full stop; else its class name.

    >>> first_line(ValueError("No header.\\nSee the docs.")), first_line(EOFError())
    ('No header', 'EOFError')
    """
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if line.endswith("..") else line.removesuffix(".")


def named(error: BaseException) -> str:
    """Return the class of an error and the first line of its message.

    >>> named(ValueError("No header.")), named(EOFError())
    ('ValueError: No header', 'EOFError')
    """
    name, line = type(error).__name__, first_line(error)
    return name if line == name else f"{name}: {line}"


def is_contained(error: BaseException) -> bool:
    """Return whether an error, or a panic of a Rust library, affects the current evaluation or dataset only."""
    return isinstance(error, Exception) or is_panic(error)


def is_panic(error: BaseException) -> bool:
    """Return whether an exception is a panic of a Rust library; no module exports its class."""
    return (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")


# C0 and C1 controls except for tabs and ends of lines, line separators, what overrides or isolates a direction of
# writing, and lone surrogates. Joiners, marks of a direction and letters from right to left are texts of languages
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")
_LONG_WORD = re.compile(r"(\S{100})\S{200,}")  # words of 300 characters or more are cut to 100


def escape_controls(text: str) -> str:
    """Return `text` with what would control a terminal replaced by Unicode escapes.

    >>> print(escape_controls(chr(0x1B) + "[2J" + chr(0x202E) + "abc"))
    \\u001b[2J\\u202eabc
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# query parameters that grant access: token=, X-Amz-Signature=, sig= (Azure), key= (Google)
_KEYS = r"[\w.-]{0,30}(?:token|signature|secret|credential|passw(?:or)?d|pwd|api-?_?key|access-?_?key(?:id)?)"
_KEYS += r"|auth(?:key|orization)?|sig|key"
# (pattern of a credential, its replacement in messages, the error message); passwords may contain / or ?
SECRETS = [
    (
        re.compile(r"(\w://)(?:[^/?#\s]*|[^/?#\s:]*:(?!\d*(?:[/?#\s]|$))\S{0,300})@"),
        r"\1…@",
        "contains a URL with a user name or password, which would be copied into the results; remove them.",
    ),
    (
        re.compile(rf"([?&;#](?:{_KEYS})=)[^&;#\s]+", re.IGNORECASE),
        r"\1…",
        "contains a URL with a key, token or signature, which would be copied into the results; "
        "download the file and give its path.",
    ),
    (
        re.compile(r"\b(hf_|api_org_)[A-Za-z0-9]{20,}"),
        r"\1…",
        "contains a token, which would be copied into the results; set HF_TOKEN instead.",
    ),
]


def redact_secrets(text: str) -> str:
    """Return `text` with passwords, keys and tokens replaced by an ellipsis.

    >>> redact_secrets("https://me:pw@h.org/x.csv?v=1&token=abc&w=2")
    'https://…@h.org/x.csv?v=1&token=…&w=2'
    """
    for pattern, replacement, _ in SECRETS:
        text = pattern.sub(replacement, text)
    return text


_FREE_SPACE = "Free some space there and run again."
_CHECK_PERMISSIONS = "Check the permissions of the directory and of the file system."
_ADVICE = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f) and run again.",
    errno.EROFS: _CHECK_PERMISSIONS,
    errno.EACCES: _CHECK_PERMISSIONS,
    errno.EPERM: _CHECK_PERMISSIONS,
    errno.EIO: "The storage device reports an error; check it, or use another device.",
}


class WriteError(UserError):
    """File that cannot be written; `reason` is the operating system's message."""

    def __init__(self, message: str, reason: str = ""):
        super().__init__(message)
        self.reason = reason

    def __reduce__(self):
        return type(self), (str(self), self.reason)


def as_write_error(error: BaseException | None, path=None) -> WriteError | None:
    """Return the WriteError for an error with advice and a known `path`, None for any other."""
    if not isinstance(error, OSError) or error.errno not in _ADVICE:
        return None
    path = path or error.filename2 or error.filename
    if path is None:
        return None
    reason = os.strerror(error.errno)  # the text of pyarrow's errors is longer
    return WriteError(f"{os.fsdecode(path)}: cannot be written ({reason}). {_ADVICE[error.errno]}", reason)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Raise WriteError with `path` if the file system rejects a write inside the block."""
    try:
        yield
    except OSError as error:
        if (write_error := as_write_error(error, path)) is None:
            raise
        raise write_error from error


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> format_count(1, "evaluation"), format_count(0, "item"), format_count(2, "match", "matches")
    ('1 evaluation', '0 items', '2 matches')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def first_of(names: Sequence[str], count: int = 1) -> str:
    """Return the first `count` of some names, and an ellipsis if there are others.

    >>> first_of(["wte.weight"]), first_of(["wte.weight", "wpe.weight"])
    ('wte.weight', 'wte.weight, …')
    """
    return ", ".join(names[:count]) + (", …" if len(names) > count else "")
