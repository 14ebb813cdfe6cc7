"""lm-eval's exact_match: character by character, except for what the task file ignores."""

import json

import pytest
from support.scoring import item
from vernacular.protocols.verbatim.metrics import match_values


def verbatim_match(raw_output, targets, *, until=("\n",), filters=(), **exact):
    settings = {"until": list(until), "filters": list(filters), "exact": exact}
    extra = {"settings": json.dumps(settings), "targets": json.dumps(targets)}
    return match_values(item(extra=extra), raw_output).get("verbatim_match")


@pytest.mark.parametrize(
    ("raw_output", "options", "expected"),
    [
        ("42\nQ:", {}, 1.0),
        (" 42", {}, 0.0),  # surrounding whitespace counts, as in lm-eval
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
def test_exact_match_of_text_before_the_stop_string(raw_output, options, expected):
    assert verbatim_match(raw_output, ["42"], **options) == expected


def test_case_is_ignored_only_with_ignore_case():
    assert verbatim_match("A CORUÑA", ["A Coruña"]) == 0.0
    assert verbatim_match("A CORUÑA", ["A Coruña"], ignore_case=True) == 1.0
    assert verbatim_match("A CORUNA", ["A Coruña"], ignore_case=True) == 0.0
    # the Greek sigma has two lower-case letters and one upper-case letter
    assert verbatim_match("ΣΑΣ", ["ΣΑσ"], ignore_case=True) == 0.0


def test_any_target_may_match():
    assert verbatim_match("dous", ["2", "dous"]) == 1.0


def test_missing_generation_or_settings_yield_no_value():
    assert verbatim_match(None, ["2"]) is None
    assert match_values(item(target="2"), "2") == {}
    assert match_values(item(extra={"settings": '{"until": [], "filters": [], "exact": {}}'}), "2") == {}
    assert match_values(item(extra={"targets": '["2"]'}), "2") == {}
