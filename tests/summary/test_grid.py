import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import METRICS, RESULTS
from vernacular.summary.grid import build_grid, combine_tables, make_headings, to_arrow, wide


def test_collect_returns_all_schema_columns_and_rows(metrics_table):
    long = combine_tables(
        [metrics_table({"model": "b"}), metrics_table({"model": "a"}, {"model": "a", "language": "ca"})]
    )
    assert list(long.columns) == METRICS.schema.names
    assert list(zip(long["language"], long["model"], strict=True)) == [("ca", "a"), ("gl", "a"), ("gl", "b")]


def test_collect_keeps_seeds_integer_with_missing_values(metrics_table):
    long = combine_tables([metrics_table({"seed": 2**60 + 1}, {"model": "n", "seed": None})])
    assert long["seed"].tolist() == [2**60 + 1, pd.NA]


def test_collect_without_tables_is_empty():
    assert list(combine_tables([]).columns) == METRICS.schema.names
    assert wide(combine_tables([])).empty


def test_collect_rejects_duplicate_results(metrics_table):
    with pytest.raises(ArtifactError, match=r"m: two values of accuracy in openbookqa\.gl\.generation\.5shot"):
        combine_tables([metrics_table({}), metrics_table({"value": 0.6})])


def test_long_table_round_trips_through_results_file(metrics_table, tmp_path):
    long = combine_tables(
        [metrics_table({"value": 1 / 3}, {"model": "n", "value": None, "seed": None, "adapter": "a"})]
    )
    artifacts.write(tmp_path / "results.parquet", RESULTS, to_arrow(long), {})
    result = combine_tables([artifacts.read(tmp_path / "results.parquet", RESULTS)])
    pd.testing.assert_frame_equal(result, long)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"shots": 0}, "generation 0 shots"),
        ({"seed": 7}, "generation 5 shots seed 7"),
        ({"style": "simil-eval"}, "generation 5 shots simil-eval"),
        ({"protocol": "last_word"}, "last word 5 shots"),
    ],
)
def test_wide_has_a_column_per_setting(metrics_table, changes, setting):
    evaluation = ".".join(f"{key}-{value}" for key, value in changes.items())
    table = wide(
        combine_tables(
            [
                metrics_table(
                    {"style": "default"}, {"style": "default", "evaluation": evaluation, "value": 0.7} | changes
                )
            ]
        )
    )
    assert table["model"].tolist() == ["m"]
    assert table[f"gl / openbookqa / {setting} / Accuracy (share)"].tolist() == [0.7]
    assert sorted(table.iloc[0, 1:]) == [0.5, 0.7]


@pytest.mark.parametrize(
    ("changes", "name"), [({"model_revision": "xyz"}, "m (xyz)"), ({"adapter": "lora"}, "m (lora, abc)")]
)
def test_wide_distinguishes_models_with_one_name(metrics_table, changes, name):
    table = wide(combine_tables([metrics_table({}, changes | {"value": 0.7})])).set_index("model")
    assert table.loc[name].tolist() == [0.7]
    assert table.loc["m (abc)"].tolist() == [0.5]


def test_wide_leaves_missing_evaluations_empty(metrics_table):
    table = wide(combine_tables([metrics_table({"model": "a"}, {"model": "b", "language": "ca", "value": 0.1})]))
    names = [f"{language} / openbookqa / generation 5 shots vernacular / Accuracy (share)" for language in ("ca", "gl")]
    assert list(table.columns) == ["model", *names]
    np.testing.assert_array_equal(table[names].to_numpy(), [[np.nan, 0.5], [0.1, np.nan]])


def test_wide_uses_titles_of_tasks(metrics_table):
    long = combine_tables([metrics_table({"style": "default"}, {"style": "default", "metric": "loss", "unit": None})])
    table = wide(long, make_headings(long, {"openbookqa": {"title": "OpenBookQA"}}))
    prefix = "gl / OpenBookQA / generation 5 shots / "
    assert list(table.columns) == ["model", prefix + "Accuracy (share)", prefix + "Loss"]


def test_grid_excludes_values_by_category(metrics_table):
    layout = build_grid(combine_tables([metrics_table({}, {"category": "agreement", "value": 0.9})]))
    assert layout.cells.tolist() == [[0]]


def test_grid_orders_headline_metrics_first(metrics_table):
    rows = [{}, {"metric": "a_detail", "headline": False}]
    assert build_grid(combine_tables([metrics_table(*rows)])).columns["metric"].tolist() == ["accuracy", "a_detail"]


def test_lead_metric_is_the_one_of_the_aggregates(metrics_table):
    rows = [
        {"metric": "difsur", "unit": "percent", "chance_level": None},
        {"metric": "mcc", "chance_level": 0.0},
        {"metric": "auc", "chance_level": 0.5},
        {"metric": "a_detail", "headline": False},
    ]
    evaluation = "openbookqa.gl.generation.5shot"
    long = combine_tables([metrics_table(*rows)])
    by_name = build_grid(long).columns
    assert by_name["metric"].tolist() == ["auc", "difsur", "mcc", "a_detail"]
    by_protocol = build_grid(long, metric_order={(evaluation, "difsur"): 0, (evaluation, "mcc"): 1}).columns
    assert by_protocol["metric"].tolist() == ["mcc", "difsur", "auc", "a_detail"]
    assert by_protocol["is_lead"].tolist() == [True, False, False, False]


def test_evaluations_are_in_order_of_shots_and_seeds(metrics_table):
    rows = [{"shots": shots, "seed": seed, "evaluation": f"{shots}.{seed}"} for shots in (10, 5, 0) for seed in (2, 1)]
    assert build_grid(combine_tables([metrics_table(*rows)])).columns["evaluation"].tolist() == [
        "0.1", "0.2", "5.1", "5.2", "10.1", "10.2"
    ]  # fmt: skip


def test_grid_orders_base_before_adapters_case_insensitively(metrics_table):
    rows = [{"model": "b"}, {"model": "B", "adapter": "z"}, {"model": "a", "adapter": "x"}, {"model": "a"}]
    models = build_grid(combine_tables([metrics_table(*rows)])).models
    assert models["model"].tolist() == ["a", "a", "B", "b"]
    assert models["adapter"].fillna("").tolist() == ["", "x", "z", ""]


def test_grid_orders_base_before_adapters_regardless_of_names(metrics_table):
    rows = [
        {"model": "a-gl", "adapter": "./gl", "base": "llama"},
        {"model": "z-ca", "adapter": "./ca", "base": "llama"},
        {"model": "llama"},
        {"model": "zephyr"},
        {"model": "bert"},
    ]
    long = combine_tables([metrics_table(*rows)])
    assert long["model"].tolist() == ["bert", "llama", "a-gl", "z-ca", "zephyr"]
    assert build_grid(long).models["model"].tolist() == long["model"].tolist()
    assert list(long.columns) == METRICS.schema.names


def test_csv_round_trip_preserves_numbers(metrics_table, tmp_path):
    long = combine_tables([metrics_table({"value": 0.1 + 0.2}, {"model": "n", "value": 1e-17, "seed": None})])
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
    path = write_csv(tmp_path / "results.csv", combine_tables([metrics_table(*rows)]))
    result = pd.read_csv(path, encoding="utf-8")
    assert result["model"].tolist() == ['\'=HYPERLINK("http://x")', "غـ \\x07 model"]
    assert result["value"].tolist() == [-0.5, 0.5]
    assert path.read_bytes().count(b"\n") == 3
    assert not list(tmp_path.glob(".*.tmp"))
