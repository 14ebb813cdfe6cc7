import csv

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
from vernacular.comparison.external.join import join
from vernacular.comparison.external.judge import match
from vernacular.comparison.external.results import Answer
from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.metrics.schema import TASK_RESULTS


def write_csv(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_lm_eval_samples_become_rows_of_ours(tmp_path):
    path = write_jsonl(tmp_path / NAME, SAMPLES)
    tables, notes = join(path, {"rios.gl.options.0shot": reference(order=[2, 0, 1])})
    found = by_id(tables["rios.gl.options.0shot"])
    assert found["r1"]["choices"] == ["o Ulla", "o Tambre", "o Miño"]
    assert found["r1"]["option_scores"] == [-9.0, -5.0, -2.0]
    assert (found["r1"]["prediction"], found["r1"]["correct"], found["r1"]["gold"]) == ("o Miño", True, [2])
    assert found["r1"]["metrics"]["accuracy_char"] == 1.0
    assert "3 of 3 results match the 3 items of rios.gl.options.0shot" in notes[0]
    artifacts.write(tmp_path / "t.parquet", TASK_RESULTS, tables["rios.gl.options.0shot"], {})


def test_a_tie_that_lm_eval_gives_to_the_first_is_not_right_and_said(tmp_path):
    tables, notes = join(write_jsonl(tmp_path / NAME, SAMPLES), {"e": reference()})
    tied = by_id(tables["e"])["r3"]
    assert (tied["correct"], tied["tie"], tied["metrics"]["accuracy"]) == (False, True, 0.0)
    assert "1 classified differently by the file" in notes[0]


def test_shots_are_read_from_the_results_beside(tmp_path):
    write_jsonl(tmp_path / "m" / NAME, SAMPLES)
    (tmp_path / "m" / "results_2026-01-02T03-04-05.6.json").write_text('{"n-shot": {"rios": 5}}')
    references = {"zero": reference(shots=0), "five": reference(shots=5)}
    tables, notes = join(tmp_path, references)
    assert list(tables) == ["five"]
    assert "not known" not in notes[0]
    with pytest.raises(DataError, match="no evaluation matches results of this type \(5-shot\)"):
        join(tmp_path, {"zero": reference(shots=0)})


def test_requests_without_the_question_are_left_aside(tmp_path):
    """acc_mutual_info asks each continuation a second time, alone."""
    lines = []
    for each, logliks in zip(SAMPLES, LOGLIKS.values(), strict=True):
        alone = {
            f"gen_args_{i + 3}": {"arg_0": "", "arg_1": each["arguments"][f"gen_args_{i}"]["arg_1"]} for i in range(3)
        }
        said = [[str(value), "False"] for value in [*logliks, -1.0, -1.0, -1.0]]
        lines.append(each | {"arguments": each["arguments"] | alone, "filtered_resps": said})
    found = by_id(join(write_jsonl(tmp_path / NAME, lines), {"e": reference()})[0]["e"])
    assert found["r1"]["option_scores"] == LOGLIKS["r1"]


def test_letters_stand_for_the_options_in_the_order_of_the_document(tmp_path):
    lines = []
    for each in SAMPLES:
        arguments = {f"gen_args_{i}": {"arg_0": "…", "arg_1": f" {c}"} for i, c in enumerate("ABC")}
        lines.append(each | {"arguments": arguments})
    references = {"letters": reference("letters", order=[1, 2, 0]), "options": reference()}
    tables, _ = join(write_jsonl(tmp_path / NAME, lines), references)
    assert list(tables) == ["letters"]
    found = by_id(tables["letters"])["r1"]
    assert found["choices"] == ["o Miño", "o Ulla", "o Tambre"]
    assert found["option_scores"] == [-2.0, -9.0, -5.0]
    assert found["prediction"] == "A"


def test_written_answers_are_judged_as_text(tmp_path):
    lines = []
    for (question, choices, _), said in zip(QUESTIONS.values(), ("O Miño!", "no Atlántico", ""), strict=True):
        arguments = {"gen_args_0": {"arg_0": f"P: {question}\nR:", "arg_1": {"until": ["\n"]}}}
        lines.append(sample(question, choices, [0.0], 0.0, arguments=arguments, filtered_resps=[said], exact_match=0.0))
    references = {"generation": reference("generation"), "options": reference()}
    tables, notes = join(write_jsonl(tmp_path / NAME, lines), references)
    assert list(tables) == ["generation"]
    found = by_id(tables["generation"])
    assert [found[name]["metrics"]["exact_match"] for name in QUESTIONS] == [1.0, 0.0, 0.0]
    assert found["r1"]["correct"] is None  # which option it is nearest to was not measured
    assert "1 classified differently" in notes[0]


def test_a_last_word_has_its_surprisal(tmp_path):
    items = [item("w1", context="Todo o mundo sabía a letra da"), item("w2", context="Choveu todo o")]
    lines = [
        sample("", [], [], 0.0, doc={"sentence": each["context"], "last_word": "x"},
               arguments={"gen_args_0": {"arg_0": each["context"], "arg_1": " x"}}, filtered_resps=["-4.5", "True"])
        for each in items
    ]  # fmt: skip
    for line in lines:
        line["filtered_resps"] = [line["filtered_resps"]]
    found = by_id(join(write_jsonl(tmp_path / NAME, lines), {"w": reference("last_word", items=items)})[0]["w"])
    assert found["w2"]["metrics"] == {"surprisal": 4.5, "coverage": 1.0, "greedy": 1.0}


def test_the_story_in_four_columns_is_one_context(tmp_path):
    story = ["Uxía foi á praia.", "Levaba a merenda.", "Foi nadar.", "Unha gaivota comeuna."]
    endings = ["Tivo que mercar algo.", "Deulle as grazas."]
    line = sample("", endings, [-3.0, -4.0], 1.0, doc={"InputSentence1": story[0], "InputSentence2": story[1],
                  "InputSentence3": story[2], "InputSentence4": story[3], "Quiz1": endings[0], "Quiz2": endings[1]})  # fmt: skip
    items = [item("s1", context=" ".join(story), choices=endings)]
    tables, _ = join(write_jsonl(tmp_path / NAME, [line]), {"s": reference("minimal_pair", items=items)})
    assert by_id(tables["s"])["s1"]["correct"] is True


def test_results_of_other_items_are_refused_with_how_many_match(tmp_path):
    lines = [
        SAMPLES[0],
        sample("Outra?", ["si", "non"], [-1.0, -2.0], 1.0),
        sample("E esta?", ["si", "non"], [-1, -2], 1.0),
    ]
    with pytest.raises(DataError, match=r"1 of 3 results match the 3 items of e \(2 unmatched\): fewer than 80%"):
        join(write_jsonl(tmp_path / NAME, lines), {"e": reference()})


def test_a_persons_table_by_text_and_prediction(tmp_path):
    path = write_csv(
        tmp_path / "mine.csv",
        [
            {"question": "cal é o río  máis longo de galicia", "choices": "o Tambre|o Miño|o Ulla", "prediction": "O Miño"},
            {"question": "En que mar desemboca o Sil?", "choices": "en ningún|no Cantábrico|no Atlántico", "prediction": "no Atlántico"},
            {"question": "Onde nace o Eume?", "choices": "en Lugo 🙂|en Ourense|en León", "prediction": "en Vigo"},
        ],
    )  # fmt: skip
    tables, notes = join(path, {"e": reference()})
    found = by_id(tables["e"])
    assert [found[name]["correct"] for name in QUESTIONS] == [True, False, None]
    assert found["r3"]["metrics"] == {}
    assert found["r3"]["flags"] == "error: the prediction is not one of the options"
    assert "1 unreadable" in notes[0]


def test_a_persons_table_by_id_with_right_and_wrong(tmp_path):
    rows = [
        {"item_id": name, "correct": c, "evaluation": "e"}
        for name, c in zip(QUESTIONS, ["1", "False", ""], strict=True)
    ]
    tables, _ = join(write_csv(tmp_path / "mine.csv", rows), {"e": reference(), "other": reference()})
    assert list(tables) == ["e"]
    assert [by_id(tables["e"])[name]["correct"] for name in QUESTIONS] == [True, False, None]


def test_a_letter_is_an_option_only_where_letters_were_asked_for(tmp_path):
    path = write_csv(tmp_path / "e.csv", [{"item_id": name, "prediction": "B."} for name in QUESTIONS])
    assert by_id(join(path, {"e": reference("letters")})[0]["e"])["r1"]["correct"] is True
    assert by_id(join(path, {"e": reference("options")})[0]["e"])["r1"]["correct"] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("item_id,answer\nr1,A\n", "mine.csv, line 2: no output: expected a column prediction or correct, got item_id, answer"),
        ("name,correct\nr1,1\n", "mine.csv, line 2: no item: expected one of the columns item_id, context"),
        ("item_id,correct\nr1,maybe\n", "mine.csv, line 2: correct: expected 1, 0, true, false or an empty value, got 'maybe'"),
        ("item_id,correct,evaluation\nr1,1,rioss\n", "evaluation: unknown evaluation \"rioss\". Did you mean \"rios\"?"),
        ("item_id,correct\nr1,1,7\n", "mine.csv, line 2: row 2: expected 2 columns as in the header, got 3"),
        ("", "mine.csv: the file is empty"),
    ],
)  # fmt: skip
def test_mistakes_in_a_persons_table_are_named(tmp_path, text, said):
    (tmp_path / "mine.csv").write_text(text, "utf-8")
    with pytest.raises(DataError) as error:
        join(tmp_path / "mine.csv", {"rios": reference()})
    assert said in str(error.value)


