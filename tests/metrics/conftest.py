import pytest
from vernacular.metrics import aggregate


@pytest.fixture
def few_resamples(monkeypatch):
    """Intervals of 20 resamples, for tests that look at values."""
    for name in ("MEAN_RESAMPLES", "CORPUS_RESAMPLES", "FEWEST_RESAMPLES"):
        monkeypatch.setattr(aggregate, name, 20)
