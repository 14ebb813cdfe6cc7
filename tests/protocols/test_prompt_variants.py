"""Prompt variants: texts by layout, the default unchanged, and messages about invalid files."""

import itertools
import shutil

import pytest
from support.messages import assert_states
from support.request_builder import build_requests, item, spans
from vernacular.core.errors import ConfigError
from vernacular.protocols.prompts import (
    LAYOUT_FIELDS,
    PROMPTS_DIR,
    covering,
    load_labels,
    prompt_lines,
    variant_labels,
    variants,
)
from vernacular.protocols.registry import PROTOCOLS

LANGUAGES = sorted(path.stem for path in PROMPTS_DIR.glob("*.yaml") if variants(path.stem))
PASSAGE = item(context="Choveu.", question="Que pasou?", choices=["a", "b"], gold=[0])
QUESTION = item(question="Cal é a capital?", choices=["Lugo", "Santiago"], gold=[1])
STORY = item(context="Un. Dous.", choices=["Tres.", "Catro."], gold=[0])
SUMMARY = item(context="Un texto longo.", target="Curto.")
# layout -> an item and how it is shown
SHOWN = {
    "passage": (PASSAGE, "passage", "generation"),
    "question": (QUESTION, "question", "generation"),
    "story": (STORY, "story", "generation"),
    "pair": (STORY, "pair", "options"),
    "sentence": (STORY, "sentence", "generation"),
    "cloze": (STORY, "cloze", "generation"),
    "summary": (SUMMARY, "summary", "generation"),
    "letters_passage": (PASSAGE, "passage", "letters"),
    "letters_question": (QUESTION, "question", "letters"),
}


def names(language, layout):
    _, item_type, protocol = SHOWN[layout]
    return covering(language, item_type, letters=PROTOCOLS[protocol].letters)


