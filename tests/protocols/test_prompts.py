import pytest
from support.asking import ask, item, spans
from vernacular.core.errors import ConfigError
from vernacular.protocols import request_rows
from vernacular.protocols.prompts import FOLDER, load_labels
from vernacular.protocols.schema import REQUESTS

CAPITAL = item(question="Cal é a capital?", choices=["Lugo", "Santiago", "Vigo", "Ourense"], gold=[1])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_prompt_file_is_complete(path):
    assert load_labels(path.stem)["answer"].strip()


def test_an_unknown_language_is_told_how_to_be_added():
    with pytest.raises(ConfigError, match=r'prompts for the language "is" not found.*\n.*is\.yaml'):
        ask([CAPITAL], "question", "letters", language="is")


def test_protocols_without_labels_need_no_prompt_file():
    rows, _ = ask([item(choices=["Ona da.", "Ona du."], gold=[0])], "pair", "minimal_pair", language="is")
    assert spans(rows) == {"choice:0": "Ona da.", "choice:1": "Ona du."}


def test_options_are_shown_by_default_and_not_in_the_open_style():
    (shown,), _ = ask([CAPITAL], "question", "generation")
    assert shown["text"] == ("Pregunta: Cal é a capital?\nOpcións:\n- Lugo\n- Santiago\n- Vigo\n- Ourense\nResposta:")
    (hidden,), _ = ask([CAPITAL], "question", "generation", style="open")
    assert hidden["text"] == "Pregunta: Cal é a capital?\nResposta:"
    assert shown["stop"] == ["\n"]
    assert shown["longest_target"] == " Santiago"
    assert shown["decoding"] is None


def test_each_layout_in_galician():
    story = item(context="Un. Dous. Tres. Catro.", choices=["Cinco.", "Seis."], gold=[0])
    assert ask([story], "story", "generation")[0][0]["text"] == (
        "Historia: Un. Dous. Tres. Catro.\nOpcións:\n- Cinco.\n- Seis.\nContinuación:"
    )
    passage = item(context="Choveu.", question="Que pasou?", choices=["a", "b"], gold=[0])
    assert ask([passage], "passage", "generation", style="open")[0][0]["text"] == (
        "Texto: Choveu.\nPregunta: Que pasou?\nResposta:"
    )
    summary = item(context="Un texto longo.", target="Curto.")
    assert ask([summary], "summary", "generation")[0][0]["text"] == "Texto: Un texto longo.\nResumo:"
    word = item(context="Fun á ", target="praia")
    (row,), _ = ask([word], "continuation", "generation")
    assert (row["text"], row["longest_target"]) == ("Fun á", " praia")
    assert row["messages"] == [
        {"role": "user", "content": "Completa o texto coa palabra que falta ao final.\nFun á"},
    ]


def test_braces_in_an_item_are_text():
    (row,), _ = ask([item(question="{question} {option} {0}?", choices=["{", "}"], gold=[0])], "question", "generation")
    assert row["text"].startswith("Pregunta: {question} {option} {0}?\n")
    assert "- {\n- }\n" in row["text"]


def test_palmx_letters_to_the_byte():
    palm = item(question="ما عاصمة مصر؟", choices=["القاهرة", "الرباط", "تونس", "عمان"], gold=[0])
    rows, _ = ask([palm], "question", "letters", language="ar")
    before = "ما عاصمة مصر؟\n\nA. القاهرة\nB. الرباط\nC. تونس\nD. عمان\nالجواب:"
    assert [r["text"] for r in rows] == [before + f" {letter}" for letter in "ABCD"]
    assert spans(rows) == {"choice:0": " A", "choice:1": " B", "choice:2": " C", "choice:3": " D"}
    assert rows[0]["messages"] == [{"role": "user", "content": before}]


def test_letters_put_the_passage_first_and_cycle_options():
    passage = item(context="Choveu.", question="Que?", choices=["x", "y", "z"], gold=[0])
    rows, _ = ask([passage], "passage", "letters", option_rotations=2)
    assert rows[0]["text"] == "Choveu.\n\nQue?\n\nA. x\nB. y\nC. z\nResposta: A"
    turned = [r for r in rows if r["role"].endswith("@1")]
    assert turned[0]["text"] == "Choveu.\n\nQue?\n\nA. y\nB. z\nC. x\nResposta: A"
    assert spans(turned) == {"choice:1@1": " A", "choice:2@1": " B", "choice:0@1": " C"}


