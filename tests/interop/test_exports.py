import csv
import io
import json
import math

import pytest
from support.scoring import ask, item, score, scored
from vernacular.commands.export import write
from vernacular.protocols.cloze import metrics as cloze
from vernacular.protocols.letters import metrics as letters
from vernacular.protocols.target_word import metrics as target_word

LN = math.log


def read_csv(path):
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"), newline="")))


def test_protocols_without_a_source_tool_write_nothing(tmp_path):
    assert write(tmp_path, "options", [], []) == []
    assert not list(tmp_path.iterdir())


@pytest.fixture
def palm(tmp_path):
    items = [
        item("7", question='ما "هذا"؟', choices=["a, b", "NA", "ج", "d"], gold=[1], source_row=1),
        item("3", question="ما؟", choices=["a", "b", "c", "d"], gold=[0], source_row=0),
        item("9", question="ما؟", choices=["a", "b", "c", "d"], gold=[0], source_row=2),
    ]
    requests = ask(items, "question", "letters")
    by_item = {
        "7": {"choice:0": LN(0.1), "choice:1": LN(0.2), "choice:2": LN(0.05), "choice:3": LN(0.05)},
        "3": {f"choice:{i}": -1.0 for i in range(4)},
    }
    scores = [
        score(r, by_item[r["item_id"]][r["role"]]) if r["item_id"] in by_item else score(r, [], flags="error: too long")
        for r in requests
    ]
    rows = letters.per_item(items, requests, scores)
    return {path.name: path for path in write(tmp_path, "letters", items, rows)}


def test_palmx_predictions_in_the_order_of_the_source(palm):
    assert palm["predictions.csv"].read_bytes() == b"id,prediction\n3,\n7,B\n9,\n"
    assert palm["scores.txt"].read_text() == "accuracy=0.500000\n"  # the tie is wrong, the error is no answer


def test_palmx_log_has_the_scripts_columns(palm):
    rows = read_csv(palm["outputs_log.csv"])
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
    one = item(question="?", choices=["a", "b"])
    requests = ask([one], "question", "letters")
    rows = letters.per_item([one], requests, scored(requests, {"choice:1": -1.0}))
    write(tmp_path, "letters", [one], rows)
    assert "not available" in (tmp_path / "scores.txt").read_text()
    assert (tmp_path / "predictions.csv").read_text() == "id,prediction\ni1,B\n"


def test_letters_of_shuffled_options_are_those_shown(tmp_path):
    truth = item(question="?", choices=["right", "w1", "w2", "w3"], gold=[0], target="right")
    requests = ask([truth], "multi_answer", "letters")
    rows = letters.per_item([truth], requests, scored(requests, {"choice:0": -1.0}))
    write(tmp_path, "letters", [truth], rows)
    logged = read_csv(tmp_path / "outputs_log.csv")[0]
    assert logged[logged["pred_label"]] == "right"
    assert logged["pred_label"] == logged["answer_label"]
    assert f"\n{logged['pred_label']}. right\n" in requests[0]["text"]


def test_serbian_lines(tmp_path):
    items = [
        item("i1", context="Ana je __.", choices=["tu", "ту"], gold=[0], source_row=0),
        item("i2", context="On je __.", choices=["a", "b"], gold=[1], source_row=1),
    ]
    requests = ask(items, "cloze", "cloze", score_unfilled_gap=True)
    rows = cloze.per_item(items, requests, scored(requests, {"whole:1": -1.0}))
    written = write(tmp_path, "cloze", items, rows)
    assert {path.name for path in written} == {"results.jsonl", "results_legacy.jsonl", "README.txt"}
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
    requests = ask(items, "target_word", "target_word")
    by_role = {"token:0": LN(0.5), "token:1": LN(0.25), "sentence:0": LN(1 / 8), "sentence:1": LN(1 / 16)}
    rows = target_word.per_item(items, requests, scored(requests, by_role))
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


def test_each_tool_has_a_readme_of_differences(tmp_path):
    for protocol in ("letters", "cloze", "target_word"):
        write(tmp_path / protocol, protocol, [], [])
        assert "Differences from" in (tmp_path / protocol / "README.txt").read_text("utf-8")


def pair(options, gold=(0,), scores=None, predicted=None, correct=None, values=(), flag=None, **rest):
    """An item and its result row as they are read from Parquet, where maps are lists of pairs."""
    row = {"item_id": rest.get("item_id", "i1"), "choices": options, "gold": list(gold), "option_scores": scores}
    row |= {"predicted_indices": predicted, "correct": correct, "metrics": list(dict(values).items()), "flags": flag}
    return item(choices=options, gold=gold, **rest), row


