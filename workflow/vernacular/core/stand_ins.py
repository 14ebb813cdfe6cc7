"""Stand-ins for libraries that another library imports, but that nothing here calls."""

import contextlib
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version


@contextlib.contextmanager
def stand_ins(*names: str) -> Iterator[None]:
    """Import empty modules in place of these libraries, unless they are already loaded.

    POT imports scikit-learn and networkx, sentence-transformers scikit-learn and datasets, and bert-score matplotlib
    and pandas, for functions that nothing here calls (clustering, training, plots, tables): a quarter of the processor
    time until a process can embed texts. What they import from a stand-in raises RuntimeError when it is called. After
    the block, the libraries themselves can be imported.
    """
    finder = _Finder({name for name in names if name not in sys.modules})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.replaces(name)]:
            del sys.modules[name]


class _Finder(MetaPathFinder, Loader):
    def __init__(self, libraries: set[str]):
        self.libraries = libraries

    def replaces(self, name: str) -> bool:
        return name.partition(".")[0] in self.libraries

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
