"""Audit of parallel tasks, and the defects of included datasets that are caught when they are loaded."""

import json

from support.messages import assert_states
from vernacular import cli
from vernacular.data.audit import audit
from vernacular.data.load import WORKFLOW, load_items
from vernacular.data.tasks import load_task
from vernacular.protocols.build import sample_examples

COPA = [
    ("Chovía.", "Molleime.", "Sequei.", "effect", 0),
    ("A lámpada apagouse.", "Fundiuse.", "Acendina.", "cause", 0),
    ("Caeu.", "Levantouse.", "Durmiu.", "effect", 1),
]


def write_copa(directory, language: str, questions: list[str], words: str) -> None:
    """Write rows in the columns of XCOPA; `words` stands for a translation."""
    path = directory / "copa" / language / "test.jsonl"
    path.parent.mkdir(parents=True)
    rows = [
        {
            "premise": f"{words} {p}",
            "choice1": f"{words} {a}",
            "choice2": f"{words} {b}",
            "question": q,
            "label": gold,
            "idx": i,
        }
        for i, ((p, a, b, _, gold), q) in enumerate(zip(COPA, questions, strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_connectors_of_copa_follow_the_question_of_another_language(tmp_path):
    write_copa(tmp_path, "et", ["effect", "cause", "effect"], "Üks")
    write_copa(tmp_path, "th", ["effect", "effect", "effect"], "หนึ่ง")
    items, metadata = load_items(load_task(WORKFLOW / "tasks" / "copa.yaml"), "th", source=str(tmp_path))
    assert [item["context"].split()[-1] for item in items] == ["ดังนั้น", "เพราะ", "ดังนั้น"]
    assert [item["category"] for item in items] == ["effect", "cause", "effect"]
    assert metadata["rows"]["repaired"] == {"question: the value of _joined.question used instead": 1}
    assert items[0]["context"].startswith("หนึ่ง Chovía ")  # without its period
    assert items[0]["choices"][0] == "หนึ่ง Molleime."


def test_wrong_cells_of_a_language_are_found_by_the_others(tmp_path, capsys):
    right = [question for *_, question, _ in COPA]
    write_copa(tmp_path, "et", right, "Üks")
    write_copa(tmp_path, "it", right, "Uno")
    write_copa(tmp_path, "tr", ["effect"] * 3, "Bir")
    assert cli.main(["tasks", "--audit", "copa", "--data", str(tmp_path), "--languages", "et", "it", "tr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "tr: repaired in 1 row: question: the value of _joined.question used instead" in lines
    assert "tr: question: 1 item" in lines
    assert_states(next(line for line in lines if line.startswith("    1:")), "effect", "cause in 2 of 3 languages")
    assert lines[-1].startswith("tasks: copa: 1 finding in 3 languages")


def test_audit_needs_parallel_items(capsys):
    assert cli.main(["tasks", "--audit", "include"]) == 1
    assert "not parallel" in capsys.readouterr().err
    assert cli.main(["tasks", "--audit", "belebelle"]) == 1
    assert 'Did you mean "belebele"?' in capsys.readouterr().err


def item(item_id: str, context: str, gold: int = 0, choices=("unha", "outra")) -> dict:
    fields = {"item_id": item_id, "few_shot": False, "context": context, "question": "", "choices": list(choices)}
    return {**fields, "gold": [gold], "target": None, "category": None, "extra": {}}


def test_answers_options_equal_texts_and_scripts_are_compared():
    english = [item(str(i), f"The text number {i} is this one", choices=("one", "other")) for i in range(4)]
    items = {
        "en": english,
        "gl": [item("0", "O texto"), item("1", "O texto", gold=1), item("2", "O texto"), dict(english[3])],
        "eu": [item(str(i), f"Testua {i}", choices=("bat", "bi")) for i in range(3)]
        + [item("3", "Testua", choices=("bat", "bi", "hiru"))],
        "sr-Cyrl": [item("0", "Текст", choices=("један", "други")), item("1", "Tekst")],
    }
    findings = {(each.language, each.item_id, each.kind) for each in audit(items)}
    assert findings == {
        ("gl", "1", "answer"),
        ("gl", "3", "equal text"),
        ("eu", "3", "number of options"),
        ("sr-Cyrl", "1", "script"),
    }


def test_names_and_numbers_may_be_equal_in_two_languages():
    items = {language: [item("0", "Toyota Corolla 1.6", choices=("3", "4"))] for language in ("en", "gl")}
    assert audit(items) == []


def include_row(question: str, options: str, answer: int) -> dict:
    cells = dict(zip(("option_a", "option_b", "option_c", "option_d"), options, strict=True))
    return {"question": question, **cells, "answer": answer, "subject": "History"}


def test_recurring_rows_of_include_are_no_few_shot_examples(tmp_path):
    test_rows = [include_row("Noiz?", "abcd", 0), include_row("Non?", "efgh", 1), include_row("Nor?", "ijkl", 2)]
    validation = [include_row("Noiz?", "dcba", 3), include_row("Zer?", "mnop", 0), include_row("Non?", "efgh", 1)]
    directory = tmp_path / "include" / "eu"
    directory.mkdir(parents=True)
    for name, rows in (("test", test_rows), ("validation", validation)):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    items, metadata = load_items(load_task(WORKFLOW / "tasks" / "include.yaml"), "eu", source=str(tmp_path))
    examples, held_out = sample_examples(items, task="include", language="eu", shots=1, seed=0)
    assert [example["question"] for example in examples] == [
        "Zer?"
    ]  # the others recur, one with options in another order
    assert held_out == set() or held_out <= {example["item_id"] for example in examples}
    assert sum(not each["few_shot"] for each in items) == 3
    assert any("2 few-shot examples with the content of an evaluated item" in text for text in metadata["warnings"])
