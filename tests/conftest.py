"""Settings of all tests; this file also puts tests/ on the import path, so that `from support import tiny` works."""

import functools
import itertools
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from support.optional import TOOLS_PACKAGES

# packages of `make tools` that tests import themselves, after those of the environment
if TOOLS_PACKAGES:
    sys.path.append(str(TOOLS_PACKAGES))

# Remove the user's own settings (token, mirror, proxy, Snakemake profile, threads).
for name in list(os.environ):
    prefixes = ("HF_", "HUGGING_FACE_", "TRANSFORMERS_", "SENTENCE_TRANSFORMERS_", "TORCH_", "SNAKEMAKE_", "SLURM")
    if name.startswith(prefixes) or name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
# of jobs with several threads: those that spin while they wait for one that has no core take several times the CPU time
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
_HF_HOME = tempfile.TemporaryDirectory(prefix="vernacular-hub-")  # cache and token of the Hub, none of the user's
os.environ["HF_HOME"] = _HF_HOME.name

# Examples of property tests are the same in each run and order; without a database, also after a failure.
settings.register_profile("test", derandomize=True, deadline=None, database=None)
settings.register_profile("soak", deadline=None, database=None, print_blob=True, max_examples=2000)
settings.load_profile("soak" if "SOAK_SEED" in os.environ else "test")


def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path, help="leave out the tests that passed with this file; add this run to it")


def _earlier_runs(config) -> list[dict]:
    """Return {passed, skipped: {test: reason}, failed} of each earlier run with the file of `--outcomes`."""
    path = config.getoption("outcomes")
    return json.loads(path.read_text("utf-8")) if path and path.exists() else []


def pytest_terminal_summary(terminalreporter, config):
    if (path := config.getoption("outcomes")) and not hasattr(config, "workerinput"):  # of all processes
        reports = terminalreporter.stats
        run = {
            "passed": [report.nodeid for report in reports.get("passed", [])],
            "skipped": {report.nodeid: report.longrepr[2] for report in reports.get("skipped", [])},
            "failed": [report.nodeid for kind in ("failed", "error") for report in reports.get(kind, [])],
        }
        runs = [*_earlier_runs(config), run]
        path.write_text(json.dumps(runs), "utf-8")


def pytest_collection_modifyitems(config, items):
    """Run workflow tests first: each file runs in one process, and the longest must not start last."""
    passed = {name for run in _earlier_runs(config) for name in run["passed"]}
    if earlier := [item for item in items if item.nodeid in passed]:
        config.hook.pytest_deselected(items=earlier)
        items[:] = [item for item in items if item.nodeid not in passed]
    slowest = {"workflow", "slurm", "test_collection.py"}
    items.sort(key=lambda item: slowest.isdisjoint({item.path.parent.name, item.path.name}))


@pytest.fixture(autouse=True)
def own_environment():
    """Restore the environment variables after each test: a command that runs in the tests' process may set some."""
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update((name, value) for name, value in before.items() if os.environ.get(name) != value)


@pytest.fixture
def default_signals():
    """Restore the default handlers of SIGINT, SIGTERM and SIGUSR1 in this process and its children, as in a terminal.

    A shell without job control starts background jobs with SIGINT ignored, and CI may do the same. Python then installs no
    KeyboardInterrupt handler, and child processes inherit this: a test that sends SIGINT would wait indefinitely.
    """
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGUSR1: signal.SIG_DFL,
    }
    ignored = [number for number in handlers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, handlers[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="module")
def start_hub():
    """Return a function that starts a local Hub; all Hubs stop after the module's tests."""
    from support.hub_server import HubServer  # tests/ is on the path only after this file is read

    servers = []

    def start() -> HubServer:
        servers.append(HubServer())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def hub(start_hub):
    """A local Hub, shared by all tests of a module."""
    return start_hub()


@pytest.fixture
def low_limits(monkeypatch):
    """Return a function that sets constants of a module for a test, so that small data exceed its internal limits."""

    from support.limits import lower

    return functools.partial(lower, monkeypatch)


@pytest.fixture
def set_version(tmp_path, monkeypatch):
    """Return a function that makes Python find another version of a distribution, installed or not."""
    from vernacular.core.fingerprint import version_of

    numbers = itertools.count()

    def set_to(name: str, version: str) -> None:
        info = tmp_path / "versions" / str(next(numbers)) / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(info.parent)
        version_of.cache_clear()

    yield set_to
    monkeypatch.undo()
    version_of.cache_clear()


@pytest.fixture
def few_resamples(low_limits):
    """Use 20 resamples for intervals, for tests of values."""
    low_limits("metrics.aggregate", MEAN_RESAMPLES=20, CORPUS_RESAMPLES=20, FEWEST_RESAMPLES=20)
