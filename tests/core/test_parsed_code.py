"""Results of parsing are kept between processes, and depend on the content of a file only."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from vernacular.core import parsed_code

SOURCE = (
    'import json\nfrom os import path\n\n\ndef f():\n    """Documented."""\n    return json.dumps(path)  # a comment\n'
)
PROGRAM = """
import ast, sys
from pathlib import Path
from vernacular.core import parsed_code

parsed_code._path = lambda: Path("cache") / "code.json"
n_parsed = []
parse = ast.parse
ast.parse = lambda *args: n_parsed.append(1) or parse(*args)
print(parsed_code.parsed("m", Path("m.py")), len(n_parsed))
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that parses `m.py` in a new process and returns (its output, the number of parsed files)."""
    (tmp_path / "m.py").write_text(SOURCE)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(Path(parsed_code.__file__).parents[2])

    def run() -> tuple[str, int]:
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        output, _, count = done.stdout.strip().rpartition(" ")
        return output, int(count)

    return run


def test_unchanged_file_is_parsed_once(run, tmp_path):
    first, n_parsed = run()
    assert n_parsed == 1
    assert run() == (first, 0)
    os.utime(tmp_path / "m.py", (0, 0))
    assert run() == (first, 0)
    assert first == str(parsed_code.parse("m", SOURCE))


def test_changed_file_is_parsed_again_whatever_its_time(run, tmp_path):
    path = tmp_path / "m.py"
    first, _ = run()
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.write_text(SOURCE.replace("dumps", "loads"))
    os.utime(path, ns=times)
    changed, n_parsed = run()
    assert n_parsed == 1
    assert changed != first


def test_comments_docstrings_and_formatting_have_no_effect():
    formatted = SOURCE.replace("  # a comment", "").replace("Documented.", "Other.").replace("\n\n\n", "\n")
    assert parsed_code.parse("m", formatted) == parsed_code.parse("m", SOURCE)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"version"', b'{"version": "another", "modules": {"m": ["x"]}}', b"\xff"]
)
def test_damaged_or_other_cache_is_replaced(run, tmp_path, content):
    expected, _ = run()
    (tmp_path / "cache" / "code.json").write_bytes(content)
    assert run() == (expected, 1)
    assert run() == (expected, 0)
    assert list(json.loads((tmp_path / "cache" / "code.json").read_text())["modules"]) == ["m"]


def test_cache_that_cannot_be_written_has_no_effect(run, tmp_path):
    (tmp_path / "cache").write_text("a file where the directory should be")
    assert run()[1] == run()[1] == 1


def test_results_are_kept_beside_the_compiled_module():
    compiled = Path(importlib.util.cache_from_source(parsed_code.__file__))
    assert parsed_code._path() == compiled.with_suffix(".json")
