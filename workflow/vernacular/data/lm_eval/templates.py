"""How their files say a text: a column's name, a Jinja template, a number, a list, or a function.

After `ConfigurableTask.doc_to_text`, `doc_to_target` and `doc_to_choice` of lm_eval/api/task.py, and the environment of
lm_eval/utils.py; but in Jinja's sandbox, because a template is somebody else's code.
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

# what code written for a row of another shape raises, or with a slip in it
ODD_ROW = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, re.error)
ODD_ROW += (NameError, AssertionError, RuntimeError, OSError)


class CannotLayOut(Exception):
    """This row cannot be laid out as the file says; the message is the reason, worded so that it can be counted."""


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)


_JINJA = SandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
_JINJA.filters["regex_replace"] = _regex_replace
del _JINJA.globals["lipsum"], _JINJA.filters["random"]  # no rows would be the same twice
_template = functools.lru_cache(maxsize=256)(_JINJA.from_string)
_OTHER_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


def check(template: str) -> str | None:
    """What is wrong with a template, on one line; None for a sound one."""
    try:
        with limits():  # what stands in it without a column is worked out now
            read = _JINJA.parse(template)
            _template(template)
    except TimeLimitExceeded:
        return f"it takes more than {SECONDS} seconds to read"
    except jinja2.TemplateError as error:
        return first_line(error)
    except (RecursionError, SyntaxError, MemoryError, ValueError, OverflowError) as error:  # Python's own limits
        return f"too deep or too long: {type(error).__name__}"
    return "it wants another file, and a template stands alone" if read.find(_OTHER_FILES) else None


def render(template: str, row: dict) -> str:
    """A template filled with a row's columns."""
    try:
        return _template(template).render(**row)
    except jinja2.TemplateError as error:
        raise CannotLayOut(f"template: {error}") from None
    except MemoryError:
        raise CannotLayOut("template: it wants more memory than it may have") from None
    except RecursionError:
        raise CannotLayOut("template: it calls itself without end") from None
    except ODD_ROW as error:  # `list.index(x)` for an x that is not there
        raise CannotLayOut(f"template: {type(error).__name__}: {error}") from None


def resolved(field: str | None, row: dict) -> str:
    """`description` or `gen_prefix`: a column or a template; "" for none."""
    if not field:
        return ""
    found = row[field] if field in row else render(field, row)
    if not isinstance(found, str):
        raise CannotLayOut(f"the column {field} is not text")
    return found


def text(field, row: dict, columns, *, choices: bool) -> str | int:
    """doc_to_text; a number where the row has several contexts and one continuation."""
    if isinstance(field, int):
        return field
    if isinstance(field, Callable):
        return _called(field, row)
    if field in columns:
        return column(field, row)
    found = render(field, row)
    return _number(found) if choices and found.isdigit() else found


def target(field, row: dict, columns, *, choices: bool) -> str | int | list:
    """doc_to_target: the right answer, its number among the options, or a list of either."""
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
    """doc_to_choice."""
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
            raise CannotLayOut("doc_to_choice gives no list") from None
    if not isinstance(found, list) or not all(isinstance(choice, str) for choice in found):
        raise CannotLayOut("doc_to_choice gives no list of texts")
    return found


def column(name: str, row: dict):
    """A column that the evaluated rows have; a row of another split may lack it."""
    if name not in row:
        raise CannotLayOut(f"there is no column {name}")
    return row[name]


def _number(digits: str) -> int | str:
    try:
        return ast.literal_eval(digits)
    except (SyntaxError, ValueError):  # "007", or digits that are none to Python ("²")
        raise CannotLayOut("a number that Python does not read as one") from None


def _called(function, row: dict):
    try:
        return function(dict(row))
    except ODD_ROW as error:
        raise CannotLayOut(f"{function.__name__}: {type(error).__name__}: {error}") from None


# far more than any template needs, which takes microseconds and kilobytes
SECONDS = 10
MEMORY = 1 << 30


@contextlib.contextmanager
def limits():
    """Raise TimeLimitExceeded inside after SECONDS, and MemoryError for more than MEMORY bytes added to those in use.

    There is no limit outside the main thread. Memory is limited on Linux alone.
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
    """Bytes of address space that this process has taken (proc(5): the first number of statm, in pages)."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
