import pytest
from support.scoring import build_requests, item, results_of, score_rows
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.cloze.metrics import METRICS

CLOZE = item(context="Ana je kupila __ knjigu.", choices=["novu", "nova", "novom", "novi"], gold=[0])


def row_of(cloze_item, by_role, **options):
    requests = build_requests([cloze_item], "cloze", "cloze", **options)
    return results_of("cloze", [cloze_item], requests, score_rows(requests, by_role))[0]


def test_accuracy_by_sentence_and_by_fill():
    row = row_of(
        CLOZE,
        {"filled:0": [-6.0, -6.0], "filled:1": [-13.0], "fill:0": [-5.0, -1.0], "fill:1": [-5.0]}
        | {f"{role}:{i}": -50.0 for role in ("filled", "fill") for i in (2, 3)},
    )
    values = row["metrics"]
    # filled: sums -12, -13; per token -6, -13. fill: sums -6, -5; per token -3, -5
    assert (values["accuracy"], values["accuracy_token"]) == (1.0, 1.0)
    assert (values["accuracy_fill"], values["accuracy_fill_token"]) == (0.0, 1.0)
    assert "accuracy_unfilled" not in values
    assert row["prediction"] == "novu"


def test_unfilled_score_is_reported_in_addition():
    row = row_of(CLOZE, {"filled:0": -1.0, "unfilled:3": -1.0}, score_unfilled_gap=True)
    assert (row["metrics"]["accuracy"], row["metrics"]["accuracy_unfilled"]) == (1.0, 0.0)


def test_duplicates_of_gold_are_flagged_and_correct():
    duplicates = CLOZE | {"choices": ["voz", "voza", "vozu", "voza"], "gold": [1]}
    row = row_of(duplicates, {"filled:1": -1.0, "filled:3": -1.0})
    assert row["flags"] == "duplicate candidates"
    assert (row["correct"], row["tie"], row["predicted_indices"]) == (True, True, [1, 3])


def test_missing_gold_yields_prediction_without_baseline():
    row = row_of(CLOZE | {"gold": []}, {"filled:1": -1.0})
    ties = {"tie:accuracy_fill": 1.0, "tie:accuracy_fill_token": 1.0}
    assert (row["prediction"], row["correct"], row["metrics"]) == ("nova", None, ties)


def test_position_and_length_baselines():
    items = [
        CLOZE | {"item_id": f"i{n}", "choices": choices, "gold": gold}
        for n, (choices, gold) in enumerate(
            [(["aa", "b"], [0]), (["a", "b"], [0]), (["aaa", "b"], [1]), (["a", "b", "c"], [0, 2])]
        )
    ]
    requests = build_requests(items, "cloze", "cloze")
    rows = results_of("cloze", items, requests, score_rows(requests, {}))
    table = {row["metric"]: row for row in aggregate(rows, METRICS, seed=0, categories=False)}
    assert table["baseline_position"]["value"] == pytest.approx(3 / 4)
    assert table["baseline_shortest"]["value"] == pytest.approx((0 + 0.5 + 1 + 2 / 3) / 4)
    assert table["accuracy"]["chance_level"] == pytest.approx((0.5 + 0.5 + 0.5 + 2 / 3) / 4)
    assert table["accuracy"]["n_ties"] == 4  # all scores are equal: every item is a tie
    assert table["accuracy"]["value"] == 0.0
