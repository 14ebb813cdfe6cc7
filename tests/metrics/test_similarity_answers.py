"""Simil-Eval's answer parser, faults and all: the tables are `reference` runs of that tool."""

import pytest
from vernacular.metrics.similarity import answers


def request(text="PREGUNTA: x \n                RESPOST", prefix="", name="a"):
    sampled = {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": 0}
    return {
        "item_id": name, "role": "answer", "kind": "generate", "prefix": prefix, "text": text, "decoding": sampled,
    }  # fmt: skip


PLAIN = [
    {"item_id": "a", "role": role, "kind": "generate", "prefix": "", "text": text, "decoding": None}
    for role in ("answer", "check")
    for text in ("O que se di nun RESUM", "Pregunta: x\nResposta:")
]


def generation(raw, rendered=None, flag=None, name="a", role="answer"):
    answer = None if raw is None else raw.split("\n")[0].strip()
    return {"item_id": name, "role": role, "raw": raw, "answer": answer, "rendered": rendered, "flag": flag}


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ("A: foo bar\n", " foo bar"),
        ("A: razón 3:1 total", "1 total"),  # a colon inside the answer cuts it
        ("A foo", "RESPOSTA foo"),  # a label without its colon is the answer
        ("", "RESPOST"),
        ("A: a\n  RESPOSTA: b trunc", " b trunc"),  # the second, truncated turn wins
        ("A: foo\nPREGUNTA: bar", " foo"),
        ("A:\nfoo", ""),  # an answer on a line of its own is lost
        ("A: OPCION 2: foo", " foo"),
    ],
)
def test_base_model_text_is_parsed_as_simil_eval_does(raw, answer):
    assert answers.simil_eval_answer(request(), generation(raw)) == answer


@pytest.mark.parametrize(
    ("raw", "answer"),
    [("\n\nfoo", ""), ("foo\nbar", " foo"), ("OPCION 2: foo", " foo"), ("RESPOSTA: foo", " foo")],
)
def test_chat_model_text_stands_after_a_literal_pattern(raw, answer):
    assert answers.simil_eval_answer(request(), generation(raw, rendered="<user>…")) == answer


def test_demonstrations_above_do_not_answer_for_the_model():
    prefix = "PREGUNTA: y\n                RESPOSTA: da demostración\n"
    assert answers.simil_eval_answer(request(prefix=prefix), generation("A: sí")) == " sí"


@pytest.mark.parametrize(
    ("text", "stem"),
    [
        ("TEXTO: a\n                CONTINUAC", "CONTINUAC"),
        ("PREGUNTA: y\nRESPOST", "RESPOST"),
        ("TEXTO:a\nb\nRESUM", "RESUM"),
        ("RESUM", "RESUM"),
    ],
)
def test_the_stem_is_the_prompts_unfinished_label(text, stem):
    assert answers.label_stem(text) == stem


def test_default_style_takes_the_answer_as_generated():
    given = answers.given(PLAIN, [generation("razón 3:1\nmore")])
    assert given == {"a": answers.Answer("razón 3:1", None)}


def test_legacy_style_parses_and_flags_what_is_empty():
    given = answers.given([request()], [generation("A:\nfoo", flag="truncated: 1 demonstrations left out")])
    assert given["a"] == answers.Answer("", "truncated: 1 demonstrations left out; empty answer")


@pytest.mark.parametrize(
    ("raw", "flag", "said"),
    [
        (None, "error: too long", "error: too long"),
        (None, None, "error: no generation"),
        (None, "truncated: 1 demonstrations left out", "truncated: 1 demonstrations left out"),
        ("", "error: out of memory", "error: out of memory"),
        ("so half of", "truncated; error: killed", "truncated; error: killed"),
    ],
)
def test_failed_generation_has_no_answer_at_all_and_spoils_no_other(raw, flag, said):
    both = [request(), request(name="b")]
    given = answers.given(both, [generation(raw, flag=flag), generation("A: si", name="b")])
    assert given == {"a": answers.Answer(None, said), "b": answers.Answer(" si", None)}


def test_no_text_is_an_empty_answer_and_said():
    silent = generation("") | {"answer": None}
    assert answers.given(PLAIN, [silent]) == {"a": answers.Answer("", "empty answer")}
    assert answers.given(PLAIN, [generation(" \n")]) == {"a": answers.Answer("", "empty answer")}


def test_other_roles_do_not_replace_the_answer():
    roles = [generation("sí"), generation("non", role="check")]
    for order in (roles, roles[::-1]):
        assert answers.given([*PLAIN, request(name="b")], [*order, generation("A: b", name="b")]) == {
            "a": answers.Answer("sí", None),
            "b": answers.Answer(" b", None),
        }


def test_the_only_generation_of_an_item_is_its_answer_whatever_its_role():
    assert answers.given(PLAIN, [generation("sí", role="check")])["a"].text == "sí"


def test_a_label_in_the_middle_of_a_line_is_not_found_again():
    """As that tool's expression, which looks at the beginning of lines."""
    assert answers.simil_eval_answer(request("Di a RESPOST"), generation("A: sí")) == ""


def test_only_simil_evals_prompts_end_in_half_a_label():
    assert answers.is_simil_eval(request())
    assert not any(map(answers.is_simil_eval, PLAIN))
