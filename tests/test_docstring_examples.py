"""Doctest examples of the package; `lm_eval/test_values_by_hand.py` runs those that need lm-eval."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
import vernacular

PACKAGE = Path(vernacular.__file__).parent
TEXTS = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
MODULES = sorted(
    path for path, text in TEXTS.items() if ">>> " in text and not re.search(r"^ *(import|from) lm_eval", text, re.M)
)


def test_modules_with_examples_are_found():
    assert PACKAGE / "metrics" / "corpus.py" in MODULES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_examples_of_module(path):
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)