def test_truth_options_are_shuffled_the_same_whatever_order_they_come_in():
    right_first = item(question="?", choices=["a", "b", "c", "d", "e"], gold=[0, 1], target="b")
    wrong_first = item(question="?", choices=["e", "d", "c", "b", "a"], gold=[3, 4], target="b")
    one = ask([right_first], "multi_answer", "letters")[0][0]["text"]
    other = ask([wrong_first], "multi_answer", "letters")[0][0]["text"]
    assert one == other
    orders = {ask([right_first], "multi_answer", "letters", seed=seed)[0][0]["text"] for seed in range(8)}
    assert len(orders) > 1


def test_options_follow_the_cue_and_are_scored_alone_too():
    rows, _ = ask([CAPITAL], "question", "options")
    by_role = {r["role"]: r for r in rows}
    assert by_role["choice:1"]["text"] == "Pregunta: Cal é a capital?\nResposta: Santiago"
    assert by_role["uncond:1"]["text"] == "Resposta: Santiago"
    assert spans(rows)["choice:1"] == spans(rows)["uncond:1"] == " Santiago"


def test_the_request_id_is_the_content():
    twins = [CAPITAL, CAPITAL | {"item_id": "i2"}, CAPITAL | {"item_id": "i3", "question": "Outra?"}]
    rows, _ = ask(twins, "question", "generation")
    ids = [r["request_id"] for r in rows]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("protocol", "change", "message"),
    [
        ("letters", {"style": "open"}, 'unknown style "open" of letters'),
        ("minimal_pair", {"shots": 2}, "expected shots: 0, got 2"),
        ("letters", {"option_rotation": 2}, r'unknown option "option_rotation". Did you mean "option_rotations"'),
        ("letters", {"option_rotations": True}, "expected int for option option_rotations, got True"),
        ("target_word", {"scored_span": "tokens"}, 'Did you mean "token"'),
        ("lettres", {}, 'Did you mean "letters"'),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(protocol, change, message):
    with pytest.raises(ConfigError, match=message):
        ask([CAPITAL], "question", protocol, **change)


def test_an_item_that_cannot_be_asked_keeps_a_row_with_the_reason():
    rows, metadata = ask([item(question="?", choices=["only"]), CAPITAL | {"item_id": "i2"}], "question", "letters")
    assert rows[0]["role"] == "skipped: fewer than two options"
    assert rows[0]["span_start"] == rows[0]["span_end"]
    assert metadata["skipped"] == {"i1": "fewer than two options"}


def test_odd_texts_make_requests_that_fit_the_schema(tmp_path):
    from vernacular.core.artifacts import write
    from vernacular.protocols.schema import REQUESTS

    odd = ["", "🙂", "نص عربي", "a\x00b", "x" * 100_000, "__", "{}", " \n "]
    items = [item(f"i{n}", question=text, choices=["a 🙂", text or "b"], gold=[0]) for n, text in enumerate(odd)]
    for protocol in ("generation", "letters", "options", "minimal_pair"):
        rows, _ = ask(items, "question", protocol)
        write(tmp_path / protocol, REQUESTS, rows, {})
        assert {r["item_id"] for r in rows} == {f"i{n}" for n in range(len(odd))}


@pytest.mark.parametrize(
    "name", [name for name in REQUESTS.schema.names if name not in ("request_id", "item_id", "role")]
)
def test_every_component_of_a_request_is_in_its_row_and_its_id(name):
    plain = request_rows._row(CAPITAL, "answer", kind="generate", prefix="", text="A")
    other = request_rows._row(CAPITAL, "answer", **{"kind": "generate", "prefix": "", "text": "A", name: "another"})
    assert set(plain) == set(REQUESTS.schema.names)
    assert other[name] == "another"
    assert other["request_id"] != plain["request_id"]
