"""Output parsing in the default prompt styles."""

import pytest
from vernacular.metrics.similarity.outputs import ParsedOutput, parse_outputs


def request(text="Pregunta: x\nResposta:", name="a", role="response"):
    return {"item_id": name, "role": role, "kind": "generate", "prefix": "", "text": text, "decoding": None}


REQUESTS = [
    request(text, role=role)
    for role in ("response", "check")
    for text in ("O que se di nun RESUM", "Pregunta: x\nResposta:")
]


def generation(raw_output, rendered=None, flag=None, name="a", role="response"):
    output = None if raw_output is None else raw_output.split("\n")[0].strip()
    return {
        "item_id": name,
        "role": role,
        "raw_output": raw_output,
        "output": output,
        "rendered": rendered,
        "flags": flag,
    }


def test_default_style_uses_output_unchanged():
    outputs = parse_outputs(REQUESTS, [generation("razón 3:1\nmore")])
    assert outputs == {"a": ParsedOutput("razón 3:1", None)}


@pytest.mark.parametrize(
    ("raw_output", "flag", "expected_flag"),
    [
        (None, "error: too long", "error: too long"),
        (None, None, "error: no generation"),
        (None, "truncated: 1 few-shot example dropped", "truncated: 1 few-shot example dropped"),
        ("", "error: out of memory", "error: out of memory"),
        ("so half of", "truncated; error: killed", "truncated; error: killed"),
    ],
)
def test_failed_generation_has_no_text_and_does_not_affect_others(raw_output, flag, expected_flag):
    requests = [request(), request(name="b")]
    outputs = parse_outputs(requests, [generation(raw_output, flag=flag), generation(" si", name="b")])
    assert outputs == {"a": ParsedOutput(None, expected_flag), "b": ParsedOutput("si", None)}


def test_empty_output_is_flagged():
    empty = generation("") | {"output": None}
    assert parse_outputs(REQUESTS, [empty]) == {"a": ParsedOutput("", "empty answer")}
    assert parse_outputs(REQUESTS, [generation(" \n")]) == {"a": ParsedOutput("", "empty answer")}


def test_other_roles_do_not_replace_the_response():
    roles = [generation("sí"), generation("non", role="check")]
    for order in (roles, roles[::-1]):
        assert parse_outputs([*REQUESTS, request(name="b")], [*order, generation("A: b", name="b")]) == {
            "a": ParsedOutput("sí", None),
            "b": ParsedOutput("A: b", None),
        }


def test_single_generation_is_used_for_any_role():
    assert parse_outputs(REQUESTS, [generation("sí", role="check")])["a"].text == "sí"
