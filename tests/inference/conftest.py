import pytest
from support import served


@pytest.fixture(scope="module")
def model():
    """A tiny model, to which real text is plausible, for servers."""
    return served.trained_model()
