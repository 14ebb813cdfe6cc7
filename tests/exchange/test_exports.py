import csv
import io
import json
import math

import pytest
from support.scoring import build_requests, item, results_of, score, score_rows
from vernacular.exchange.source_tools import pairs_csv
from vernacular.stages.export import write

LN = math.log


def read_csv(path):
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"), newline="")))


def test_protocols_without_a_source_tool_write_nothing(tmp_path):
    assert write(tmp_path, "options", [], []) == []
    assert not list(tmp_path.iterdir())


@pytest.fixture
def palmx_files(tmp_path):
    items = [
        item("7", question='ما "هذا"؟', choices=["a, b", "NA", "ج", "d"], gold=[1], source_row=1),
        item("3", question="ما؟", choices=["a", "b", "c", "d"], gold=[0], source_row=0),
        item("9", question="ما؟", choices=["a", "b", "c", "d"], gold=[0], source_row=2),
    ]
    requests = build_requests(items, "question", "letters")
    by_item = {
        "7": {"choice:0": LN(0.1), "choice:1": LN(0.2), "choice:2": LN(0.05), "choice:3": LN(0.05)},
        "3": {f"choice:{i}": -1.0 for i in range(4)},
    }
    scores = [
        score(r, by_item[r["item_id"]][r["role"]]) if r["item_id"] in by_item else score(r, [], flags="error: too long")
        for r in requests
    ]
    rows = results_of("letters", items, requests, scores)
    return {path.name: path for path in write(tmp_path, "letters", items, rows)}


def test_palmx_predictions_in_the_order_of_the_source(palmx_files):
    assert palmx_files["predictions.csv"].read_bytes() == b"id,prediction\n3,\n7,B\n9,\n"
    assert palmx_files["scores.txt"].read_text() == "accuracy=0.500000\n"  # the tie is incorrect, the error is excluded


def test_palmx_log_has_script_columns(palmx_files):
    rows = read_csv(palmx_files["outputs_log.csv"])
    assert ",".join(rows[0]) == (
        "id,question,A,B,C,D,answer_label,pred_label,correct,"
        "score_A,prob_A,score_B,prob_B,score_C,prob_C,score_D,prob_D"
    )
    by_id = {row["id"]: row for row in rows}
    assert (by_id["7"]["question"], by_id["7"]["A"], by_id["7"]["B"]) == ('ما "هذا"؟', "a, b", "NA")
    assert (by_id["7"]["answer_label"], by_id["7"]["pred_label"], by_id["7"]["correct"]) == ("B", "B", "True")
    assert float(by_id["7"]["score_B"]) == LN(0.2)
    assert float(by_id["7"]["prob_B"]) == pytest.approx(0.5)
    assert (by_id["9"]["pred_label"], by_id["9"]["score_A"]) == ("", "")


def test_palmx_without_gold_has_no_accuracy(tmp_path):
    unlabeled_item = item(question="?", choices=["a", "b"])
    requests = build_requests([unlabeled_item], "question", "letters")
    rows = results_of("letters", [unlabeled_item], requests, score_rows(requests, {"choice:1": -1.0}))
    write(tmp_path, "letters", [unlabeled_item], rows)
    assert "not available" in (tmp_path / "scores.txt").read_text()
    assert (tmp_path / "predictions.csv").read_text() == "id,prediction\ni1,B\n"


def test_palmx_letters_follow_displayed_order(tmp_path):
    truth_item = item(question="?", choices=["right", "w1", "w2", "w3"], gold=[0], target="right")
    requests = build_requests([truth_item], "multi_answer", "letters")
    rows = results_of("letters", [truth_item], requests, score_rows(requests, {"choice:0": -1.0}))
    write(tmp_path, "letters", [truth_item], rows)
    log_row = read_csv(tmp_path / "outputs_log.csv")[0]
    assert log_row[log_row["pred_label"]] == "right"
    assert log_row["pred_label"] == log_row["answer_label"]
    assert f"\n{log_row['pred_label']}. right\n" in requests[0]["text"]


