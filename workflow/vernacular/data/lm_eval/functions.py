"""lm-eval's `!function` tags: Python code of a task's author, run only if the task file sets `trust_functions: true`.

The module next to the YAML file is imported unchanged. Its imports are resolved in this environment; modules of lm_eval
itself, if lm_eval is not installed, in the directory tree of the file. A module that is not found is replaced by a
placeholder, which raises an error only if a function calls it: modules of task families import what any of their tasks
may need.
"""

import ast
import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path

from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import file_fingerprint
from vernacular.data.lm_eval.templates import ODD_ROW


def is_function(value) -> bool:
    """Return whether a value is the mark that `task_file.read` creates for a `!function`."""
    return isinstance(value, dict) and value.keys() == {"function", "file", "sha256"}


def load(mark: dict, folder: Path) -> Callable:
    """Return the function of a mark, whose `file` may be relative to `folder`; raise ConfigError if unavailable."""
    name = mark["function"]
    module_name, _, attribute = name.rpartition(".")
    if mark["file"] is None:
        module = _installed(module_name, name)
    else:
        path = (folder / mark["file"]).resolve()
        module = _from_file(path, file_fingerprint(path))
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError(f"!function {name}: function not found in {getattr(module, '__file__', module_name)}.")
    return function


def _installed(module_name: str, name: str):
    try:
        return importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:  # also for an empty name, or one that starts with a dot
        raise ConfigError(f"!function {name}: module not found next to the task file ({error}).") from None


@functools.cache
def _from_file(path: Path, digest: str):
    """Import the module in `path`, once per content (`digest`)."""
    spec = importlib.util.spec_from_file_location(f"lm_eval_task_{digest[:12]}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # `datasets` pickles the functions
    try:
        with _lenient_imports(path):
            spec.loader.exec_module(module)
    except (ImportError, SyntaxError, *ODD_ROW) as error:
        raise ConfigError(f"{path}: cannot be imported ({type(error).__name__}: {error}).") from None
    return module


@contextlib.contextmanager
def _lenient_imports(path: Path):
    """Replace missing modules inside the block, and find `lm_eval` above `path` if it is not installed."""
    root = next((parent for parent in path.parents if parent.name == "lm_eval"), None)
    if root and "lm_eval" not in sys.modules and importlib.util.find_spec("lm_eval") is None:
        package = types.ModuleType("lm_eval")  # its own __init__ reads the version of the installed package
        package.__path__ = [str(root)]
        package.__spec__ = importlib.machinery.ModuleSpec("lm_eval", None, is_package=True)
        package.__spec__.submodule_search_locations = [str(root)]
        sys.modules["lm_eval"] = package
    finder = _Absent({name for name in _imported(path) if not _is_there(name)})
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]  # later imports must find it missing
            parent, _, child = name.rpartition(".")
            if isinstance(vars(sys.modules.get(parent, finder)).get(child), _StandIn):
                delattr(sys.modules[parent], child)


def _imported(path: Path) -> set[str]:
    """Return the full names of the modules that a file imports."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named.add(node.module)
    return named


def _is_there(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import finder of last resort, which creates placeholders for `modules` and their parent packages."""

    def __init__(self, modules: set[str]):
        self.names = {module[:end] for module in modules for end in _ends(module)}

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name in self.names else None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def _ends(name: str) -> list[int]:
    """Return the index in a module's full name at which the name of each package, and of the module, ends."""
    return [at for at, letter in enumerate(name) if letter == "."] + [len(name)]


class _StandIn(types.ModuleType):
    """Placeholder for a module that is not installed; a call of anything in it raises ConfigError."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn(f"{self.__name__}.{name}")

    def __call__(self, *args, **kwargs):
        raise ConfigError(f"a trusted function requires {self.__name__}, which is not installed in this environment.")
