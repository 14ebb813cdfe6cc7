"""Audit of parallel tasks, and the defects of included datasets that are caught when they are loaded."""

import json

import numpy as np
import pytest
from support.faulty_items import simulate, write_run
from support.messages import assert_states
from support.sample_items import item as sample
from vernacular import cli
from vernacular.commands.tasks import _in_other_languages
from vernacular.data.audit import CONTRADICTING, audit_between, item_findings, set_findings
from vernacular.data.load import WORKFLOW, load_items
from vernacular.data.tasks import load_task, shows_order, task_names
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


def test_audit_needs_a_task_and_a_language_of_it(tmp_path, capsys):
    assert cli.main(["tasks", "--audit", "include", "--languages", "eu", "--data", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("eu: unavailable (")
    assert captured.err == "include: no language is available.\n"
    assert cli.main(["tasks", "--audit", "include", "--languages", "gl"]) == 1
    assert 'language "gl" not found.' in capsys.readouterr().err
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
    findings = {(each.language, each.item_id, each.kind) for each in audit_between(items)}
    assert findings == {
        ("gl", "1", "answer"),
        ("gl", "3", "equal text"),
        ("eu", "3", "number of options"),
        ("sr-Cyrl", "1", "script"),
    }


def test_names_and_numbers_may_be_equal_in_two_languages():
    items = {language: [item("0", "Toyota Corolla 1.6", choices=("3", "4"))] for language in ("en", "gl")}
    assert audit_between(items) == []


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


def question(item_id: str, text: str = "", options=("un río", "unha serra", "o mar"), gold: int = 0, **fields) -> dict:
    content = {
        "item_id": item_id,
        "question": text or f"Que é {item_id * 4}?",
        "choices": list(options),
        "gold": [gold],
    }
    return sample(**content) | fields


PASSAGE = "Nun val moi fondo había unha aldea con sete casas e unha fonte de pedra, e alí vivía Sabela."
FAULTS = {
    "duplicate": [question("a", "Onde nace o Miño?"), question("b", "¿Onde nace o  MIÑO? ", ("O mar", "un río.", "Unha serra"), 1)],
    CONTRADICTING: [question("a", "Onde nace o Miño?"), question("b", "Onde nace o Miño?", gold=2)],
    "near-duplicate": [question("a", "En que provincia nace o río Miño, o máis longo?"),
                       question("b", "En que provincia nace o río Miño, o máis longo", ("un río", "unha serra", "o mar alto"))],
    "few-shot leak": [question("shot/a", "En que provincia nace o río Miño, o máis longo?", few_shot=True),
                      question("b", "En que provincia nace o río Miño, o mais longo?")],
    "options": [question("b", options=("un río", "un río moi longo", "o mar"))],
    "answer in question": [question("b", "Que río pasa por Lugo, o Miño?", ("o Miño", "o Sil", "o Eo"))],
    "damage": [question("b", "Onde nace o MiÃ±o?")],
    "script": [question("a", PASSAGE), question("b", "Где находится", ("река", "гора", "море"))],
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_each_check_finds_its_fault_once(kind):
    items = [*FAULTS[kind], question("clean", "Cal destas vilas ten un faro romano?", ("Burela", "A Coruña", "Foz"), 1)]
    found = item_findings(items, "gl") + audit_between({"gl": items})
    assert [(each.kind, each.item_id) for each in found] == [(kind, "b")]


@pytest.mark.parametrize("texts", [("Que día! 😀", "Que día! 😡"), ("É certo que 5 > 3?", "É certo que 5 < 3?")])
def test_signs_and_emoji_tell_texts_and_options_apart(texts):
    items = [question(name, text, ("4", "-4"), gold) for gold, (name, text) in enumerate(zip("ab", texts, strict=True))]
    assert not item_findings(items, "gl")


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("O \ufffd mar", "replacement character"), ("O\x07 mar", "control character"), ("as â€œollasâ€", "encoding damage"),
        ("Sal &amp; mar", "HTML entity"), ('O "mar', 'odd number of "'), ("O «mar", "unequal numbers of « and »"),
        ("O “mar", "unequal numbers of “ and ”"), ("O mar (alto", "unequal numbers of ( and )"),
    ],
)  # fmt: skip
def test_damaged_texts(text, detail):
    [found] = item_findings([question("a", text)], "gl")
    assert found.kind == "damage"
    assert found.detail.startswith(detail)


@pytest.mark.parametrize(
    "text", ["a) o mar 1) o río", "Das „Meer“ hier", "Ett ”hav” här", 'O "mar"', "Á Ã moça", "R&D; AT&T"]
)
def test_texts_that_are_not_damaged(text):
    assert item_findings([question("a", text)], "gl") == []


def test_options_that_refer_to_others_or_are_equal():
    for options, detail in [
        (("un", "dous", "Todas as anteriores"), "option 3 refers to the others"),
        (("o mar", "O mar.", "un"), "options 1 and 2 are the same"),
    ]:
        [found] = item_findings([question("a", options=options)], "gl")
        assert found.detail == detail
    assert item_findings([question("a", options=("0,5", "0.50", "1"))], "gl") == []


def test_the_same_question_on_another_passage_is_not_repeated():
    texts = [question(name, "Que se di no texto sobre a aldea?", context=f"{PASSAGE} {name}") for name in "ab"]
    assert item_findings(texts, "gl") == []


def test_position_of_the_gold_and_length_of_options():
    even = [question(str(i), gold=i % 3, options=("un río", "o lago", "a ría")) for i in range(90)]
    assert set_findings(even, "gl", in_order=True) == []
    biased = [question(str(i), gold=0 if i % 2 else i % 3, options=("un río", "o lago", "a ría")) for i in range(90)]
    [position] = set_findings(biased, "gl", in_order=True)
    assert position.kind == "gold position"
    assert position.detail.startswith("of 90 items with 3 options, the gold is at positions 1 to 3 in 67 %, ")
    assert set_findings(biased, "gl", in_order=False) == []
    long = [
        question(str(i), gold=i % 3, options=[f"o mar{' alto' * (j == i % 3 and i % 4 > 0)}" for j in range(3)])
        for i in range(90)
    ]
    [longest] = set_findings(long, "gl", in_order=True)
    assert longest.kind == "longest option"
    assert longest.detail == "the longest option is the gold in 83 % of 90 items, chance 33 %"


CONFIRMED = {  # by reading: "No." is in an incorrect "No, …"
    ("veritasqa", f"sample_{number}", "options") for number in ("gl_04", "en_05", "ca_01", "ca_07", "ca_08", "es_04")
}


def test_the_included_samples_have_no_other_findings():
    found = set()
    for name, path in task_names([WORKFLOW / "tasks"]).items():
        task = load_task(path)
        for language in task["languages"]:
            if (WORKFLOW / "samples" / name / language).is_dir():
                items, _ = load_items(task, language, source="samples")
                findings = item_findings(items, language) + set_findings(items, language, in_order=shows_order(task))
                found |= {(name, each.item_id, each.kind) for each in findings + audit_between({language: items})}
    assert found == CONFIRMED


def test_table_of_a_task_whose_languages_are_not_parallel(tmp_path, capsys):
    directory = tmp_path / "include" / "eu"
    directory.mkdir(parents=True)
    rows = [include_row("Noiz izan zen?", ("atzo", "gaur", "bihar", "inoiz ez"), gold) for gold in (0, 1)]
    rows.append(include_row("Non dago hiria?", ("han", "hemen", "inon ez", "edonon"), 1))
    (directory / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["tasks", "--audit", "include", "--languages", "eu", "--data", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["language", "check", "findings", "of", "items", "severity"]
    assert lines[1].split() == ["eu", "contradicting", "golds", "1", "33.3%", "error"]
    assert lines[2] == "eu: contradicting golds: 1 item"
    assert lines[-1].startswith("tasks: include: 1 finding in 1 language")


def test_check_states_contradicting_golds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    drawn = simulate(np.random.default_rng(1), 3, 4)
    write_run(tmp_path, drawn, models={"m": {"source": "./m"}})
    row = json.loads((tmp_path / "rivers.gl.jsonl").read_text().splitlines()[0])
    with (tmp_path / "rivers.gl.jsonl").open("a") as file:
        file.write(json.dumps(row | {"id": "again", "gold": (row["gold"] + 1) % 4}) + "\n")
    cli.main(["check"])
    assert (
        "Note: rivers.gl: 1 item with the question and options of another item, and another answer: again (the same as "
        "q000)." in capsys.readouterr().out
    )


def test_language_of_the_text():
    pytest.importorskip("heliport", exc_type=ImportError)
    spanish = "¿Cuántos años hay que esperar para que un árbol como este crezca hasta el tejado de la casa?"
    found = _in_other_languages([question("a", PASSAGE * 2), question("b", spanish * 2)], "gl")
    assert [(each.item_id, each.detail) for each in found] == [("b", "es, expected gl")]