def test_serbian_lines(tmp_path):
    items = [
        item("i1", context="Ana je __.", choices=["tu", "ту"], gold=[0], source_row=0),
        item("i2", context="On je __.", choices=["a", "b"], gold=[1], source_row=1),
    ]
    requests = build_requests(items, "cloze", "cloze", score_unfilled_gap=True)
    rows = results_of("cloze", items, requests, score_rows(requests, {"filled:1": -1.0}))
    paths = write(tmp_path, "cloze", items, rows)
    assert {path.name for path in paths} == {"results.jsonl", "results_legacy.jsonl", "README.txt"}
    first, second = (json.loads(line) for line in (tmp_path / "results.jsonl").read_text("utf-8").splitlines())
    assert list(first.items()) == [
        ("prompt", "Ana je __."),
        ("predicted", "ту"),
        ("correct", "tu"),
        ("is_correct", False),
    ]
    assert second["is_correct"] is True
    legacy = json.loads((tmp_path / "results_legacy.jsonl").read_text("utf-8").splitlines()[0])
    assert (legacy["predicted"], legacy["is_correct"]) == (None, False)  # a tie
    assert "ту" in (tmp_path / "results.jsonl").read_text("utf-8")


def test_grew_tse_tables(tmp_path):
    extra = {"sentence_id": "s1", "match_id": "2", "masked_text": "A [MASK] b."}
    forms = json.dumps(["form_grammatical", "form_ungrammatical"])
    items = [
        item(
            "i1",
            context="A [MASK] b.",
            choices=["null", "NA"],
            gold=[0],
            extra=[*extra.items(), ("form_columns", forms)],
        ),
        item("i2", context="none", choices=["x", "y"], gold=[0], source_row=1, extra=extra | {"form_columns": forms}),
    ]
    requests = build_requests(items, "target_word", "target_word")
    by_role = {"token:0": LN(0.5), "token:1": LN(0.25), "sentence:0": LN(1 / 8), "sentence:1": LN(1 / 16)}
    rows = results_of("target_word", items, requests, score_rows(requests, by_role))
    write(tmp_path, "target_word", items, rows)
    token = read_csv(tmp_path / "evaluation.csv")
    assert ",".join(token[0]) == (
        "Index,sentence_id,match_id,form_grammatical,masked_text,form_ungrammatical,"
        "p_form_grammatical,I_form_grammatical,p_form_ungrammatical,I_form_ungrammatical,certainty,error"
    )
    assert (token[0]["Index"], token[0]["form_grammatical"], token[0]["form_ungrammatical"]) == ("0", "null", "NA")
    assert float(token[0]["p_form_grammatical"]) == pytest.approx(0.5)
    assert float(token[0]["I_form_ungrammatical"]) == pytest.approx(2.0)
    assert (token[1]["p_form_grammatical"], token[1]["error"]) == (
        "",
        "error: expected one masked word in the text, got 0",
    )
    sentence = read_csv(tmp_path / "evaluation_sentence.csv")
    assert float(sentence[0]["p_form_grammatical"]) == pytest.approx(-3.0)
    assert float(sentence[0]["I_form_ungrammatical"]) == pytest.approx(4.0)
    assert "certainty" not in sentence[0]


def test_each_tool_has_readme_of_differences(tmp_path):
    for protocol in ("letters", "cloze", "target_word"):
        write(tmp_path / protocol, protocol, [], [])
        assert "Differences from" in (tmp_path / protocol / "README.txt").read_text("utf-8")


def pair(options, gold=(0,), scores=None, predicted=None, correct=None, values=(), flag=None, **fields):
    """Return an item and its result row as read from Parquet, where maps are lists of pairs."""
    row = {"item_id": fields.get("item_id", "i1"), "choices": options, "gold": list(gold), "option_scores": scores}
    row |= {"predicted_indices": predicted, "correct": correct, "metrics": list(dict(values).items()), "flags": flag}
    return item(choices=options, gold=gold, **fields), row


def export_files(directory, protocol, *pairs):
    write(directory, protocol, [item for item, _ in pairs], [row for _, row in pairs])
    return {path.name: path.read_bytes().decode("utf-8") for path in directory.iterdir() if path.name != "README.txt"}


def test_grew_tse_table_has_columns_and_scores_per_form(tmp_path):
    texts = {"sentence_id": "s", "match_id": "m", "original_text": "o", "prompt_text": "p"}
    names = {"form_columns": json.dumps(["good", "bad", "worse"])}
    logliks = {"loglik_token:0": LN(0.5), "loglik_token:1": LN(0.25), "loglik_token:2": LN(0.125), "certainty": 0.75}
    narrow = {"loglik_token:0": 0.0, "loglik_token:1": -math.inf}
    files = export_files(
        tmp_path,
        "target_word",
        pair(["x", "y"], extra={"form_columns": '["good", "worse"]'}, item_id="a", values=narrow, flag="error: =1"),
        pair(["u", "v", "w"], extra=list((texts | names).items()), item_id="b", source_row=1, values=logliks),
    )
    assert list(files) == ["evaluation.csv"]  # the sentence was not scored
    columns = "Index,sentence_id,match_id,good,original_text,prompt_text,bad,worse"
    columns += ",p_good,I_good,p_bad,I_bad,p_worse,I_worse,certainty,error\n"
    rows = files["evaluation.csv"].removeprefix(columns).splitlines()
    assert rows[0] == "0,,,x,,,,y,1.0,-0.0,,,0.0,inf,,error: =1"
    assert rows[1].startswith("1,s,m,u,o,p,v,w,")
    assert list(map(float, rows[1].split(",")[8:-1])) == pytest.approx([0.5, 1.0, 0.25, 2.0, 0.125, 3.0, 0.75])


