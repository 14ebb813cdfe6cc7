"""Settings of every test; this file also puts tests/ on the import path, so that `from support import tiny` works."""

import os
import signal

import pytest
from hypothesis import settings

# What a person has set for their own work (a token, a mirror, a proxy, a Snakemake profile, threads) is not of the tests.
for name in list(os.environ):
    of_others = ("HF_", "HUGGING_FACE_", "TRANSFORMERS_", "SENTENCE_TRANSFORMERS_", "TORCH_", "SNAKEMAKE_", "SLURM")
    if name.startswith(of_others) or name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}

# The examples of a property are the same in each run, in every order; without a database, also after one that failed.
settings.register_profile("test", derandomize=True, deadline=None, database=None)
settings.register_profile("soak", deadline=None, database=None, print_blob=True, max_examples=2000)
settings.load_profile("soak" if "SOAK_SEED" in os.environ else "test")


def pytest_collection_modifyitems(items):
    """Whole runs first: a file is told by one process, and the longest story must not be begun last."""
    longest = ("workflow", "slurm")
    items.sort(key=lambda item: item.path.parent.name not in longest)


@pytest.fixture
def heard_signals():
    """Let SIGINT, SIGTERM and SIGUSR1 act in this process, and in those it starts, as in a terminal.

    A shell without job control starts background jobs with SIGINT ignored, and CI may do the same. Python installs no
    KeyboardInterrupt then, and the processes that a test starts inherit it: a test that sends SIGINT would wait in vain.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGUSR1: signal.SIG_DFL}
    ignored = [number for number in usual if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, usual[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="module")
def start_hub():
    """A function that starts a Hub on this machine; all of them end with the module's tests."""
    from support.hub_server import HubServer  # tests/ is on the path only after this file is read

    started = []

    def start() -> HubServer:
        started.append(HubServer())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def hub(start_hub):
    """A Hub on this machine, the same for all tests of a module."""
    return start_hub()


@pytest.fixture
def few_resamples(monkeypatch):
    """Intervals of 20 resamples, for tests that look at values."""
    from vernacular.metrics import aggregate

    for name in ("MEAN_RESAMPLES", "CORPUS_RESAMPLES", "FEWEST_RESAMPLES"):
        monkeypatch.setattr(aggregate, name, 20)
