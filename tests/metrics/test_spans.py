import math

import pytest
from support.scoring import ask, item, score
from vernacular.metrics.spans import by_item
from vernacular.protocols.options.metrics import per_item

QUESTION = item(question="?", choices=["ún", "dous tres"], gold=[0])


def spans(logprobs=(-1.0, -2.0), **changed):
    request = ask([item(context="Fun á", target="estación")], "continuation", "last_word")[0]
    return by_item([request], [score(request, list(logprobs), **changed)])["i1"]["word"]


def test_sums_tokens_characters_and_bytes():
    word = spans()
    assert word.text == "estación"  # the leading blank is scored but not counted
    assert word.loglik == -3.0
    assert word.per("token") == -1.5
    assert word.per("char") == -3 / 8
    assert word.per("byte") == -3 / 9  # ó is two bytes


@pytest.mark.parametrize(
    ("changed", "flag"),
    [
        ({"flags": "error: out of memory"}, "error: out of memory"),
        ({"flags": "empty"}, "error: empty"),
        ({"flags": "boundary; empty"}, "boundary; error: empty"),
        ({"flags": "boundary; error: out of memory"}, "boundary; error: out of memory"),
        ({"flags": "boundary", "logprobs": []}, "boundary; error: no token was scored"),
        ({"flags": "boundary", "logprobs": [math.inf]}, "boundary; error: log-probability is not a number"),
        ({"logprobs": []}, "error: no token was scored"),
        ({"logprobs": None}, "error: no token was scored"),
        ({"logprobs": [None]}, "error: no token was scored"),
        ({"logprobs": [-1.0, math.nan]}, "error: log-probability is not a number"),
    ],
)
def test_what_could_not_be_scored_is_flagged_and_never_zero(changed, flag):
    request = ask([item(context="Fun á", target="praia")], "continuation", "last_word")[0]
    span = by_item([request], [score(request, [-1.0]) | changed])["i1"]["word"]
    assert (span.loglik, span.flag, span.per("token")) == (None, flag, None)


def test_a_first_token_without_context_is_left_out_of_sum_and_length():
    request = ask([item(context="Ola mundo")], "sentence", "acceptability")[0]
    span = by_item([request], [score(request, [None, -2.0])])["i1"]["sentence"]
    assert (span.loglik, span.per("token")) == (-2.0, -2.0)


def test_a_flag_that_is_no_error_keeps_the_number():
    for flag in ("boundary; truncated: 2 few-shot examples dropped", "truncated: an empty error dropped"):
        assert (spans(flags=flag).loglik, spans(flags=flag).flag) == (-3.0, flag)
    assert spans(logprobs=[-math.inf], flags="boundary").flag == "boundary; infinite surprisal"


def test_a_missing_score_is_an_error_of_its_item_alone():
    items = [QUESTION, QUESTION | {"item_id": "i2"}]
    requests = ask(items, "question", "options")
    scores = [score(r, -1.0) for r in requests if (r["item_id"], r["role"]) != ("i1", "choice:1")]
    rows = {row["item_id"]: row for row in per_item(items, requests, scores)}
    assert rows["i1"]["flags"] == "error: not scored"
    assert (rows["i1"]["metrics"], rows["i1"]["correct"], rows["i1"]["option_scores"]) == ({}, None, None)
    assert (rows["i2"]["flags"], rows["i2"]["correct"]) == (None, False)  # equal scores: a tie


def test_items_that_could_not_be_asked_keep_a_row_and_held_out_ones_have_none():
    items = [item(question="?", choices=["only"]), QUESTION | {"item_id": "i2"}, QUESTION | {"item_id": "held out"}]
    requests = [r for r in ask(items, "question", "options") if r["item_id"] != "held out"]
    rows = per_item(items, requests, [score(r, -1.0) for r in requests])
    assert [row["item_id"] for row in rows] == ["i1", "i2"]
    assert rows[0]["flags"] == "error: fewer than two options"
