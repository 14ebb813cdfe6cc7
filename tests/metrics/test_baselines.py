import numpy as np
import pytest
from support.result_rows import row
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.metric import chance_level, majority_baseline
from vernacular.protocols.evaluate import PROTOCOL_METRICS as PROTOCOLS


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_chance_is_that_of_the_results_table(protocol):
    metrics = PROTOCOLS[protocol].METRICS
    names = {name for metric in metrics for name in (metric.needs or (metric.name,))}
    rows = [row(f"i{i}", choices="abcd"[: 2 + i % 3], gold=[0], **{n: float(i % 2) for n in names}) for i in range(6)]
    chances = np.array([1 / len(each["choices"]) for each in rows])
    for found in aggregate(rows, metrics, seed=0, categories=False):
        assert chance_level(found["metric"], chances) == found["chance_level"], found["metric"]


def test_majority_is_the_commonest_place_of_a_right_option():
    rows = [row(f"i{i}", choices="abc", gold=gold) for i, gold in enumerate([[0], [2], [2], [0, 2]])]
    assert majority_baseline("position", rows) == 0.75
    assert majority_baseline("position", rows) == 0.75


def test_majority_needs_the_same_number_of_options():
    rows = [row("a", choices="abc"), row("b", choices="ab")]
    assert majority_baseline("position", rows) is None


def test_majority_of_labels():
    rows = [row(f"i{i}", choices=(), gold=(), label=label) for i, label in enumerate([1.0, 1.0, 0.0])]
    assert majority_baseline("label", rows) == pytest.approx(2 / 3)


def test_where_the_layout_puts_the_right_one_first_there_is_no_majority():
    rows = [row("a"), row("b")]
    assert majority_baseline(None, rows) is None
    assert majority_baseline(None, [row("a", choices=(), gold=())]) is None
    assert majority_baseline("position", []) is None
    assert majority_baseline("acceptability", [row("a", choices=(), gold=())]) is None
