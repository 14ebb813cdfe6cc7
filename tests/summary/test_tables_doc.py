"""The documentation of tables covers all columns."""

import re
from pathlib import Path

from vernacular.metrics.schema import RESULTS

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text("utf-8")


def test_docs_describe_every_results_column():
    table = PAGE.split("## The columns of `results.csv`")[1].split("\n## ")[0]
    documented = [name for row in re.findall(r"^\| (`.+?`) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(documented) == sorted(RESULTS.schema.names)
