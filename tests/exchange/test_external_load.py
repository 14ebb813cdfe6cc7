import csv
import json

import pytest
from support.external_results import (
    ITEMS,
    LOGLIKS,
    NAME,
    QUESTIONS,
    SAMPLES,
    by_id,
    item,
    reference,
    sample,
    write_jsonl,
)
from support.messages import assert_states
from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.exchange.classify import ExternalResult, match_items
from vernacular.exchange.external_results import load_external_results
from vernacular.metrics.schema import TASK_RESULTS


def write_csv(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_lm_eval_samples_are_matched_to_items(tmp_path):
    path = write_jsonl(tmp_path / NAME, SAMPLES)
    tables, notes = load_external_results(path, {"rios.gl.options.0shot": reference(order=[2, 0, 1])})
    rows = by_id(tables["rios.gl.options.0shot"])
    assert rows["r1"]["choices"] == ["o Ulla", "o Tambre", "o Miño"]
    assert rows["r1"]["option_scores"] == [-9.0, -5.0, -2.0]
    assert (rows["r1"]["prediction"], rows["r1"]["correct"], rows["r1"]["gold"]) == ("o Miño", True, [2])
    assert rows["r1"]["metrics"]["accuracy_char"] == 1.0
    assert_states(notes[0], NAME, "3 of 3", "3 items", "rios.gl.options.0shot")
    artifacts.write(tmp_path / "t.parquet", TASK_RESULTS, tables["rios.gl.options.0shot"], {})


def test_tie_counts_as_incorrect_and_is_noted(tmp_path):
    tables, notes = load_external_results(write_jsonl(tmp_path / NAME, SAMPLES), {"e": reference()})
    tied_row = by_id(tables["e"])["r3"]
    assert (tied_row["correct"], tied_row["tie"], tied_row["metrics"]["accuracy"]) == (False, True, 0.0)
    assert "1 classified differently" in notes[0]


def test_shots_are_read_from_the_results_file(tmp_path):
    write_jsonl(tmp_path / "m" / NAME, SAMPLES)
    (tmp_path / "m" / "results_2026-01-02T03-04-05.6.json").write_text('{"n-shot": {"rios": 5}}')
    references = {"zero": reference(shots=0), "five": reference(shots=5)}
    tables, notes = load_external_results(tmp_path, references)
    assert list(tables) == ["five"]
    assert "unknown" not in notes[0]
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path, {"zero": reference(shots=0)})
    assert_states(raised.value, NAME, "no evaluation", "(5-shot)")


def test_unconditional_requests_are_ignored(tmp_path):
    """For acc_mutual_info, each continuation is scored again without context."""
    lines = []
    for sample_line, logliks in zip(SAMPLES, LOGLIKS.values(), strict=True):
        unconditional = {
            f"gen_args_{i + 3}": {"arg_0": "", "arg_1": sample_line["arguments"][f"gen_args_{i}"]["arg_1"]}
            for i in range(3)
        }
        responses = [[str(value), "False"] for value in [*logliks, -1.0, -1.0, -1.0]]
        lines.append(sample_line | {"arguments": sample_line["arguments"] | unconditional, "filtered_resps": responses})
    rows = by_id(load_external_results(write_jsonl(tmp_path / NAME, lines), {"e": reference()})[0]["e"])
    assert rows["r1"]["option_scores"] == LOGLIKS["r1"]


def test_letters_are_mapped_to_options_by_document_order(tmp_path):
    lines = []
    for sample_line in SAMPLES:
        arguments = {f"gen_args_{i}": {"arg_0": "…", "arg_1": f" {c}"} for i, c in enumerate("ABC")}
        lines.append(sample_line | {"arguments": arguments})
    references = {"letters": reference("letters", order=[1, 2, 0]), "options": reference()}
    tables, _ = load_external_results(write_jsonl(tmp_path / NAME, lines), references)
    assert list(tables) == ["letters"]
    row = by_id(tables["letters"])["r1"]
    assert row["choices"] == ["o Miño", "o Ulla", "o Tambre"]
    assert row["option_scores"] == [-2.0, -9.0, -5.0]
    assert row["prediction"] == "A"


