"""Items, Vernacular's results for them, and result files as written by other tools."""

import json

from vernacular.exchange.external_results import Reference
from vernacular.metrics.schema import as_table

from support import sample_items
from support.result_rows import row

QUESTIONS = {
    "r1": ("Cal é o río máis longo de Galicia?", ["o Tambre", "o Miño", "o Ulla"], 1),
    "r2": ("En que mar desemboca o Sil?", ["en ningún", "no Cantábrico", "no Atlántico"], 0),
    "r3": ("Onde nace o Eume?", ["en Lugo 🙂", "en Ourense", "en León"], 0),
}


def item(item_id, question="", choices=(), gold=0, context=""):
    return sample_items.item(item_id, context, question, choices, [gold])


ITEMS = [item(name, *fields) for name, fields in QUESTIONS.items()]


def reference(protocol="options", shots=0, items=ITEMS, order=None):
    """Return Vernacular's results of the items; `order` is the order of the options in the prompt, if not the dataset's."""
    rows = []
    for entry in items:
        indices = order or range(len(entry["choices"]))
        rows.append(
            row(
                entry["item_id"],
                True if entry["choices"] else None,
                choices=[entry["choices"][i] for i in indices],
                gold=[list(indices).index(entry["gold"][0])] if entry["choices"] else [],
                prompt=f"Pregunta: {entry['context']}{entry['question']}\nResposta:",
            )
        )
    return Reference(protocol, shots, as_table(rows), items)


def sample(question, choices, logliks, acc, **fields):
    """Return a line of lm-eval 0.4's samples_*.jsonl of a multiple-choice task."""
    context = f"Question: {question}\nAnswer:"
    return {
        "doc_id": 0,
        "doc": {"id": "7", "question_stem": question, "choices": {"text": choices, "label": ["A", "B", "C"]}, "answerKey": "B"},
        "target": "1",
        "arguments": {f"gen_args_{i}": {"arg_0": context, "arg_1": f" {c}"} for i, c in enumerate(choices)},
        "resps": [[[str(value), "False"]] for value in logliks],
        "filtered_resps": [[str(value), "False"] for value in logliks],
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
        "doc_hash": "ba95",
        "acc": acc,
        "acc_norm": acc,
    } | fields  # fmt: skip


def write_jsonl(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path


def by_id(table):
    return {entry["item_id"]: entry | {"metrics": dict(entry["metrics"])} for entry in table.to_pylist()}


LOGLIKS = {"r1": [-5.0, -2.0, -9.0], "r2": [-1.0, -4.0, -4.0], "r3": [-3.0, -3.0, -8.0]}  # correct, correct, a tie

SAMPLES = [sample(*QUESTIONS[name][:2], LOGLIKS[name], 1.0) for name in QUESTIONS]

NAME = "samples_rios_2026-01-02T03-04-05.6.jsonl"
