import math

import pytest
from support.scoring import build_requests, item, results_of, score
from vernacular.metrics.spans import by_item

QUESTION = item(question="?", choices=["ún", "dous tres"], gold=[0])


def spans(logprobs=(-1.0, -2.0), **score_fields):
    request = build_requests([item(context="Fun á", target="estación")], "continuation", "last_word")[0]
    return by_item([request], [score(request, list(logprobs), **score_fields)])["i1"]["word"]


def test_loglik_normalized_by_tokens_characters_and_bytes():
    word = spans()
    assert word.text == "estación"  # the leading space is scored, but excluded from the length
    assert word.loglik == -3.0
    assert word.normalized_loglik("token") == -1.5
    assert word.normalized_loglik("char") == -3 / 8
    assert word.normalized_loglik("byte") == -3 / 9  # ó is two bytes


@pytest.mark.parametrize(
    ("score_fields", "flag"),
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
def test_unscored_span_is_flagged_without_loglik(score_fields, flag):
    request = build_requests([item(context="Fun á", target="praia")], "continuation", "last_word")[0]
    span = by_item([request], [score(request, [-1.0]) | score_fields])["i1"]["word"]
    assert (span.loglik, span.flag, span.normalized_loglik("token")) == (None, flag, None)


def test_unscored_first_token_is_excluded_from_sum_and_length():
    request = build_requests([item(context="Ola mundo")], "sentence", "acceptability")[0]
    span = by_item([request], [score(request, [None, -2.0])])["i1"]["sentence"]
    assert (span.loglik, span.normalized_loglik("token")) == (-2.0, -2.0)


def test_flag_without_error_keeps_loglik():
    for flag in ("boundary; truncated: 2 few-shot examples dropped", "truncated: an empty error dropped"):
        assert (spans(flags=flag).loglik, spans(flags=flag).flag) == (-3.0, flag)
    assert spans(logprobs=[-math.inf], flags="boundary").flag == "boundary; infinite surprisal"


def test_missing_score_affects_its_item_only():
    items = [QUESTION, QUESTION | {"item_id": "i2"}]
    requests = build_requests(items, "question", "options")
    scores = [
        score(request, -1.0) for request in requests if (request["item_id"], request["role"]) != ("i1", "choice:1")
    ]
    rows = {row["item_id"]: row for row in results_of("options", items, requests, scores)}
    assert rows["i1"]["flags"] == "error: not scored"
    assert (rows["i1"]["metrics"], rows["i1"]["correct"], rows["i1"]["option_scores"]) == ({}, None, None)
    assert (rows["i2"]["flags"], rows["i2"]["correct"]) == (None, False)  # equal scores: a tie


def test_skipped_items_have_rows_but_held_out_items_have_none():
    items = [item(question="?", choices=["only"]), QUESTION | {"item_id": "i2"}, QUESTION | {"item_id": "held out"}]
    requests = build_requests(items, "question", "options")
    requests = [request for request in requests if request["item_id"] != "held out"]
    rows = results_of("options", items, requests, [score(request, -1.0) for request in requests])
    assert [row["item_id"] for row in rows] == ["i1", "i2"]
    assert rows[0]["flags"] == "error: fewer than two options"


@pytest.mark.parametrize(
    ("tokens", "logprobs", "flag"),
    [
        (["▁o", "kọ"], [-1.0, -1.0], "options of equal tokens: choice:0 and choice:1"),
        (["<unk>"], [-1.0, -1.0], "options of equal tokens: choice:0 and choice:1"),
        (["▁oko"], [-1.0, -2.0], None),  # after other contexts, or of a server that names tokens in another way
    ],
)
def test_different_options_of_equal_tokens_are_flagged(tokens, logprobs, flag):
    """As after a normalization that drops the tone marks of Yoruba."""
    yoruba = item(question="?", choices=["ọkọ̀", "ọkọ́"], gold=[0])
    requests = build_requests([yoruba], "question", "options")
    values = {f"choice:{n}": value for n, value in enumerate(logprobs)}
    scores = [score(each, values.get(each["role"], -3.0 - n), tokens=tokens) for n, each in enumerate(requests)]
    [row] = results_of("options", [yoruba], requests, scores)
    assert row["flags"] == flag