def test_generated_text_gets_text_metrics(tmp_path):
    lines = []
    for (question, choices, _), response in zip(QUESTIONS.values(), ("O Miño!", "no Atlántico", ""), strict=True):
        arguments = {"gen_args_0": {"arg_0": f"P: {question}\nR:", "arg_1": {"until": ["\n"]}}}
        lines.append(
            sample(question, choices, [0.0], 0.0, arguments=arguments, filtered_resps=[response], exact_match=0.0)
        )
    references = {"generation": reference("generation"), "options": reference()}
    tables, notes = load_external_results(write_jsonl(tmp_path / NAME, lines), references)
    assert list(tables) == ["generation"]
    rows = by_id(tables["generation"])
    assert [rows[name]["metrics"]["exact_match"] for name in QUESTIONS] == [1.0, 0.0, 0.0]
    assert rows["r1"]["correct"] is None  # similarity to the options is unknown
    assert "1 classified differently" in notes[0]


def test_responses_to_open_questions_are_compared_with_the_accepted_answers(tmp_path):
    answers = {"q1": (["1908", "en 1908"], ""), "q2": (["12"], "1"), "q3": (["o Sil"], "")}
    items = [
        item(name, f"Pregunta {name}?") | {"choices": [], "gold": [], "target": targets[0]}
        | {"extra": {"targets": json.dumps(targets), "number": number}}
        for name, (targets, number) in answers.items()
    ]  # fmt: skip
    rows = [{"item_id": "q1", "prediction": "En 1908."}, {"item_id": "q2", "prediction": "7 + 5 = 12"}]
    path = write_csv(tmp_path / "mine.csv", [*rows, {"item_id": "q3", "prediction": "o Miño"}])
    found = by_id(load_external_results(path, {"e": reference("generation", items=items)})[0]["e"])
    assert [found[name]["metrics"].get("exact_match") for name in answers] == [1.0, 1.0, 0.0]
    assert [found[name]["correct"] for name in answers] == [True, True, False]
    assert found["q3"]["metrics"]["token_f1"] == 0.5
    write_csv(path, [{"item_id": "q3", "prediction": "o Miño", "correct": 1}])  # takes precedence
    found = by_id(load_external_results(path, {"e": reference("generation", items=items)})[0]["e"])
    assert (found["q3"]["metrics"]["exact_match"], found["q3"]["correct"]) == (1.0, True)


def test_a_judgment_in_a_table_takes_precedence_over_the_text_of_a_response(tmp_path):
    path = write_csv(
        tmp_path / "mine.csv", [{"item_id": name, "prediction": "é o Miño", "correct": 1} for name in QUESTIONS]
    )
    tables, (note,) = load_external_results(path, {"e": reference("generation")})
    assert by_id(tables["e"])["r1"]["metrics"] == {
        "exact_match": 1.0,
        "token_f1": 0.8,
        "chrf": pytest.approx(75, abs=20),
    }
    assert "classified differently" not in note


def test_last_word_gets_surprisal(tmp_path):
    items = [item("w1", context="Todo o mundo sabía a letra da"), item("w2", context="Choveu todo o")]
    lines = [
        sample("", [], [], 0.0, doc={"sentence": item_row["context"], "last_word": "x"},
               arguments={"gen_args_0": {"arg_0": item_row["context"], "arg_1": " x"}}, filtered_resps=["-4.5", "True"])
        for item_row in items
    ]  # fmt: skip
    for line in lines:
        line["filtered_resps"] = [line["filtered_resps"]]
    rows = by_id(
        load_external_results(write_jsonl(tmp_path / NAME, lines), {"w": reference("last_word", items=items)})[0]["w"]
    )
    assert rows["w2"]["metrics"] == {"surprisal": 4.5, "coverage": 1.0, "greedy": 1.0}


