import pytest
from support.request_builder import build_requests, item, spans
from vernacular.protocols.request_rows import GAP, fill


def texts(rows):
    return {row["role"]: row["text"] for row in rows}


def test_acceptability_span_is_the_full_sentence():
    rows, _ = build_requests([item(context="Ela canta ben.", extra=[("label", "1")])], "sentence", "acceptability")
    assert spans(rows) == {"sentence": "Ela canta ben."}


def test_minimal_pair_with_and_without_context():
    rows, _ = build_requests(
        [item(context="Para abrir a porta, ", choices=["usa a chave.", "usa o pan."], gold=[0])], "pair", "minimal_pair"
    )
    assert texts(rows)["choice:0"] == "Para abrir a porta, usa a chave."
    assert spans(rows) == {
        "choice:0": " usa a chave.",
        "choice:1": " usa o pan.",
        "bare:0": "usa a chave.",
        "bare:1": "usa o pan.",
    }


def test_last_word_span_includes_preceding_space():
    (row,), _ = build_requests([item(context="Fun á ", target="estación")], "continuation", "last_word")
    assert row["text"] == "Fun á estación"
    assert spans([row]) == {"word": " estación"}
    (row,), _ = build_requests(
        [item(context="Fun á", target="estación")], "continuation", "last_word", bow_correction=True
    )
    assert row["extras"] == ["word_end_logprobs"]


def test_cloze_spans_of_filled_and_unfilled_gap():
    cloze_item = item(context="Ana je kupila __ knjigu.", choices=["novu", "nova"], gold=[0])
    rows, _ = build_requests([cloze_item], "cloze", "cloze", language="sr", score_unfilled_gap=True)
    assert texts(rows)["filled:0"] == "Ana je kupila novu knjigu."
    assert spans(rows)["filled:0"] == "Ana je kupila novu knjigu."
    assert spans(rows)["fill:0"] == " novu knjigu."
    assert texts(rows)["unfilled:0"] == "Ana je kupila __ knjigu.novu"
    assert spans(rows)["unfilled:0"] == "novu"


@pytest.mark.parametrize(
    ("text", "word", "filled"),
    [
        ("Ide u __.", "školu.", "Ide u školu."),
        ("Ide u __.", "školu", "Ide u školu."),
        ("__ ide u školu.", "ana", "Ana ide u školu."),
        ("Stigao je. __ je srećan.", "on", "Stigao je. On je srećan."),
        ("To je bilo 19. __ 1914.", "maja", "To je bilo 19. maja 1914."),
        ("Ima npr. __ i kruške.", "jabuke", "Ima npr. jabuke i kruške."),
        ("Rekao je: „__ dobro.“", "vrlo", "Rekao je: „vrlo dobro.“"),
        ("Bilo je ____, zar ne?", "1914. godine", "Bilo je 1914. godine, zar ne?"),
        ("uči__ u školi", "telj", "učitelj u školi"),
        ("__ kalabalıktı.", "istanbul", "İstanbul kalabalıktı."),
        ("वह __।", "घर।", "वह घर।"),
        ("أين __؟", "البيت؟", "أين البيت؟"),
        ("他在__。", "家。", "他在家。"),
        ("Ήρθε χθες. __ έφυγε.", "μετά", "Ήρθε χθες. Μετά έφυγε."),
        ("Նա եկավ։ __ գնաց։", "հետո", "Նա եկավ։ Հետո գնաց։"),
    ],
)
def test_gap_filling(text, word, filled):
    assert "".join(fill(text, GAP.search(text), word, capitalize=True)) == filled


@pytest.mark.parametrize("text", ["no gap", "two __ gaps __ here"])
def test_item_without_exactly_one_gap_is_skipped_with_reason(text):
    _, metadata = build_requests([item(context=text, choices=["a", "b"], gold=[0])], "cloze", "cloze", language="sr")
    assert "expected one gap in the prompt, got" in metadata["skipped"]["i1"]


def test_target_word_ignores_outer_whitespace_of_forms():
    forms = [" reads", "read", " null"]
    masked = item(context="The boy [MASK] books.", choices=forms, gold=[0])
    rows, _ = build_requests([masked], "target_word", "target_word", language="en")
    assert texts(rows)["token:0"] == texts(rows)["sentence:0"] == "The boy reads books."
    assert [spans(rows)[f"token:{i}"] for i in range(3)] == [" reads", " read", " null"]
    assert spans(rows)["sentence:1"] == "The boy read books."
    assert rows[0]["extras"] == ["entropy", "rank", "pll:within_word_l2r"]


def test_target_word_at_sentence_start_is_not_capitalized():
    rows, _ = build_requests(
        [item(context="[MASK] მიდის.", choices=["კაცი", "კაცმა"], gold=[0])],
        "target_word",
        "target_word",
        language="ka",
    )
    assert texts(rows)["token:0"] == "კაცი მიდის."
    assert spans(rows)["token:0"] == "კაცი"


def test_target_word_options():
    masked = item(context="A <w> b.", choices=["x", "y"], gold=[0])
    rows, _ = build_requests(
        [masked], "target_word", "target_word", mask_token="<w>", scored_span="token", task_type="ntp"
    )
    assert [row["role"] for row in rows] == ["token:0", "token:1"]
    assert rows[0]["extras"] == ["entropy", "rank"]
    _, metadata = build_requests([masked], "target_word", "target_word")
    assert metadata["skipped"] == {"i1": "expected one masked word in the text, got 0"}
