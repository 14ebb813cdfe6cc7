import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.result_rows import FACTS, compare, row, rows
from support.soak import examples
from vernacular.comparison.align import align, as_table
from vernacular.comparison.pairwise import CLUSTERED, MCNEMAR, PERMUTED
from vernacular.comparison.schema import COMPARISONS
from vernacular.core import artifacts
from vernacular.metrics.corpus import auc
from vernacular.protocols.acceptability import metrics as acceptability
from vernacular.protocols.evaluate import PROTOCOL_METRICS as PROTOCOLS
from vernacular.protocols.options import metrics as options


def only(found, metric="accuracy", category=""):
    return next(row for row in found if row["metric"] == metric and row["category"] == category)


def compared(baseline, candidate, metrics=options.METRICS, **given):
    return compare(baseline, candidate, metrics, FACTS, **{"resamples": 300, **given})


def test_counts_difference_and_test_of_a_small_case():
    # 3 both right, 2 both wrong, candidate alone 4, baseline alone 1
    was = [1, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    now = [1, 1, 1, 0, 0, 1, 1, 1, 1, 0]
    found = only(compared(rows(was), rows(now)))
    assert found["n"] == found["n_baseline"] == found["n_candidate"] == 10
    assert [
        found[name] for name in ("both_correct", "both_incorrect", "candidate_only_correct", "baseline_only_correct")
    ] == [3, 2, 4, 1]
    assert found["net_gain"] == 3
    assert (found["baseline_value"], found["candidate_value"]) == (0.4, 0.7)
    assert found["difference"] == pytest.approx(0.3)
    assert found["test"] == MCNEMAR
    assert found["p_value"] == pytest.approx(2 * 6 / 32 - 5 / 32)  # five coins, at most one; mid-p
    assert found["ci_low"] < 0.3 < found["ci_high"]
    assert found["significant"] is False
    assert found["better"] is None


def test_a_model_against_itself_finds_nothing():
    rng = np.random.default_rng(0)
    for protocol, module in PROTOCOLS.items():
        names = {name for metric in module.METRICS for name in (metric.needs or (metric.name,))}
        same = [
            row(f"i{i}", **{name: float(rng.integers(2)) for name in sorted(names)}, category="ab"[i % 2])
            for i in range(30)
        ]
        found = compare(same, same, module.METRICS, FACTS, resamples=200)
        assert found, protocol
        assert not any(each["significant"] for each in found)
        assert {each["p_value"] for each in found} <= {1.0, None}
        assert 1.0 in {each["p_value"] for each in found}
        assert all(each["difference"] in (0.0, None) for each in found)
        assert all(each["ci_low"] is None and each["minimum_detectable_difference"] is None for each in found)
        assert all(each["note"] for each in found)


def test_an_injected_improvement_is_found():
    rng = np.random.default_rng(1)
    was = rng.random(200) < 0.5
    now = was | (rng.random(200) < 0.25)
    found = only(compared(rows(was), rows(now)))
    assert found["significant"]
    assert found["better"] == "candidate"
    assert found["ci_low"] > 0
    back = only(compared(rows(now), rows(was)))
    assert back["better"] == "baseline"
    assert back["difference"] == -found["difference"]


def test_lower_is_better_turns_the_verdict():
    was = [row(f"i{i}", surprisal_correct=5.0 + i % 3) for i in range(40)]
    now = [row(f"i{i}", surprisal_correct=4.0 + i % 2) for i in range(40)]
    found = only(compared(was, now), "surprisal_correct")
    assert found["difference"] < 0
    assert found["test"] == PERMUTED
    assert found["better"] == "candidate"


def test_items_of_one_side_are_left_out_and_said():
    was = rows([1, 0, 1, 1])
    now = [*rows([1, 1, 1]), row("other", 0)]
    found = only(compared(was, now))
    assert (found["n"], found["n_baseline"], found["n_candidate"]) == (3, 4, 4)
    assert found["baseline_value"] == pytest.approx(2 / 3)
    assert "1 item with a value for the baseline only" in found["note"]
    assert "1 item with a value for the candidate only" in found["note"]


@pytest.mark.parametrize(
    "other",
    [{"prompt": "else?"}, {"choices": ("yes", "maybe")}, {"gold": (1,)}],
)
def test_one_id_with_other_texts_is_not_one_item(other):
    was, now = rows([1, 0, 1, 0, 1]), rows([1, 1, 1, 0, 1])
    now[0] = row("i00", 1, **other)
    found = only(compared(was, now))
    assert found["n"] == 4
    assert "1 item excluded" in found["note"]


def test_a_value_that_is_missing_on_one_side_is_no_zero():
    was, now = rows([1, 0, 1]), rows([1, 0, 1])
    now[1]["metrics"] = {}
    found = only(compared(was, now))
    assert found["n"] == 2
    assert found["candidate_value"] == 1.0


def test_items_that_share_a_passage_are_tested_together():
    was = [row(f"i{i}", i % 3 > 0, cluster=f"p{i // 4}") for i in range(48)]
    now = [row(f"i{i}", True, cluster=f"p{i // 4}") for i in range(48)]
    found = only(compared(was, now))
    assert found["test"] == CLUSTERED
    alone = only(compared([each | {"cluster_id": None} for each in was], [each | {"cluster_id": None} for each in now]))
    assert alone["test"] == MCNEMAR
    assert alone["p_value"] < found["p_value"]


def test_by_category_only_headline_metrics_and_outside_the_family():
    was = [row(f"i{i}", i % 2, category="ab"[i % 2], accuracy_char=1.0) for i in range(20)]
    now = [row(f"i{i}", 1, category="ab"[i % 2], accuracy_char=0.0) for i in range(20)]
    found = compared(was, now)
    assert [(each["category"], each["metric"]) for each in found] == [
        ("", "accuracy"), ("", "accuracy_char"), ("a", "accuracy"), ("b", "accuracy"),
    ]  # fmt: skip
    of_a = only(found, category="a")
    assert (of_a["n"], of_a["candidate_only_correct"], of_a["n_tests"], of_a["p_holm"]) == (10, 10, None, None)
    assert of_a["significant"]
    assert only(found)["n_tests"] == 1
    assert only(found, "accuracy_char")["n_tests"] is None


def test_corpus_statistics_are_subtracted_on_the_same_resamples():
    rng = np.random.default_rng(2)
    label = np.arange(80) % 2
    one, other = rng.normal(size=80) + (label == 0), rng.normal(size=80) + 3 * (label == 0)
    was = [row(f"i{i:02}", surprisal=one[i], label=float(label[i])) for i in range(80)]
    now = [row(f"i{i:02}", surprisal=other[i], label=float(label[i])) for i in range(80)]
    found = only(compared(was, now, acceptability.METRICS), "auc")
    assert found["difference"] == pytest.approx(float(auc(other, label) - auc(one, label)))
    assert found["significant"]
    assert found["ci_low"] < found["difference"] < found["ci_high"]
    assert found["both_correct"] is None


def test_a_failed_side_shows_and_is_not_significant():
    found = compared(rows([1, 0, 1]), [])
    assert [each["metric"] for each in found] == ["accuracy"]
    assert found[0]["n"] == 0
    assert found[0]["significant"] is False
    assert compared([], [])[0]["n"] == 0


def test_the_order_of_rows_carries_no_meaning():
    rng = np.random.default_rng(3)
    was = [row(f"i{i}", rng.random() < 0.5, probability=rng.random(), cluster=f"c{i // 2}") for i in range(40)]
    now = [row(f"i{i}", rng.random() < 0.6, probability=rng.random(), cluster=f"c{i // 2}") for i in range(40)]
    assert compared(was, now) == compared(was[::-1], [now[i] for i in rng.permutation(40)])


def test_rows_fit_the_schema(tmp_path):
    was = [row(f"=i{i}", i % 2, category="🙂", cluster="") for i in range(6)] + [row("nan", accuracy_char=math.nan)]
    found = compared(was, was[:-2])
    artifacts.write(tmp_path / "c.parquet", COMPARISONS, found, {})
    assert artifacts.read(tmp_path / "c.parquet", COMPARISONS).num_rows == len(found)


def test_an_infinite_surprisal_gives_no_difference_and_says_so():
    was = [row(f"i{i}", surprisal_correct=1.0 + i) for i in range(12)]
    now = [row(f"i{i}", surprisal_correct=math.inf if i == 3 else 1.0) for i in range(12)]
    for found in (only(compared(was, now), "surprisal_correct"), only(compared(now, now), "surprisal_correct")):
        assert found["n"] == 12
        assert found["difference"] is found["p_value"] is found["ci_low"] is None
        assert not found["significant"]
        assert "infinite" in found["note"]


def test_a_part_of_a_table_has_its_own_values():
    whole = as_table([row(f"i{i}", probability=i / 10) for i in range(10)])
    _, sides = align({"a": whole.slice(3, 4), "b": whole})
    assert sides["a"].value("probability")[3:7].tolist() == [0.3, 0.4, 0.5, 0.6]
    assert sides["a"].has.tolist() == [False] * 3 + [True] * 4 + [False] * 3


_ANY = st.tuples(
    st.none() | st.booleans(),
    st.none() | st.floats(allow_nan=True, allow_infinity=True, width=32),
    st.none() | st.sampled_from(["", "c", "🙂"]),
)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(_ANY, max_size=8), st.lists(_ANY, max_size=8))
def test_whatever_the_rows_hold_figures_are_sound(was, now):
    sides = [
        [
            row(f"i{i}", right, cluster=cluster, category=cluster, **({} if value is None else {"probability": value}))
            for i, (right, value, cluster) in enumerate(side)
        ]
        for side in (was, now)
    ]
    for found in compare(*sides, options.METRICS, FACTS, resamples=20):
        assert found["p_value"] is None or 0 <= found["p_value"] <= 1
        assert (found["ci_low"] is None) == (found["ci_high"] is None)
        assert found["ci_low"] is None or found["ci_low"] <= found["ci_high"]
        assert found["n"] <= min(found["n_baseline"], found["n_candidate"])
        assert not found["significant"] or found["p_value"] < 0.05
        assert all(not isinstance(value, float) or math.isfinite(value) for value in found.values())