def written(folder, protocol, *pairs):
    write(folder, protocol, [one for one, _ in pairs], [row for _, row in pairs])
    return {path.name: path.read_bytes().decode("utf-8") for path in folder.iterdir() if path.name != "README.txt"}


def test_grew_tse_table_has_a_column_for_each_form_and_each_score_under_its_own(tmp_path):
    texts = {"sentence_id": "s", "match_id": "m", "original_text": "o", "prompt_text": "p"}
    names = {"form_columns": json.dumps(["good", "bad", "worse"])}
    logliks = {"loglik_token:0": LN(0.5), "loglik_token:1": LN(0.25), "loglik_token:2": LN(0.125), "certainty": 0.75}
    narrow = {"loglik_token:0": 0.0, "loglik_token:1": -math.inf}
    found = written(
        tmp_path,
        "target_word",
        pair(["x", "y"], extra={"form_columns": '["good", "worse"]'}, item_id="a", values=narrow, flag="error: =1"),
        pair(["u", "v", "w"], extra=list((texts | names).items()), item_id="b", source_row=1, values=logliks),
    )
    assert list(found) == ["evaluation.csv"]  # the sentence was not asked
    columns = "Index,sentence_id,match_id,good,original_text,prompt_text,bad,worse"
    columns += ",p_good,I_good,p_bad,I_bad,p_worse,I_worse,certainty,error\n"
    rows = found["evaluation.csv"].removeprefix(columns).splitlines()
    assert rows[0] == "0,,,x,,,,y,1.0,-0.0,,,0.0,inf,,error: =1"
    assert rows[1].startswith("1,s,m,u,o,p,v,w,")
    assert list(map(float, rows[1].split(",")[8:-1])) == pytest.approx([0.5, 1.0, 0.25, 2.0, 0.125, 3.0, 0.75])


def test_grew_tse_columns_whose_forms_coincide_have_the_form_and_its_score_each(tmp_path):
    extra = {"form_columns": json.dumps(["good", ["bad", "worse"]])}
    values = {"loglik_token:0": LN(0.5), "loglik_token:1": LN(0.25)}
    found = written(tmp_path, "target_word", pair(["u", "v"], extra=extra, values=values))
    header, row = found["evaluation.csv"].splitlines()
    assert header == (
        "Index,sentence_id,match_id,good,bad,worse,p_good,I_good,p_bad,I_bad,p_worse,I_worse,certainty,error"
    )
    assert row == "0,,,u,v,v,0.5,1.0,0.25,2.0,0.25,2.0,,"


@pytest.mark.parametrize("extra", [{}, {"form_columns": '["good"]'}, {"form_columns": "[]"}])
def test_grew_tse_forms_without_a_name_each_are_numbered(tmp_path, extra):
    found = written(tmp_path, "target_word", pair(["x", "y"], extra=extra, values={"loglik_sentence:0": -LN(8)}))
    assert list(found) == ["evaluation_sentence.csv"]
    header, row = found["evaluation_sentence.csv"].splitlines()
    assert header == "Index,sentence_id,match_id,form_0,form_1,p_form_0,I_form_0,p_form_1,I_form_1,error"
    cells = row.split(",")
    assert (cells[:5], cells[7:]) == (["0", "", "", "x", "y"], ["", "", ""])
    assert list(map(float, cells[5:7])) == pytest.approx([-3.0, 3.0])


def test_grew_tse_where_nothing_could_be_scored_both_tables_say_why(tmp_path):
    found = written(tmp_path, "target_word", pair(["x"], flag="error: no"))
    assert found == {
        "evaluation.csv": "Index,sentence_id,match_id,form_0,p_form_0,I_form_0,certainty,error\n0,,,x,,,,error: no\n",
        "evaluation_sentence.csv": "Index,sentence_id,match_id,form_0,p_form_0,I_form_0,error\n0,,,x,,,error: no\n",
    }


def test_palmx_files_to_the_letter(tmp_path):
    found = written(
        tmp_path,
        "letters",
        pair(list("abcde"), (1, 4), [-math.inf] * 5, [0, 1], None, item_id="=1", question='"?"'),
        pair(["y", "n"], (), [0.0, 0.0], [1], None, item_id="z", question="a\nb", source_row=1),
    )
    assert found == {
        "predictions.csv": "id,prediction\n'=1,\nz,B\n",
        "scores.txt": "accuracy is not available: no answer is known\n",
        "outputs_log.csv": "id,question,A,B,C,D,E,answer_label,pred_label,correct,score_A,prob_A,score_B,prob_B,"
        "score_C,prob_C,score_D,prob_D,score_E,prob_E\n"
        "'=1,"
        '"""?""",a,b,c,d,e,B|E,,,-inf,,-inf,,-inf,,-inf,,-inf,\n'
        "z,a b,y,n,,,,,B,,0.0,0.5,0.0,0.5,,,,,,\n",
    }


