"""Golden strings written out from the description of Simil-Eval's prompts, blanks and all."""

import pytest
from support.asking import ask, item
from vernacular.core.errors import ConfigError

IN = " " * 16


def build(layout, items, style, shots=1):
    (row,), metadata = ask(items, layout, "generation", shots=shots, style=style, language="en")
    return metadata["prefix"], row["text"], row


def pair(**fields):
    return [item("d", few_shot=True, **fields), item("q", **fields)]


def test_belebele():
    items = pair(context="P", question="Q", choices=["1", "2", "3", "4"], gold=[2])
    shown = f"CONTEXTO: P \n{IN}PREGUNTA: Q \n{IN}OPCION 1: 1\n{IN}OPCION 2: 2\n{IN}OPCION 3: 3\n{IN}OPCION 4: 4\n"
    prefix, text, _ = build("passage", items, "simil-eval")
    assert prefix == shown + f"{IN}RESPOSTA: 3\n"
    assert text == shown + f"{IN}RESPOST"
    prefix, text, _ = build("passage", items, "simil-eval-open")
    assert prefix == f"CONTEXTO: P \n{IN}PREGUNTA: Q\n{IN}RESPOSTA: 3\n"
    assert text == f"CONTEXTO: P \n{IN}PREGUNTA: Q\n{IN}RESPOST"


def test_openbookqa():
    items = pair(question="Q", choices=["1", "2", "3", "4"], gold=[3])
    shown = f"PREGUNTA: Q \n{IN}OPCION A: 1\n{IN}OPCION B: 2\n{IN}OPCION C: 3\n{IN}OPCION D: 4\n"
    prefix, text, _ = build("question", items, "simil-eval")
    assert (prefix, text) == (shown + f"{IN}RESPOSTA: 4\n", shown + f"{IN}RESPOST")
    prefix, text, _ = build("question", items, "simil-eval-open")
    assert (prefix, text) == (f"PREGUNTA: Q \n{IN}RESPOSTA: 4\n", f"PREGUNTA: Q \n{IN}RESPOST")


def test_xstorycloze():
    items = pair(context="A. B. C. D.", choices=["E.", "F."], gold=[1])
    options = f"{IN}OPCION 1: E.\n{IN}OPCION 2: F.\n"
    prefix, text, _ = build("story", items, "simil-eval")
    assert prefix == f"TEXTO: A. B. C. D. \n{options}{IN}CONTINUACION: F.\n"
    assert text == f"TEXTO: A. B. C. D.\n{options}{IN}CONTINUAC"
    prefix, text, _ = build("story", items, "simil-eval-open")
    assert prefix == f"TEXTO: A. B. C. D.  \n{IN}CONTINUACION: F.\n"
    assert text == f"TEXTO: A. B. C. D. \n{IN}CONTINUAC"


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
    assert prefix == f"CONTEXTO: Q \n{IN}PREGUNTA: Q\n{IN}RESPOSTA: best\n"
    assert text == f"CONTEXTO: Q \n{IN}PREGUNTA: Q\n{IN}RESPOST"


def test_summarization():
    prefix, text, row = build("summary", pair(context="T", target="S"), "simil-eval")
    assert (prefix, text) == (f"TEXTO: T \n{IN}RESUMO: S\n", f"TEXTO: T \n{IN}RESUM")
    assert row["max_new_tokens"] == 60


def test_decoding_is_the_tools_and_seeded_per_request():
    items = [item(name, question=name, choices=["a", "b"], gold=[0]) for name in ("x", "y")]
    rows, _ = ask(items, "question", "generation", style="simil-eval")
    first, second = (r["decoding"] for r in rows)
    assert (first["temperature"], first["repetition_penalty"], rows[0]["max_new_tokens"]) == (0.5, 0.5, 20)
    assert rows[0]["stop"] == []
    assert first["seed"] != second["seed"]
    again, _ = ask(items[::-1], "question", "generation", style="simil-eval")
    assert {r["item_id"]: r["decoding"]["seed"] for r in again} == {"x": first["seed"], "y": second["seed"]}


def test_chat_models_get_it_as_one_message():
    prefix, text, row = build("question", pair(question="Q", choices=["a", "b"], gold=[0]), "simil-eval")
    assert row["messages"] == [{"role": "user", "content": prefix + text}]


def test_what_the_tool_has_no_prompt_for_is_rejected():
    with pytest.raises(ConfigError, match="Simil-Eval has no prompt"):
        ask([item(context="A", target="b")], "continuation", "generation", style="simil-eval")
