import pyarrow as pa
import pytest
from vernacular.metrics.schema import METRICS


@pytest.fixture
def metrics_row():
    """One row of a metrics table, right in every column, with what a test changes."""

    def row(**changes) -> dict:
        given = {
            "model": "m",
            "adapter": None,
            "base": None,
            "task": "openbookqa",
            "language": "gl",
            "protocol": "generation",
            "shots": 5,
            "seed": 42,
            "style": "vernacular",
            "category": "",
            "metric": "accuracy",
            "value": 0.5,
            "ci_low": 0.4,
            "ci_high": 0.6,
            "n": 100,
            "n_flagged": 0,
            "n_ties": 0,
            "chance": 0.25,
            "majority": None,
            "unit": "share",
            "family": "similarity",
            "headline": True,
            "higher_is_better": True,
            "signature": "accuracy|v1",
            "model_revision": "abc",
            "dataset_revision": "def",
        } | changes
        evaluation = "{task}.{language}.{protocol}.{shots}shot".format(**given)
        return {"evaluation": evaluation} | given

    return row


@pytest.fixture
def metrics_table(metrics_row):
    """A metrics table of rows, each given as what differs from `metrics_row`."""

    def table(*changes: dict) -> pa.Table:
        return pa.Table.from_pylist([metrics_row(**change) for change in changes], schema=METRICS.schema)

    return table
