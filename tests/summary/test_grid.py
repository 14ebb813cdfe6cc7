import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import METRICS, RESULTS
from vernacular.summary.grid import build_grid, collect, to_arrow, wide


def test_collect_returns_all_schema_columns_and_rows(metrics_table):
    long = collect([metrics_table({"model": "b"}), metrics_table({"model": "a"}, {"model": "a", "language": "ca"})])
    assert list(long.columns) == METRICS.schema.names
    assert list(zip(long["language"], long["model"], strict=True)) == [("ca", "a"), ("gl", "a"), ("gl", "b")]


def test_collect_keeps_seeds_integer_with_missing_values(metrics_table):
    long = collect([metrics_table({"seed": 2**60 + 1}, {"model": "n", "seed": None})])
    assert long["seed"].tolist() == [2**60 + 1, pd.NA]


def test_collect_without_tables_is_empty():
    assert list(collect([]).columns) == METRICS.schema.names
    assert wide(collect([])).empty


def test_collect_rejects_duplicate_results(metrics_table):
    with pytest.raises(ArtifactError, match=r"m: two values of accuracy in openbookqa\.gl\.generation\.5shot"):
        collect([metrics_table({}), metrics_table({"value": 0.6})])


def test_long_table_round_trips_through_results_file(metrics_table, tmp_path):
    long = collect([metrics_table({"value": 1 / 3}, {"model": "n", "value": None, "seed": None, "adapter": "a"})])
    artifacts.write(tmp_path / "results.parquet", RESULTS, to_arrow(long), {})
    result = collect([artifacts.read(tmp_path / "results.parquet", RESULTS)])
    pd.testing.assert_frame_equal(result, long)


@pytest.mark.parametrize(
    "changes", [{"shots": 0}, {"seed": 7}, {"style": "simil-eval"}, {"model_revision": "xyz"}, {"adapter": "lora"}]
)
def test_wide_separates_runs_with_different_settings(metrics_table, changes):
    table = wide(collect([metrics_table({}, changes | {"value": 0.7})]))
    assert sorted(table["openbookqa-gl-accuracy"]) == [0.5, 0.7]


def test_wide_leaves_missing_evaluations_empty(metrics_table):
    table = wide(collect([metrics_table({"model": "a"}, {"model": "b", "language": "ca", "value": 0.1})]))
    assert list(table.columns[6:]) == ["openbookqa-ca-accuracy", "openbookqa-gl-accuracy"]
    np.testing.assert_array_equal(table.iloc[:, 6:].to_numpy(), [[np.nan, 0.5], [0.1, np.nan]])


def test_wide_column_names_include_protocol_only_if_ambiguous(metrics_table):
    rows = [{}, {"protocol": "options", "value": 0.6}, {"task": "belebele", "value": 0.7}]
    table = wide(collect([metrics_table(*rows)]))
    assert table.iloc[0, 6:].to_dict() == {
        "belebele-gl-accuracy": 0.7,
        "openbookqa-generation-gl-accuracy": 0.5,
        "openbookqa-options-gl-accuracy": 0.6,
    }


def test_grid_excludes_values_by_category(metrics_table):
    layout = build_grid(collect([metrics_table({}, {"category": "agreement", "value": 0.9})]))
    assert layout.cells.tolist() == [[0]]


def test_grid_orders_headline_metrics_first(metrics_table):
    rows = [{}, {"metric": "a_detail", "headline": False}]
    assert build_grid(collect([metrics_table(*rows)])).columns["metric"].tolist() == ["accuracy", "a_detail"]


def test_grid_orders_base_before_adapters_case_insensitively(metrics_table):
    rows = [{"model": "b"}, {"model": "B", "adapter": "z"}, {"model": "a", "adapter": "x"}, {"model": "a"}]
    runs = build_grid(collect([metrics_table(*rows)])).runs
    assert runs["model"].tolist() == ["a", "a", "B", "b"]
    assert runs["adapter"].fillna("").tolist() == ["", "x", "z", ""]


def test_grid_orders_base_before_adapters_regardless_of_names(metrics_table):
    rows = [
        {"model": "a-gl", "adapter": "./gl", "base": "llama"},
        {"model": "z-ca", "adapter": "./ca", "base": "llama"},
        {"model": "llama"},
        {"model": "zephyr"},
        {"model": "bert"},
    ]
    long = collect([metrics_table(*rows)])
    assert long["model"].tolist() == ["bert", "llama", "a-gl", "z-ca", "zephyr"]
    assert build_grid(long).runs["model"].tolist() == long["model"].tolist()
    assert list(long.columns) == METRICS.schema.names


def test_csv_round_trip_preserves_numbers(metrics_table, tmp_path):
    long = collect([metrics_table({"value": 0.1 + 0.2}, {"model": "n", "value": 1e-17, "seed": None})])
    result = pd.read_csv(write_csv(tmp_path / "results.csv", long), float_precision="round_trip")
    assert result["value"].tolist() == [0.30000000000000004, 1e-17]
    assert result["seed"].tolist()[0] == 42
    assert list(result.columns) == list(long.columns)


def test_csv_writes_nullable_integers_as_integers(tmp_path):
    table = pa.table({"seed": pa.array([1, None], pa.int64()), "significant": pa.array([True, None])})
    path = write_csv(tmp_path / "some.csv", to_frame(table))
    assert path.read_text() == "seed,significant\n1,True\n,\n"


def test_csv_escapes_text_but_not_numbers(metrics_table, tmp_path):
    rows = [{"model": '=HYPERLINK("http://x")', "value": -0.5}, {"model": "غـ \x07\nmodel", "style": None}]
    path = write_csv(tmp_path / "results.csv", collect([metrics_table(*rows)]))
    result = pd.read_csv(path, encoding="utf-8")
    assert result["model"].tolist() == ['\'=HYPERLINK("http://x")', "غـ \\x07 model"]
    assert result["value"].tolist() == [-0.5, 0.5]
    assert path.read_bytes().count(b"\n") == 3
    assert not list(tmp_path.glob(".*.tmp"))
