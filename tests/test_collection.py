"""The tests are the same ones in every process: workers of pytest-xdist refuse to start where they differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# collects later by eleven days, and prints the names
PROGRAM = """
import sys, time
now = time.time
time.time = lambda: now() + 1e6

class Names:
    def pytest_collection_finish(self, session):
        print(*(item.nodeid.encode("unicode-escape").decode() for item in session.items), sep="\\n", file=sys.stderr)

import pytest
sys.exit(pytest.main(sys.argv[1:], plugins=[Names()]))
"""


@pytest.mark.slow
def test_names_depend_on_no_time_hash_place_or_language(request, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    seed = "1" if environment.get("PYTHONHASHSEED") != "1" else "2"
    environment |= {"PYTHONHASHSEED": seed, "TZ": "Pacific/Chatham", "LC_ALL": "C", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, "-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only"]
    command += ["--rootdir", str(TESTS.parent), "-c", str(TESTS.parent / "pyproject.toml"), str(TESTS)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    here, there = {}, {}
    for found, names in ((here, [item.nodeid for item in request.session.items]), (there, run.stderr.splitlines())):
        for name in names:
            found.setdefault(name.partition("::")[0], []).append(name.encode("unicode-escape").decode())
    for file, names in here.items():  # of those that were asked for
        assert [name for name in there[file] if name in set(names)] == names
