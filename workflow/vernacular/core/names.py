"""Names from outside: of models in publications, configs and series, of servers, tasks, treebanks and languages.

They are checked here before they become rows, pages, IDs or paths. A name that is *readable* is one line of printable
characters, for tables and pages, which escape it for their format. A name that is *portable* can also be the name of a
directory or file on every system, and a part of Snakemake's patterns.
"""

import re

from vernacular.core.errors import DataError

MAX_LENGTH = 250  # characters of a readable name
_PORTABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
# BCP 47: language, script, region, variants and private use, in the usual case, so that no two tags differ in case only
_LANGUAGE = re.compile(
    r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*(-x(-[a-z0-9]{1,8})+)?"
)
_MAX_TAG = 35  # characters, as in RFC 5646, 4.4.1
# reserved names of devices on Windows, also with an extension
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
_MAX_BYTES = 200  # of a directory name; file systems allow 255


def readable_problem(name) -> str | None:
    """Return why a name cannot be in tables and pages, as the end of a message; None if it can.

    >>> readable_problem("Llama 3 (8B)"), readable_problem("a\\nb"), readable_problem("{model}"), readable_problem(None)
    (None, 'contains U+000A', 'contains a brace', 'is not text')
    """
    if not isinstance(name, str):
        return "is not text"
    if len(name) > MAX_LENGTH:
        return f"has {len(name)} characters; expected at most {MAX_LENGTH}"
    if not name.strip():
        return "is empty"
    if character := next((each for each in name if not each.isprintable()), None):
        return f"contains U+{ord(character):04X}"
    if name != name.strip():
        return "starts or ends with a space"
    return "contains a brace" if "{" in name or "}" in name else None  # a pattern of Snakemake


def portable_problem(name) -> str | None:
    """Return why a name cannot be that of a directory, because results are copied between systems; None if it can.

    >>> portable_problem("llama-3.1"), portable_problem("nul.x"), portable_problem("x.")
    (None, 'is not a valid directory name on Windows', 'is not a valid directory name on Windows')
    >>> portable_problem("../x")
    'is not a directory name (letters, digits, . _ + -; at most 100 characters)'
    """
    if problem := readable_problem(name):
        return problem
    if not _PORTABLE.fullmatch(name):
        return "is not a directory name (letters, digits, . _ + -; at most 100 characters)"
    is_reserved = name.split(".")[0].casefold() in _DEVICES or name.endswith(".")
    return "is not a valid directory name on Windows" if is_reserved else None


def language_problem(tag) -> str | None:
    """Return why a text is not the tag of a language, as the end of a message; None if it is one.

    Tags are parts of IDs, paths and patterns of Snakemake.

    >>> [language_problem(tag) for tag in ("gl", "sr-Latn", "pt-BR", "ca-valencia", "sl-x-cerkno")]
    [None, None, None, None, None]
    >>> language_problem("sr_latn")
    'is not a language tag: expected an ISO 639 code, with script or region if needed, such as gl, sr-Latn or pt-BR'
    """
    if isinstance(tag, str) and len(tag) <= _MAX_TAG and _LANGUAGE.fullmatch(tag):
        return None
    examples = "gl, sr-Latn or pt-BR"
    return f"is not a language tag: expected an ISO 639 code, with script or region if needed, such as {examples}"


def check_readable(name, location: str, noun: str) -> str:
    """Return a name that may be in tables and pages. Raises DataError, with its location, for any other."""
    if problem := readable_problem(name):
        raise DataError(f"{location}: {noun} {quoted(name)} {problem}.")
    return name


def quoted(name) -> str:
    """Return any value for a message: in quotes if it is a text, on one line, shortened.

    >>> quoted("a\\u202eb"), quoted(None)
    ('"a\\\\u202eb"', 'None')
    """
    if not isinstance(name, str):
        return repr(name)[:60]
    return f'"{escaped(name[:60])}…"' if len(name) > 60 else f'"{escaped(name)}"'


def displayable(text: str) -> str:
    """Return a text that a server states about itself on one line of limited length.

    >>> displayable("vLLM 0.9"), displayable("a\\u202eb")
    ('vLLM 0.9', 'a\\\\u202eb')
    """
    return text if readable_problem(text) is None else escaped(text[:MAX_LENGTH].strip())


def escaped(text: str) -> str:
    """Return `text` with each character that is not printable as its code.

    >>> escaped("a\\u200bb")
    'a\\\\u200bb'
    """
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def free_name(name: str, taken: set[str]) -> str:
    """Return `name`, with a number if it is in use regardless of case; add it to `taken`, which is in lower case.

    >>> free_name("Tiny (A)", {"tiny (a)", "tiny (a) (2)"})
    'Tiny (A) (3)'
    """
    free, count = name, 1
    while free.casefold() in taken:
        count += 1
        free = f"{name} ({count})"
    taken.add(free.casefold())
    return free


def directory_name(text: str) -> str:
    """Return a directory name made of any text: letters, digits, `_`, `-`, and `.` inside.

    >>> directory_name("my model: v1/gl."), directory_name(".."), directory_name("con.x")
    ('my_model_v1_gl', 'unnamed', '_con.x')
    """
    name = re.sub(r"[^\w.-]+", "_", text[:1000]).strip("._")[:100]
    name = name.encode("utf-8", "replace")[:_MAX_BYTES].decode("utf-8", "ignore").strip("._") or "unnamed"
    return f"_{name}" if name.split(".")[0].casefold() in _DEVICES else name
