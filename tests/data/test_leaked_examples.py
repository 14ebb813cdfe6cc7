"""Few-shot rows that are evaluated items, or nearly: in another case, without punctuation, with another distractor."""

import json

import pytest
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task

TASK = """
task: own
title: Own
citation: own
protocols: [options]
item_type: question
columns: {id: id, context: "p|", question: q, choices: o, gold: k, gold_format: index}
license: cc0-1.0
languages: {gl: {source: {file: test.jsonl, few_shot: train.jsonl}}}
"""
ITEMS = [
    {
        "id": "1",
        "q": "Onde nace o río Miño, o máis longo de Galicia?",
        "o": ["Lugo", "Ourense", "Vigo", "Ferrol"],
        "k": 0,
    },
    {"id": "2", "q": "Ana ten 12 mazás e come 3. Cantas mazás lle quedan a Ana?", "o": ["9", "8", "7", "15"], "k": 0},
    {"id": "3", "q": "Cal é certa?", "o": ["A choiva molla.", "A choiva seca."], "k": 0, "p": "Primeiro texto."},
]


def repeated(directory, train):
    """Return the evaluated items that few-shot rows repeat, and the warnings."""
    for name, rows in (("test", ITEMS), ("train", train)):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "own.yaml").write_text(TASK)
    items, metadata = load_items(load_task(directory / "own.yaml"), "gl")
    return [item["repeats"] for item in items if item["few_shot"]], metadata["warnings"]


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"q": "ONDE NACE O RÍO MIÑO, O MÁIS LONGO DE GALICIA?"}),
        (0, {"q": "Onde nace o río Miño, o máis longo de Galicia"}),
        (0, {"q": "«Onde nace o río Miño, o máis longo de Galicia…»"}),
        (0, {"o": ["Vigo", "Lugo", "Ourense", "Lalín"]}),
        (0, {"q": "Onde nace o río Miño, o máis longo de toda Galicia?"}),
        (0, {"o": ["Monforte", "Lugo", "Ribadeo", "Noia"], "k": 1}),
        (2, {"o": ["a choiva molla", "A CHOIVA SECA"]}),
    ],
)
def test_a_row_that_is_nearly_an_item_is_no_example(tmp_path, number, change):
    found, warnings = repeated(tmp_path, [ITEMS[number] | {"id": "a"} | change])
    assert found == [ITEMS[number]["id"]]
    assert any("1 few-shot example with the content of an evaluated item, or nearly" in warning for warning in warnings)


def test_other_rows_are_examples(tmp_path):
    others = [
        ITEMS[1] | {"q": ITEMS[1]["q"].replace("12", "14"), "o": ["11", "8", "7", "15"]},  # other numbers
        ITEMS[2] | {"p": "Outro texto."},  # another passage
        ITEMS[2] | {"o": ["A auga ferve.", "A auga arde."]},  # other options
        {"q": "Onde nace o Sil?", "o": ["León", "Lugo"], "k": 0},
    ]
    found, warnings = repeated(tmp_path, [row | {"id": f"a{n}"} for n, row in enumerate(others)])
    assert found == [None] * 4
    assert not any("few-shot" in warning for warning in warnings)
