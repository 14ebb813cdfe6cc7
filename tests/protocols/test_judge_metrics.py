"""Rubrics, the requests made of them, and the values of judges, by hand."""

import math
import re
from string import ascii_uppercase

import pytest
import yaml
from vernacular.config.specs import JudgmentSpec, RubricSpec
from vernacular.core.errors import ConfigError
from vernacular.protocols.judge_metrics import definitions, find_label, notes, values
from vernacular.protocols.prompts import answer_words
from vernacular.protocols.rubrics import RUBRICS_DIR, load_rubric, requests_of

SHIPPED = [(path.parent.name, path.stem) for path in sorted(RUBRICS_DIR.glob("*/*.yaml"))]
PAIR = {
    "texts": ["first", "second", "same"],
    "values": [1.0, 0.0, 0.5],
    "template": "{prompt} {first} {second} {scale}",
}
ONE = {"texts": ["good", "bad"], "values": [1.0, 0.0], "template": "{prompt} {response} {scale}"}
ITEM = {"item_id": "i"}


def judgment(rubric: dict, **fields) -> JudgmentSpec:
    rubric = {"reads": "text", "cue": "Answer:", "instruction": "End so: Answer: X"} | rubric
    common = {"judge": "tone", "model": "big", "name": "mine.en", "answers": answer_words("en")}
    return JudgmentSpec(**common | fields, rubric=RubricSpec(**rubric))


def generated(spec: JudgmentSpec, *texts: str | None, **fields) -> dict:
    """Return the values of an item whose judgments are these texts, one per order."""
    requests = requests_of(ITEM, spec.rubric, "en", "?", ("x", "y")[: len(texts)], "")
    outputs = [
        {"item_id": "i", "role": request["role"], "raw_output": text, "output": text, "flags": None, "think_state": None,
         "finish_reason": "eos"} | fields
        for request, text in zip(requests, texts, strict=True)
    ]  # fmt: skip
    return values(spec, requests, outputs)["i"]


def scored(spec: JudgmentSpec, *orders: list[float]) -> dict:
    """Return the values of an item whose labels have these probabilities, by order."""
    requests = requests_of(ITEM, spec.rubric, "en", "?", ("x", "y")[: len(orders)], "")
    logprobs = [math.log(probability) for order in orders for probability in order]
    outputs = [
        {"item_id": "i", "role": request["role"], "logprobs": [value], "flags": None}
        for request, value in zip(requests, logprobs, strict=True)
    ]
    return values(spec, requests, outputs)["i"]


@pytest.mark.parametrize(("name", "language"), SHIPPED)
def test_shipped_rubrics_are_valid_marked_as_unreviewed_and_their_letters_are_found(name, language):
    rubric = load_rubric(RUBRICS_DIR / name, language)
    assert rubric.pop("reviewed") is False
    spec = RubricSpec(**rubric, reads="text")
    assert spec.is_pair == (name == "preference")
    responses = ("{reference} {scale}", "OUTRA")[: 1 + spec.is_pair]
    rows = requests_of(ITEM, spec, language, "Que é?", responses, "un gato")
    assert [row["role"] for row in rows] == ["response", "response:0@1"][: 1 + spec.is_pair]
    for row in rows:
        assert row["text"].count("{reference} {scale}") == 1, "text of a response is no template"
        assert ("un gato" in row["text"]) == (name == "correctness")
        assert row["text"].endswith(f"{spec.cue} X")
        assert row["messages"] == [{"role": "user", "content": row["text"]}]
    for index, (letter, text) in enumerate(zip(ascii_uppercase, spec.texts, strict=False)):
        assert f"\n{letter}. {text}\n" in rows[0]["text"]
        found = [f"{spec.cue} {letter}", f"{letter}. {text}", text]
        assert [find_label(spec, reply, answer_words(language)) for reply in found] == [index] * 3
    assert find_label(spec, "🙂", answer_words(language)) is None
    if spec.is_pair:
        assert [row["text"].index("OUTRA") < row["text"].index("{reference}") for row in rows] == [False, True]


@pytest.mark.parametrize(
    ("verdicts", "value", "first", "consistent", "tie"),
    [
        ("AB", 1, 0.5, 1, 0),  # the judged response, in both orders
        ("BA", 0, 0.5, 1, 0),
        ("AA", 0.5, 1, 0, 1),  # what is shown first
        ("BB", 0.5, 0, 0, 1),
        ("CC", 0.5, 0.5, 1, 1),
        ("AC", 0.75, 0.75, 0, 0),
    ],
)
def test_two_responses_are_judged_in_both_orders_and_ties_are_kept(verdicts, value, first, consistent, tie):
    expected = {"judge_tone_unvalidated": value, "judge_tone_first": first, "judge_tone_consistent": consistent}
    expected |= {"judge_tone_tie": tie, "judge_tone_unparsed": 0}
    assert generated(judgment(PAIR), *(f"Answer: {letter}" for letter in verdicts)) == expected