def test_mistakes_in_samples_and_folders_are_named(tmp_path):
    with pytest.raises(DataError, match="file or directory not found"):
        join(tmp_path / "nothing", {"e": reference()})
    with pytest.raises(DataError, match="no results found"):
        join(tmp_path, {"e": reference()})
    (tmp_path / NAME).write_text("not json\n")
    with pytest.raises(DataError, match=r"line 1: not valid JSON"):
        join(tmp_path, {"e": reference()})
    write_jsonl(tmp_path / NAME, [SAMPLES[0], {"doc": {}}])
    with pytest.raises(DataError, match="line 2: not an lm-eval sample"):
        join(tmp_path, {"e": reference()})
    (tmp_path / "mine.csv").write_text("item_id,correct\na,1\n")
    with pytest.raises(DataError, match=rf"results of several types \({NAME} and mine.csv\)"):
        join(tmp_path, {"e": reference()})


def test_an_earlier_run_of_ours_is_joined_as_it_is(tmp_path):
    ours = reference()
    artifacts.write(tmp_path / "tasks" / "e.parquet", TASK_RESULTS, ours.rows, {"evaluation": "e"})
    tables, notes = join(tmp_path, {"e": ours})
    assert tables["e"].to_pylist() == ours.rows.to_pylist()
    assert "3 of 3 items match e" in notes[0]
    changed = reference(
        items=[item(name, question + "!", choices, gold) for name, (question, choices, gold) in QUESTIONS.items()]
    )
    with pytest.raises(DataError, match=r"0 of 3 items match e: fewer than 80%"):
        join(tmp_path, {"e": changed})
    with pytest.raises(DataError, match='Did you mean "e2"'):
        join(tmp_path, {"e2": ours})


