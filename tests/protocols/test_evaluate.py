"""The rows of an evaluation's values: its facts, its categories and a signature each."""

import pytest
from support.scoring import ask, item, scored
from vernacular import __version__
from vernacular.protocols.evaluate import evaluate, signature, values

FACTS = {"task": "t", "protocol": "generation", "shots": 5, "seed": 3, "style": "default"}


@pytest.mark.usefixtures("few_resamples")
def test_values_stand_over_all_and_by_category_with_the_facts_and_again_the_same():
    items = [item(f"i{n}", question="?", choices=["a", "b"], gold=[0], category=c) for n, c in enumerate("xxy")]
    requests = ask(items, "question", "options")
    rows, metrics = evaluate("options", items, requests, scored(requests, {"choice:0": -1.0}), [])
    table = values(rows, metrics, FACTS, {})
    first = table[0]
    assert (first["task"], first["category"], first["metric"], first["value"], first["n"]) == (
        "t",
        "",
        "accuracy",
        1,
        3,
    )
    assert first["signature"] == f"accuracy|protocol:generation|shots:5|seed:3|style:default|v:{__version__}"
    assert [(row["category"], row["n"]) for row in table if row["metric"] == "accuracy"] == [
        ("", 3),
        ("x", 2),
        ("y", 1),
    ]


@pytest.mark.usefixtures("few_resamples")
def test_intervals_are_the_same_each_time():
    items = [item(f"i{n}", question="?", choices=["a", "b"], gold=[0]) for n in range(8)]
    requests = ask(items, "question", "options")
    scores = [scored([r], {"choice:0": -1.0 - int(r["item_id"][1:])})[0] for r in requests]
    rows, metrics = evaluate("options", items, requests, scores, [])
    assert values(rows, metrics, FACTS, {}) == values(rows, metrics, FACTS, {})


@pytest.mark.parametrize(
    ("metric", "encoder"),
    [("cosine_accuracy", "|encoder:e5"), ("bertscore_mean", "|encoder:bert"), ("exact_match", ""), ("cosinelike", "")],
)
def test_a_signature_names_the_encoder_of_the_metric(metric, encoder):
    found = signature(metric, FACTS, {"cosine": "encoder:e5", "bertscore": "encoder:bert"})
    assert found == f"{metric}|protocol:generation|shots:5|seed:3|style:default{encoder}|v:{__version__}"
