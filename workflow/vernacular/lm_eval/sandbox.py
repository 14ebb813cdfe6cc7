"""Limits for custom task files that are not trusted: a template sandbox, and limits of time and memory.

lm-eval renders templates with an ordinary Jinja environment, in which `{{ x.__class__… }}` reaches any Python object.
Here, Jinja's sandbox replaces it while such a file is in use. Templates take microseconds and kilobytes.
"""

import contextlib
import functools
import resource
import sys
import threading

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from vernacular.core.errors import DataError
from vernacular.core.processes import TimeLimitExceeded, time_limit

MAX_SECONDS = 10  # per template
MAX_BYTES = 1 << 30
_SECONDS_PER_OUTPUT = 0.01  # filters apply regular expressions of the file to each output


@contextlib.contextmanager
def template_environment(*, trusted: bool):
    """Let lm-eval render templates in its own environment, or in a sandbox; either compiles a template only once.

    Raises DataError if a function of the task ends the process, which would end the evaluations of all tasks.
    """
    from lm_eval import utils

    original = utils.env
    try:
        utils.env = _cached(original) if trusted else _Sandbox(original.filters["regex_replace"])
        yield
    except SystemExit as error:
        raise DataError(f"a function of the task ends the process (SystemExit: {error.code})") from None
    finally:
        utils.env = original


def _cached(environment):
    overlay = environment.overlay()  # shares filters and globals
    overlay.from_string = functools.lru_cache(maxsize=1024)(environment.from_string)
    return overlay


class _Sandbox(SandboxedEnvironment):
    """Sandbox with lm-eval's settings, whose templates have limits."""

    def __init__(self, regex_replace):
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True)
        self.filters["regex_replace"] = regex_replace
        del self.globals["lipsum"], self.filters["random"]  # their output differs between runs
        self._compiled = functools.lru_cache(maxsize=1024)(super().from_string)

    def from_string(self, source, *_):
        return _Limited(self, source)


class _Limited:
    """A template that is compiled and rendered under the limits."""

    def __init__(self, environment: _Sandbox, source: str):
        self.environment, self.source = environment, source

    def render(self, **row) -> str:
        try:
            with limits(MAX_SECONDS):  # constant expressions are evaluated when a template is compiled
                return self.environment._compiled(self.source).render(**row)
        except TimeLimitExceeded:
            raise DataError(f"a template takes more than {MAX_SECONDS} seconds: {self.source[:80]!r}") from None
        except MemoryError:
            raise DataError(f"a template needs more than {MAX_BYTES >> 30} GB: {self.source[:80]!r}") from None


@contextlib.contextmanager
def filter_limit(n_outputs: int, *, trusted: bool):
    """Limit the time of filters, whose regular expressions come from the file; none if it is trusted."""
    seconds = MAX_SECONDS + _SECONDS_PER_OUTPUT * n_outputs
    try:
        with contextlib.nullcontext() if trusted else limits(seconds):
            yield
    except TimeLimitExceeded:
        raise DataError(f"the filters take more than {seconds:.0f} seconds for {n_outputs} outputs") from None


@contextlib.contextmanager
def limits(seconds: float):
    """Raise TimeLimitExceeded inside the block after `seconds`, and MemoryError for MAX_BYTES more than now in use.

    Memory is limited on Linux only, and in the main thread: the limit is that of the process.
    """
    previous = None
    try:
        with time_limit(seconds):
            if threading.current_thread() is threading.main_thread() and sys.platform == "linux":
                previous = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
                maximum = _address_space() + MAX_BYTES
                resource.setrlimit(resource.RLIMIT_AS, (maximum if soft == -1 else min(soft, maximum), hard))
            yield
    finally:
        if previous is not None:
            resource.setrlimit(resource.RLIMIT_AS, previous)


def _address_space() -> int:
    """Return the bytes of address space that this process uses (proc(5): the first number of statm, in pages)."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
