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
import threading
from collections.abc import Callable

import jinja2
from jinja2 import nodes
from jinja2.sandbox import SandboxedEnvironment

from vernacular.core.errors import first_line
from vernacular.core.processes import TimeLimitExceeded, time_limit

# errors of code that has a bug or expects rows of another shape
ROW_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, re.error)
ROW_ERRORS += (NameError, AssertionError, RuntimeError, OSError)


class RenderError(Exception):
    """Row that cannot be rendered as the file specifies; rows are counted by the message, which is the reason."""


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)


_JINJA = SandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
_JINJA.filters["regex_replace"] = _regex_replace
del _JINJA.globals["lipsum"], _JINJA.filters["random"]  # their output differs between runs
_template = functools.lru_cache(maxsize=256)(_JINJA.from_string)
_INCLUDE_NODES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


def check(template: str) -> str | None:
    """Return the error in a template, on one line; None if it is valid."""
    try:
        with sandbox_limits():  # constant expressions are evaluated now
            tree = _JINJA.parse(template)
            _template(template)
    except TimeLimitExceeded:
        return f"parsing takes more than {MAX_SECONDS} seconds"
    except jinja2.TemplateError as error:
        return first_line(error)
    except (RecursionError, SyntaxError, MemoryError, ValueError, OverflowError) as error:  # Python's own limits
        return f"too deep or too long: {type(error).__name__}"
    return "other files cannot be included or imported" if tree.find(_INCLUDE_NODES) else None


def render(template: str, row: dict) -> str:
    """Render a template with the columns of a row; raise RenderError if it fails."""
    try:
        return _template(template).render(**row)
    except jinja2.TemplateError as error:
        raise RenderError(f"template: {error}") from None
    except MemoryError:
        raise RenderError("template: memory limit exceeded") from None
    except RecursionError:
        raise RenderError("template: recursion limit exceeded") from None
    except ROW_ERRORS as error:  # for example, `list.index(x)` for an x not in the list
        raise RenderError(f"template: {type(error).__name__}: {error}") from None


def render_optional(field: str | None, row: dict) -> str:
    """Return the text of `description` or `gen_prefix`, which is a column or a template; "" if it is empty."""
    if not field:
        return ""
    rendered = row[field] if field in row else render(field, row)
    if not isinstance(rendered, str):
        raise RenderError(f"column {field} is not text")
    return rendered


def text(field, row: dict, columns, *, choices: bool) -> str | int:
    """Return doc_to_text for a row; a number if the row has several contexts and one continuation."""
    if isinstance(field, int):
        return field
    if isinstance(field, Callable):
        return _call_function(field, row)
    if field in columns:
        return column(field, row)
    rendered = render(field, row)
    return _parse_number(rendered) if choices and rendered.isdigit() else rendered


def target(field, row: dict, columns, *, choices: bool) -> str | int | list:
    """Return doc_to_target for a row: the correct answer, its index in the options, or a list of either."""
    if isinstance(field, int | list):
        return field
    if isinstance(field, Callable):
        return _call_function(field, row)
    if field in columns:
        return column(field, row)
    rendered = render(field, row)
    if choices and rendered.isdigit():
        return _parse_number(rendered)
    if len(rendered) >= 2 and rendered[0] == "[" and rendered[-1] == "]":
        try:
            return ast.literal_eval(rendered)
        except (SyntaxError, ValueError):
            return rendered
    return rendered


def options(field, row: dict, columns) -> list[str]:
    """Return doc_to_choice for a row; raise RenderError if it is not a list of texts."""
    if isinstance(field, Callable):
        choices = _call_function(field, row)
    elif isinstance(field, list):
        choices = field
    elif field in columns:
        choices = column(field, row)
    else:
        try:
            choices = ast.literal_eval(render(field, row))
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise RenderError("doc_to_choice is not a list") from None
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise RenderError("doc_to_choice is not a list of texts")
    return choices


def column(name: str, row: dict):
    """Return a column of a row; raise RenderError if it is missing, as it may be in another split."""
    if name not in row:
        raise RenderError(f"column {name} not found")
    return row[name]


def _parse_number(digits: str) -> int | str:
    try:
        return ast.literal_eval(digits)
    except (SyntaxError, ValueError):  # "007", or digits that are not a Python literal ("²")
        raise RenderError("digits that are not a Python number") from None


def _call_function(function, row: dict):
    try:
        return function(dict(row))
    except ROW_ERRORS as error:
        raise RenderError(f"{function.__name__}: {type(error).__name__}: {error}") from None


# in seconds and bytes; templates take microseconds and kilobytes
MAX_SECONDS = 10
MAX_BYTES = 1 << 30


@contextlib.contextmanager
def sandbox_limits():
    """Raise TimeLimitExceeded inside the block after SECONDS, and MemoryError for MEMORY bytes more than now in use.

    Memory is limited on Linux only, and in the main thread: the limit is that of the process.
    """
    previous_limits = None
    try:
        with time_limit(MAX_SECONDS):
            if threading.current_thread() is threading.main_thread() and sys.platform == "linux":
                previous_limits = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
                max_address_space = _address_space() + MAX_BYTES
                resource.setrlimit(
                    resource.RLIMIT_AS, (max_address_space if soft == -1 else min(soft, max_address_space), hard)
                )
            yield
    finally:
        if previous_limits is not None:
            resource.setrlimit(resource.RLIMIT_AS, previous_limits)


def _address_space() -> int:
    """Return the bytes of address space that this process uses (proc(5): the first number of statm, in pages)."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
