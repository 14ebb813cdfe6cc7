import math

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef, roc_auc_score
from support.scoring import build_requests, item, results_of, score_rows
from vernacular.metrics import corpus
from vernacular.protocols.acceptability.metrics import METRICS


def rows_of(sentences):
    items = [item(f"s{i}", context=text, extra=[("label", label)]) for i, (text, label, _) in enumerate(sentences)]
    requests = build_requests(items, "sentence", "acceptability")
    scores = [
        score_rows([request], {"sentence": logprobs})[0]
        for request, (_, _, logprobs) in zip(requests, sentences, strict=True)
    ]
    return results_of("acceptability", items, requests, scores)


def test_surprisal_per_token_character_and_byte():
    values = rows_of([("É así.", "1", [-3.0, -1.0])])[0]["metrics"]
    assert values["surprisal"] == 4.0
    assert values["surprisal_token"] == 2.0
    assert values["surprisal_char"] == pytest.approx(4 / 6)
    assert values["surprisal_byte"] == pytest.approx(4 / 8)
    assert values["label"] == 1


def test_unknown_label_sets_flag_and_keeps_surprisal():
    row = rows_of([("Hm.", "-1", -2.0)])[0]
    assert row["flags"] == "error: label '-1' is neither 0 nor 1"
    assert row["metrics"]["surprisal"] == 2.0
    assert "label" not in row["metrics"]


def test_unscored_sentence_has_label_only():
    row = rows_of([("Hm.", "1", [])])[0]
    assert (row["flags"], row["metrics"].keys()) == ("error: no token was scored", {"fold", "label"})


def test_difsur_of_corpus_means():
    surprisal, label = np.array([8.0, 12.0, 20.0, 30.0]), np.array([1, 1, 0, 0])
    assert corpus.good_mean(surprisal, label) == 10.0
    assert corpus.bad_mean(surprisal, label) == 25.0
    assert corpus.difsur_of_labels(surprisal, label) == 60.0  # 100 (25 - 10) / 25
    assert corpus.difsur_of_labels(surprisal, 1 - label) == -60.0  # negative values are valid


def test_corpus_metrics_of_single_label_are_nan():
    surprisal, label = np.array([1.0, 2.0]), np.array([1, 1])
    assert np.isnan(corpus.difsur_of_labels(surprisal, label))
    assert np.isnan(corpus.auc(surprisal, label))


def test_vectorized_auc_matches_scikit_learn():
    rng = np.random.default_rng(0)
    surprisal = rng.integers(0, 9, (5, 60)).astype(float)
    label = rng.integers(0, 2, (5, 60))
    expected = [roc_auc_score(y, -s) for y, s in zip(label, surprisal, strict=True)]
    np.testing.assert_allclose(corpus.auc(surprisal, label), expected)


def test_matthews_matches_scikit_learn():
    rng = np.random.default_rng(1)
    truth, predicted = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    counts = [(predicted & truth).sum(), (predicted & ~truth & 1).sum(), ((1 - predicted) & truth).sum(), 0]
    counts[3] = 50 - sum(counts)
    assert corpus.matthews(*counts) == pytest.approx(matthews_corrcoef(truth, predicted))


def reference_matthews(predicted, truth):
    tp, fp, fn, tn = (
        sum(p == predicted_value and y == true_value for p, y in zip(predicted, truth, strict=True))
        for predicted_value, true_value in ((True, True), (True, False), (False, True), (False, False))
    )
    denominator = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / denominator**0.5 if denominator else 0.0


def reference_mcc(surprisal, label, fold):
    """Reference implementation: try every threshold on the other folds."""
    surprisal, good, fold = surprisal.tolist(), (label == 1).tolist(), fold.tolist()
    predicted = [False] * len(good)
    for k in set(fold):
        train = [i for i in range(len(fold)) if fold[i] != k]
        values = sorted({surprisal[i] for i in train})
        scores = [reference_matthews([surprisal[i] <= v for i in train], [good[i] for i in train]) for v in values]
        best = max(range(len(values)), key=lambda j: (round(scores[j], 12), -j))
        above = values[best + 1] if best + 1 < len(values) else values[best]
        for i in range(len(fold)):
            if fold[i] == k:
                finite = above == math.inf > values[best]
                predicted[i] = surprisal[i] < math.inf if finite else surprisal[i] <= (values[best] + above) / 2
    return reference_matthews(predicted, good)