def text_of(layout, language, prompt):
    shown, item_type, protocol = SHOWN[layout]
    rows, _ = build_requests([shown], item_type, protocol, language=language, prompt=prompt)
    return rows[0]["text"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("layout", LAYOUT_FIELDS)
def test_every_layout_has_five_prompts_with_different_texts(language, layout):
    available = names(language, layout)
    assert len(available) >= 5
    texts = {text_of(layout, language, name) for name in available}
    assert len(texts) == len(available)
    shown = SHOWN[layout][0]
    for text in texts:
        assert all(value in text for value in (shown["context"], shown["question"]))


@pytest.mark.parametrize("language", LANGUAGES)
def test_variants_are_unreviewed_until_a_speaker_has_read_them(language):
    assert all("reviewed" in block and block["reviewed"] is not True for block in variants(language).values())


def equal_at_the_beginning(left: str, right: str) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("layout", ["passage", "letters_passage"])
def test_prompts_that_begin_with_the_passage_share_it(language, layout):
    sentence = "Onte choveu todo o día na serra, e os ríos baixaron cheos ata o mar. "  # as long as those of Belebele
    shown = PASSAGE | {"context": (6 * sentence).strip(), "choices": ["a chuvia", "o mar", "a serra", "a neve"]}
    _, item_type, protocol = SHOWN[layout]
    texts = sorted(
        build_requests([shown], item_type, protocol, language=language, prompt=name)[0][0]["text"]
        for name in names(language, layout)
    )
    shared = sum(equal_at_the_beginning(left, right) for left, right in itertools.pairwise(texts))
    assert shared > 0.1 * sum(map(len, texts))


@pytest.mark.parametrize("language", LANGUAGES)
def test_answer_follows_the_cue_alike_in_all_prompts(language):
    for name in names(language, "question"):
        rows, _ = build_requests([QUESTION], "question", "options", language=language, prompt=name)
        assert spans(rows) == dict.fromkeys(["choice:0", "uncond:0"], " Lugo") | dict.fromkeys(
            ["choice:1", "uncond:1"], " Santiago"
        )
        by_role = {row["role"]: row["text"] for row in rows}
        assert by_role["choice:0"].endswith("\n" + by_role["uncond:0"])  # the cue alone, without the question


def test_exact_texts_of_a_variant():
    assert text_of("passage", "gl", "instructed") == (
        "Le o texto e responde á pregunta.\nTexto: Choveu.\nPregunta: Que pasou?\nOpcións:\n- a\n- b\nResposta:"
    )
    assert text_of("passage", "gl", "bare") == "Choveu.\nQue pasou?\n- a\n- b\nResposta:"
    assert text_of("letters_question", "gl", "labeled") == (
        "Pregunta: Cal é a capital?\nOpcións:\nA. Lugo\nB. Santiago\nResposta: A"
    )


def test_options_line_is_left_out_where_options_are_not_shown():
    rows, _ = build_requests([PASSAGE], "passage", "options", prompt="instructed")
    assert rows[0]["text"] == ("Le o texto e responde á pregunta.\nTexto: Choveu.\nPregunta: Que pasou?\nResposta: a")


def test_questions_with_a_context_take_the_layout_with_a_passage():
    rows, _ = build_requests([PASSAGE], "question", "letters", prompt="instructed")
    assert rows[0]["text"].startswith("Le o texto e escolle")
    rows, _ = build_requests([QUESTION], "passage", "letters", prompt="instructed")
    assert rows[0]["text"].startswith("Escolle")


def test_few_shot_examples_have_the_same_prompt_and_chat_turns():
    items = [PASSAGE | {"item_id": f"i{n}", "context": f"Choveu {n}."} for n in range(4)]
    rows, metadata = build_requests(items, "passage", "letters", shots=2, prompt="formal")
    assert metadata["prompt"] == "formal"
    assert rows[0]["prefix"].count("Indique a opción correcta") == 2
    assert [turn["role"] for turn in rows[0]["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert all("Indique a opción correcta" in turn["content"] for turn in rows[0]["messages"][::2])


def test_braces_in_an_item_are_literal_text():
    shown = item(context="{question} {options}", question="{context}?", choices=["{", "}"], gold=[0])
    rows, _ = build_requests([shown], "passage", "letters", prompt="instructed")
    assert "\n{question} {options}\n\n{context}?\n\nA. {\nB. }\n" in rows[0]["text"]


def test_default_does_not_depend_on_variants(tmp_path):
    original = PROMPTS_DIR / "gl.yaml"
    text = original.read_text("utf-8")
    (tmp_path / "gl.yaml").write_text(text.split("variants:")[0], "utf-8")
    assert prompt_lines("gl", tmp_path) == prompt_lines("gl")
    assert load_labels("gl", tmp_path) == load_labels("gl")
    assert variants("gl", tmp_path) == {}
    _, metadata = build_requests([PASSAGE], "passage", "letters")
    assert "prompt" not in metadata


def test_a_text_without_a_field_for_it_is_an_error():
    with pytest.raises(ConfigError) as raised:
        build_requests([PASSAGE], "story", "generation", prompt="instructed")
    assert_states(raised.value, "i1", "question", "{question}")


def test_unknown_prompt_names_the_closest():
    with pytest.raises(ConfigError) as raised:
        variant_labels("gl", "formall")
    assert_states(raised.value, '"formall"', "gl.yaml", '"formal"')


def test_items_without_words_have_no_prompts():
    assert covering("gl", "continuation", letters=False) == []


VALID = """variants:
  short:
    differs: shorter
    question: |-
      {question}
      {options}
      R:
"""


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("{options}\n      R:", "R:"), ("line {line}", "variants.short.question", "{options} once")),
        (("R:", "R: {question}"), ("{question} once", "got 2")),
        (("{options}\n      R:", "R:\n      {options}"), ("line {line}", "last line", "cue")),
        (("{question}", "{pregunta}"), ("{pregunta}", "{question}, {options}")),
        (("    question:", "    questions:"), ("questions", '"question"')),
        (("short:", "Short Form:"), ("invalid name", "lower-case")),
        (("short:", "paired:"), ("invalid name", "paired")),
        (("    differs: shorter\n", ""), ('"differs"', "missing")),
        (("differs: shorter", "differs: shorter\n    reviewed: true"), ("reviewed", "false")),
        (("variants:\n", "variants:\n" + VALID.removeprefix("variants:\n").replace("short", "brief")), ("variants.short.question", "same text", "brief")),
    ],
)  # fmt: skip
def test_invalid_variants_name_file_line_and_cause(tmp_path, change, parts):
    lines = (PROMPTS_DIR / "gl.yaml").read_text("utf-8").split("\n# Other ways")[0]
    (tmp_path / "gl.yaml").write_text(lines + VALID.replace(*change), "utf-8")
    with pytest.raises(ConfigError) as raised:
        variants("gl", tmp_path)
    line = 1 + lines.count("\n") + VALID.split("question:")[0].count("\n")
    assert_states(raised.value, "gl.yaml", *(part.replace("{line}", str(line)) for part in parts))


def test_all_invalid_texts_are_reported_at_once(tmp_path):
    lines = (PROMPTS_DIR / "gl.yaml").read_text("utf-8").split("\n# Other ways")[0]
    other = VALID.removeprefix("variants:\n").replace("short", "brief").replace("R:", "{options}")
    (tmp_path / "gl.yaml").write_text(lines + VALID.replace("{question}", "{pregunta}") + other, "utf-8")
    with pytest.raises(ConfigError) as raised:
        variants("gl", tmp_path)
    assert_states(raised.value, "variants.short.question", "{pregunta}", "variants.brief.question")


def test_a_copied_file_with_a_new_variant_needs_one_block(tmp_path):
    shutil.copy(PROMPTS_DIR / "gl.yaml", tmp_path)
    with open(tmp_path / "gl.yaml", "a", encoding="utf-8") as file:
        file.write(
            VALID.removeprefix("variants:\n").replace("shorter", "shorter\n    reviewed: A. Speaker, 2026-11-23")
        )
    assert covering("gl", "question", letters=False, directory=tmp_path)[-1] == "short"
    assert variant_labels("gl", "short", tmp_path)["options"] == "Opcións:"