def test_context_split_over_columns_is_matched(tmp_path):
    story = ["Uxía foi á praia.", "Levaba a merenda.", "Foi nadar.", "Unha gaivota comeuna."]
    endings = ["Tivo que mercar algo.", "Deulle as grazas."]
    line = sample("", endings, [-3.0, -4.0], 1.0, doc={"InputSentence1": story[0], "InputSentence2": story[1],
                  "InputSentence3": story[2], "InputSentence4": story[3], "Quiz1": endings[0], "Quiz2": endings[1]})  # fmt: skip
    items = [item("s1", context=" ".join(story), choices=endings)]
    tables, _ = load_external_results(
        write_jsonl(tmp_path / NAME, [line]), {"s": reference("minimal_pair", items=items)}
    )
    assert by_id(tables["s"])["s1"]["correct"] is True


def test_results_of_other_items_are_rejected_with_counts(tmp_path):
    lines = [
        SAMPLES[0],
        sample("Outra?", ["si", "non"], [-1.0, -2.0], 1.0),
        sample("E esta?", ["si", "non"], [-1, -2], 1.0),
    ]
    with pytest.raises(DataError) as raised:
        load_external_results(write_jsonl(tmp_path / NAME, lines), {"e": reference()})
    assert_states(raised.value, NAME, "1 of 3", "3 items of e", "(2 unmatched)", "80 %")


def test_user_table_with_text_and_prediction(tmp_path):
    path = write_csv(
        tmp_path / "mine.csv",
        [
            {"question": "cal é o río  máis longo de galicia", "choices": "o Tambre|o Miño|o Ulla", "prediction": "O Miño"},
            {"question": "En que mar desemboca o Sil?", "choices": "en ningún|no Cantábrico|no Atlántico", "prediction": "no Atlántico"},
            {"question": "Onde nace o Eume?", "choices": "en Lugo 🙂|en Ourense|en León", "prediction": "en Vigo"},
        ],
    )  # fmt: skip
    tables, notes = load_external_results(path, {"e": reference()})
    rows = by_id(tables["e"])
    assert [rows[name]["correct"] for name in QUESTIONS] == [True, False, None]
    assert rows["r3"]["metrics"] == {}
    assert_states(rows["r3"]["flags"], "error: ", "prediction")
    assert "1 unreadable" in notes[0]


def test_user_table_with_id_and_correct(tmp_path):
    rows = [
        {"item_id": name, "correct": correct, "evaluation": "e"}
        for name, correct in zip(QUESTIONS, ["1", "False", ""], strict=True)
    ]
    tables, _ = load_external_results(write_csv(tmp_path / "mine.csv", rows), {"e": reference(), "other": reference()})
    assert list(tables) == ["e"]
    assert [by_id(tables["e"])[name]["correct"] for name in QUESTIONS] == [True, False, None]


def test_letter_predictions_require_the_letters_protocol(tmp_path):
    path = write_csv(tmp_path / "e.csv", [{"item_id": name, "prediction": "B."} for name in QUESTIONS])
    assert by_id(load_external_results(path, {"e": reference("letters")})[0]["e"])["r1"]["correct"] is True
    assert by_id(load_external_results(path, {"e": reference("options")})[0]["e"])["r1"]["correct"] is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("item_id,answer\nr1,A\n", ("mine.csv, line 2: ", "no output", "prediction or correct", "item_id, answer")),
        ("name,correct\nr1,1\n", ("mine.csv, line 2: ", "no item", "item_id, context", "name, correct")),
        ("item_id,correct\nr1,maybe\n", ("mine.csv, line 2: correct: ", "1, 0, true, false", "'maybe'")),
        ("item_id,correct,evaluation\nr1,1,rioss\n", ("mine.csv: evaluation: ", "unknown", '"rioss"', '"rios"')),
        ("item_id,correct\nr1,1,7\n", ("mine.csv, line 2: ", "row 2", "2 columns", "3")),
        ("", ("mine.csv: ", "empty")),
    ],
)  # fmt: skip
def test_invalid_user_tables_raise_data_error(tmp_path, text, parts):
    (tmp_path / "mine.csv").write_text(text, "utf-8")
    with pytest.raises(DataError) as error:
        load_external_results(tmp_path / "mine.csv", {"rios": reference()})
    assert_states(error.value, *parts)


