"""Expected prompts from the description of Simil-Eval's prompts, including whitespace."""

import pytest
from support.request_builder import build_requests, item
from vernacular.core.errors import ConfigError

INDENT = " " * 16


def build(layout, items, style, shots=1):
    (row,), metadata = build_requests(items, layout, "generation", shots=shots, style=style, language="en")
    return metadata["prefix"], row["text"], row


def pair(**fields):
    return [item("d", few_shot=True, **fields), item("q", **fields)]


def test_belebele():
    items = pair(context="P", question="Q", choices=["1", "2", "3", "4"], gold=[2])
    options = f"{INDENT}OPCION 1: 1\n{INDENT}OPCION 2: 2\n{INDENT}OPCION 3: 3\n{INDENT}OPCION 4: 4\n"
    question_text = f"CONTEXTO: P \n{INDENT}PREGUNTA: Q \n{options}"
    prefix, text, _ = build("passage", items, "simil-eval")
    assert prefix == question_text + f"{INDENT}RESPOSTA: 3\n"
    assert text == question_text + f"{INDENT}RESPOST"
    prefix, text, _ = build("passage", items, "simil-eval-open")
    assert prefix == f"CONTEXTO: P \n{INDENT}PREGUNTA: Q\n{INDENT}RESPOSTA: 3\n"
    assert text == f"CONTEXTO: P \n{INDENT}PREGUNTA: Q\n{INDENT}RESPOST"


def test_openbookqa():
    items = pair(question="Q", choices=["1", "2", "3", "4"], gold=[3])
    question_text = (
        f"PREGUNTA: Q \n{INDENT}OPCION A: 1\n{INDENT}OPCION B: 2\n{INDENT}OPCION C: 3\n{INDENT}OPCION D: 4\n"
    )
    prefix, text, _ = build("question", items, "simil-eval")
    assert (prefix, text) == (question_text + f"{INDENT}RESPOSTA: 4\n", question_text + f"{INDENT}RESPOST")
    prefix, text, _ = build("question", items, "simil-eval-open")
    assert (prefix, text) == (f"PREGUNTA: Q \n{INDENT}RESPOSTA: 4\n", f"PREGUNTA: Q \n{INDENT}RESPOST")


def test_xstorycloze():
    items = pair(context="A. B. C. D.", choices=["E.", "F."], gold=[1])
    options = f"{INDENT}OPCION 1: E.\n{INDENT}OPCION 2: F.\n"
    prefix, text, _ = build("story", items, "simil-eval")
    assert prefix == f"TEXTO: A. B. C. D. \n{options}{INDENT}CONTINUACION: F.\n"
    assert text == f"TEXTO: A. B. C. D.\n{options}{INDENT}CONTINUAC"
    prefix, text, _ = build("story", items, "simil-eval-open")
    assert prefix == f"TEXTO: A. B. C. D.  \n{INDENT}CONTINUACION: F.\n"
    assert text == f"TEXTO: A. B. C. D. \n{INDENT}CONTINUAC"


def test_truthfulqa_and_veritasqa():
    items = pair(question="Q", choices=["best", "wrong"], gold=[0], target="best")
    prefix, text, _ = build("multi_answer", items, "simil-eval")
    assert prefix in {
        "PREGUNTA: Q\nOPCION 1: best\nOPCION 2: wrong\nRESPOSTA: best\n",
        "PREGUNTA: Q\nOPCION 1: wrong\nOPCION 2: best\nRESPOSTA: best\n",
    }
    assert text.endswith("\nRESPOST")
    assert text.count("OPCION") == 2
    prefix, text, _ = build("multi_answer", items, "simil-eval-open")
    assert prefix == f"CONTEXTO: Q \n{INDENT}PREGUNTA: Q\n{INDENT}RESPOSTA: best\n"
    assert text == f"CONTEXTO: Q \n{INDENT}PREGUNTA: Q\n{INDENT}RESPOST"


def test_summarization():
    prefix, text, row = build("summary", pair(context="T", target="S"), "simil-eval")
    assert (prefix, text) == (f"TEXTO: T \n{INDENT}RESUMO: S\n", f"TEXTO: T \n{INDENT}RESUM")
    assert row["max_new_tokens"] == 60


def test_decoding_parameters_and_seeds():
    items = [item(name, question=name, choices=["a", "b"], gold=[0]) for name in ("x", "y")]
    rows, _ = build_requests(items, "question", "generation", style="simil-eval")
    first, second = (r["decoding"] for r in rows)
    assert (first["temperature"], first["repetition_penalty"], rows[0]["max_new_tokens"]) == (0.5, 0.5, 20)
    assert rows[0]["stop"] == []
    assert first["seed"] != second["seed"]
    reversed_rows, _ = build_requests(items[::-1], "question", "generation", style="simil-eval")
    assert {r["item_id"]: r["decoding"]["seed"] for r in reversed_rows} == {"x": first["seed"], "y": second["seed"]}


def test_chat_prompt_is_one_message():
    prefix, text, row = build("question", pair(question="Q", choices=["a", "b"], gold=[0]), "simil-eval")
    assert row["messages"] == [{"role": "user", "content": prefix + text}]


def test_unsupported_item_type_raises_config_error():
    with pytest.raises(ConfigError, match="Simil-Eval has no prompt"):
        build_requests([item(context="A", target="b")], "continuation", "generation", style="simil-eval")
