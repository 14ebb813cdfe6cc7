"""Invariance of results to the order of choices, rows and items, a duplicate item, and a constant added to all scores."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scoring import build_requests, item, results_of, score
from support.soak import examples

PROTOCOLS = {
    "options": ("question", {"question": "?"}),
    "letters": ("question", {"question": "?"}),
    "minimal_pair": ("pair", {"context": "Se chove,"}),
    "cloze": ("cloze", {"context": "Ana __ bem."}),
    "target_word": ("target_word", {"context": "Ana [MASK] bem."}),
}
ORDER_DEPENDENT = {"gold_position", "chosen_position"}  # depend on the order of the options

words = st.lists(st.sampled_from(["a", "bb", "çç", "dd d", "😀"]), min_size=2, max_size=4, unique=True)
eighths = st.integers(-80, -1).map(lambda n: n / 8)  # exact in binary, as are their sums


@st.composite
def evaluations(draw):
    items = []
    logliks = {}
    for n in range(draw(st.integers(1, 4))):
        choices = draw(words)
        items.append((f"i{n}", choices, draw(st.integers(0, len(choices) - 1))))
        logliks[f"i{n}"] = {choice: draw(st.lists(eighths, min_size=1, max_size=3)) for choice in choices}
    return items, logliks


def results(protocol, evaluation, *, permute=None, shuffle=None, duplicate=False, constant=0.0):
    item_type, fields = PROTOCOLS[protocol]
    items, logliks = evaluation
    item_rows = []
    for name, choices, gold in items:
        order = list(range(len(choices)))
        if permute is not None:
            random.Random(permute).shuffle(order)
        permuted = [choices[i] for i in order]
        item_rows.append(item(name, choices=permuted, gold=[order.index(gold)], **fields))
    if duplicate:
        item_rows.append(item_rows[0] | {"item_id": "twin"})
    requests = build_requests(item_rows, item_type, protocol)
    texts = {row["item_id"]: row["choices"] for row in item_rows}
    scores = []
    for request in requests:
        name = "i0" if request["item_id"] == "twin" else request["item_id"]
        choice = texts[request["item_id"]][int(request["role"].split(":")[1])]
        values = logliks[name][choice]
        scores.append(score(request, [values[0] + constant, *values[1:]]))
    if shuffle is not None:
        for rows in (item_rows, requests, scores):
            random.Random(shuffle).shuffle(rows)
    return {row["item_id"]: row for row in results_of(protocol, item_rows, requests, scores)}


def order_independent_values(row):
    """Return the values of a row that are independent of the order of its options."""
    scores_by_text = sorted(zip(row["choices"], row["option_scores"], strict=True))
    chosen = sorted(row["choices"][i] for i in row["predicted_indices"])
    values = {
        name: value
        for name, value in row["metrics"].items()
        if name not in ORDER_DEPENDENT and not name.startswith("loglik_")
    }
    return scores_by_text, chosen, row["correct"], row["tie"], values


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations(), seed=st.integers(0, 9))
def test_permuting_choices_does_not_change_values(protocol, evaluation, seed):
    original, permuted = results(protocol, evaluation), results(protocol, evaluation, permute=seed)
    for name in original:
        expected, actual = order_independent_values(original[name]), order_independent_values(permuted[name])
        assert actual[:4] == expected[:4]
        assert actual[4] == pytest.approx(expected[4])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations(), seed=st.integers(0, 9))
def test_shuffling_rows_does_not_change_results(protocol, evaluation, seed):
    assert results(protocol, evaluation) == results(protocol, evaluation, shuffle=seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations())
def test_duplicate_item_does_not_change_other_items(protocol, evaluation):
    original, with_duplicate = results(protocol, evaluation), results(protocol, evaluation, duplicate=True)
    duplicate = with_duplicate.pop("twin")
    assert with_duplicate == original
    assert duplicate | {"item_id": "i0"} == original["i0"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations(), constant=st.integers(-64, 64).map(lambda n: n / 4))
def test_constant_added_to_scores_does_not_change_choices(protocol, evaluation, constant):
    original, shifted = results(protocol, evaluation), results(protocol, evaluation, constant=constant)
    for name in original:
        assert (original[name]["correct"], original[name]["tie"], original[name]["predicted_indices"]) == (
            shifted[name]["correct"],
            shifted[name]["tie"],
            shifted[name]["predicted_indices"],
        )
