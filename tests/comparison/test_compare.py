import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.result_rows import EVALUATION, compare, row, rows
from support.soak import examples
from vernacular.comparison.align import align, as_table
from vernacular.comparison.pairwise import MCNEMAR, PERMUTATION, SIGN_FLIP_CLUSTERED
from vernacular.comparison.schema import COMPARISONS
from vernacular.core import artifacts
from vernacular.metrics.corpus import auc
from vernacular.protocols.acceptability import metrics as acceptability
from vernacular.protocols.evaluate import PROTOCOL_METRICS as PROTOCOLS
from vernacular.protocols.last_word import metrics as last_word
from vernacular.protocols.options import metrics as options


def select_row(records, metric="accuracy", category=""):
    return next(row for row in records if row["metric"] == metric and row["category"] == category)


def compare_rows(baseline, candidate, metrics=options.METRICS, **kwargs):
    return compare(baseline, candidate, metrics, EVALUATION, **{"resamples": 300, **kwargs})


def test_counts_difference_and_test_of_a_small_case():
    # 3 both correct, 2 both incorrect, 4 only candidate correct, 1 only baseline correct
    baseline = [1, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    candidate = [1, 1, 1, 0, 0, 1, 1, 1, 1, 0]
    record = select_row(compare_rows(rows(baseline), rows(candidate)))
    assert record["n"] == record["n_baseline"] == record["n_candidate"] == 10
    assert [
        record[name] for name in ("both_correct", "both_incorrect", "candidate_only_correct", "baseline_only_correct")
    ] == [3, 2, 4, 1]
    assert record["net_gain"] == 3
    assert (record["baseline_value"], record["candidate_value"]) == (0.4, 0.7)
    assert record["difference"] == pytest.approx(0.3)
    assert record["test"] == MCNEMAR
    assert record["p_value"] == pytest.approx(2 * 6 / 32 - 5 / 32)  # five coins, at most one; mid-p
    assert record["ci_low"] < 0.3 < record["ci_high"]
    assert record["significant"] is False
    assert record["better"] is None


def test_identical_sides_do_not_differ():
    rng = np.random.default_rng(0)
    for protocol, module in PROTOCOLS.items():
        names = {name for metric in module.METRICS for name in (metric.needs or (metric.name,))}
        model_rows = [
            row(f"i{i}", **{name: float(rng.integers(2)) for name in sorted(names)}, category="ab"[i % 2])
            for i in range(30)
        ]
        records = compare(model_rows, model_rows, module.METRICS, EVALUATION, resamples=200)
        assert records, protocol
        assert not any(record["significant"] for record in records)
        assert {record["p_value"] for record in records} <= {1.0, None}
        assert 1.0 in {record["p_value"] for record in records}
        assert all(record["difference"] in (0.0, None) for record in records)
        assert all(record["ci_low"] is None and record["minimum_detectable_difference"] is None for record in records)
        assert all(record["note"] for record in records)


def test_injected_improvement_is_significant():
    rng = np.random.default_rng(1)
    baseline = rng.random(200) < 0.5
    candidate = baseline | (rng.random(200) < 0.25)
    record = select_row(compare_rows(rows(baseline), rows(candidate)))
    assert record["significant"]
    assert record["better"] == "candidate"
    assert record["ci_low"] > 0
    reverse = select_row(compare_rows(rows(candidate), rows(baseline)))
    assert reverse["better"] == "baseline"
    assert reverse["difference"] == -record["difference"]


def test_better_side_of_lower_is_better_metric():
    baseline = [row(f"i{i}", surprisal=5.0 + i % 3) for i in range(40)]
    candidate = [row(f"i{i}", surprisal=4.0 + i % 2) for i in range(40)]
    record = select_row(compare_rows(baseline, candidate, last_word.METRICS), "surprisal")
    assert record["difference"] < 0
    assert record["test"] == PERMUTATION
    assert record["better"] == "candidate"


def test_items_of_one_side_are_excluded_and_noted():
    baseline = rows([1, 0, 1, 1])
    candidate = [*rows([1, 1, 1]), row("other", 0)]
    record = select_row(compare_rows(baseline, candidate))
    assert (record["n"], record["n_baseline"], record["n_candidate"]) == (3, 4, 4)
    assert record["baseline_value"] == pytest.approx(2 / 3)
    assert "1 item with a value for the baseline only" in record["note"]
    assert "1 item with a value for the candidate only" in record["note"]


@pytest.mark.parametrize(
    "changes",
    [{"prompt": "else?"}, {"choices": ("yes", "maybe")}, {"gold": (1,)}],
)
def test_items_with_same_id_and_different_texts_are_excluded(changes):
    baseline, candidate = rows([1, 0, 1, 0, 1]), rows([1, 1, 1, 0, 1])
    candidate[0] = row("i00", 1, **changes)
    record = select_row(compare_rows(baseline, candidate))
    assert record["n"] == 4
    assert "1 item excluded" in record["note"]


def test_missing_values_are_excluded():
    baseline, candidate = rows([1, 0, 1]), rows([1, 0, 1])
    candidate[1]["metrics"] = {}
    record = select_row(compare_rows(baseline, candidate))
    assert record["n"] == 2
    assert record["candidate_value"] == 1.0


def test_clustered_items_use_the_clustered_test():
    baseline = [row(f"i{i}", i % 3 > 0, cluster=f"p{i // 4}") for i in range(48)]
    candidate = [row(f"i{i}", True, cluster=f"p{i // 4}") for i in range(48)]
    record = select_row(compare_rows(baseline, candidate))
    assert record["test"] == SIGN_FLIP_CLUSTERED
    unclustered = select_row(
        compare_rows(
            [item_row | {"cluster_id": None} for item_row in baseline],
            [item_row | {"cluster_id": None} for item_row in candidate],
        )
    )
    assert unclustered["test"] == MCNEMAR
    assert unclustered["p_value"] < record["p_value"]


def test_category_rows_are_headline_only_and_outside_the_family():
    baseline = [row(f"i{i}", i % 2, category="ab"[i % 2], accuracy_char=1.0) for i in range(20)]
    candidate = [row(f"i{i}", 1, category="ab"[i % 2], accuracy_char=0.0) for i in range(20)]
    records = compare_rows(baseline, candidate)
    assert [(record["category"], record["metric"]) for record in records] == [
        ("", "accuracy"), ("", "accuracy_char"), ("a", "accuracy"), ("b", "accuracy"),
    ]  # fmt: skip
    category_record = select_row(records, category="a")
    assert (
        category_record["n"],
        category_record["candidate_only_correct"],
        category_record["n_tests"],
        category_record["p_holm"],
    ) == (10, 10, None, None)
    assert category_record["p_value"] < 0.01
    assert category_record["significant"] is category_record["better"] is None
    assert select_row(records)["n_tests"] == 1
    assert select_row(records, "accuracy_char")["n_tests"] is None


def test_corpus_statistic_difference():
    rng = np.random.default_rng(2)
    label = np.arange(80) % 2
    baseline_values, candidate_values = rng.normal(size=80) + (label == 0), rng.normal(size=80) + 3 * (label == 0)
    baseline = [row(f"i{i:02}", surprisal=baseline_values[i], label=float(label[i])) for i in range(80)]
    candidate = [row(f"i{i:02}", surprisal=candidate_values[i], label=float(label[i])) for i in range(80)]
    record = select_row(compare_rows(baseline, candidate, acceptability.METRICS), "auc")
    assert record["difference"] == pytest.approx(float(auc(candidate_values, label) - auc(baseline_values, label)))
    assert record["significant"]
    assert record["ci_low"] < record["difference"] < record["ci_high"]
    assert record["both_correct"] is None


def test_few_sentences_of_a_label_leave_the_interval_of_a_difference():
    rng = np.random.default_rng(2)
    labels = [float(i < 14) for i in range(16)]
    sides = [
        [row(f"i{i:02}", surprisal=rng.normal() - shift * label, label=label) for i, label in enumerate(labels)]
        for shift in (0, 2)
    ]
    record = select_row(compare_rows(*sides, acceptability.METRICS), "auc")
    assert record["ci_low"] < record["difference"] < record["ci_high"]
    assert record["p_value"] > 0
    assert record["minimum_detectable_difference"] > 0


def test_empty_side_gives_rows_with_n_0():
    records = compare_rows(rows([1, 0, 1]), [])
    assert [record["metric"] for record in records] == ["accuracy"]
    assert records[0]["n"] == 0
    assert records[0]["significant"] is None
    assert compare_rows([], [])[0]["n"] == 0


def test_result_does_not_depend_on_row_order():
    rng = np.random.default_rng(3)
    baseline = [row(f"i{i}", rng.random() < 0.5, probability=rng.random(), cluster=f"c{i // 2}") for i in range(40)]
    candidate = [row(f"i{i}", rng.random() < 0.6, probability=rng.random(), cluster=f"c{i // 2}") for i in range(40)]
    assert compare_rows(baseline, candidate) == compare_rows(
        baseline[::-1], [candidate[i] for i in rng.permutation(40)]
    )


def test_rows_match_the_schema(tmp_path):
    baseline = [row(f"=i{i}", i % 2, category="🙂", cluster="") for i in range(6)] + [
        row("nan", accuracy_char=math.nan)
    ]
    records = compare_rows(baseline, baseline[:-2])
    artifacts.write(tmp_path / "c.parquet", COMPARISONS, records, {})
    assert artifacts.read(tmp_path / "c.parquet", COMPARISONS).num_rows == len(records)


def test_infinite_value_gives_no_difference_and_a_note():
    baseline = [row(f"i{i}", surprisal_correct=1.0 + i) for i in range(12)]
    candidate = [row(f"i{i}", surprisal_correct=math.inf if i == 3 else 1.0) for i in range(12)]
    for record in (
        select_row(compare_rows(baseline, candidate), "surprisal_correct"),
        select_row(compare_rows(candidate, candidate), "surprisal_correct"),
    ):
        assert record["n"] == 12
        assert record["difference"] is record["p_value"] is record["ci_low"] is None
        assert not record["significant"]
        assert "infinite" in record["note"]


def test_sliced_table_is_aligned_by_its_own_values():
    table = as_table([row(f"i{i}", probability=i / 10) for i in range(10)])
    _, sides = align({"a": table.slice(3, 4), "b": table})
    assert sides["a"].value("probability")[3:7].tolist() == [0.3, 0.4, 0.5, 0.6]
    assert sides["a"].present.tolist() == [False] * 3 + [True] * 4 + [False] * 3


_ROW_VALUES = st.tuples(
    st.none() | st.booleans(),
    st.none() | st.floats(allow_nan=True, allow_infinity=True, width=32),
    st.none() | st.sampled_from(["", "c", "🙂"]),
)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(_ROW_VALUES, max_size=8), st.lists(_ROW_VALUES, max_size=8))
def test_comparison_invariants_for_arbitrary_rows(baseline, candidate):
    sides = [
        [
            row(
                f"i{i}", correct, cluster=cluster, category=cluster, **({} if value is None else {"probability": value})
            )
            for i, (correct, value, cluster) in enumerate(side)
        ]
        for side in (baseline, candidate)
    ]
    for record in compare(*sides, options.METRICS, EVALUATION, resamples=20):
        assert record["p_value"] is None or 0 <= record["p_value"] <= 1
        assert (record["ci_low"] is None) == (record["ci_high"] is None)
        assert record["ci_low"] is None or record["ci_low"] <= record["ci_high"]
        assert record["n"] <= min(record["n_baseline"], record["n_candidate"])
        assert not record["significant"] or record["p_value"] < 0.05
        assert all(not isinstance(value, float) or math.isfinite(value) for value in record.values())
