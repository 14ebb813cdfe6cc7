import pyarrow as pa
from vernacular.inference.schema import SCORES
from vernacular.report.item_details import UNSCORED, packed


def table(*rows):
    return pa.Table.from_pylist([{"item_id": "a", "role": "sentence", **row} for row in rows], schema=SCORES.schema)


def one(row, text="Os gatos", start=0):
    return packed(table(row), {"sentence"}, lambda item, role: (text, start)).get("a")


def test_tokens_are_kept_as_lengths_and_hundredths_of_nats():
    assert one({"offsets": [[0, 2], [2, 8]], "logprobs": [-1.234, -0.5]}) == [["sentence", 0, [2, 6], [123, 50]]]


def test_tokens_of_one_character_have_no_length_of_their_own():
    row = {"offsets": [[0, 1], [1, 2], [1, 2], [2, 3]], "logprobs": [-1, -2, -3, -4]}
    assert one(row, text="a😀b") == [["sentence", 0, [1, 1, 0, 1], [100, 200, 300, 400]]]


def test_a_token_without_a_probability_is_not_given_one():
    assert one({"offsets": [[0, 2], [2, 8]], "logprobs": [None, -0.5]}) == [["sentence", 0, [2, 6], [UNSCORED, 50]]]


def test_a_blank_before_the_first_token_is_skipped():
    assert one({"offsets": [[11, 13]], "logprobs": [-1]}, text=" no", start=10) == [["sentence", 1, [2], [100]]]


def test_a_chat_template_that_drops_the_blank_is_followed():
    row = {"offsets": [[6, 8]], "logprobs": [-1], "rendered": "<user>no"}
    assert one(row, text=" no", start=3) == [["sentence", 1, [2], [100]]]


def test_a_text_that_a_template_changed_is_kept_beside_its_tokens():
    row = {"offsets": [[0, 2]], "logprobs": [-1], "rendered": "NO"}
    assert one(row, text=" no") == [["sentence", "NO", [2], [100]]]


def test_rows_without_tokens_and_other_roles_are_left_out():
    rows = table(
        {"offsets": [], "logprobs": [], "flags": "empty"}, {"role": "bare:0", "offsets": [[0, 1]], "logprobs": [-1]}
    )
    assert packed(rows, {"sentence"}, lambda item, role: ("x", 0)) == {}


def test_rows_do_not_run_into_one_another():
    rows = table(
        {"item_id": "a", "offsets": [[0, 2], [2, 4]], "logprobs": [-1, -2]},
        {"item_id": "b", "offsets": None, "logprobs": None},
        {"item_id": "c", "offsets": [[5, 7]], "logprobs": [-3]},
    )
    found = packed(rows, {"sentence"}, lambda item, role: ("abcd", 5 if item == "c" else 0))
    assert found == {"a": [["sentence", 0, [2, 2], [100, 200]]], "c": [["sentence", 0, [2], [300]]]}
