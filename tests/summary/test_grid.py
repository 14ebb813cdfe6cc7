import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import METRICS, RESULTS
from vernacular.summary.grid import collect, grid, to_arrow, wide


def test_long_table_has_every_column_of_the_contract_and_every_row(metrics_table):
    long = collect([metrics_table({"model": "b"}), metrics_table({"model": "a"}, {"model": "a", "language": "ca"})])
    assert list(long.columns) == METRICS.schema.names
    assert list(zip(long["language"], long["model"], strict=True)) == [("ca", "a"), ("gl", "a"), ("gl", "b")]


def test_a_missing_seed_leaves_the_others_whole_numbers(metrics_table):
    long = collect([metrics_table({"seed": 2**60 + 1}, {"model": "n", "seed": None})])
    assert long["seed"].tolist() == [2**60 + 1, pd.NA]


def test_no_tables_give_an_empty_long_table():
    assert list(collect([]).columns) == METRICS.schema.names
    assert wide(collect([])).empty


def test_the_same_results_given_twice_are_named(metrics_table):
    with pytest.raises(ArtifactError, match=r"m: two values of accuracy in openbookqa\.gl\.generation\.5shot"):
        collect([metrics_table({}), metrics_table({"value": 0.6})])


def test_long_table_survives_the_results_file(metrics_table, tmp_path):
    long = collect([metrics_table({"value": 1 / 3}, {"model": "n", "value": None, "seed": None, "adapter": "a"})])
    artifacts.write(tmp_path / "results.parquet", RESULTS, to_arrow(long), {})
    again = collect([artifacts.read(tmp_path / "results.parquet", RESULTS)])
    pd.testing.assert_frame_equal(again, long)


@pytest.mark.parametrize(
    "changes", [{"shots": 0}, {"seed": 7}, {"style": "simil-eval"}, {"model_revision": "xyz"}, {"adapter": "lora"}]
)
def test_runs_that_differ_in_one_setting_are_two_rows(metrics_table, changes):
    table = wide(collect([metrics_table({}, changes | {"value": 0.7})]))
    assert sorted(table["openbookqa-gl-accuracy"]) == [0.5, 0.7]


def test_wide_leaves_what_was_not_asked_empty(metrics_table):
    table = wide(collect([metrics_table({"model": "a"}, {"model": "b", "language": "ca", "value": 0.1})]))
    assert list(table.columns[6:]) == ["openbookqa-ca-accuracy", "openbookqa-gl-accuracy"]
    np.testing.assert_array_equal(table.iloc[:, 6:].to_numpy(), [[np.nan, 0.5], [0.1, np.nan]])


def test_protocol_is_named_only_where_a_task_has_several(metrics_table):
    rows = [{}, {"protocol": "options", "value": 0.6}, {"task": "belebele", "value": 0.7}]
    table = wide(collect([metrics_table(*rows)]))
    assert table.iloc[0, 6:].to_dict() == {
        "belebele-gl-accuracy": 0.7,
        "openbookqa-generation-gl-accuracy": 0.5,
        "openbookqa-options-gl-accuracy": 0.6,
    }


def test_values_by_category_stay_out_of_the_grid(metrics_table):
    layout = grid(collect([metrics_table({}, {"category": "agreement", "value": 0.9})]))
    assert layout.cells.tolist() == [[0]]


def test_headline_metrics_come_first(metrics_table):
    rows = [{}, {"metric": "a_detail", "headline": False}]
    assert grid(collect([metrics_table(*rows)])).columns["metric"].tolist() == ["accuracy", "a_detail"]


def test_base_stands_before_its_adapters_and_case_does_not_part_names(metrics_table):
    rows = [{"model": "b"}, {"model": "B", "adapter": "z"}, {"model": "a", "adapter": "x"}, {"model": "a"}]
    runs = grid(collect([metrics_table(*rows)])).runs
    assert runs["model"].tolist() == ["a", "a", "B", "b"]
    assert runs["adapter"].fillna("").tolist() == ["", "x", "z", ""]


def test_base_stands_before_its_adapters_whatever_their_names(metrics_table):
    rows = [
        {"model": "a-gl", "adapter": "./gl", "base": "llama"},
        {"model": "z-ca", "adapter": "./ca", "base": "llama"},
        {"model": "llama"},
        {"model": "zephyr"},
        {"model": "bert"},
    ]
    long = collect([metrics_table(*rows)])
    assert long["model"].tolist() == ["bert", "llama", "a-gl", "z-ca", "zephyr"]
    assert grid(long).runs["model"].tolist() == long["model"].tolist()
    assert list(long.columns) == METRICS.schema.names


def test_csv_reads_back_to_the_same_numbers(metrics_table, tmp_path):
    long = collect([metrics_table({"value": 0.1 + 0.2}, {"model": "n", "value": 1e-17, "seed": None})])
    again = pd.read_csv(write_csv(tmp_path / "results.csv", long), float_precision="round_trip")
    assert again["value"].tolist() == [0.30000000000000004, 1e-17]
    assert again["seed"].tolist()[0] == 42
    assert list(again.columns) == list(long.columns)


def test_whole_numbers_of_any_table_stay_whole_in_csv(tmp_path):
    table = pa.table({"seed": pa.array([1, None], pa.int64()), "significant": pa.array([True, None])})
    path = write_csv(tmp_path / "some.csv", to_frame(table))
    assert path.read_text() == "seed,significant\n1,True\n,\n"


def test_csv_text_is_text_and_numbers_stay_numbers(metrics_table, tmp_path):
    rows = [{"model": '=HYPERLINK("http://x")', "value": -0.5}, {"model": "غـ \x07\nmodel", "style": None}]
    path = write_csv(tmp_path / "results.csv", collect([metrics_table(*rows)]))
    again = pd.read_csv(path, encoding="utf-8")
    assert again["model"].tolist() == ['\'=HYPERLINK("http://x")', "غـ \\x07 model"]
    assert again["value"].tolist() == [-0.5, 0.5]
    assert path.read_bytes().count(b"\n") == 3
    assert not list(tmp_path.glob(".*.tmp"))