def test_parquet_that_is_not_per_item_results_is_not_to_be_deleted(tmp_path):
    (tmp_path / "old.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not per-item results of this version") as error:
        join(tmp_path / "old.parquet", {"e": reference()})
    assert "delete" not in str(error.value)


def prompts(items):
    return {each["item_id"]: f"Pregunta: {each['question']}" for each in items}


def test_case_and_punctuation_tell_apart_before_they_are_forgiven():
    pairs = [item("a", choices=["Vén, Ana.", "Ven Ana."]), item("b", choices=["vén ana", "ven ana"])]
    answers = [Answer("1", ("vén ana", "ven ana")), Answer("2", ("Vén, Ana.", "Ven Ana."))]
    found = match(answers, pairs, prompts(pairs))
    assert {name: answer.where for name, answer in found.answers.items()} == {"a": "2", "b": "1"}


def test_items_of_the_same_words_are_ambiguous_and_repeated_answers_count_once():
    twins = [item("a", "Cando?", ["si", "non"]), item("b", "Cando?", ["si", "non"]), item("c", "Onde?", ["aí", "aquí"])]
    answers = [
        Answer("1", ("Cando?", "si", "non")),
        Answer("2", ("Onde?", "aí", "aquí")),
        Answer("3", ("Onde?", "aí", "aquí")),
    ]
    found = match(answers, twins, prompts(twins))
    assert (list(found.answers), found.ambiguous, found.repeated, found.unmatched) == (["c"], 1, 1, 0)
    assert found.share == pytest.approx(1 / 3)


def test_an_id_decides_between_items_of_the_same_words():
    twins = [item("a", "Cando?", ["si", "non"]), item("b", "Cando?", ["si", "non"])]
    found = match([Answer("1", ("Cando?", "si", "non"), item_id="b")], twins, prompts(twins))
    assert list(found.answers) == ["b"]


def test_the_prompt_word_for_word_is_enough():
    found = match([Answer("1", ("Pregunta: Onde nace o Eume?",))], ITEMS, prompts(ITEMS))
    assert list(found.answers) == ["r3"]
