"""Settings of every test; this file also puts tests/ on the import path, so that `import tiny` works."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def hub():
    """A Hub on this machine."""
    from hub_server import HubServer  # tests/ is on the path only after this file is read

    server = HubServer()
    yield server
    server.stop()
