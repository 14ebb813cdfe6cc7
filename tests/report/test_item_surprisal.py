import pyarrow as pa
from vernacular.inference.schema import SCORES
from vernacular.report.item_details import UNSCORED, pack_surprisals


def scores_table(*rows):
    return pa.Table.from_pylist([{"item_id": "a", "role": "sentence", **row} for row in rows], schema=SCORES.schema)


def packed_row(row, text="Os gatos", start=0):
    return pack_surprisals(scores_table(row), {"sentence"}, lambda item, role: (text, start)).get("a")


def test_tokens_are_lengths_and_hundredths_of_nats():
    assert packed_row({"offsets": [[0, 2], [2, 8]], "logprobs": [-1.234, -0.5]}) == [("sentence", 0, [2, 6], [123, 50])]


def test_tokens_of_one_character_have_length_zero():
    row = {"offsets": [[0, 1], [1, 2], [1, 2], [2, 3]], "logprobs": [-1, -2, -3, -4]}
    assert packed_row(row, text="a😀b") == [("sentence", 0, [1, 1, 0, 1], [100, 200, 300, 400])]


def test_token_without_probability_is_unscored():
    assert packed_row({"offsets": [[0, 2], [2, 8]], "logprobs": [None, -0.5]}) == [
        ("sentence", 0, [2, 6], [UNSCORED, 50])
    ]


def test_space_before_first_token_is_skipped():
    assert packed_row({"offsets": [[11, 13]], "logprobs": [-1]}, text=" no", start=10) == [("sentence", 1, [2], [100])]


def test_space_removed_by_chat_template_is_skipped():
    row = {"offsets": [[6, 8]], "logprobs": [-1], "rendered": "<user>no"}
    assert packed_row(row, text=" no", start=3) == [("sentence", 1, [2], [100])]


def test_text_changed_by_chat_template_is_stored():
    row = {"offsets": [[0, 2]], "logprobs": [-1], "rendered": "NO"}
    assert packed_row(row, text=" no") == [("sentence", "NO", [2], [100])]


def test_rows_without_tokens_and_other_roles_are_excluded():
    scores = scores_table(
        {"offsets": [], "logprobs": [], "flags": "empty"}, {"role": "bare:0", "offsets": [[0, 1]], "logprobs": [-1]}
    )
    assert pack_surprisals(scores, {"sentence"}, lambda item, role: ("x", 0)) == {}


def test_rows_are_packed_separately():
    scores = scores_table(
        {"item_id": "a", "offsets": [[0, 2], [2, 4]], "logprobs": [-1, -2]},
        {"item_id": "b", "offsets": None, "logprobs": None},
        {"item_id": "c", "offsets": [[5, 7]], "logprobs": [-3]},
    )
    packed = pack_surprisals(scores, {"sentence"}, lambda item, role: ("abcd", 5 if item == "c" else 0))
    assert packed == {"a": [("sentence", 0, [2, 2], [100, 200])], "c": [("sentence", 0, [2], [300])]}
