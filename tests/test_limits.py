"""The table of limits in docs/resources.md: each constant has the stated value, and each test exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workflow" / "vernacular"
SECTION = (ROOT / "docs" / "resources.md").read_text("utf-8").split("\n## Limits\n")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in SECTION.splitlines() if line.startswith("| ")][
    1:
]
LIMITS = re.compile("MAX_|LIMIT|_PER_|CHUNK|BLOCK|BATCH_ROWS|BUDGET|CELLS|ROWS|_COLUMNS|BYTES")
NOT_LIMITS = {  # constants with such a name that limit nothing
    *("_CHECK_ROWS", "_PARAMETERS_PER_NUMBER", "_PARAMETERS_PER_PACKED_NUMBER", "_PARAMETERS_PER_BYTE", "_BYTES"),
    *("CHARACTERS_PER_TOKEN", "_SECONDS_PER_OUTPUT", "_UNLIMITED", "_LIMITS", "_TOKEN_LIMITS"),
    *("_MIN_WIDTH", "_MAX_WIDTH"),  # of a column of a sheet
    "_BLOCK",  # weights that share one scale: the format of the file
}


def codes(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def test_every_row_has_five_cells():
    assert len(ROWS) > 60
    assert {len(row) for row in ROWS} == {5}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_constant_has_the_value_and_the_test_exists(row):
    _, value, constant, _, test = row
    if codes(value) and codes(constant):
        path, name = codes(constant)
        pattern = rf"{re.escape(name)}(: [\w.\[\]]+)?( = | |=|\()?{re.escape(codes(value)[0])}(?![\w.*])"
        assert re.search(pattern, (PACKAGE / path).read_text("utf-8")), f"{path}: {name} is not {codes(value)[0]}"
    names = codes(test)
    assert names or test == "low limits"
    content = ""
    for name in names:
        if name.endswith(".py"):
            content = (ROOT / "tests" / name).read_text("utf-8")
        else:
            assert f"def {name}(" in content, name


def test_no_limit_is_missing():
    stated = {name for row in ROWS for code in codes(row[2])[1:] for name in code.split(", ")}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and any(
                type(part) is ast.Constant and type(part.value) in (int, float) for part in ast.walk(node.value)
            ):
                for name in {
                    part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)
                }:
                    assert not LIMITS.search(name) or name in stated | NOT_LIMITS, (
                        f"{path}: {name} is in no row of docs/resources.md"
                    )
