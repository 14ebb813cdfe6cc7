"""Settings of every test; this file also puts tests/ on the import path, so that `import tiny` works."""

import os
import signal

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The examples of a property are the same in each run, in every order; without a database, also after one that failed.
settings.register_profile("test", derandomize=True, deadline=None, database=None)
settings.register_profile("soak", deadline=None, database=None, print_blob=True, max_examples=2000)
settings.load_profile("soak" if "SOAK_SEED" in os.environ else "test")


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
def hub():
    """A Hub on this machine."""
    from hub_server import HubServer  # tests/ is on the path only after this file is read

    server = HubServer()
    yield server
    server.stop()
