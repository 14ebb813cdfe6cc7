import pytest
from vernacular.summary.grid import combine_tables
from vernacular.summary.workbook import seed_spread


def test_seed_spread_groups_by_all_other_settings(metrics_table):
    values_by_seed = {1: 0.4, 2: 0.5, 3: 0.9}
    rows = [{"seed": seed, "value": value} for seed, value in values_by_seed.items()]
    other_rows = [{"seed": 1, "shots": 0}, {"seed": 1, "model": "n"}, {"seed": 2, "model": "n", "value": None}]
    (row,) = seed_spread(combine_tables([metrics_table(*rows, *other_rows)])).to_dict("records")
    assert (row["model"], row["shots"], row["seeds"], row["n_seeds"]) == ("m", 5, "1 2 3", 3)
    assert row["mean"] == pytest.approx(0.6)
    assert row["sd"] == pytest.approx(0.07**0.5)
    assert (row["lowest"], row["highest"]) == (0.4, 0.9)


def test_seed_spread_is_empty_for_one_seed(metrics_table):
    assert seed_spread(combine_tables([metrics_table({}, {"seed": None, "shots": 0})])).empty
    assert seed_spread(combine_tables([])).empty
