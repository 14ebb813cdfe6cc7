"""Faster imports: stand-ins for libraries that nothing here calls, pandas later, and no garbage collection."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version

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