def test_grew_tse_equal_forms_have_separate_columns(tmp_path):
    extra = {"form_columns": json.dumps(["good", ["bad", "worse"]])}
    values = {"loglik_token:0": LN(0.5), "loglik_token:1": LN(0.25)}
    files = export_files(tmp_path, "target_word", pair(["u", "v"], extra=extra, values=values))
    header, row = files["evaluation.csv"].splitlines()
    assert header == (
        "Index,sentence_id,match_id,good,bad,worse,p_good,I_good,p_bad,I_bad,p_worse,I_worse,certainty,error"
    )
    assert row == "0,,,u,v,v,0.5,1.0,0.25,2.0,0.25,2.0,,"


@pytest.mark.parametrize("extra", [{}, {"form_columns": '["good"]'}, {"form_columns": "[]"}])
def test_grew_tse_unnamed_forms_are_numbered(tmp_path, extra):
    files = export_files(tmp_path, "target_word", pair(["x", "y"], extra=extra, values={"loglik_sentence:0": -LN(8)}))
    assert list(files) == ["evaluation_sentence.csv"]
    header, row = files["evaluation_sentence.csv"].splitlines()
    assert header == "Index,sentence_id,match_id,form_0,form_1,p_form_0,I_form_0,p_form_1,I_form_1,error"
    cells = row.split(",")
    assert (cells[:5], cells[7:]) == (["0", "", "", "x", "y"], ["", "", ""])
    assert list(map(float, cells[5:7])) == pytest.approx([-3.0, 3.0])


def test_grew_tse_tables_report_errors_if_nothing_is_scored(tmp_path):
    files = export_files(tmp_path, "target_word", pair(["x"], flag="error: no"))
    assert files == {
        "evaluation.csv": "Index,sentence_id,match_id,form_0,p_form_0,I_form_0,certainty,error\n0,,,x,,,,error: no\n",
        "evaluation_sentence.csv": "Index,sentence_id,match_id,form_0,p_form_0,I_form_0,error\n0,,,x,,,error: no\n",
    }


def test_palmx_files_exact_content(tmp_path):
    files = export_files(
        tmp_path,
        "letters",
        pair(list("abcde"), (1, 4), [-math.inf] * 5, [0, 1], None, item_id="=1", question='"?"'),
        pair(["y", "n"], (), [0.0, 0.0], [1], None, item_id="z", question="a\nb", source_row=1),
    )
    assert files == {
        "predictions.csv": "id,prediction\n'=1,\nz,B\n",
        "scores.txt": "accuracy is not available: no answer is known\n",
        "outputs_log.csv": "id,question,A,B,C,D,E,answer_label,pred_label,correct,score_A,prob_A,score_B,prob_B,"
        "score_C,prob_C,score_D,prob_D,score_E,prob_E\n"
        "'=1,"
        '"""?""",a,b,c,d,e,B|E,,,-inf,,-inf,,-inf,,-inf,,-inf,\n'
        "z,a b,y,n,,,,,B,,0.0,0.5,0.0,0.5,,,,,,\n",
    }


FORMULA = "=cmd|' /C calc'!A1"


