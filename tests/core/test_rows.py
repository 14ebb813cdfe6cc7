import pyarrow as pa
import pytest
from vernacular.core.tables import rows_of
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
