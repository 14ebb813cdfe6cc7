"""Property tests of the parsing of arbitrary model outputs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.malformed import HUGE, REPEATED_FRAGMENTS, responses
from support.soak import examples
from vernacular.inference.generation.prepare import truncate_output
from vernacular.metrics.similarity.outputs import parse_outputs
from vernacular.protocols.generation import metrics as generation


def request_row() -> dict:
    return {"item_id": "a", "role": "response", "prefix": "", "text": "Pregunta: ?\nRESPOST", "decoding": None}


def generation_row(raw_output: str, *, chat: bool = False) -> dict:
    output = truncate_output(raw_output, ["\n"], skip_leading_space=chat)
    return {
        "item_id": "a",
        "role": "response",
        "raw_output": raw_output,
        "output": output,
        "rendered": "…" if chat else None,
        "flags": None,
    }


@settings(max_examples=examples(200), deadline=None)
@given(raw_output=responses, chat=st.booleans())
def test_default_output_is_the_complete_first_line(raw_output, chat):
    row = generation_row(raw_output, chat=chat)
    assert row["output"] in raw_output
    assert row["output"] == (raw_output.lstrip() if chat else raw_output).split("\n")[0].strip()
    assert truncate_output(row["output"], ["\n"], skip_leading_space=chat) == row["output"]
    parsed = parse_outputs([request_row()], [row])["a"]
    assert (parsed.text, parsed.flag) == (row["output"], None if row["output"] else "empty answer")


@pytest.mark.parametrize("output", ["3:1", "razón 3:1 total", "A: b", "12:30", "a: b: c", "{question}", "RESPOSTA: si"])
def test_default_output_keeps_colons_and_braces(output):
    assert parse_outputs([request_row()], [generation_row(f" {output}\nPregunta:")])["a"].text == output


@settings(max_examples=examples(100), deadline=None)
@given(raw_output=responses, target=responses)
def test_scored_part_is_part_of_the_output(raw_output, target):
    item = {"choices": [], "target": target}
    part = generation.scored_part(item, raw_output)
    assert part in raw_output
    assert generation.scored_part(item, part) == part


@pytest.mark.parametrize("fragment", REPEATED_FRAGMENTS)
def test_output_of_a_megabyte_is_parsed_like_a_short_one(fragment):
    """A pattern with quadratic run time would not terminate on a million characters."""
    raw_output = fragment * (HUGE // len(fragment))
    short_output = fragment * 50
    for chat in (False, True):
        assert (
            generation_row(raw_output, chat=chat)["output"][:20]
            == generation_row(short_output, chat=chat)["output"][:20]
        )
    assert generation.normalize(raw_output)[:20] == generation.normalize(short_output)[:20]
