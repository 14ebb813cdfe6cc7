"""Comparisons that may be looked at after every cluster: false alarms, power, order, and the confidence sequence."""

import numpy as np
import pytest
from vernacular.data.load import sample
from vernacular.statistics.sequential import ALPHA, hash_order, sequential, wealth

PER_CLUSTER = 5


def streams(rng, runs, clusters, gain, *, discordant=0.2, shared=0.0):
    """Return (runs, clusters, 5) differences -1, 0, 1; a share of the items has the value of its cluster."""
    win, loss = (discordant + gain) / 2, (discordant - gain) / 2
    chances = [loss, 1 - discordant, win]
    own = rng.choice([-1.0, 0.0, 1.0], p=chances, size=(runs, clusters, PER_CLUSTER))
    common = rng.choice([-1.0, 0.0, 1.0], p=chances, size=(runs, clusters, 1))
    return np.where(rng.random(own.shape) < shared, common, own)


@pytest.mark.parametrize("shared", [0.0, 0.55])  # correlation of items of a cluster: its square
def test_peeking_after_every_cluster_gives_few_false_alarms(shared):
    means = streams(np.random.default_rng(1), 1000, 400, 0.0, shared=shared).mean(-1)
    assert (wealth(means) >= 1 / ALPHA).any(axis=-1).mean() <= 0.065
    errors = means.cumsum(-1) / np.arange(1, 401)
    spread = np.array([means[:, :t].std(axis=1, ddof=1) / np.sqrt(t) for t in range(10, 401, 5)]).T
    tested = np.abs(errors[:, 9::5]) > 1.96 * spread
    assert tested.any(axis=-1).mean() > 0.25  # the ordinary test, repeated: for comparison


def test_a_gain_of_ten_points_is_found_within_a_thousand_items():
    means = streams(np.random.default_rng(2), 500, 1000 // PER_CLUSTER, 0.1).mean(-1)
    assert (wealth(means) >= 1 / ALPHA).any(axis=-1).mean() >= 0.94


def in_order(values):
    labels = [f"c{number}" for number in range(len(values))]
    order = hash_order(labels)
    return list(values), [labels[position] for position in order]


def test_evidence_counts_items_and_names_the_cluster_that_decides():
    values, labels = in_order([np.ones(2)] * 20 + [np.zeros(3)] * 2)
    found = sequential(values, labels)
    assert found.evidence == pytest.approx(wealth(found.differences))
    assert found.decided == int(np.flatnonzero(found.evidence >= 20)[0]) < 20
    assert found.n_items[[0, -1]].tolist() == [2, 46]
    assert found.low[-1] > 0
    assert sequential(*in_order([np.zeros(2)] * 30)).decided is None


@pytest.mark.slow
def test_confidence_sequence_contains_the_mean_at_all_times():
    rng = np.random.default_rng(3)
    covered = []
    for run in streams(rng, 100, 150, 0.1):
        found = sequential(*in_order(run))
        covered.append(bool(((found.low <= 0.1) & (found.high >= 0.1)).all()))
        assert (np.diff(found.high - found.low) <= 1e-12).all()
    assert np.mean(covered) >= 0.9


def test_rows_in_another_order_are_refused():
    values, labels = in_order(np.zeros((9, 2)))
    with pytest.raises(ValueError, match="not in hash order"):
        sequential(values, labels[::-1])
    with pytest.raises(ValueError, match="from -1 to 1"):
        sequential([np.array([2.0])], ["c"])


def test_order_is_that_of_limit():
    items = [{"item_id": f"i{n}", "cluster_id": f"p{n // 2}", "few_shot": False} for n in range(40)]
    labels = [f"p{n}" for n in range(20)]
    ordered = [labels[position] for position in hash_order(labels)]
    for limit in (2, 10, 30):
        assert {item["cluster_id"] for item in sample(items, limit, 0)} == set(ordered[: limit // 2])
