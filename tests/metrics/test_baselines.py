import numpy as np
import pytest
from support.result_rows import row
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.metric import chance_level, majority_baseline
from vernacular.protocols.evaluate import PROTOCOL_METRICS as PROTOCOLS


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_chance_level_matches_aggregate(protocol):
    metrics = PROTOCOLS[protocol].METRICS
    names = {name for metric in metrics for name in (metric.needs or (metric.name,))}
    rows = [
        row(f"i{i}", choices="abcd"[: 2 + i % 3], gold=[0], **{name: float(i % 2) for name in names}) for i in range(6)
    ]
    chances = np.array([1 / len(result_row["choices"]) for result_row in rows])
    for metric_row in aggregate(rows, metrics, seed=0, categories=False):
        assert chance_level(metric_row["metric"], chances) == metric_row["chance_level"], metric_row["metric"]


def test_majority_is_most_common_position_of_correct_option():
    rows = [row(f"i{i}", choices="abc", gold=gold) for i, gold in enumerate([[0], [2], [2], [0, 2]])]
    assert majority_baseline("position", rows) == 0.75
    assert majority_baseline("position", rows) == 0.75


def test_majority_requires_equal_numbers_of_options():
    rows = [row("a", choices="abc"), row("b", choices="ab")]
    assert majority_baseline("position", rows) is None


def test_majority_of_labels():
    rows = [row(f"i{i}", choices=(), gold=(), label=label) for i, label in enumerate([1.0, 1.0, 0.0])]
    assert majority_baseline("label", rows) == pytest.approx(2 / 3)


def test_majority_is_none_if_undefined():
    rows = [row("a"), row("b")]
    assert majority_baseline(None, rows) is None
    assert majority_baseline(None, [row("a", choices=(), gold=())]) is None
    assert majority_baseline("position", []) is None
    assert majority_baseline("acceptability", [row("a", choices=(), gold=())]) is None
