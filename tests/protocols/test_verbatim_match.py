"""lm-eval's exact_match: letter by letter, but for what its task's file says to ignore."""

import json

import pytest
from support.scoring import item
from vernacular.protocols.verbatim.metrics import values


def matched(raw, targets, *, until=("\n",), filters=(), **exact):
    ask = {"until": list(until), "filters": list(filters), "exact": exact}
    extra = {"ask": json.dumps(ask), "targets": json.dumps(targets)}
    return values(item(extra=extra), raw).get("verbatim_match")


@pytest.mark.parametrize(
    ("raw", "options", "right"),
    [
        ("42\nQ:", {}, 1.0),
        (" 42", {}, 0.0),  # outer blanks count, as they do there
        (" 42", {"filters": ["remove_whitespace"]}, 1.0),
        ("42.", {}, 0.0),
        ("42.", {"ignore_punctuation": True}, 1.0),
        ("43.", {"ignore_punctuation": True}, 0.0),
        ("$4,2", {"regexes_to_ignore": [r"\$", ","]}, 1.0),
        ("$4,3", {"regexes_to_ignore": [r"\$", ","]}, 0.0),
        ("47", {"ignore_numbers": True}, 1.0),
        ("47 a", {"ignore_numbers": True}, 0.0),
        ("42 STOP", {"until": [" STOP"]}, 1.0),
    ],
)
def test_the_answer_is_compared_before_the_stop_string_and_to_the_letter(raw, options, right):
    assert matched(raw, ["42"], **options) == right


def test_case_is_ignored_only_where_the_file_says_so():
    assert matched("A CORUÑA", ["A Coruña"]) == 0.0
    assert matched("A CORUÑA", ["A Coruña"], ignore_case=True) == 1.0
    assert matched("A CORUNA", ["A Coruña"], ignore_case=True) == 0.0
    # lower case has two letters for the Greek S, and upper case one
    assert matched("ΣΑΣ", ["ΣΑσ"], ignore_case=True) == 0.0


def test_any_of_several_right_answers_will_do():
    assert matched("dous", ["2", "dous"]) == 1.0


def test_a_failed_generation_and_an_item_without_their_wording_have_no_value():
    assert matched(None, ["2"]) is None
    assert values(item(target="2"), "2") == {}
    assert values(item(extra={"ask": '{"until": [], "filters": [], "exact": {}}'}), "2") == {}
    assert values(item(extra={"targets": '["2"]'}), "2") == {}
