import pyarrow as pa
import pytest
from vernacular.core.tables import by_items, rows_of
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import TASK_RESULTS

RESULT = {"item_id": "a", "prompt": "😀\u202e", "choices": ["x", None], "gold": [], "option_scores": [-1.5, None]}
RESULT |= {"metrics": [("accuracy", 1.0), ("margin", None)], "correct": None, "tie": False, "predicted_indices": [0, 1]}
SCORE = {"item_id": "a", "role": "filled", "request_id": "r", "offsets": [[0, 2], [2, 5]], "logprobs": [None, -0.5]}


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (TASK_RESULTS, [RESULT, {"item_id": "b"}, RESULT | {"metrics": [], "option_scores": []}]),
        (SCORES, [SCORE | {"rank": [1, None]}, {"item_id": "b", "offsets": []}, SCORE | {"n_prompt_tokens": 7}]),
        (GENERATIONS, [{"item_id": "a", "n_tokens": None, "raw_output": ""}, {"item_id": "b", "n_tokens": 3}]),
    ],
)
def test_rows_equal_arrow_pylist_for_slices_and_chunks(kind, rows):
    table = pa.Table.from_pylist(rows, schema=kind.schema)
    chunked = pa.concat_tables([table.slice(1), table.slice(0, 1)])
    for view in (table, table.slice(1, 1), table.take([1, 0]), chunked, table.slice(0, 0)):
        assert repr(rows_of(view)) == repr(view.to_pylist(maps_as_pydicts="strict"))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("order", ["items", "reversed", "chunks"])
def test_parts_have_the_rows_of_their_items_in_order(size, order):
    items = pa.table({"item_id": ["a", "b", "without", "c"]})
    outputs = pa.table({"item_id": ["a", "a", "b", "without item", "c", "c"], "n": [0, 1, 2, 3, 4, 5]})
    if order == "reversed":
        outputs = outputs.take([5, 4, 3, 2, 1, 0])
    if order == "chunks":
        outputs = pa.concat_tables([outputs.slice(4), outputs.slice(0, 4)])
    parts = [[rows_of(table) for table in part] for part in by_items(items, [outputs], size)]
    assert [row["item_id"] for rows, _ in parts for row in rows] == ["a", "b", "without", "c"]
    assert [len(rows) for rows, _ in parts] == {1: [1] * 4, 2: [2, 2], 3: [3, 1], 4: [4], 5: [4]}[size]
    expected = [row["n"] for row in outputs.to_pylist() if row["item_id"] != "without item"]
    for rows, output_rows in parts:
        ids = {row["item_id"] for row in rows}
        assert {row["item_id"] for row in output_rows} <= ids
        assert [row["n"] for row in output_rows] == [n for n in expected if "aab-cc"[n] in ids]


def test_no_items_have_no_parts():
    assert list(by_items(pa.table({"item_id": pa.array([], pa.string())}), [pa.table({"item_id": ["a"]})], 2)) == []
