"""Which text of a generation is the answer in the project's own styles."""

import pytest
from vernacular.metrics.similarity import answers


def request(text="Pregunta: x\nResposta:", name="a", role="response"):
    return {"item_id": name, "role": role, "kind": "generate", "prefix": "", "text": text, "decoding": None}


PLAIN = [
    request(text, role=role)
    for role in ("response", "check")
    for text in ("O que se di nun RESUM", "Pregunta: x\nResposta:")
]


def generation(raw, rendered=None, flag=None, name="a", role="response"):
    answer = None if raw is None else raw.split("\n")[0].strip()
    return {"item_id": name, "role": role, "raw_output": raw, "output": answer, "rendered": rendered, "flags": flag}


def test_default_style_takes_the_answer_as_generated():
    given = answers.given(PLAIN, [generation("razón 3:1\nmore")])
    assert given == {"a": answers.Answer("razón 3:1", None)}


@pytest.mark.parametrize(
    ("raw", "flag", "said"),
    [
        (None, "error: too long", "error: too long"),
        (None, None, "error: no generation"),
        (None, "truncated: 1 few-shot example dropped", "truncated: 1 few-shot example dropped"),
        ("", "error: out of memory", "error: out of memory"),
        ("so half of", "truncated; error: killed", "truncated; error: killed"),
    ],
)
def test_failed_generation_has_no_answer_at_all_and_spoils_no_other(raw, flag, said):
    both = [request(), request(name="b")]
    given = answers.given(both, [generation(raw, flag=flag), generation(" si", name="b")])
    assert given == {"a": answers.Answer(None, said), "b": answers.Answer("si", None)}


def test_no_text_is_an_empty_answer_and_said():
    silent = generation("") | {"output": None}
    assert answers.given(PLAIN, [silent]) == {"a": answers.Answer("", "empty answer")}
    assert answers.given(PLAIN, [generation(" \n")]) == {"a": answers.Answer("", "empty answer")}


def test_other_roles_do_not_replace_the_answer():
    roles = [generation("sí"), generation("non", role="check")]
    for order in (roles, roles[::-1]):
        assert answers.given([*PLAIN, request(name="b")], [*order, generation("A: b", name="b")]) == {
            "a": answers.Answer("sí", None),
            "b": answers.Answer("A: b", None),
        }


def test_the_only_generation_of_an_item_is_its_answer_whatever_its_role():
    assert answers.given(PLAIN, [generation("sí", role="check")])["a"].text == "sí"