def test_cross_validated_mcc_with_ties_and_infinite_surprisals_matches_reference():
    rng = np.random.default_rng(0)
    for n in rng.integers(3, 15, 300):
        surprisal = rng.choice([0.5, 1.0, 1.5, 2.0, math.inf], n)
        label, fold = rng.integers(0, 2, n), np.r_[0.0, 1.0, rng.integers(0, 4, n - 2)]
        assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(
            reference_mcc(surprisal, label, fold)
        )


@pytest.mark.parametrize("seed", range(5))
def test_cross_validated_mcc_matches_reference(seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, 80)
    surprisal = np.round(rng.normal(20 - 4 * label, 4), 1)
    fold = rng.integers(0, corpus.FOLDS, 80).astype(float)
    assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(reference_mcc(surprisal, label, fold))


@pytest.mark.parametrize("seed", range(6))
def test_threshold_is_selected_on_other_folds(seed):
    """No threshold separates the sentences, so the best one is at chance level; it must still be from the other folds."""
    rng = np.random.default_rng(seed)
    surprisal, fold = np.arange(9.0), np.r_[0.0, 1.0, rng.integers(0, 3, 7)]
    label = (surprisal > rng.integers(1, 8)).astype(int)  # the more surprising the more acceptable
    assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(reference_mcc(surprisal, label, fold))


def test_mcc_of_several_rows_equals_that_of_each_row(low_limits):
    rng = np.random.default_rng(0)
    surprisal = rng.choice([0.5, 1.0, 1.5, 2.0, math.inf], (9, 3, 12))
    label, fold = rng.integers(0, 2, (9, 3, 12)), rng.integers(0, 3, (9, 3, 12)).astype(float)
    expected = [[corpus.mcc_cross_validated(*row) for row in zip(*rows, strict=True)]
                for rows in zip(surprisal, label, fold, strict=True)]  # fmt: skip
    for cells in (1, 10_000):  # in chunks of one row, and of several
        low_limits("metrics.corpus", CELLS=cells)
        assert np.array_equal(corpus.mcc_cross_validated(surprisal, label, fold), expected)


def test_lowest_of_thresholds_equal_up_to_rounding_is_selected():
    label = np.array([1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1])
    surprisal, fold = np.arange(12.0), np.isin(np.arange(12), [0, 9]).astype(float)
    expected = reference_mcc(surprisal, label, fold)
    assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(expected)
    assert expected == pytest.approx(-1 / 70**0.5)


def test_infinite_surprisal_exceeds_all_thresholds():
    surprisal, fold = np.array([1.0, 2.0, 3.0, math.inf, math.inf, math.inf]), np.arange(6.0) % 3
    assert corpus.mcc_cross_validated(surprisal, np.array([1, 1, 1, 0, 0, 0]), fold) == 1.0


def test_mcc_of_single_fold_is_nan():
    assert np.isnan(corpus.mcc_cross_validated(np.array([1.0, 2.0]), np.array([1, 0]), np.array([3.0, 3.0])))
    assert np.isnan(corpus.mcc_cross_validated(np.array([1.0]), np.array([1]), np.array([3.0])))


def test_mcc_of_separable_sentences_is_one():
    surprisal, label = np.r_[np.arange(20.0), np.arange(100.0, 120.0)], np.r_[np.ones(20), np.zeros(20)]
    assert corpus.mcc_cross_validated(surprisal, label, np.arange(40.0) % corpus.FOLDS) == 1.0


def test_fold_is_independent_of_other_sentences():
    together = rows_of([("A.", "1", -1.0), ("B.", "0", -2.0)])
    assert rows_of([("A.", "1", -1.0)])[0]["metrics"] == together[0]["metrics"]


def test_metrics_exist_for_all_normalizations():
    names = {metric.name for metric in METRICS}
    assert {f"{m}{s}" for m in ("difsur", "auc", "mcc") for s in ("", "_token", "_char", "_byte")} <= names