def test_without_a_verdict_there_is_no_value_but_a_count():
    assert generated(judgment(ONE), "Perhaps.") == {"judge_tone_unparsed": 1}
    assert generated(judgment(ONE), "Answer: A or B") == {"judge_tone_unparsed": 1}
    assert generated(judgment(ONE), "") == {"judge_tone_unparsed": 1}
    assert generated(judgment(ONE), "Answer: A", think_state="unclosed", n_reasoning_tokens=9) == {
        "judge_tone_unparsed": 1
    }
    assert generated(judgment(ONE), "Answer: A", finish_reason="length") == {"judge_tone_unparsed": 1}, "may go on"
    assert generated(judgment(ONE), None, flags="error: too long") == {}, "no output is not an unclear one"
    assert generated(judgment(PAIR), "Answer: A", "Hm.") == {"judge_tone_unparsed": 0.5}
    assert generated(judgment(ONE, labeled=True), "Answer: B") == {"judge_tone": 0, "judge_tone_unparsed": 0}


def test_expression_finds_its_last_match_among_the_verdicts():
    spec = judgment(ONE | {"texts": ["1", "5"], "values": [1.0, 5.0], "pattern": r"\[\[(\d)\]\]"})
    found = [generated(spec, text).get("judge_tone_unvalidated") for text in ("[[5]] no, [[1]]", "[[5]]", "[[3]]", "5")]
    assert found == [1, 5, None, None]
    assert definitions(spec)[0]["unit"] == "score"


def test_labels_give_the_expected_value_and_their_mass():
    spec = judgment(ONE | {"reads": "log_probabilities"})
    assert scored(spec, [0.3, 0.1]) == pytest.approx({"judge_tone_unvalidated": 0.75, "judge_tone_mass": 0.4})
    pair = judgment(PAIR | {"reads": "log_probabilities"})
    expected = {"judge_tone_unvalidated": 0.5, "judge_tone_first": 0.7, "judge_tone_consistent": 0, "judge_tone_tie": 1}
    order = [0.6, 0.2, 0.2]  # the same in both orders: only the position counts
    assert scored(pair, order, order) == pytest.approx(expected | {"judge_tone_mass": 1})
    missing = requests_of(ITEM, spec.rubric, "en", "?", ("x",), "")
    assert values(spec, missing, []) == {"i": {}}


def test_share_has_a_wilson_interval_only_if_every_value_is_0_or_1():
    for rubric, proportion in ((ONE, True), (PAIR, False), (ONE | {"reads": "log_probabilities"}, False)):
        main = definitions(judgment(rubric, baseline="base"))[0]
        assert (main["unit"], main["proportion"], main["headline"]) == ("share", proportion, True)
        assert ("base" in main["about"]) == (rubric is PAIR)


def test_notes_name_what_is_unvalidated_unreviewed_unparsed_failed_skipped_and_biased():
    spec = judgment(PAIR)
    found = {
        "a": generated(spec, "Answer: A", "Answer: A"),
        "b": generated(spec, "?", "Answer: A"),
        "c": {},
    }
    bias = {"metric": "judge_tone_first", "category": "", "value": 0.8, "ci_low": 0.7, "ci_high": 0.9}
    sentences = notes(spec, 3, found, {"d": "no text"}, [bias])
    assert sentences == [
        "judge tone (big): unvalidated, no speaker has labeled these responses",
        "judge tone: the rubric mine.en is not reviewed by a speaker",
        "judge tone: no verdict found on 1 of 3 items, which have no value",
        "judge tone: no output on 1 of 3 items, which have no value",
        "judge tone: 1 item not judged: no text",
        "judge tone: position bias: prefers the response that is shown first (80 %); the value is the mean of both orders",
    ]
    validated = judgment(PAIR, labeled=True, reviewed=True)
    assert notes(validated, 1, {"a": generated(validated, "A", "B")}, {}, [bias | {"ci_low": 0.4}]) == []


INVALID = {
    "no response": ({"template": "{prompt} {scale}"}, "template: expected {response} and {scale} once"),
    "three responses": ({"template": "{first} {second} {response} {scale}"}, "template: expected {first} and {second}"),
    "no scale": ({"template": "{response}"}, "template: expected {response} and {scale} once"),
    "points of a pair": ({"template": "{first} {second} {scale}", "scale": {"a": 5, "b": 1}}, "from 0 to 1"),
    "expression": ({"parser": "(["}, "not a regular expression"),
    "no group": ({"parser": "\\d"}, "expected one group in the regular expression, got 0"),
    "one verdict": ({"scale": {"a": 1}}, "scale"),
    "text as value": ({"scale": {"a": "x", "b": 1}}, "scale.a"),
    "unknown key": ({"scala": {}}, "scala"),
    "reviewed by nobody": ({"reviewed": True}, "expected the reviewer's name and the date, or false"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_rubric_is_one_message_that_names_file_and_key(tmp_path, name):
    changes, expected = INVALID[name]
    content = {"template": "{response} {scale}", "scale": {"a": 1, "b": 0}} | changes
    (tmp_path / "gl.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=re.escape(expected)) as raised:
        load_rubric(tmp_path, "gl")
    assert "gl.yaml" in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 2


def test_language_without_a_rubric_is_named_with_those_that_have_one(tmp_path):
    with pytest.raises(ConfigError, match=r'no rubric in "ka" \(available: ca, en, es, gl, pt, sr\)'):
        load_rubric(RUBRICS_DIR / "correctness", "ka")
    assert load_rubric(RUBRICS_DIR / "correctness", "pt-BR") == load_rubric(RUBRICS_DIR / "correctness", "pt")
