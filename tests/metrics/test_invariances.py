"""What must change no number: the order of candidates, rows and items, a twin of an item, a constant on all scores."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scoring import ask, item, score
from support.soak import examples
from vernacular.protocols.cloze import metrics as cloze
from vernacular.protocols.letters import metrics as letters
from vernacular.protocols.minimal_pair import metrics as minimal_pair
from vernacular.protocols.options import metrics as options
from vernacular.protocols.target_word import metrics as target_word

PROTOCOLS = {
    "options": (options, "question", {"question": "?"}),
    "letters": (letters, "question", {"question": "?"}),
    "minimal_pair": (minimal_pair, "pair", {"context": "Se chove,"}),
    "cloze": (cloze, "cloze", {"context": "Ana __ bem."}),
    "target_word": (target_word, "target_word", {"context": "Ana [MASK] bem."}),
}
ORDER_OF_OPTIONS = {"gold_position", "chosen_position"}  # these are about the order itself

words = st.lists(st.sampled_from(["a", "bb", "çç", "dd d", "😀"]), min_size=2, max_size=4, unique=True)
eighths = st.integers(-80, -1).map(lambda n: n / 8)  # exact in binary, so that sums are too


@st.composite
def evaluations(draw):
    items = []
    logliks = {}
    for n in range(draw(st.integers(1, 4))):
        choices = draw(words)
        items.append((f"i{n}", choices, draw(st.integers(0, len(choices) - 1))))
        logliks[f"i{n}"] = {choice: draw(st.lists(eighths, min_size=1, max_size=3)) for choice in choices}
    return items, logliks


def results(protocol, evaluation, *, permute=None, shuffle=None, twin=False, constant=0.0):
    module, layout, fields = PROTOCOLS[protocol]
    items, logliks = evaluation
    built = []
    for name, choices, gold in items:
        order = list(range(len(choices)))
        if permute is not None:
            random.Random(permute).shuffle(order)
        shown = [choices[i] for i in order]
        built.append(item(name, choices=shown, gold=[order.index(gold)], **fields))
    if twin:
        built.append(built[0] | {"item_id": "twin"})
    requests = ask(built, layout, protocol)
    texts = {one["item_id"]: one["choices"] for one in built}
    scores = []
    for request in requests:
        name = "i0" if request["item_id"] == "twin" else request["item_id"]
        choice = texts[request["item_id"]][int(request["role"].split(":")[1])]
        values = logliks[name][choice]
        scores.append(score(request, [values[0] + constant, *values[1:]]))
    if shuffle is not None:
        for rows in (built, requests, scores):
            random.Random(shuffle).shuffle(rows)
    return {row["item_id"]: row for row in module.per_item(built, requests, scores)}


def numbers(row):
    """A row without what is told in the order of its options."""
    by_text = sorted(zip(row["choices"], row["option_scores"], strict=True))
    chosen = sorted(row["choices"][i] for i in row["predicted_indices"])
    values = {k: v for k, v in row["metrics"].items() if k not in ORDER_OF_OPTIONS and not k.startswith("loglik_")}
    return by_text, chosen, row["correct"], row["tie"], values


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations(), seed=st.integers(0, 9))
def test_permuting_candidates_changes_no_number(protocol, evaluation, seed):
    before, after = results(protocol, evaluation), results(protocol, evaluation, permute=seed)
    for name in before:
        one, other = numbers(before[name]), numbers(after[name])
        assert one[:4] == other[:4]
        assert one[4] == pytest.approx(other[4])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations(), seed=st.integers(0, 9))
def test_shuffling_rows_changes_nothing(protocol, evaluation, seed):
    assert results(protocol, evaluation) == results(protocol, evaluation, shuffle=seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations())
def test_duplicating_an_item_changes_no_other_number(protocol, evaluation):
    alone, with_twin = results(protocol, evaluation), results(protocol, evaluation, twin=True)
    twin = with_twin.pop("twin")
    assert with_twin == alone
    assert twin | {"item_id": "i0"} == alone["i0"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(30), deadline=None)
@given(evaluation=evaluations(), constant=st.integers(-64, 64).map(lambda n: n / 4))
def test_a_constant_on_all_scores_changes_no_accuracy(protocol, evaluation, constant):
    before, after = results(protocol, evaluation), results(protocol, evaluation, constant=constant)
    for name in before:
        assert (before[name]["correct"], before[name]["tie"], before[name]["predicted_indices"]) == (
            after[name]["correct"],
            after[name]["tie"],
            after[name]["predicted_indices"],
        )
