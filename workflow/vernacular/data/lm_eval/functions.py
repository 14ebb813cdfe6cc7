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
from vernacular.data.lm_eval.templates import ROW_ERRORS


def is_function(value) -> bool:
    """Return whether a value is the dictionary that `task_file.read` creates for a `!function`."""
    return isinstance(value, dict) and value.keys() == {"function", "file", "sha256"}


def load(function_spec: dict, directory: Path) -> Callable:
    """Return the function of `function_spec`, whose `file` may be relative to `directory`.

    Raises:
        ConfigError: The module or the function is unavailable.
    """
    name = function_spec["function"]
    module_name, _, attribute = name.rpartition(".")
    if function_spec["file"] is None:
        module = _import_installed(module_name, name)
    else:
        path = (directory / function_spec["file"]).resolve()
        module = _import_file(path, file_fingerprint(path))
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError(f"!function {name}: function not found in {getattr(module, '__file__', module_name)}.")
    return function


def _import_installed(module_name: str, name: str):
    try:
        return importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:  # also for an empty name, or one that starts with a dot
        raise ConfigError(f"!function {name}: module not found next to the task file ({error}).") from None


@functools.cache
def _import_file(path: Path, digest: str):
    """Import the module in `path`, once per content (`digest`)."""
    spec = importlib.util.spec_from_file_location(f"lm_eval_task_{digest[:12]}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # `datasets` pickles the functions
    try:
        with _lenient_imports(path):
            spec.loader.exec_module(module)
    except (ImportError, SyntaxError, *ROW_ERRORS) as error:
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
    finder = _PlaceholderFinder({name for name in _imported_modules(path) if not _is_importable(name)})
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _PlaceholderModule)]:
            del sys.modules[name]  # later imports must find it missing
            parent, _, child = name.rpartition(".")
            if isinstance(vars(sys.modules.get(parent, finder)).get(child), _PlaceholderModule):
                delattr(sys.modules[parent], child)


def _imported_modules(path: Path) -> set[str]:
    """Return the full names of the modules that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def _is_importable(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


class _PlaceholderFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import finder of last resort, which creates placeholders for `modules` and their parent packages."""

    def __init__(self, modules: set[str]):
        self.names = {module[:end] for module in modules for end in _name_ends(module)}

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name in self.names else None

    def create_module(self, spec):
        return _PlaceholderModule(spec.name)

    def exec_module(self, module):
        pass


def _name_ends(name: str) -> list[int]:
    """Return the index in a module's full name at which the name of each package, and of the module, ends."""
    return [index for index, character in enumerate(name) if character == "."] + [len(name)]


class _PlaceholderModule(types.ModuleType):
    """Placeholder for a module that is not installed; a call of anything in it raises ConfigError."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _PlaceholderModule(f"{self.__name__}.{name}")

    def __call__(self, *args, **kwargs):
        raise ConfigError(
            f"a trusted function of the task requires {self.__name__}, which is not installed. "
            "Install it in the environment of Vernacular."
        )
