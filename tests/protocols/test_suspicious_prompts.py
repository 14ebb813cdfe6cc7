"""What is suspicious in the prompts of an evaluation is named before a model reads them; nothing in usual prompts is."""

import pytest
from support.sample_items import item
from support.scoring import build_requests
from vernacular.protocols.request_rows import external_request, warnings_of

OPTIONS = ["auga", "leite"]


def questions(*texts, **columns):
    return [item(f"q{n}", question=text, choices=OPTIONS, gold=[0], **columns) for n, text in enumerate(texts)]


def of_tool(queries, prefix=""):
    """Return items and requests as lm-eval's tasks have them: the context is the complete query."""
    items = [item(f"{n}", context=query, choices=OPTIONS, gold=[0]) for n, query in enumerate(queries)]
    rows = [
        external_request(each, f"choice:{i}", kind="score", prefix=prefix, text=f"{each['context']} {option}",
                         span_start=len(prefix + each["context"]), span_end=len(prefix + each["context"]) + 1 + len(option))
        for each in items for i, option in enumerate(OPTIONS)
    ]  # fmt: skip
    return items, rows


@pytest.mark.parametrize("protocol", ["letters", "options", "generation"])
def test_usual_prompts_are_not_suspicious(protocol):
    items = questions("Que bebe a vaca?", "Que é {x} en LaTeX?", "Que escribe `{{ name }}`?", "Que bebe o gato?")
    assert warnings_of(items, build_requests(items, "question", protocol)) == []


def test_equal_prompts_of_different_items():
    items = questions("Que bebe?", "Quen bebe?", "Que bebe?")
    assert warnings_of(items, build_requests(items, "question", "options")) == [
        "2 of 3 items have the same prompt as another item (first: q0, q2)"
    ]
    items[2]["choices"] = ["viño", "auga"]
    assert warnings_of(items, build_requests(items, "question", "options")) == [], "other options are another prompt"


def test_empty_options():
    items = questions("Que bebe?", "Quen bebe?")
    items[1]["choices"] = ["auga", " "]
    assert warnings_of(items, build_requests(items, "question", "letters")) == [
        "1 of 2 items have an empty option (first: q1)"
    ]


def test_placeholder_that_was_not_filled():
    items = questions("Que bebe?", "Quen bebe?")
    rows = build_requests(items, "question", "options")
    for row in rows:
        row["text"] = row["text"].replace("bebe", "bebe {subject}")
    [warning] = warnings_of(items, rows)
    assert warning == "2 of 2 items contain the placeholder {subject}, which was not filled (first: q0, q1)"


def test_placeholder_in_all_items_of_a_tool():
    items, rows = of_tool([f"Pregunta {n}: {{{{question}}}}\nResposta:" for n in range(4)])
    [warning] = warnings_of(items, rows)
    assert warning.startswith("4 of 4 items contain the placeholder {{question}}, which was not filled")
    assert warnings_of(*of_tool([f"Pregunta {n}: {'{x}' if n == 1 else ''}\nResposta:" for n in range(4)])) == []


def test_example_that_is_the_item_itself():
    queries = ["Cal é a capital de Galicia?\nResposta:", "Cal é a capital de Francia?\nResposta:"]
    [warning] = warnings_of(*of_tool(queries, prefix=f"{queries[1]} París\n\n"))
    assert warning == "1 of 2 items are also one of their few-shot examples (first: 1)"


def test_empty_prompts():
    items = [item("0", context="", target="a")]
    rows = [external_request(items[0], "response", kind="generate", prefix="", text=" ", stop=["\n"])]
    assert warnings_of(items, rows) == ["1 of 1 items have an empty prompt (first: 0)"]
