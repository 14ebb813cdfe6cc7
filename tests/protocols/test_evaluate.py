"""Metric rows of an evaluation: metadata columns, categories and signatures."""

import pytest
from support.scoring import build_requests, item, metric_rows, score_rows
from vernacular import __version__
from vernacular.protocols.evaluate import evaluate, signature

METADATA = {"task": "t", "protocol": "generation", "shots": 5, "seed": 3, "style": "default"}


@pytest.mark.usefixtures("few_resamples")
def test_metric_rows_contain_metadata_and_values_by_category():
    items = [item(f"i{n}", question="?", choices=["a", "b"], gold=[0], category=c) for n, c in enumerate("xxy")]
    requests = build_requests(items, "question", "options")
    rows, metrics = evaluate("options", items, requests, score_rows(requests, {"choice:0": -1.0}), [])
    table = metric_rows(rows, metrics, METADATA, {})
    row = table[0]
    assert (row["task"], row["category"], row["metric"], row["value"], row["n"]) == (
        "t",
        "",
        "accuracy",
        1,
        3,
    )
    assert row["signature"] == f"accuracy|protocol:generation|shots:5|seed:3|style:default|v:{__version__}"
    assert [(row["category"], row["n"]) for row in table if row["metric"] == "accuracy"] == [
        ("", 3),
        ("x", 2),
        ("y", 1),
    ]


@pytest.mark.usefixtures("few_resamples")
def test_intervals_are_reproducible():
    items = [item(f"i{n}", question="?", choices=["a", "b"], gold=[0]) for n in range(8)]
    requests = build_requests(items, "question", "options")
    scores = [score_rows([request], {"choice:0": -1.0 - int(request["item_id"][1:])})[0] for request in requests]
    rows, metrics = evaluate("options", items, requests, scores, [])
    assert metric_rows(rows, metrics, METADATA, {}) == metric_rows(rows, metrics, METADATA, {})


@pytest.mark.parametrize(
    ("metric", "encoder"),
    [("cosine_accuracy", "|encoder:e5"), ("bertscore_mean", "|encoder:bert"), ("exact_match", ""), ("cosinelike", "")],
)
def test_signature_contains_encoder_of_metric(metric, encoder):
    text = signature(metric, METADATA, {"cosine": "encoder:e5", "bertscore": "encoder:bert"})
    assert text == f"{metric}|protocol:generation|shots:5|seed:3|style:default{encoder}|v:{__version__}"
