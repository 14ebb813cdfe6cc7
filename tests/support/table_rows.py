import pyarrow as pa
import pytest
from vernacular.comparison.schema import COMPARISONS, OVERALL, RANKINGS
from vernacular.metrics.schema import METRICS


@pytest.fixture
def metrics_row():
    """Return a function that builds a valid row of a metrics table, with optional changes."""

    def row(**changes) -> dict:
        values = {
            "model": "m",
            "adapter": None,
            "base": None,
            "task": "openbookqa",
            "language": "gl",
            "protocol": "generation",
            "shots": 5,
            "seed": 42,
            "style": "vernacular",
            "prompt": "default",
            "category": "",
            "metric": "accuracy",
            "value": 0.5,
            "ci_low": 0.4,
            "ci_high": 0.6,
            "n": 100,
            "n_flagged": 0,
            "n_ties": 0,
            "chance_level": 0.25,
            "majority_baseline": None,
            "unit": "share",
            "metric_group": "similarity",
            "headline": True,
            "higher_is_better": True,
            "signature": "accuracy|v1",
            "model_revision": "abc",
            "dataset_revision": "def",
        } | changes
        evaluation = "{task}.{language}.{protocol}.{shots}shot".format(**values)
        return {"evaluation": evaluation} | values

    return row


@pytest.fixture
def metrics_table(metrics_row):
    """Return a function that builds a metrics table from differences from `metrics_row`."""

    def table(*changes: dict) -> pa.Table:
        return pa.Table.from_pylist([metrics_row(**change) for change in changes], schema=METRICS.schema)

    return table


_EVALUATION = {
    "evaluation": "openbookqa.gl.generation.5shot",
    "task": "openbookqa",
    "language": "gl",
    "protocol": "generation",
    "shots": 5,
    "seed": 42,
    "style": "vernacular",
    "prompt": "default",
    "metric": "accuracy",
}


@pytest.fixture
def ranking_row():
    """Return a function that builds a valid row of the rankings, with optional changes."""

    def row(**changes) -> dict:
        values = {"model": "m", "best": "m", "difference": 0.0, "p_value": None, "p_holm": None}
        values |= {"in_best_group": True, "rank": 1} | changes
        best = [values["best"]] if values["best"] != values["model"] else []
        values |= {"compared_with": best, "worse_than": [] if values["in_best_group"] else best}
        row = _EVALUATION | values | changes
        assert set(row) == set(RANKINGS.schema.names)
        return row

    return row


@pytest.fixture
def comparison_row():
    """Return a function that builds a valid row of the comparisons, with optional changes."""

    def row(**changes) -> dict:
        values = {
            "baseline": "base",
            "candidate": "mine",
            "category": "",
            "unit": "share",
            "higher_is_better": True,
            "headline": True,
            "n": 500,
            "n_baseline": 500,
            "n_candidate": 500,
            "baseline_value": 0.5,
            "candidate_value": 0.531,
            "difference": 0.031,
            "ci_low": 0.012,
            "ci_high": 0.05,
            "p_value": 0.002,
            "test": "exact McNemar, mid-p",
            "p_holm": 0.004,
            "n_tests": 2,
            "significant": True,
            "better": "candidate",
            "minimum_detectable_difference": 0.025,
            "both_correct": 240,
            "both_incorrect": 225,
            "baseline_only_correct": 10,
            "candidate_only_correct": 25,
            "net_gain": 15,
            "note": None,
            "signature": "accuracy|v1",
        }
        row = _EVALUATION | values | changes
        assert set(row) == set(COMPARISONS.schema.names)
        return row

    return row


@pytest.fixture
def overall_row():
    """Return a function that builds a valid row of the overall table, with optional changes."""

    def row(**changes) -> dict:
        values = {
            "model": "m",
            "scope": "all",
            "n_evaluations": 3,
            "n_excluded": 1,
            "mean": 0.4,
            "ci_low": 0.3,
            "ci_high": 0.5,
            "n_languages": 2,
            "mean_over_languages": 0.35,
            "languages_low": 0.2,
            "languages_high": 0.5,
            "rank": 1,
            "rank_worst": 3,
            "win_rate": 0.75,
        }
        row = values | changes
        assert set(row) == set(OVERALL.schema.names)
        return row

    return row