def test_exported_text_is_escaped_but_numbers_are_not(tmp_path):
    """Spreadsheets evaluate formulas in dataset texts; JSON lines are not opened in spreadsheets."""
    files = export_files(
        tmp_path / "letters",
        "letters",
        pair(
            [FORMULA, "+1", "-1", "@A1"], (0,), [-1.0, -2.0, -3.0, -math.inf], [0], True, item_id="-7", question="=1+1"
        ),
    )
    log = next(csv.DictReader(io.StringIO(files["outputs_log.csv"])))
    assert [log[name] for name in ("id", "question", *"ABCD")] == ["'-7", "'=1+1", "'" + FORMULA, "'+1", "'-1", "'@A1"]
    assert [log[f"score_{letter}"] for letter in "ABCD"] == ["-1.0", "-2.0", "-3.0", "-inf"]
    assert files["predictions.csv"] == "id,prediction\n'-7,A\n"

    extra = {"sentence_id": FORMULA, "form_columns": json.dumps(["=good", "bad"])}
    values = {"loglik_sentence:0": -LN(8), "loglik_sentence:1": -LN(16)}
    files = export_files(tmp_path / "forms", "target_word", pair(["-se", "=lo"], extra=extra, values=values))
    cells = next(csv.DictReader(io.StringIO(files["evaluation_sentence.csv"])))
    assert [cells[name] for name in ("sentence_id", "'=good", "bad")] == ["'" + FORMULA, "'-se", "'=lo"]
    assert (float(cells["p_=good"]), float(cells["I_bad"])) == (pytest.approx(-3.0), pytest.approx(4.0))

    files = export_files(tmp_path / "lines", "cloze", pair(["=1", "b"], (0,), [-1.0, -2.0], context="=__"))
    assert json.loads(files["results.jsonl"])["predicted"] == "=1"


def test_table_readmes_describe_text_escaping(tmp_path):
    for protocol in ("letters", "target_word"):
        write(tmp_path / protocol, protocol, [], [])
        assert "apostrophe" in (tmp_path / protocol / "README.txt").read_text("utf-8")


def test_serbian_lines_exact_content(tmp_path):
    legacy = [{"loglik_unfilled:0": -1.0, "loglik_unfilled:1": second_loglik} for second_loglik in (-2.0, -0.5)]
    files = export_files(
        tmp_path,
        "cloze",
        pair(["š", "ć"], (0,), [-3.0, -1.0], values=legacy[0], context="__ \ud800"),
        pair(["a", "b"], (), [-1.0, -1.0], values=legacy[1], context="__.", item_id="i2", source_row=1),
        pair(["a", "b"], (1,), None, values={"loglik_unfilled:1": 0.0}, context="__!", item_id="i3", source_row=2),
    )
    first_line = '{"prompt": "__ \\ud800", "predicted": "%s", "correct": "š", "is_correct": %s}\n'
    second_line = '{"prompt": "__.", "predicted": %s, "correct": null, "is_correct": false}\n'
    third_line = '{"prompt": "__!", "predicted": null, "correct": "b", "is_correct": false}\n'
    assert files == {
        "results.jsonl": first_line % ("ć", "false") + second_line % "null" + third_line,
        "results_legacy.jsonl": first_line % ("š", "true") + second_line % '"b"' + third_line,
    }


def test_grew_tse_includes_forms_of_all_items(tmp_path):
    files = export_files(
        tmp_path,
        "target_word",
        pair(["u", "v"], extra={"form_columns": '["good", "bad"]'}, item_id="a", values={"loglik_token:1": 0.0}),
        pair(["x"], extra={"form_columns": '["else"]'}, item_id="b", source_row=1, values={"loglik_token:0": 0.0}),
    )["evaluation.csv"]
    assert files.splitlines() == [
        "Index,sentence_id,match_id,good,bad,else,p_good,I_good,p_bad,I_bad,p_else,I_else,certainty,error",
        "0,,,u,v,,,,1.0,-0.0,,,,",
        "1,,,,,x,,,,,1.0,-0.0,,",
    ]


def test_pairs_have_a_column_for_each_form_of_the_row_with_the_most():
    row = dict.fromkeys(("sentence_id", "match_id", "original_text", "masked_text", "prompt_text", "lemma"), "x")
    one = row | {"form_grammatical": "good", "form_ungrammatical": "bad", "ungrammatical_text": "x bad"}
    two = one | {"form_ungrammatical_2": "worse", "ungrammatical_text_2": "x worse"}
    header, *lines = pairs_csv([one, two]).splitlines()
    assert header == (
        "sentence_id,match_id,form_grammatical,original_text,masked_text,prompt_text,form_ungrammatical,"
        "form_ungrammatical_2,lemma,upos,features,swapped,deprel,distance,phenomenon,pattern,treebank,"
        "ungrammatical_text,ungrammatical_text_2"
    )
    assert lines == ["x,x,good,x,x,x,bad,,x,,,,,,,,,x bad,", "x,x,good,x,x,x,bad,worse,x,,,,,,,,,x bad,x worse"]
    assert "form_ungrammatical,lemma" in pairs_csv([]).splitlines()[0]
