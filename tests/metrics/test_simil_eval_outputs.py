"""Answer parser of Simil-Eval, including its errors: expected values are from runs of the tool."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import similarity_encoders as tiny
from support.malformed import HUGE, REPEATED_FRAGMENTS, responses
from support.soak import examples
from vernacular.metrics.similarity import compute, outputs
from vernacular.metrics.similarity.outputs import ParsedOutput, parse_outputs
from vernacular.types import SIMIL_EVAL_STYLES


def request(text="PREGUNTA: x \n                RESPOST", prefix="", name="a"):
    decoding = {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": 0}
    return {
        "item_id": name, "role": "response", "kind": "generate", "prefix": prefix, "text": text, "decoding": decoding,
    }  # fmt: skip


PLAIN = [
    {"item_id": "a", "role": role, "kind": "generate", "prefix": "", "text": text, "decoding": None}
    for role in ("response", "check")
    for text in ("O que se di nun RESUM", "Pregunta: x\nResposta:")
]


def generation(raw, rendered=None, flag=None, name="a", role="response"):
    output = None if raw is None else raw.split("\n")[0].strip()
    return {"item_id": name, "role": role, "raw_output": raw, "output": output, "rendered": rendered, "flags": flag}


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ("A: foo bar\n", " foo bar"),
        ("A: razón 3:1 total", "1 total"),  # a colon inside the answer truncates it
        ("A foo", "RESPOSTA foo"),  # a label without a colon is the answer
        ("", "RESPOST"),
        ("A: a\n  RESPOSTA: b trunc", " b trunc"),  # the second, truncated turn replaces the first
        ("A: foo\nPREGUNTA: bar", " foo"),
        ("A:\nfoo", ""),  # an answer on a separate line is lost
        ("A: OPCION 2: foo", " foo"),
        ("A: unha mazá\nRESPOSTA: RESPOSTA: RESPOSTA", " RESPOSTA"),  # a repeated label has no effect
    ],
)
def test_parse_base_model_text(raw, answer):
    assert outputs.parse(request(), generation(raw)) == answer


@pytest.mark.parametrize(
    ("raw", "answer"),
    [("\n\nfoo", ""), ("foo\nbar", " foo"), ("OPCION 2: foo", " foo"), ("RESPOSTA: foo", " foo")],
)
def test_parse_chat_model_text(raw, answer):
    assert outputs.parse(request(), generation(raw, rendered="<user>…")) == answer


def test_parse_ignores_few_shot_examples():
    prefix = "PREGUNTA: y\n                RESPOSTA: da demostración\n"
    assert outputs.parse(request(prefix=prefix), generation("A: sí")) == " sí"


@pytest.mark.parametrize(
    ("text", "stem"),
    [
        ("TEXTO: a\n                CONTINUAC", "CONTINUAC"),
        ("PREGUNTA: y\nRESPOST", "RESPOST"),
        ("TEXTO:a\nb\nRESUM", "RESUM"),
        ("RESUM", "RESUM"),
    ],
)
def test_label_stem(text, stem):
    assert outputs.label_stem(text) == stem


def test_empty_parsed_answer_is_flagged():
    parsed_answers = parse_outputs([request()], [generation("A:\nfoo", flag="truncated: 1 few-shot example dropped")])
    assert parsed_answers["a"] == ParsedOutput("", "truncated: 1 few-shot example dropped; empty answer")


def test_outputs_are_parsed_by_request_style():
    parsed_answers = parse_outputs([*PLAIN, request(name="b")], [generation("3:1"), generation("A: 3:1", name="b")])
    assert parsed_answers == {"a": ParsedOutput("3:1", None), "b": ParsedOutput("1", None)}


def test_parse_requires_label_at_line_start():
    """The tool's regular expression matches at line starts only."""
    assert outputs.parse(request("Di a RESPOST"), generation("A: sí")) == ""


def test_is_prompt_requires_label_stem():
    assert outputs.is_prompt(request())
    assert not any(map(outputs.is_prompt, PLAIN))


@settings(max_examples=examples(200), deadline=None)
@given(raw=responses, body=responses, stem=st.sampled_from(outputs.STEMS), chat=st.booleans())
def test_parsed_answer_is_part_of_generation(raw, body, stem, chat):
    """The few-shot examples and the question may contain labels and answers, too."""
    sampled_request = request(f"PREGUNTA: {body}\n                {stem}", f"{body}\n\n")
    answer = outputs.parse(sampled_request, generation(raw, rendered="…" if chat else None))
    assert answer in f"{stem}.*: {raw}" if chat else answer in stem + raw
    assert "\n" not in answer
    assert ":" not in answer


@pytest.mark.parametrize("fragment", REPEATED_FRAGMENTS)
def test_parse_megabyte_generation(fragment):
    """A regular expression with quadratic backtracking would not terminate."""
    for rendered in (None, "…"):
        long_answer, short_answer = (
            outputs.parse(request(), generation(fragment * n, rendered=rendered)) for n in (HUGE // len(fragment), 50)
        )
        assert long_answer[:20] == short_answer[:20]


@pytest.fixture(scope="module")
def encoder_dir(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny.bert(tmp_path_factory.mktemp("bert"))


def similarities(encoder_dir, choices, raw, metrics, style):
    items = [{"item_id": "a", "choices": choices, "gold": [0], "target": None}]
    encoders = {"default": tiny.record(encoder_dir)}
    return compute.similarities(items, [generation(raw)], metrics, encoders, requests=[request()], style=style)


@pytest.mark.parametrize("style", SIMIL_EVAL_STYLES)
def test_similarities_use_simil_eval_parser_and_options(encoder_dir, style):
    metrics = [{"metric": name, **outputs.METRIC_OPTIONS.get(name, {})} for name in compute.METRICS]
    rows, metadata = similarities(encoder_dir, [" mazá", "casa"], "A: a: mazá", metrics, style)
    assert [row["similarities"][0] for row in rows] == [pytest.approx(1.0, abs=1e-5)] * 3
    assert "variant:simil-eval" in metadata["signatures"]["moverscore"]
    assert "idf:yes" in metadata["signatures"]["bertscore"]


@pytest.mark.parametrize("style", SIMIL_EVAL_STYLES)
def test_surrounding_whitespace_is_compared(encoder_dir, style):
    with tiny.encoded_texts() as encoded_texts:
        rows, metadata = similarities(encoder_dir, [" mazá", "casa "], "A: mazá", ["cosine"], style)
    assert encoded_texts == {" mazá", "casa "}
    assert rows[0]["similarities"][0] == pytest.approx(1.0, abs=1e-6)
    assert metadata["counts"]["distinct_texts"] == 2
