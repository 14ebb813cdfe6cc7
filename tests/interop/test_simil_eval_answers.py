"""Simil-Eval's answer parser, faults and all: the tables are `reference` runs of that tool."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from support import similarity_encoders as tiny
from support.soak import examples
from vernacular.interop.simil_eval import answers as simil_eval
from vernacular.metrics.similarity import answers, compute, cosine

PIECES = st.sampled_from(["\n", "\r", "\u2028", " ", ":", "RESPOST", "RESPOSTA: ", "CONTINUAC", "RESUM", "3:1", "a", "\0",
                          "e\u0301", "👩‍👩‍👧", "\u202e", "مرحبا", "{question}", ".*", "\\"])  # fmt: skip
texts = st.lists(PIECES | st.characters(exclude_categories=["Cs"]), max_size=14).map("".join)
HUGE = 1_000_000


def request(text="PREGUNTA: x \n                RESPOST", prefix="", name="a"):
    sampled = {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": 0}
    return {
        "item_id": name, "role": "response", "kind": "generate", "prefix": prefix, "text": text, "decoding": sampled,
    }  # fmt: skip


PLAIN = [
    {"item_id": "a", "role": role, "kind": "generate", "prefix": "", "text": text, "decoding": None}
    for role in ("response", "check")
    for text in ("O que se di nun RESUM", "Pregunta: x\nResposta:")
]


def generation(raw, rendered=None, flag=None, name="a", role="response"):
    answer = None if raw is None else raw.split("\n")[0].strip()
    return {"item_id": name, "role": role, "raw_output": raw, "output": answer, "rendered": rendered, "flags": flag}


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
        ("A: unha mazá\nRESPOSTA: RESPOSTA: RESPOSTA", " RESPOSTA"),  # repeating the label gains nothing
    ],
)
def test_base_model_text_is_parsed_as_simil_eval_does(raw, answer):
    assert simil_eval.parse(request(), generation(raw)) == answer


@pytest.mark.parametrize(
    ("raw", "answer"),
    [("\n\nfoo", ""), ("foo\nbar", " foo"), ("OPCION 2: foo", " foo"), ("RESPOSTA: foo", " foo")],
)
def test_chat_model_text_stands_after_a_literal_pattern(raw, answer):
    assert simil_eval.parse(request(), generation(raw, rendered="<user>…")) == answer


def test_demonstrations_above_do_not_answer_for_the_model():
    prefix = "PREGUNTA: y\n                RESPOSTA: da demostración\n"
    assert simil_eval.parse(request(prefix=prefix), generation("A: sí")) == " sí"


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
    assert simil_eval.label_stem(text) == stem


def test_an_answer_that_the_parser_finds_empty_is_flagged():
    given = answers.given([request()], [generation("A:\nfoo", flag="truncated: 1 few-shot example dropped")])
    assert given["a"] == answers.Answer("", "truncated: 1 few-shot example dropped; empty answer")


def test_each_output_is_read_in_the_style_of_its_own_request():
    given = answers.given([*PLAIN, request(name="b")], [generation("3:1"), generation("A: 3:1", name="b")])
    assert given == {"a": answers.Answer("3:1", None), "b": answers.Answer("1", None)}


def test_a_label_in_the_middle_of_a_line_is_not_found_again():
    """As that tool's expression, which looks at the beginning of lines."""
    assert simil_eval.parse(request("Di a RESPOST"), generation("A: sí")) == ""


def test_only_simil_evals_prompts_end_in_half_a_label():
    assert simil_eval.is_prompt(request())
    assert not any(map(simil_eval.is_prompt, PLAIN))


@settings(max_examples=examples(200), deadline=None)
@given(raw=texts, body=texts, stem=st.sampled_from(simil_eval.STEMS), chat=st.booleans())
def test_the_answer_is_of_what_was_written_behind_the_label(raw, body, stem, chat):
    """The few-shot examples and the question above may hold labels and answers of their own."""
    asked = request(f"PREGUNTA: {body}\n                {stem}", f"{body}\n\n")
    answer = simil_eval.parse(asked, generation(raw, rendered="…" if chat else None))
    assert answer in f"{stem}.*: {raw}" if chat else answer in stem + raw
    assert "\n" not in answer
    assert ":" not in answer


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        ":",
        "RESPOST",
        "RESPOSTA: ",
        "\n",
        " ",
        " \n",
        "\t\v",
        "\u2028",
        "a b ",
        "e\u0301",
        "A:",
        "👩‍👩‍👧",
        "...",
        "١",
    ],
)
def test_runaway_answer_of_a_megabyte_is_parsed_like_a_short_one(piece):
    """A pattern that tries each of a million places from each of them would not come back."""
    for rendered in (None, "…"):
        long, brief = (
            simil_eval.parse(request(), generation(piece * n, rendered=rendered)) for n in (HUGE // len(piece), 50)
        )
        assert long[:20] == brief[:20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny.bert(tmp_path_factory.mktemp("bert"))


def similarities(folder, choices, raw, metrics, style):
    items = [{"item_id": "a", "choices": choices, "gold": [0], "target": None}]
    encoders = {"default": tiny.record(folder)}
    return compute.similarities(items, [generation(raw)], metrics, encoders, requests=[request()], style=style)


@pytest.mark.parametrize("style", simil_eval.STYLES)
def test_answers_are_parsed_and_measured_as_that_tool_does(folder, style):
    metrics = [{"metric": name, **simil_eval.METRIC_OPTIONS.get(name, {})} for name in compute.METRICS]
    rows, metadata = similarities(folder, [" mazá", "casa"], "A: a: mazá", metrics, style)
    assert [row["similarities"][0] for row in rows] == [pytest.approx(1.0, abs=1e-5)] * 3
    assert "variant:simil-eval" in metadata["signatures"]["moverscore"]
    assert "idf:yes" in metadata["signatures"]["bertscore"]


@pytest.mark.parametrize("style", simil_eval.STYLES)
def test_whitespace_around_texts_is_compared_too(folder, monkeypatch, style):
    cosine._kept.cache_clear()
    encode, texts = SentenceTransformer.encode, set()

    def note(self, sentences, **options):
        texts.update(sentences)
        return encode(self, sentences, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", note)
    rows, metadata = similarities(folder, [" mazá", "casa "], "A: mazá", ["cosine"], style)
    assert texts == {" mazá", "casa "}
    assert rows[0]["similarities"][0] == pytest.approx(1.0, abs=1e-6)
    assert metadata["counts"]["distinct_texts"] == 2
