"""The examples in docstrings are what the functions give."""

import doctest
import importlib
from pathlib import Path

import pytest
import vernacular

PACKAGE = Path(vernacular.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8"))


def test_there_are_examples():
    assert PACKAGE / "metrics" / "corpus.py" in MODULES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_examples_of(path):
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 0) == (0, True)
