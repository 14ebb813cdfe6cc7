"""Unusual, malformed and incomplete external results: matched items and what the messages state."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.external_notes import REFERENCES, join_results, line
from support.external_results import (
    ITEMS,
    LOGLIKS,
    NAME,
    QUESTIONS,
    SAMPLES,
    item,
    reference,
    sample,
    write_jsonl,
)
from support.messages import assert_states
from vernacular.core import artifacts
from vernacular.exchange.external_results import load_external_results
from vernacular.metrics.schema import TASK_RESULTS

REFERENCE_ROWS = reference().rows


ALL_LINES = [line(name, evaluation="e") for name in QUESTIONS]
ALL_CORRECT = dict.fromkeys(QUESTIONS, True)


@pytest.mark.parametrize("unmatched_first", [True, False])
def test_rejected_and_matched_evaluations_of_one_file(tmp_path, unmatched_first):
    unmatched = [line("zz", evaluation="e2")]
    outcomes, notes = join_results(
        tmp_path / "m.jsonl", REFERENCES, unmatched + ALL_LINES if unmatched_first else ALL_LINES + unmatched
    )
    assert outcomes == {"e": ALL_CORRECT}
    rejected, matched = sorted(notes)
    assert_states(rejected, "m.jsonl", "0 of 1", "1 item of e2", "(1 unmatched)", "80 %")
    assert_states(matched, "m.jsonl", "3 of 3", "3 items of e")


def test_lines_without_matching_evaluation_are_counted(tmp_path):
    references = {"w": reference("last_word", items=[item("w1", context="Choveu todo o")])}
    outcomes, notes = join_results(tmp_path / "m.jsonl", references, [line("w1", evaluation="w"), line("x"), line("y")])
    assert outcomes == {"w": {"w1": None}}
    assert_states(notes[1], "m.jsonl", "no evaluation", "2 results")


@pytest.mark.parametrize("name", ["m.jsonl", "e.jsonl"])
def test_lines_with_and_without_evaluation_conflict(tmp_path, name):
    outcomes, (note,) = join_results(tmp_path / name, {"e": reference()}, [*ALL_LINES[:2], line("r3", 0)])
    assert outcomes == {}
    assert_states(note, f"{name}: evaluation", '"e"', "other lines")


@pytest.mark.parametrize(
    ("lines", "outcomes", "parts"),
    [
        # repeated items, unknown items, an ID with whitespace, unreadable results, invalid IDs and values
        ([line("r1"), line("r1", 0), line("r2"), line("r3"), line("r2", 0)], ALL_CORRECT,
         ("3 of 5", "3 items of e", "(2 repeated)")),
        ([*ALL_LINES, line("r4"), line("")], ALL_CORRECT, ("3 of 5", "3 items of e", "(2 unmatched)")),
        ([line(" r1"), line("r2"), line("r3")], {}, ("2 of 3", "3 items of e", "(1 unmatched)", "80 %")),
        ([line("r2", None), line("r3", "")], {"r2": None, "r3": None}, ("2 of 2", "3 items of e", "2 unreadable")),
        ([line("r1", prediction=None), line("r2", None, prediction=7)], {"r1": True, "r2": None},
         ("2 of 2", "3 items of e", "1 unreadable")),
        ([line("r1", None, prediction="O MIÑO!\ud83d")], {"r1": None}, ("1 of 1", "3 items of e", "1 unreadable")),
        ([line("\ud800")], {}, ("0 of 1", "3 items of e", "(1 unmatched)", "80 %")),
        ([line("r1", "maybe")], {}, ("m.jsonl, line 1: correct", "1, 0, true, false", "'maybe'")),
        ([line("r1", float("nan"))], {}, ("m.jsonl, line 1: correct", "1, 0, true, false", "nan")),
        ([line("r1"), {"item_id": "r2"}], {}, ("m.jsonl, line 2", "no output", "prediction or correct", "item_id")),
    ],
)  # fmt: skip
def test_every_user_line_is_matched_or_counted(tmp_path, lines, outcomes, parts):
    path = tmp_path / "m.jsonl"
    path.write_text(
        "".join(json.dumps(fields | {"evaluation": "e"} if "correct" in fields else fields) + "\n" for fields in lines)
    )
    tables, (note,) = join_results(path, {"e": reference()})
    assert tables == ({"e": outcomes} if outcomes else {})
    assert note.startswith("m.jsonl")
    assert_states(note, *parts)


def test_ids_are_compared_without_unicode_normalization(tmp_path):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    references = {"e": reference(items=[item(name, *QUESTIONS["r1"]) for name in (composed, decomposed)])}
    outcomes, (note,) = join_results(tmp_path / "e.csv", references, f"item_id,correct\n{decomposed},1\n{composed},0\n")
    assert outcomes == {"e": {decomposed: True, composed: False}}
    assert_states(note, "e.csv", "2 of 2", "2 items of e")
    reference_of_one = {"e": reference(items=[item(composed, *QUESTIONS["r1"])])}
    notes = join_results(tmp_path / "e.csv", reference_of_one, f"item_id,correct\n{decomposed},1\n")[1]
    assert_states(notes[0], "e.csv", "0 of 1")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("item_id,correct\n", ("e.csv: ", "no results")),
        ("item_id,item_id,correct\nr1,r2,1\n", ("e.csv: ", "duplicate", '"item_id"')),
        ('item_id,prediction\nr1,o Miño\nr2,"no\nr3,en Lugo\n', ("e.csv, line 4: ", "quotation mark", "line 3")),
        ('item_id,prediction\nr1,"o" Miño\n', ("e.csv, line 2: ", "quotation mark", "','", "'\"'")),
        (  # the complete sentence, once
            "item_id,correct\nr1,1\nr2\n",
            (
                "e.csv, line 3: row 3: expected 2 columns as in the header, got 1; "
                "quote texts that contain the separator.",
            ),
        ),
        ("item_id,correct\nr1,1\n".encode("utf-16"), ("e.csv: ", "UTF-8", "UTF-16")),
        ("item_id,correct\nr\0001,1\n", ("e.csv: ", "0 of 1", "3 items of e", "(1 unmatched)", "80 %")),
    ],
)  # fmt: skip
def test_malformed_tables_are_rejected(tmp_path, text, parts):
    outcomes, (note,) = join_results(tmp_path / "e.csv", {"e": reference()}, text)
    assert outcomes == {}
    assert_states(note, *parts)


def test_unusual_but_valid_tables_are_read(tmp_path):
    """CR line ends, byte order mark, empty lines, unnamed columns, a very long cell; semicolons as separators."""
    text = "\ufeffitem_id,correct,,,prediction\r\rr1,1,,,\rr2,true,,,x\rr3,No,,," + "y" * 200_000
    assert join_results(tmp_path / "e.csv", {"e": reference()}, text)[0] == {"e": {"r1": True, "r2": True, "r3": False}}
    assert join_results(tmp_path / "e.csv", {"e": reference()}, "item_id;correct\nr1;1\n")[0] == {"e": {"r1": True}}


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"arguments": {"first": {"arg_0": "a", "arg_1": "b"}}}, ("arguments: ", "lm-eval")),
        ({"arguments": {"gen_args_0": ["a", "b"]}}, ("arguments: ", "lm-eval")),
        ({"arguments": ["abc", "abd"]}, ("arguments: ", "lm-eval")),
        ({"arguments": [[]]}, ("arguments: ", "lm-eval")),
        ({"arguments": [1]}, ("arguments: ", "lm-eval")),
        ({"arguments": None}, ("arguments: ", "lm-eval")),
        ({"filtered_resps": None}, ("filtered_resps: ", "log-likelihood")),
        ({"filtered_resps": [[None, False]] * 3}, ("filtered_resps: ", "log-likelihood")),
        ({"filtered_resps": [[10**400, False]] * 3}, ("filtered_resps: ", "log-likelihood")),
        ({"filtered_resps": [["-1"]] * 3}, ("filtered_resps: ", "log-likelihood")),
        ({"filtered_resps": [["-1", "True"]] * 4}, ("response", "4 for 3")),
    ],
)  # fmt: skip
def test_malformed_sample_error_names_the_line(tmp_path, fields, parts):
    outcomes, (note,) = join_results(tmp_path / NAME, {"e": reference()}, [SAMPLES[0], SAMPLES[1] | fields])
    assert outcomes == {}
    assert_states(note, f"{NAME}, line 2: ", *parts)


@pytest.mark.parametrize(
    ("fields", "correct", "parts"),
    [
        ({"filtered_resps": [["nan", "False"]] * 3}, None, ("1 unreadable",)),
        ({"filtered_resps": []}, None, ("1 unreadable",)),  # its type is unknown
        ({"filtered_resps": [["-inf", "False"]] * 3}, False, ("1 classified differently", "tie")),
        ({"acc": float("nan")}, True, ()),
        ({"doc": None}, True, ()),
    ],
)  # fmt: skip
def test_unreadable_samples_are_counted(tmp_path, fields, correct, parts):
    lines = [SAMPLES[0] | fields, SAMPLES[1]]
    outcomes, (note,) = join_results(tmp_path / NAME, {"e": reference(), "g": reference("generation")}, lines)
    assert outcomes == {"e": {"r1": correct, "r2": True}}
    assert_states(note, NAME, "2 of 2", "3 items of e", *parts, "few-shot", "unknown")
    assert note.count(";") == 1 + bool(parts), "no other counts"


@pytest.mark.parametrize(
    ("doc", "parts"),
    [
        ("[" * 200 + "]" * 200, (f"{NAME}, line 1: nested",)),
        ("[" * 99_999, (f"{NAME}, line 1: ", "JSON", "nested")),
        ('{"a": 1, "a": 2}', (f"{NAME}, line 1: ", "JSON", "duplicate", '"a"')),
    ],
)
def test_malformed_document_error_names_the_line(tmp_path, doc, parts):
    text = json.dumps(SAMPLES[0], ensure_ascii=False)
    assert '"7"' in text
    (note,) = join_results(tmp_path / NAME, {"e": reference()}, text.replace('"7"', doc))[1]
    assert_states(note, *parts)


@pytest.mark.parametrize(
    "content", ["[]", "null", "1", '{"n-shot": []}', '{"n-shot": {"rios": "0"}}', "{", "[" * 99_999, "\ud800"]
)
def test_results_file_without_shots(tmp_path, content):
    (tmp_path / NAME.replace("samples_rios", "results").replace("jsonl", "json")).write_bytes(
        content.encode("utf-8", "surrogatepass")
    )
    outcomes, notes = join_results(tmp_path / NAME, {"e": reference(shots=5)}, SAMPLES)
    assert list(outcomes) == ["e"]
    assert_states(notes[0], "few-shot", "unknown")


def test_single_character_options_do_not_imply_letters(tmp_path):
    questions = {"n1": ("Cantas patas ten un can?", ["2", "4", "6"], 1), **QUESTIONS}
    items = [item(name, *fields) for name, fields in questions.items()]
    lines = [sample(*questions["n1"][:2], LOGLIKS["r1"], 1.0), *SAMPLES]
    references = {"letters": reference("letters", items=items), "options": reference(items=items)}
    assert list(join_results(tmp_path / NAME, references, lines)[0]) == ["options"]


def test_options_that_differ_only_in_case(tmp_path):
    references = {"e": reference(items=[item("a", "Quen?", ["Ana!", "ana"])])}
    lines = [sample("Quen?", options, [-1.0, -2.0], 1.0) for options in (["ANA", "ana!"], ["ana", "Ana!"])]
    for subset, correct, flag in (
        (lines[:1], None, "error: options differ from those of the item"),
        (lines[1:], False, None),
    ):
        table = load_external_results(write_jsonl(tmp_path / NAME, subset), references)[0]["e"]
        assert [(row["correct"], row["flags"]) for row in table.to_pylist()] == [(correct, flag)]
    for prediction, correct in (("ANA", None), ("ana", False), (" Ana! ", True)):
        assert join_results(tmp_path / "e.jsonl", references, [{"item_id": "a", "prediction": prediction}])[0] == {
            "e": {"a": correct}
        }


def test_texts_of_punctuation_only_are_distinct(tmp_path):
    original = reference(items=[item("a", "?!", ["si", "non"])])
    rows = original.rows.set_column(original.rows.schema.get_field_index("prompt"), "prompt", pa.array(["?!"]))
    references = {"e": type(original)(original.protocol, 0, rows, original.items)}
    assert join_results(tmp_path / "e.jsonl", references, [{"question": "!!", "correct": 1}])[0] == {}
    assert join_results(tmp_path / "e.jsonl", references, [{"prompt": "?!", "correct": 1}])[0] == {"e": {"a": True}}


def test_lone_surrogate_in_prediction_is_replaced(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"item_id": "r1", "prediction": "o Mi\\u00f1o \\ud83d\\ude00 \\ud83d"}\n')
    table = load_external_results(path, {"e": reference("generation")})[0]["e"]
    assert table["prediction"].to_pylist() == ["o Miño 😀 \ufffd"]
    artifacts.write(tmp_path / "t.parquet", TASK_RESULTS, table, {})


DAMAGED = ("e.parquet: ", "damaged", "per-item results", "results directory", "CSV", "item_id", "correct")


def write_edited(path, edit):
    """Write a results file, then edit its table; keep its metadata and update its digests."""
    artifacts.write(path, TASK_RESULTS, REFERENCE_ROWS, {"evaluation": "e"})
    table, metadata = edit(pq.read_table(path)), pq.read_metadata(path).metadata[b"vernacular"]
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.add_key_value_metadata({b"vernacular": metadata, **artifacts.PLACEHOLDER})
        writer.write_table(table)
    artifacts.seal(path)


def with_null(table, name):
    index = table.schema.get_field_index(name)
    return table.set_column(
        index, table.schema.field(index), pa.array([None, *table[name].to_pylist()[1:]], table.schema.field(index).type)
    )


@pytest.mark.parametrize(
    "edit",
    [
        lambda table: pa.concat_tables([table, table]),
        *(
            lambda table, name=name: with_null(table, name)
            for name in ("item_id", "prompt", "choices", "gold", "metrics")
        ),
        lambda table: table.set_column(0, "item_id", table["item_id"].cast(pa.large_string())),
        lambda table: table.drop_columns(["gold"]),
    ],
)
def test_edited_parquet_is_rejected(tmp_path, edit):
    write_edited(tmp_path / "e.parquet", edit)
    outcomes, (note,) = join_results(tmp_path / "e.parquet", {"e": reference()})
    assert outcomes == {}
    assert_states(note, *DAMAGED)


def test_empty_file_or_directory_as_parquet_is_rejected(tmp_path):
    (tmp_path / "e.parquet").write_bytes(b"")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "e.parquet").mkdir()
    (note,) = join_results(tmp_path / "e.parquet", REFERENCES)[1]
    assert_states(note, *DAMAGED)
    (note,) = join_results(tmp_path / "run", REFERENCES)[1]
    assert note.startswith("run/")
    assert_states(note, *DAMAGED)


@pytest.mark.parametrize(
    ("rows", "outcomes", "parts"),
    [
        (REFERENCE_ROWS.slice(0, 0), {}, ("no items",)),
        (REFERENCE_ROWS.slice(1, 1), {"r2": True}, ("1 of 1", "match e")),
        (REFERENCE_ROWS.take([2, 0, 1]), ALL_CORRECT, ("3 of 3", "match e")),
        (reference(items=[*ITEMS[:1], item("r9", "?", ["a", "b"])]).rows, {}, ("1 of 2", "match e", "80 %")),
    ],
)  # fmt: skip
def test_parquet_with_some_or_no_items(tmp_path, rows, outcomes, parts):
    artifacts.write(tmp_path / "e.parquet", TASK_RESULTS, rows, {"evaluation": "e"})
    tables, (note,) = join_results(tmp_path / "e.parquet", REFERENCES)
    assert tables == ({"e": outcomes} if outcomes else {})
    assert_states(note, "e.parquet: ", *parts)
