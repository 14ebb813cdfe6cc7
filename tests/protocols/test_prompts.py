import pytest
from support.messages import assert_states
from support.request_builder import build_requests, item, spans
from vernacular.core.artifacts import write
from vernacular.core.errors import ConfigError
from vernacular.protocols.prompts import PROMPTS_DIR, load_labels
from vernacular.protocols.request_rows import external_request
from vernacular.protocols.schema import REQUESTS

CAPITAL = item(question="Cal é a capital?", choices=["Lugo", "Santiago", "Vigo", "Ourense"], gold=[1])


@pytest.mark.parametrize("path", sorted(PROMPTS_DIR.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_prompts_file_is_complete(path):
    assert load_labels(path.stem)["answer"].strip()


def test_unknown_language_error_names_the_file_to_add():
    with pytest.raises(ConfigError) as raised:
        build_requests([CAPITAL], "question", "letters", language="fy")
    assert_states(raised.value, "prompts", '"fy"', "not found", "prompts/fy.yaml", "styles: english")


def test_protocols_without_labels_need_no_prompts_file():
    rows, _ = build_requests([item(choices=["Ona da.", "Ona du."], gold=[0])], "pair", "minimal_pair", language="is")
    assert spans(rows) == {"choice:0": "Ona da.", "choice:1": "Ona du."}


def test_options_are_listed_by_default_but_not_in_open_style():
    (request,), _ = build_requests([CAPITAL], "question", "generation")
    assert request["text"] == ("Pregunta: Cal é a capital?\nOpcións:\n- Lugo\n- Santiago\n- Vigo\n- Ourense\nResposta:")
    (open_request,), _ = build_requests([CAPITAL], "question", "generation", style="open")
    assert open_request["text"] == "Pregunta: Cal é a capital?\nResposta:"
    assert request["stop"] == ["\n"]
    assert request["longest_target"] == " Santiago"
    assert request["decoding"] is None


def test_prompts_of_item_types_in_galician():
    story = item(context="Un. Dous. Tres. Catro.", choices=["Cinco.", "Seis."], gold=[0])
    assert build_requests([story], "story", "generation")[0][0]["text"] == (
        "Historia: Un. Dous. Tres. Catro.\nOpcións:\n- Cinco.\n- Seis.\nContinuación:"
    )
    passage = item(context="Choveu.", question="Que pasou?", choices=["a", "b"], gold=[0])
    assert build_requests([passage], "passage", "generation", style="open")[0][0]["text"] == (
        "Texto: Choveu.\nPregunta: Que pasou?\nResposta:"
    )
    summary = item(context="Un texto longo.", target="Curto.")
    assert build_requests([summary], "summary", "generation")[0][0]["text"] == "Texto: Un texto longo.\nResumo:"
    word = item(context="Fun á ", target="praia")
    (row,), _ = build_requests([word], "continuation", "generation")
    assert (row["text"], row["longest_target"]) == ("Fun á", " praia")
    assert row["messages"] == [
        {"role": "user", "content": "Completa o texto coa palabra que falta ao final.\nFun á"},
    ]


def test_braces_in_item_are_literal_text():
    (row,), _ = build_requests(
        [item(question="{question} {option} {0}?", choices=["{", "}"], gold=[0])], "question", "generation"
    )
    assert row["text"].startswith("Pregunta: {question} {option} {0}?\n")
    assert "- {\n- }\n" in row["text"]


def test_letters_prompt_matches_palmx_exactly():
    question = item(question="ما عاصمة مصر؟", choices=["القاهرة", "الرباط", "تونس", "عمان"], gold=[0])
    rows, _ = build_requests([question], "question", "letters", language="ar")
    prompt = "ما عاصمة مصر؟\n\nA. القاهرة\nB. الرباط\nC. تونس\nD. عمان\nالجواب:"
    assert [row["text"] for row in rows] == [prompt + f" {letter}" for letter in "ABCD"]
    assert spans(rows) == {"choice:0": " A", "choice:1": " B", "choice:2": " C", "choice:3": " D"}
    assert rows[0]["messages"] == [{"role": "user", "content": prompt}]


def test_letters_prompt_with_passage_and_rotated_options():
    passage = item(context="Choveu.", question="Que?", choices=["x", "y", "z"], gold=[0])
    rows, _ = build_requests([passage], "passage", "letters", option_rotations=2)
    assert rows[0]["text"] == "Choveu.\n\nQue?\n\nA. x\nB. y\nC. z\nResposta: A"
    rotated = [row for row in rows if row["role"].endswith("@1")]
    assert rotated[0]["text"] == "Choveu.\n\nQue?\n\nA. y\nB. z\nC. x\nResposta: A"
    assert spans(rotated) == {"choice:1@1": " A", "choice:2@1": " B", "choice:0@1": " C"}


def test_shuffled_options_are_independent_of_dataset_order():
    correct_first = item(question="?", choices=["a", "b", "c", "d", "e"], gold=[0, 1], target="b")
    correct_last = item(question="?", choices=["e", "d", "c", "b", "a"], gold=[3, 4], target="b")
    text = build_requests([correct_first], "multi_answer", "letters")[0][0]["text"]
    reversed_text = build_requests([correct_last], "multi_answer", "letters")[0][0]["text"]
    assert text == reversed_text
    texts = {build_requests([correct_first], "multi_answer", "letters", seed=seed)[0][0]["text"] for seed in range(8)}
    assert len(texts) > 1


def test_options_are_scored_after_question_and_after_cue_only():
    rows, _ = build_requests([CAPITAL], "question", "options")
    by_role = {row["role"]: row for row in rows}
    assert by_role["choice:1"]["text"] == "Pregunta: Cal é a capital?\nResposta: Santiago"
    assert by_role["uncond:1"]["text"] == "Resposta: Santiago"
    assert spans(rows)["choice:1"] == spans(rows)["uncond:1"] == " Santiago"


def test_equal_content_has_equal_request_id():
    items = [CAPITAL, CAPITAL | {"item_id": "i2"}, CAPITAL | {"item_id": "i3", "question": "Outra?"}]
    rows, _ = build_requests(items, "question", "generation")
    ids = [row["request_id"] for row in rows]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("protocol", "change", "parts"),
    [
        ("letters", {"style": "open"}, ("style", '"open"', "letters")),
        ("minimal_pair", {"shots": 2}, ("minimal_pair", "shots: 0", "2")),
        ("letters", {"option_rotation": 2}, ("option", '"option_rotation"', '"option_rotations"')),
        ("letters", {"option_rotations": True}, ("int", "option_rotations", "True")),
        ("target_word", {"scored_span": "tokens"}, ("scored_span", "'tokens'", '"token"')),
        ("lettres", {}, ("protocol", '"lettres"', '"letters"')),
    ],
)
def test_invalid_settings_raise_config_error(protocol, change, parts):
    with pytest.raises(ConfigError) as raised:
        build_requests([CAPITAL], "question", protocol, **change)
    assert_states(raised.value, "Task t: ", *parts)


def test_skipped_item_has_row_with_reason():
    rows, metadata = build_requests(
        [item(question="?", choices=["only"]), CAPITAL | {"item_id": "i2"}], "question", "letters"
    )
    assert rows[0]["role"] == "skipped: fewer than two options"
    assert rows[0]["span_start"] == rows[0]["span_end"]
    assert metadata["skipped"] == {"i1": "fewer than two options"}


def test_unusual_texts_match_the_schema(tmp_path):
    texts = ["", "🙂", "نص عربي", "a\x00b", "x" * 100_000, "__", "{}", " \n "]
    items = [item(f"i{n}", question=text, choices=["a 🙂", text or "b"], gold=[0]) for n, text in enumerate(texts)]
    for protocol in ("generation", "letters", "options", "minimal_pair"):
        rows, _ = build_requests(items, "question", protocol)
        write(tmp_path / protocol, REQUESTS, rows, {})
        assert {row["item_id"] for row in rows} == {f"i{n}" for n in range(len(texts))}


@pytest.mark.parametrize(
    "name", [name for name in REQUESTS.schema.names if name not in ("request_id", "item_id", "role")]
)
def test_request_row_and_id_depend_on_every_field(name):
    content = {"kind": "generate", "prefix": "", "text": "A"}
    row, changed = (external_request(CAPITAL, "answer", **fields) for fields in (content, content | {name: "another"}))
    assert set(row) == set(REQUESTS.schema.names)
    assert changed[name] == "another"
    assert changed["request_id"] != row["request_id"]