def test_invalid_samples_and_directories_raise_data_error(tmp_path):
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path / "nothing", {"e": reference()})
    assert_states(raised.value, f"{tmp_path}/nothing: ", "not found")
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path, {"e": reference()})
    assert_states(raised.value, f"{tmp_path}: ", "no results", ".csv")
    (tmp_path / NAME).write_text("not json\n")
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path, {"e": reference()})
    assert_states(raised.value, f"{NAME}, line 1: ", "JSON")
    write_jsonl(tmp_path / NAME, [SAMPLES[0], {"doc": {}}])
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path, {"e": reference()})
    assert_states(raised.value, f"{NAME}, line 2: ", "lm-eval sample", "filtered_resps")
    (tmp_path / "mine.csv").write_text("item_id,correct\na,1\n")
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path, {"e": reference()})
    assert_states(raised.value, f"{tmp_path}: ", "several types", NAME, "mine.csv")


def test_earlier_run_is_loaded_unchanged(tmp_path):
    expected = reference()
    artifacts.write(tmp_path / "tasks" / "e.parquet", TASK_RESULTS, expected.rows, {"evaluation": "e"})
    tables, notes = load_external_results(tmp_path, {"e": expected})
    assert tables["e"].to_pylist() == expected.rows.to_pylist()
    assert_states(notes[0], "e.parquet: ", "3 of 3", "match e")
    changed_items = reference(
        items=[item(name, question + "!", choices, gold) for name, (question, choices, gold) in QUESTIONS.items()]
    )
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path, {"e": changed_items})
    assert_states(raised.value, "e.parquet: ", "0 of 3", "match e:", "80 %")
    with pytest.raises(DataError) as raised:
        load_external_results(tmp_path, {"e2": expected})
    assert_states(raised.value, "e.parquet: ", "unknown", '"e"', '"e2"')


def test_error_for_other_parquet_does_not_advise_deletion(tmp_path):
    (tmp_path / "old.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError) as error:
        load_external_results(tmp_path / "old.parquet", {"e": reference()})
    assert_states(error.value, "old.parquet: ", "not per-item results")
    assert "delete" not in str(error.value)


def prompts(items):
    return {item_row["item_id"]: f"Pregunta: {item_row['question']}" for item_row in items}


def test_exact_text_matches_before_normalized_text():
    items = [item("a", choices=["Vén, Ana.", "Ven Ana."]), item("b", choices=["vén ana", "ven ana"])]
    results = [ExternalResult("1", ("vén ana", "ven ana")), ExternalResult("2", ("Vén, Ana.", "Ven Ana."))]
    match_result = match_items(results, items, prompts(items))
    assert {name: result.location for name, result in match_result.results.items()} == {"a": "2", "b": "1"}


def test_ambiguous_and_repeated_results_are_counted():
    items = [item("a", "Cando?", ["si", "non"]), item("b", "Cando?", ["si", "non"]), item("c", "Onde?", ["aí", "aquí"])]
    results = [
        ExternalResult("1", ("Cando?", "si", "non")),
        ExternalResult("2", ("Onde?", "aí", "aquí")),
        ExternalResult("3", ("Onde?", "aí", "aquí")),
    ]
    match_result = match_items(results, items, prompts(items))
    assert list(match_result.results) == ["c"]
    assert match_result.counts == {"unmatched": 0, "ambiguous": 1, "repeated": 1}
    assert match_result.share == pytest.approx(1 / 3)


def test_id_resolves_items_with_equal_texts():
    items = [item("a", "Cando?", ["si", "non"]), item("b", "Cando?", ["si", "non"])]
    match_result = match_items([ExternalResult("1", ("Cando?", "si", "non"), item_id="b")], items, prompts(items))
    assert list(match_result.results) == ["b"]


def test_match_by_prompt():
    match_result = match_items([ExternalResult("1", ("Pregunta: Onde nace o Eume?",))], ITEMS, prompts(ITEMS))
    assert list(match_result.results) == ["r3"]
