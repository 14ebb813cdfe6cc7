"""Results from elsewhere that are odd, broken or half there: what is joined, and what exactly a person is told."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.external_notes import TWO, line, told
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
from vernacular.comparison.external.join import join
from vernacular.core import artifacts, digests
from vernacular.metrics.schema import TASK_RESULTS

OURS = reference().rows


ALL = [line(name, evaluation="e") for name in QUESTIONS]
RIGHT = dict.fromkeys(QUESTIONS, True)


@pytest.mark.parametrize("stranger_first", [True, False])
def test_an_evaluation_that_is_refused_is_told_beside_one_that_is_joined(tmp_path, stranger_first):
    stranger = [line("zz", evaluation="e2")]
    found, notes = told(tmp_path / "m.jsonl", TWO, stranger + ALL if stranger_first else ALL + stranger)
    assert found == {"e": RIGHT}
    assert sorted(notes) == [
        "m.jsonl: 0 of 1 results match the 1 item of e2 (1 unmatched): fewer than 80%; not used.",
        "m.jsonl: 3 of 3 results match the 3 items of e",
    ]


def test_lines_that_no_evaluation_asks_for_are_counted_beside_those_that_are_joined(tmp_path):
    references = {"w": reference("last_word", items=[item("w1", context="Choveu todo o")])}
    found, notes = told(tmp_path / "m.jsonl", references, [line("w1", evaluation="w"), line("x"), line("y")])
    assert found == {"w": {"w1": None}}
    assert notes[1] == "m.jsonl: no evaluation matches results of this type; 2 results not used."


@pytest.mark.parametrize("name", ["m.jsonl", "e.jsonl"])
def test_lines_with_and_without_the_evaluation_do_not_overwrite_each_other(tmp_path, name):
    found, notes = told(tmp_path / name, {"e": reference()}, [*ALL[:2], line("r3", 0)])
    assert (found, notes) == ({}, [f'{name}: evaluation: some lines specify "e", and other lines match it too.'])


@pytest.mark.parametrize(
    ("lines", "found", "said"),
    [
        # one item answered twice, an item of nobody's, an id with a blank, an id in the other Unicode form
        ([line("r1"), line("r1", 0), line("r2"), line("r3"), line("r2", 0)], RIGHT, "3 of 5 results match the 3 items of e (2 repeated)"),
        ([*ALL, line("r4"), line("")], RIGHT, "3 of 5 results match the 3 items of e (2 unmatched)"),
        ([line(" r1"), line("r2"), line("r3")], {}, "2 of 3 results match the 3 items of e (1 unmatched): fewer than 80%; not used."),
        ([line("r2", None), line("r3", "")], {"r2": None, "r3": None}, "2 of 2 results match the 3 items of e; 2 unreadable"),
        ([line("r1", prediction=None), line("r2", None, prediction=7)], {"r1": True, "r2": None}, "2 of 2 results match the 3 items of e; 1 unreadable"),
        ([line("r1", None, prediction="O MIÑO!\ud83d")], {"r1": None}, "1 of 1 results match the 3 items of e; 1 unreadable"),
        ([line("\ud800")], {}, "0 of 1 results match the 3 items of e (1 unmatched): fewer than 80%; not used."),
        ([line("r1", "maybe")], {}, ", line 1: correct: expected 1, 0, true, false or an empty value, got 'maybe'."),
        ([line("r1", float("nan"))], {}, ", line 1: correct: expected 1, 0, true, false or an empty value, got nan."),
        ([line("r1"), {"item_id": "r2"}], {}, ", line 2: no output: expected a column prediction or correct, got item_id."),
    ],
)  # fmt: skip
def test_every_line_of_a_persons_file_is_joined_or_counted(tmp_path, lines, found, said):
    path = tmp_path / "m.jsonl"
    path.write_text(
        "".join(json.dumps(each | {"evaluation": "e"} if "correct" in each else each) + "\n" for each in lines)
    )
    tables, notes = told(path, {"e": reference()})
    assert tables == ({"e": found} if found else {})
    assert notes == [f"m.jsonl{said}" if said.startswith(",") else f"m.jsonl: {said}"]


def test_ids_that_differ_in_their_unicode_form_alone_are_two_items(tmp_path):
    composed, apart = "caf\u00e9", "cafe\u0301"
    both = {"e": reference(items=[item(name, *QUESTIONS["r1"]) for name in (composed, apart)])}
    assert told(tmp_path / "e.csv", both, f"item_id,correct\n{apart},1\n{composed},0\n") == (
        {"e": {apart: True, composed: False}},
        ["e.csv: 2 of 2 results match the 2 items of e"],
    )
    one = {"e": reference(items=[item(composed, *QUESTIONS["r1"])])}
    assert "0 of 1 results match" in told(tmp_path / "e.csv", one, f"item_id,correct\n{apart},1\n")[1][0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("item_id,correct\n", ": no results found."),
        ("item_id,item_id,correct\nr1,r2,1\n", ': duplicate column "item_id".'),
        ('item_id,prediction\nr1,o Miño\nr2,"no\nr3,en Lugo\n', ", line 4: misplaced quotation mark (unexpected end of data; the row begins in line 3)."),
        ('item_id,prediction\nr1,"o" Miño\n', ", line 2: misplaced quotation mark (',' expected after '\"')."),
        ("item_id,correct\nr1,1\nr2\n", ", line 3: row 3: expected 2 columns as in the header, got 1; quote texts that contain the separator."),
        ("item_id,correct\nr1,1\n".encode("utf-16"), ": expected UTF-8 text, got UTF-16 or binary data; save it as UTF-8."),
        ("item_id,correct\nr\0001,1\n", ": 0 of 1 results match the 3 items of e (1 unmatched): fewer than 80%; not used."),
    ],
)  # fmt: skip
def test_broken_tables_are_named_and_no_line_is_swallowed(tmp_path, text, said):
    assert told(tmp_path / "e.csv", {"e": reference()}, text) == ({}, [f"e.csv{said}"])


def test_odd_tables_are_read(tmp_path):
    """Old Mac line ends, a mark at the beginning, blank lines, columns without a name, a very long cell; semicolons."""
    text = "\ufeffitem_id,correct,,,prediction\r\rr1,1,,,\rr2,true,,,x\rr3,No,,," + "y" * 200_000
    assert told(tmp_path / "e.csv", {"e": reference()}, text)[0] == {"e": {"r1": True, "r2": True, "r3": False}}
    assert told(tmp_path / "e.csv", {"e": reference()}, "item_id;correct\nr1;1\n")[0] == {"e": {"r1": True}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"arguments": {"first": {"arg_0": "a", "arg_1": "b"}}}, "arguments: expected the requests in the format of lm-eval."),
        ({"arguments": {"gen_args_0": ["a", "b"]}}, "arguments: expected the requests in the format of lm-eval."),
        ({"arguments": ["abc", "abd"]}, "arguments: expected the requests in the format of lm-eval."),
        ({"arguments": [[]]}, "arguments: expected the requests in the format of lm-eval."),
        ({"arguments": [1]}, "arguments: expected the requests in the format of lm-eval."),
        ({"arguments": None}, "arguments: expected the requests in the format of lm-eval."),
        ({"filtered_resps": None}, "filtered_resps: expected (log-likelihood, greedy) per continuation."),
        ({"filtered_resps": [[None, False]] * 3}, "filtered_resps: expected (log-likelihood, greedy) per continuation."),
        ({"filtered_resps": [[10**400, False]] * 3}, "filtered_resps: expected (log-likelihood, greedy) per continuation."),
        ({"filtered_resps": [["-1"]] * 3}, "filtered_resps: expected (log-likelihood, greedy) per continuation."),
        ({"filtered_resps": [["-1", "True"]] * 4}, "expected one response per request, got 4 for 3 requests."),
    ],
)  # fmt: skip
def test_a_broken_sample_is_named_by_its_line(tmp_path, more, said):
    found = told(tmp_path / NAME, {"e": reference()}, [SAMPLES[0], SAMPLES[1] | more])
    assert found == ({}, [f"{NAME}, line 2: {said}"])


@pytest.mark.parametrize(
    ("more", "right", "said"),
    [
        ({"filtered_resps": [["nan", "False"]] * 3}, None, "; 1 unreadable"),
        ({"filtered_resps": []}, None, "; 1 unreadable"),  # nothing of its kind is learnt from it
        ({"filtered_resps": [["-inf", "False"]] * 3}, False, "; 1 classified differently by the file (here, a tie is incorrect)"),
        ({"acc": float("nan")}, True, ""),
        ({"doc": None}, True, ""),
    ],
)  # fmt: skip
def test_a_sample_that_cannot_be_judged_is_counted_and_the_others_are_joined(tmp_path, more, right, said):
    lines = [SAMPLES[0] | more, SAMPLES[1]]
    found, notes = told(tmp_path / NAME, {"e": reference(), "g": reference("generation")}, lines)
    assert found == {"e": {"r1": right, "r2": True}}
    unknown = "; number of few-shot examples unknown"
    assert notes == [f"{NAME}: 2 of 2 results match the 3 items of e{said}{unknown}"]


@pytest.mark.parametrize(
    ("doc", "said"),
    [
        ("[" * 200 + "]" * 200, "nested too deeply."),
        ("[" * 99_999, "not valid JSON (nested too deeply)."),
        ('{"a": 1, "a": 2}', 'not valid JSON (duplicate key "a").'),
    ],
)
def test_a_document_that_cannot_be_read_is_named_by_its_line(tmp_path, doc, said):
    text = json.dumps(SAMPLES[0], ensure_ascii=False)
    assert '"7"' in text
    assert told(tmp_path / NAME, {"e": reference()}, text.replace('"7"', doc))[1] == [f"{NAME}, line 1: {said}"]


@pytest.mark.parametrize(
    "beside", ["[]", "null", "1", '{"n-shot": []}', '{"n-shot": {"rios": "0"}}', "{", "[" * 99_999, "\ud800"]
)
def test_results_beside_the_samples_that_tell_no_shots_are_as_none(tmp_path, beside):
    (tmp_path / NAME.replace("samples_rios", "results").replace("jsonl", "json")).write_bytes(
        beside.encode("utf-8", "surrogatepass")
    )
    found, notes = told(tmp_path / NAME, {"e": reference(shots=5)}, SAMPLES)
    assert list(found) == ["e"]
    assert notes[0].endswith("; number of few-shot examples unknown")


def test_options_of_one_character_in_the_first_item_do_not_make_letters_of_all(tmp_path):
    questions = {"n1": ("Cantas patas ten un can?", ["2", "4", "6"], 1), **QUESTIONS}
    items = [item(name, *of) for name, of in questions.items()]
    lines = [sample(*questions["n1"][:2], LOGLIKS["r1"], 1.0), *SAMPLES]
    references = {"letters": reference("letters", items=items), "options": reference(items=items)}
    assert list(told(tmp_path / NAME, references, lines)[0]) == ["options"]


def test_options_that_differ_in_case_alone_are_not_taken_for_each_other(tmp_path):
    twins = {"e": reference(items=[item("a", "Quen?", ["Ana!", "ana"])])}
    scored = [sample("Quen?", said, [-1.0, -2.0], 1.0) for said in (["ANA", "ana!"], ["ana", "Ana!"])]
    for lines, right, flag in (
        (scored[:1], None, "error: options differ from those of the item"),
        (scored[1:], False, None),
    ):
        table = join(write_jsonl(tmp_path / NAME, lines), twins)[0]["e"]
        assert [(row["correct"], row["flags"]) for row in table.to_pylist()] == [(right, flag)]
    for said, right in (("ANA", None), ("ana", False), (" Ana! ", True)):
        assert told(tmp_path / "e.jsonl", twins, [{"item_id": "a", "prediction": said}])[0] == {"e": {"a": right}}


def test_texts_of_punctuation_alone_are_not_each_other(tmp_path):
    marks = reference(items=[item("a", "?!", ["si", "non"])])
    rows = marks.rows.set_column(marks.rows.schema.get_field_index("prompt"), "prompt", pa.array(["?!"]))
    references = {"e": type(marks)(marks.protocol, 0, rows, marks.items)}
    assert told(tmp_path / "e.jsonl", references, [{"question": "!!", "correct": 1}])[0] == {}
    assert told(tmp_path / "e.jsonl", references, [{"prompt": "?!", "correct": 1}])[0] == {"e": {"a": True}}


def test_half_a_character_in_a_prediction_is_kept_as_one_that_can_be_written(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"item_id": "r1", "prediction": "o Mi\\u00f1o \\ud83d\\ude00 \\ud83d"}\n')
    table = join(path, {"e": reference("generation")})[0]["e"]
    assert table["prediction"].to_pylist() == ["o Miño 😀 \ufffd"]
    artifacts.write(tmp_path / "t.parquet", TASK_RESULTS, table, {})


DAMAGED = (
    "e.parquet: damaged, or not per-item results of this version of the workflow. Specify a model's results directory, "
    "or a CSV file with the columns item_id and correct."
)


def edited(path, change):
    """Our own file, then changed by hand, its metadata left in place and its digests made to fit."""
    artifacts.write(path, TASK_RESULTS, OURS, {"evaluation": "e"})
    changed, note = change(pq.read_table(path)), pq.read_metadata(path).metadata[b"vernacular"]
    with pq.ParquetWriter(path, changed.schema) as writer:
        writer.add_key_value_metadata({b"vernacular": note, **digests.BLANK})
        writer.write_table(changed)
    digests.seal(path)


def without(table, name):
    place = table.schema.get_field_index(name)
    return table.set_column(
        place, table.schema.field(place), pa.array([None, *table[name].to_pylist()[1:]], table.schema.field(place).type)
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda table: pa.concat_tables([table, table]),
        *(
            lambda table, name=name: without(table, name)
            for name in ("item_id", "prompt", "choices", "gold", "metrics")
        ),
        lambda table: table.set_column(0, "item_id", table["item_id"].cast(pa.large_string())),
        lambda table: table.drop_columns(["tie"]),
    ],
)
def test_an_earlier_run_whose_rows_we_never_wrote_is_refused(tmp_path, change):
    edited(tmp_path / "e.parquet", change)
    assert told(tmp_path / "e.parquet", {"e": reference()}) == ({}, [DAMAGED])


def test_what_only_looks_like_parquet_is_named(tmp_path):
    (tmp_path / "e.parquet").write_bytes(b"")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "e.parquet").mkdir()
    assert told(tmp_path / "e.parquet", TWO)[1] == [DAMAGED]
    assert told(tmp_path / "run", TWO)[1] == ["run/" + DAMAGED]


@pytest.mark.parametrize(
    ("rows", "found", "said"),
    [
        (OURS.slice(0, 0), {}, "no items found; not used."),
        (OURS.slice(1, 1), {"r2": True}, "1 of 1 items match e"),
        (OURS.take([2, 0, 1]), RIGHT, "3 of 3 items match e"),
        (reference(items=[*ITEMS[:1], item("r9", "?", ["a", "b"])]).rows, {}, "1 of 2 items match e: fewer than 80%; not used. The data or the prompts may differ."),
    ],
)  # fmt: skip
def test_an_earlier_run_of_some_items_or_none_is_counted(tmp_path, rows, found, said):
    artifacts.write(tmp_path / "e.parquet", TASK_RESULTS, rows, {"evaluation": "e"})
    assert told(tmp_path / "e.parquet", TWO) == ({"e": found} if found else {}, [f"e.parquet: {said}"])
