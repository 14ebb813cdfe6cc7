import math

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef, roc_auc_score
from support.scoring import ask, item, scored
from vernacular.metrics import corpus
from vernacular.protocols.acceptability.metrics import METRICS, per_item


def rows_of(sentences):
    items = [item(f"s{i}", context=text, extra=[("label", label)]) for i, (text, label, _) in enumerate(sentences)]
    requests = ask(items, "sentence", "acceptability")
    scores = [scored([r], {"sentence": s[2]})[0] for r, s in zip(requests, sentences, strict=True)]
    return per_item(items, requests, scores)


def test_surprisal_per_token_character_and_byte():
    values = rows_of([("É así.", "1", [-3.0, -1.0])])[0]["metrics"]
    assert values["surprisal"] == 4.0
    assert values["surprisal_token"] == 2.0
    assert values["surprisal_char"] == pytest.approx(4 / 6)
    assert values["surprisal_byte"] == pytest.approx(4 / 8)
    assert values["label"] == 1


def test_a_sentence_without_a_label_is_flagged_and_keeps_its_surprisal():
    row = rows_of([("Hm.", "-1", -2.0)])[0]
    assert row["flags"] == "error: label '-1' is neither 0 nor 1"
    assert row["metrics"]["surprisal"] == 2.0
    assert "label" not in row["metrics"]


def test_a_sentence_that_was_not_scored_has_its_label_alone():
    row = rows_of([("Hm.", "1", [])])[0]
    assert (row["flags"], row["metrics"].keys()) == ("error: no token was scored", {"fold", "label"})


def test_difsur_of_corpus_means_by_hand():
    surprisal, label = np.array([8.0, 12.0, 20.0, 30.0]), np.array([1, 1, 0, 0])
    assert corpus.good_mean(surprisal, label) == 10.0
    assert corpus.bad_mean(surprisal, label) == 25.0
    assert corpus.difsur_of_labels(surprisal, label) == 60.0  # 100 (25 - 10) / 25
    assert corpus.difsur_of_labels(surprisal, 1 - label) == -60.0  # a negative value is a value


def test_corpus_numbers_of_one_label_only_are_undefined_and_not_zero():
    surprisal, label = np.array([1.0, 2.0]), np.array([1, 1])
    assert np.isnan(corpus.difsur_of_labels(surprisal, label))
    assert np.isnan(corpus.auc(surprisal, label))


def test_auc_is_scikit_learns_over_resamples_at_once():
    rng = np.random.default_rng(0)
    surprisal = rng.integers(0, 9, (5, 60)).astype(float)
    label = rng.integers(0, 2, (5, 60))
    expected = [roc_auc_score(y, -s) for y, s in zip(label, surprisal, strict=True)]
    np.testing.assert_allclose(corpus.auc(surprisal, label), expected)


def test_matthews_is_scikit_learns():
    rng = np.random.default_rng(1)
    truth, judged = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    counts = [(judged & truth).sum(), (judged & ~truth & 1).sum(), ((1 - judged) & truth).sum(), 0]
    counts[3] = 50 - sum(counts)
    assert corpus.matthews(*counts) == pytest.approx(matthews_corrcoef(truth, judged))


def plain_matthews(judged, truth):
    tp, fp, fn, tn = (
        sum(j == of and y == is_good for j, y in zip(judged, truth, strict=True))
        for of, is_good in ((True, True), (True, False), (False, True), (False, False))
    )
    below = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / below**0.5 if below else 0.0


def slow_mcc(surprisal, label, fold):
    """The definition, written out: every threshold tried on the other folds."""
    surprisal, good, fold = surprisal.tolist(), (label == 1).tolist(), fold.tolist()
    judged = [False] * len(good)
    for each in set(fold):
        rest = [i for i in range(len(fold)) if fold[i] != each]
        values = sorted({surprisal[i] for i in rest})
        found = [plain_matthews([surprisal[i] <= v for i in rest], [good[i] for i in rest]) for v in values]
        at = max(range(len(values)), key=lambda k: (round(found[k], 12), -k))
        above = values[at + 1] if at + 1 < len(values) else values[at]
        for i in range(len(fold)):
            if fold[i] == each:
                finite = above == math.inf > values[at]
                judged[i] = surprisal[i] < math.inf if finite else surprisal[i] <= (values[at] + above) / 2
    return plain_matthews(judged, good)


def test_a_threshold_of_few_sentences_many_of_them_alike_or_infinite_is_its_definition():
    rng = np.random.default_rng(0)
    for n in rng.integers(3, 15, 300):
        surprisal = rng.choice([0.5, 1.0, 1.5, 2.0, math.inf], n)
        label, fold = rng.integers(0, 2, n), np.r_[0.0, 1.0, rng.integers(0, 4, n - 2)]
        assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(slow_mcc(surprisal, label, fold))


@pytest.mark.parametrize("seed", range(5))
def test_cross_validated_mcc_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, 80)
    surprisal = np.round(rng.normal(20 - 4 * label, 4), 1)
    fold = rng.integers(0, corpus.FOLDS, 80).astype(float)
    assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(slow_mcc(surprisal, label, fold))


@pytest.mark.parametrize("seed", range(6))
def test_a_threshold_never_comes_from_the_fold_that_it_judges(seed):
    """A few sentences that no threshold tells apart: the best is no better than chance, and is still one of the rest."""
    rng = np.random.default_rng(seed)
    surprisal, fold = np.arange(9.0), np.r_[0.0, 1.0, rng.integers(0, 3, 7)]
    label = (surprisal > rng.integers(1, 8)).astype(int)  # the more surprising the more acceptable
    assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(slow_mcc(surprisal, label, fold))


def test_of_thresholds_that_are_equal_but_for_rounding_the_lowest_is_taken():
    label = np.array([1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1])
    surprisal, fold = np.arange(12.0), np.isin(np.arange(12), [0, 9]).astype(float)
    expected = slow_mcc(surprisal, label, fold)
    assert corpus.mcc_cross_validated(surprisal, label, fold) == pytest.approx(expected)
    assert expected == pytest.approx(-1 / 70**0.5)


def test_an_infinite_surprisal_is_above_any_threshold():
    surprisal, fold = np.array([1.0, 2.0, 3.0, math.inf, math.inf, math.inf]), np.arange(6.0) % 3
    assert corpus.mcc_cross_validated(surprisal, np.array([1, 1, 1, 0, 0, 0]), fold) == 1.0


def test_sentences_of_one_fold_have_no_threshold():
    assert np.isnan(corpus.mcc_cross_validated(np.array([1.0, 2.0]), np.array([1, 0]), np.array([3.0, 3.0])))
    assert np.isnan(corpus.mcc_cross_validated(np.array([1.0]), np.array([1]), np.array([3.0])))


def test_separable_sentences_have_an_mcc_of_one():
    surprisal, label = np.r_[np.arange(20.0), np.arange(100.0, 120.0)], np.r_[np.ones(20), np.zeros(20)]
    assert corpus.mcc_cross_validated(surprisal, label, np.arange(40.0) % corpus.FOLDS) == 1.0


def test_the_fold_of_a_sentence_does_not_depend_on_the_others():
    together = rows_of([("A.", "1", -1.0), ("B.", "0", -2.0)])
    assert rows_of([("A.", "1", -1.0)])[0]["metrics"] == together[0]["metrics"]


def test_every_normalisation_has_its_metrics():
    names = {metric.name for metric in METRICS}
    assert {f"{m}{s}" for m in ("difsur", "auc", "mcc") for s in ("", "_token", "_char", "_byte")} <= names
