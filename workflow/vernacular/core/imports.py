"""Faster imports: stand-ins for what nothing here calls, pandas later, no garbage collection, files read once."""

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

# Parts of SciPy, which are a second to import; scipy.sparse is quick, and called.
SCIPY = tuple(f"scipy.{part}" for part in ("linalg", "ndimage", "optimize", "signal", "spatial", "special", "stats"))
UNUSED_BY_SENTENCE_TRANSFORMERS = ("sklearn", "datasets", "peft", *SCIPY)


@contextlib.contextmanager
def stand_ins(*names: str) -> Iterator[None]:
    """Import empty modules in place of these libraries ("scipy.stats": a part of one), unless they are already loaded.

    POT imports scikit-learn, networkx and SciPy, sentence-transformers scikit-learn, datasets, PEFT and SciPy,
    transformers SciPy, and bert-score matplotlib and pandas, for functions that nothing here calls (clustering,
    training, object detection, plots, tables): a third of the processor time until a process can embed texts. What they
    import from a stand-in raises RuntimeError when it is called. After the block, the libraries themselves can be
    imported.
    """
    finder = _Finder({name for name in names if name not in sys.modules})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.replaces(name)]:
            module = sys.modules.pop(name)
            parent, _, attribute = name.rpartition(".")
            if vars(sys.modules.get(parent, object)).get(attribute) is module:
                delattr(sys.modules[parent], attribute)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Import torch and what uses it without garbage collection, a fifteenth of the time.

    What was imported, half a million objects, is left out of later collections. Nothing happens if torch is loaded.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def postpone_pandas() -> None:
    """Let pyarrow import pandas when it converts a table to or from pandas, not at the first conversion of any values.

    This saves a quarter of a second in each process that needs no pandas. It is for the processes of stages, which
    convert only tables: before the first one, `pyarrow.array` does not recognize the missing values of a pandas Series.
    """
    if "pyarrow" in sys.modules and "pandas" not in sys.modules:
        absent = _Absent()
        sys.meta_path.insert(0, absent)
        sys.modules["pyarrow"].array([0])  # finds no pandas, and asks again when it needs it
        sys.meta_path.remove(absent)


def skip_parts_of_numpy() -> None:
    """Let SciPy import its functions without NumPy's Fortran compiler and test tools: a tenth of a second.

    SciPy copies all names of NumPy, which includes parts that are otherwise imported at their first use. Nothing
    happens if SciPy has copied them.
    """
    _wrap_import("scipy._lib.array_api_compat.numpy", _execute_without_parts_of_numpy)


def _execute_without_parts_of_numpy(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    with stand_ins("numpy.f2py", "numpy.testing"):
        execute(module)


def read_exports_once() -> None:
    """Let transformers read the files of its models once when it is imported: 0.6 of 4 seconds until it has a model.

    It looks for the names that 2,500 files export, and does so twice, because it remembers only 128 of their 550
    directories, and it looks at every line of a file. Nothing happens if transformers is loaded.
    """
    _wrap_import("transformers.utils.import_utils", _execute_with_cache)


def _execute_with_cache(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    execute(module)
    of_directory, of_file = module.create_import_structure_from_path, module.fetch__all__
    module.create_import_structure_from_path = functools.cache(of_directory.__wrapped__)
    # the last line that begins with __all__, and what follows
    module.fetch__all__ = lambda content: of_file(content[content.rfind("\n__all__") + 1 :])


def _wrap_import(name: str, wrapper: Callable[[Callable[[ModuleType], None], ModuleType], None]) -> None:
    """Call `wrapper(execute, module)` when a module is imported, instead of `execute(module)`."""
    if name not in sys.modules and not any(isinstance(f, _Wrapper) and f.name == name for f in sys.meta_path):
        sys.meta_path.insert(0, _Wrapper(name, wrapper))


class _Wrapper(MetaPathFinder):
    def __init__(self, name: str, wrapper: Callable):
        self.name, self.wrapper = name, wrapper

    def find_spec(self, fullname, path=None, target=None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        spec.loader.exec_module = functools.partial(self.wrapper, spec.loader.exec_module)
        return spec


class _Absent(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not imported yet.")


class _Finder(MetaPathFinder, Loader):
    def __init__(self, libraries: set[str]):
        self.libraries = libraries

    def replaces(self, name: str) -> bool:
        return any(name == library or name.startswith(f"{library}.") for library in self.libraries)

    def find_spec(self, fullname, path=None, target=None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if self.replaces(fullname) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python create an empty module."""

    def exec_module(self, module) -> None:
        def find(attribute: str) -> type:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return type(attribute, (_NotLoaded,), {"__module__": module.__name__})

        module.__getattr__ = find
        with contextlib.suppress(PackageNotFoundError):  # scikit-learn is not named like its package
            module.__version__ = version(module.__name__)  # sentence-transformers records it


class _NotLoaded:
    def __init__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self).__module__}.{type(self).__name__} was replaced by a stand-in.")
