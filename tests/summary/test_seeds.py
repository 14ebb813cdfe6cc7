import pytest
from vernacular.summary.grid import collect
from vernacular.summary.provenance import between_seeds


def test_spread_between_seeds_is_over_seeds_alone(metrics_table):
    values = {1: 0.4, 2: 0.5, 3: 0.9}
    rows = [{"seed": seed, "value": value} for seed, value in values.items()]
    others = [{"seed": 1, "shots": 0}, {"seed": 1, "model": "n"}, {"seed": 2, "model": "n", "value": None}]
    (row,) = between_seeds(collect([metrics_table(*rows, *others)])).to_dict("records")
    assert (row["model"], row["shots"], row["seeds"], row["n_seeds"]) == ("m", 5, "1 2 3", 3)
    assert row["mean"] == pytest.approx(0.6)
    assert row["sd"] == pytest.approx(0.07**0.5)
    assert (row["lowest"], row["highest"]) == (0.4, 0.9)


def test_one_seed_has_no_spread(metrics_table):
    assert between_seeds(collect([metrics_table({}, {"seed": None, "shots": 0})])).empty
    assert between_seeds(collect([])).empty
