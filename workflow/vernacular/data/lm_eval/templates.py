"""Text fields of lm-eval task files: a column's name, a Jinja template, a number, a list, or a function.

Follows `ConfigurableTask.doc_to_text`, `doc_to_target` and `doc_to_choice` of lm_eval/api/task.py, with the environment
of lm_eval/utils.py, but in Jinja's sandbox, because templates are untrusted code.
"""

import ast
import contextlib
import functools
import re
import resource
import sys
from collections.abc import Callable

import jinja2
from jinja2 import nodes
from jinja2.sandbox import SandboxedEnvironment

from vernacular.core.errors import first_line
from vernacular.core.processes import TimeLimitExceeded, time_limit

# errors of code that has a bug or expects rows of another shape
ODD_ROW = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, re.error)
ODD_ROW += (NameError, AssertionError, RuntimeError, OSError)


class CannotLayOut(Exception):
    """Row that cannot be rendered as the file specifies; rows are counted by the message, which is the reason."""


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)


_JINJA = SandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
_JINJA.filters["regex_replace"] = _regex_replace
del _JINJA.globals["lipsum"], _JINJA.filters["random"]  # their output differs between runs
_template = functools.lru_cache(maxsize=256)(_JINJA.from_string)
_OTHER_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


def check(template: str) -> str | None:
    """Return the error in a template, on one line; None if it is valid."""
    try:
        with limits():  # constant expressions are evaluated now
            read = _JINJA.parse(template)
            _template(template)
    except TimeLimitExceeded:
        return f"parsing takes more than {SECONDS} seconds"
    except jinja2.TemplateError as error:
        return first_line(error)
    except (RecursionError, SyntaxError, MemoryError, ValueError, OverflowError) as error:  # Python's own limits
        return f"too deep or too long: {type(error).__name__}"
    return "other files cannot be included or imported" if read.find(_OTHER_FILES) else None


def render(template: str, row: dict) -> str:
    """Render a template with the columns of a row; raise CannotLayOut if it fails."""
    try:
        return _template(template).render(**row)
    except jinja2.TemplateError as error:
        raise CannotLayOut(f"template: {error}") from None
    except MemoryError:
        raise CannotLayOut("template: memory limit exceeded") from None
    except RecursionError:
        raise CannotLayOut("template: recursion limit exceeded") from None
    except ODD_ROW as error:  # for example, `list.index(x)` for an x not in the list
        raise CannotLayOut(f"template: {type(error).__name__}: {error}") from None


def resolved(field: str | None, row: dict) -> str:
    """Return the text of `description` or `gen_prefix`, which is a column or a template; "" if it is empty."""
    if not field:
        return ""
    found = row[field] if field in row else render(field, row)
    if not isinstance(found, str):
        raise CannotLayOut(f"column {field} is not text")
    return found


def text(field, row: dict, columns, *, choices: bool) -> str | int:
    """Return doc_to_text for a row; a number if the row has several contexts and one continuation."""
    if isinstance(field, int):
        return field
    if isinstance(field, Callable):
        return _called(field, row)
    if field in columns:
        return column(field, row)
    found = render(field, row)
    return _number(found) if choices and found.isdigit() else found


def target(field, row: dict, columns, *, choices: bool) -> str | int | list:
    """Return doc_to_target for a row: the correct answer, its index in the options, or a list of either."""
    if isinstance(field, int | list):
        return field
    if isinstance(field, Callable):
        return _called(field, row)
    if field in columns:
        return column(field, row)
    found = render(field, row)
    if choices and found.isdigit():
        return _number(found)
    if len(found) >= 2 and found[0] == "[" and found[-1] == "]":
        try:
            return ast.literal_eval(found)
        except (SyntaxError, ValueError):
            return found
    return found


def options(field, row: dict, columns) -> list[str]:
    """Return doc_to_choice for a row; raise CannotLayOut if it is not a list of texts."""
    if isinstance(field, Callable):
        found = _called(field, row)
    elif isinstance(field, list):
        found = field
    elif field in columns:
        found = column(field, row)
    else:
        try:
            found = ast.literal_eval(render(field, row))
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise CannotLayOut("doc_to_choice is not a list") from None
    if not isinstance(found, list) or not all(isinstance(choice, str) for choice in found):
        raise CannotLayOut("doc_to_choice is not a list of texts")
    return found


def column(name: str, row: dict):
    """Return a column of a row; raise CannotLayOut if it is missing, as it may be in another split."""
    if name not in row:
        raise CannotLayOut(f"column {name} not found")
    return row[name]


def _number(digits: str) -> int | str:
    try:
        return ast.literal_eval(digits)
    except (SyntaxError, ValueError):  # "007", or digits that are not a Python literal ("²")
        raise CannotLayOut("digits that are not a Python number") from None


def _called(function, row: dict):
    try:
        return function(dict(row))
    except ODD_ROW as error:
        raise CannotLayOut(f"{function.__name__}: {type(error).__name__}: {error}") from None


# in seconds and bytes; templates take microseconds and kilobytes
SECONDS = 10
MEMORY = 1 << 30


@contextlib.contextmanager
def limits():
    """Raise TimeLimitExceeded inside the block after SECONDS, and MemoryError for MEMORY bytes more than now in use.

    There is no limit outside the main thread. Memory is limited on Linux only.
    """
    before = None
    try:
        with time_limit(SECONDS) as limited:
            if limited and sys.platform == "linux":
                before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
                most = _in_use() + MEMORY
                resource.setrlimit(resource.RLIMIT_AS, (most if soft == -1 else min(soft, most), hard))
            yield
    finally:
        if before is not None:
            resource.setrlimit(resource.RLIMIT_AS, before)


def _in_use() -> int:
    """Return the bytes of address space that this process uses (proc(5): the first number of statm, in pages)."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
