"""Whatever a model writes, what is taken for its answer is its own, and once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.soak import examples
from vernacular.inference.generation.prepare import answer_of
from vernacular.metrics.similarity.answers import given as answers_given
from vernacular.protocols.generation import metrics as generation
from vernacular.protocols.verbatim import metrics as verbatim

PIECES = st.sampled_from(["\n", "\r", "\u2028", " ", ":", "RESPOST", "RESPOSTA: ", "CONTINUAC", "RESUM", "3:1", "a", "\0",
                          "e\u0301", "👩‍👩‍👧", "\u202e", "مرحبا", "{question}", ".*", "\\"])  # fmt: skip
texts = st.lists(PIECES | st.characters(exclude_categories=["Cs"]), max_size=14).map("".join)
HUGE = 1_000_000


def asked() -> dict:
    return {"item_id": "a", "role": "response", "prefix": "", "text": "Pregunta: ?\nRESPOST", "decoding": None}


def written(raw: str, *, chat: bool = False) -> dict:
    answer = answer_of(raw, ["\n"], after_blank=chat)
    return {
        "item_id": "a",
        "role": "response",
        "raw_output": raw,
        "output": answer,
        "rendered": "…" if chat else None,
        "flags": None,
    }


@settings(max_examples=examples(200), deadline=None)
@given(raw=texts, chat=st.booleans())
def test_default_answer_is_the_first_line_whole_and_stays_so(raw, chat):
    row = written(raw, chat=chat)
    assert row["output"] in raw
    assert row["output"] == (raw.lstrip() if chat else raw).split("\n")[0].strip()
    assert answer_of(row["output"], ["\n"], after_blank=chat) == row["output"]
    found = answers_given([asked()], [row])["a"]
    assert (found.text, found.flag) == (row["output"], None if row["output"] else "empty answer")


@pytest.mark.parametrize("answer", ["3:1", "razón 3:1 total", "A: b", "12:30", "a: b: c", "{question}", "RESPOSTA: si"])
def test_default_answer_keeps_its_colons_and_braces(answer):
    assert answers_given([asked()], [written(f" {answer}\nPregunta:")])["a"].text == answer


@settings(max_examples=examples(100), deadline=None)
@given(raw=texts, target=texts)
def test_parts_that_are_compared_are_parts_of_the_answer(raw, target):
    item = {"choices": [], "target": target}
    part = generation.compared_part(item, raw)
    assert part in raw
    assert generation.compared_part(item, part) == part
    assert raw.startswith(verbatim.cut(raw, ["\n", ":"]))


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
def test_runaway_answer_of_a_megabyte_is_read_like_a_short_one(piece):
    """A pattern that tries each of a million places from each of them would not come back."""
    raw = piece * (HUGE // len(piece))
    short = piece * 50
    for chat in (False, True):
        assert written(raw, chat=chat)["output"][:20] == written(short, chat=chat)["output"][:20]
    assert generation.normalised(raw)[:20] == generation.normalised(short)[:20]
    assert len(verbatim.cut(raw, ["\n", "::"])) <= len(raw)