FORMULA = "=cmd|' /C calc'!A1"


def test_no_text_of_the_source_tools_tables_is_a_formula_and_numbers_stay_numbers(tmp_path):
    """A data set is other people's words, and a spreadsheet runs them; JSON lines are read by no spreadsheet."""
    found = written(
        tmp_path / "letters",
        "letters",
        pair(
            [FORMULA, "+1", "-1", "@A1"], (0,), [-1.0, -2.0, -3.0, -math.inf], [0], True, item_id="-7", question="=1+1"
        ),
    )
    log = next(csv.DictReader(io.StringIO(found["outputs_log.csv"])))
    assert [log[name] for name in ("id", "question", *"ABCD")] == ["'-7", "'=1+1", "'" + FORMULA, "'+1", "'-1", "'@A1"]
    assert [log[f"score_{letter}"] for letter in "ABCD"] == ["-1.0", "-2.0", "-3.0", "-inf"]
    assert found["predictions.csv"] == "id,prediction\n'-7,A\n"

    extra = {"sentence_id": FORMULA, "form_columns": json.dumps(["=good", "bad"])}
    values = {"loglik_sentence:0": -LN(8), "loglik_sentence:1": -LN(16)}
    found = written(tmp_path / "forms", "target_word", pair(["-se", "=lo"], extra=extra, values=values))
    cells = next(csv.DictReader(io.StringIO(found["evaluation_sentence.csv"])))
    assert [cells[name] for name in ("sentence_id", "'=good", "bad")] == ["'" + FORMULA, "'-se", "'=lo"]
    assert (float(cells["p_=good"]), float(cells["I_bad"])) == (pytest.approx(-3.0), pytest.approx(4.0))

    found = written(tmp_path / "lines", "cloze", pair(["=1", "b"], (0,), [-1.0, -2.0], context="=__"))
    assert json.loads(found["results.jsonl"])["predicted"] == "=1"


def test_the_readmes_of_tables_say_what_text_looks_like(tmp_path):
    for protocol in ("letters", "target_word"):
        write(tmp_path / protocol, protocol, [], [])
        assert "apostrophe" in (tmp_path / protocol / "README.txt").read_text("utf-8")


def test_serbian_lines_to_the_letter(tmp_path):
    legacy = [{"loglik_unfilled:0": -1.0, "loglik_unfilled:1": second} for second in (-2.0, -0.5)]
    found = written(
        tmp_path,
        "cloze",
        pair(["š", "ć"], (0,), [-3.0, -1.0], values=legacy[0], context="__ \ud800"),
        pair(["a", "b"], (), [-1.0, -1.0], values=legacy[1], context="__.", item_id="i2", source_row=1),
        pair(["a", "b"], (1,), None, values={"loglik_unfilled:1": 0.0}, context="__!", item_id="i3", source_row=2),
    )
    one = '{"prompt": "__ \\ud800", "predicted": "%s", "correct": "š", "is_correct": %s}\n'
    two = '{"prompt": "__.", "predicted": %s, "correct": null, "is_correct": false}\n'
    three = '{"prompt": "__!", "predicted": null, "correct": "b", "is_correct": false}\n'
    assert found == {
        "results.jsonl": one % ("ć", "false") + two % "null" + three,
        "results_legacy.jsonl": one % ("š", "true") + two % '"b"' + three,
    }


def test_grew_tse_forms_that_only_some_items_have_are_not_lost(tmp_path):
    found = written(
        tmp_path,
        "target_word",
        pair(["u", "v"], extra={"form_columns": '["good", "bad"]'}, item_id="a", values={"loglik_token:1": 0.0}),
        pair(["x"], extra={"form_columns": '["else"]'}, item_id="b", source_row=1, values={"loglik_token:0": 0.0}),
    )["evaluation.csv"]
    assert found.splitlines() == [
        "Index,sentence_id,match_id,good,bad,else,p_good,I_good,p_bad,I_bad,p_else,I_else,certainty,error",
        "0,,,u,v,,,,1.0,-0.0,,,,",
        "1,,,,,x,,,,,1.0,-0.0,,",
    ]
