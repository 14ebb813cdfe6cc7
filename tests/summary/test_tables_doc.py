"""The page on tables describes what is written."""

import re
from pathlib import Path

from vernacular.metrics.schema import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text("utf-8")


def test_every_column_of_the_results_is_explained():
    table = PAGE.split("## The columns of `results.csv`")[1].split("\n## ")[0]
    named = [name for row in re.findall(r"^\| (`.+?`) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(METRICS.schema.names)
