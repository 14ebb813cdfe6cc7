"""Scores of an audit of items, and drops of translations: by hand, invariances, and on items with simulated faults."""

from dataclasses import replace

import numpy as np
import pytest
from support import soak
from support.faulty_items import CLOSE, WRONG_GOLD, responses, share_incorrect, shuffled, simulate
from vernacular.statistics.audit import Drops, audit, complete, from_null, mirrored, unsuitable

BY_HAND = np.array([
    [(0, 2, -1), (3, 0, 1), (1, 0, 2), (2, 0, 0)],
    [(0, -1, 2), (2, 1, 0), (1, 3, 0), (3, 0, 1)],  # an adapter of the first
    [(0, 3, -1), (4, 1, 0), (2, 1, 0), (5, 1, 0)],
], float)  # fmt: skip
TRANSLATION_FAULTS = (0.017, 0.017, 0.016)


def by_hand(families=("base", "base", "another")):
    return responses(BY_HAND, np.zeros(4, int), list(families))


def first(score, k):
    return np.argsort(-score, kind="stable")[:k]


def test_score_by_hand():
    found = audit(by_hand())
    assert found.margins.units == [[2], [2], [3]]
    assert found.margins.accuracy.tolist() == [0.5, 0.5, 0.75]
    np.testing.assert_allclose(found.margins.by_family, [1 / 4, 1 / 4, 1 / 2])
    np.testing.assert_allclose(found.margins.by_ability, [1 / 7, 1 / 7, 5 / 7])
    np.testing.assert_allclose(found.level, [-0.7857, 1, 0.1667, 1.3095], atol=5e-5)
    np.testing.assert_allclose(found.slope, [0, 0.125, 0.5417, 0.1667], atol=5e-5)
    assert found.favorite.tolist() == [1, 1, 1, 1]
    assert found.reliability == pytest.approx(0.7128, abs=5e-5)
    np.testing.assert_allclose(found.score, [1.8534, -0.5629, -0.2734, -1.0170], atol=5e-5)
    np.testing.assert_allclose(found.by_gold[:, 1], [-1.1816, 2.1169, 1.3862, 2.5710], atol=5e-5)
    np.testing.assert_allclose(found.by_gold[:, 2], [3.0140, 2.7037, 1.6198, 3.2905], atol=5e-5)
    assert np.isnan(found.by_gold[:, 0]).all()
    assert (found.reach(1), found.reach(2)) == ((0.5, 0.625), (0.75, 0.875))
    assert found.order("dcba").tolist() == [0, 2, 1, 3]


def test_order_of_equal_scores_is_that_of_the_ids_and_counts_in_the_reach():
    scores = np.array([[[1, 0]] * 4 + [[0, 1]] * 2, [[1, 0]] * 5 + [[0, 1]], [[1, 0]] * 4 + [[0, 1]] * 2], float)
    found = audit(responses(scores, np.zeros(6, int), ["a", "b", "c"]))
    assert found.order("fedcba").tolist() == [5, 3, 2, 1, 0, 4]
    assert found.order("abcdef").tolist() == [5, 0, 1, 2, 3, 4]
    favorite, any_option = found.reach(3)
    assert favorite == any_option
    assert 0 < any_option < 1


@pytest.fixture(scope="module")
def simulated():
    return simulate(np.random.default_rng(soak.seed(1)), 5, 120)


def test_scale_and_order_of_models_and_items_change_nothing(simulated):
    given = simulated.responses
    expected = audit(given)
    scaled = replace(
        given, scores=[[run * factor] for [run], factor in zip(given.scores, (0.1, 7, 1, 3, 20), strict=True)]
    )
    np.testing.assert_allclose(audit(scaled).score, expected.score, atol=1e-8)
    np.testing.assert_allclose(audit(given.part([4, 2, 0, 1, 3], np.arange(120))).score, expected.score, atol=1e-8)
    items = np.random.default_rng(2).permutation(120)
    np.testing.assert_allclose(audit(given.part(range(5), items)).score, expected.score[items], atol=1e-8)
    flipped = replace(given, scores=[[run[:, ::-1]] for [run] in given.scores], correct=given.correct[:, ::-1])
    np.testing.assert_allclose(audit(flipped).score, expected.score, atol=1e-8)


def test_members_of_a_family_that_are_entered_twice_do_not_change_the_level(simulated):
    given = simulated.responses
    own = [m for m, family in enumerate(given.families) if family == "0"]
    twice = given.part([*range(5), *own], np.arange(120))
    np.testing.assert_allclose(audit(twice).level, audit(given).level, atol=1e-9)


def test_models_of_equal_accuracy_are_ordered_by_the_level_alone():
    found = audit(responses(BY_HAND[[0, 0, 0]], np.zeros(4, int), list("abc")))
    assert found.reliability == 0
    np.testing.assert_allclose(found.score, -(found.level - found.level.mean()) / found.level.std(), atol=1e-8)


def test_level_of_two_options_is_the_weighted_margin():
    given = simulate(np.random.default_rng(3), 3, 100, options=2).responses
    found = audit(given)
    np.testing.assert_allclose(found.level, found.margins.by_ability @ found.margins.z, atol=1e-12)


def test_evaluations_of_one_model_are_averaged():
    given = by_hand()
    first_run = given.scores[0][0]
    doubled = replace(given, scores=[[first_run, 5 * first_run], *given.scores[1:]])
    np.testing.assert_allclose(audit(doubled).score, audit(given).score, atol=1e-8)


def test_items_without_the_score_of_a_model_use_the_others(simulated):
    given = simulated.responses
    some = given.scores[0][0].copy()
    some[:5] = np.nan
    found = audit(replace(given, scores=[[some], *given.scores[1:]]))
    expected = audit(given.part(range(1, 5), np.arange(120)))
    assert np.isfinite(found.score).all()
    kept = found.margins.by_ability[1:] / found.margins.by_ability[1:].sum()
    leads = np.einsum("m,mnk->nk", kept, leads_of(given, found)[1:, :5])
    np.testing.assert_allclose(found.margins.leads[:5], leads, atol=1e-9)
    assert not np.allclose(found.level[5:], expected.level[5:])


def leads_of(given, found):
    x = []
    for [run], [unit] in zip(given.scores, found.margins.units, strict=True):
        gold = run[given.correct][:, None]
        x.append(np.where(given.correct, np.nan, np.clip((gold - run) / unit, -4, 4)))
    return np.array(x)


def test_models_and_items_without_enough_scores_do_not_take_part(simulated):
    given = simulated.responses
    most, few = (run.copy() for run in (given.scores[1][0], given.scores[2][0]))
    most[:11], few[:12] = np.nan, np.nan
    correct = given.correct.copy()
    correct[50] = False  # gold unknown
    models, items = complete(
        replace(given, scores=[given.scores[0], [most], [few], *given.scores[3:]], correct=correct)
    )
    assert models == [0, 1, 3, 4]
    assert items.tolist() == [i for i in range(120) if i != 50]


def test_options_of_unequal_number_are_not_a_score():
    padded = np.concatenate([BY_HAND, np.full((3, 4, 1), np.nan)], axis=2)
    given = replace(
        responses(padded, np.zeros(4, int), ["base", "base", "another"]), offered=np.arange(4) < np.full((4, 1), 3)
    )
    np.testing.assert_allclose(audit(given).score, audit(by_hand()).score)
    assert np.isnan(audit(given).by_gold[:, 3]).all()


@pytest.mark.parametrize(
    ("n_models", "n_items", "families", "broken", "reason"),
    [
        (3, 99, None, 0, "expected at least 100 items with scores of their options, got 99"),
        (3, 8, None, 0, "expected at least 100 items with scores of their options, got 8"),
        (2, 100, None, 0, "expected at least 3 models that scored 90 % of the items, got 2"),
        (3, 100, "aaa", 0, "expected models of at least 2 families, got 3 models of one"),
        (3, 100, None, 1, "no model is above chance, so that its errors say nothing about the items"),
        (3, 100, None, 0, None),
    ],
)
def test_too_little_for_a_list(n_models, n_items, families, broken, reason):
    given = simulate(np.random.default_rng(4), 3, n_items, ability=(2, 3), faults=(0, 0, broken)).responses
    given = given.part(range(n_models), np.arange(n_items))
    assert unsuitable(replace(given, families=list(families)) if families else given) == reason


def test_rates_of_false_discoveries_by_hand():
    t = np.array([5, 4, 3, 2, -1, 0.5, -0.5, 0, 1.5, -2])
    np.testing.assert_allclose(mirrored(t), [1 / 3, 1 / 3, 1 / 3, 0.4, 1, 2 / 3, 1, 1, 0.4, 1])
    null = np.array([2.5, 0.1, -0.5, -1, 1.2, 0.3, 0, -2])
    np.testing.assert_allclose(from_null(np.array([3, 1, 0.2, -1]), null), [0.4444, 0.5926, 0.5926, 0.8889], atol=5e-5)


def test_drop_of_an_item_in_one_language():
    languages = simulate(np.random.default_rng(5), 3, 100, languages=3, **CLOSE, faults=(0, 0, 0)).languages
    known = int(audit(languages[0]).level.argmax())  # by all models, in the other languages
    correct = languages[1].correct.copy()
    correct[known] = np.roll(correct[known], 1)
    changed = [languages[0], replace(languages[1], correct=correct), languages[2]]
    found = Drops(changed)
    t, q = found.drop(1), found.rates(1)
    assert t.argmax() == known
    assert q[known] == q.min() < 0.5
    assert found.drop(0)[known] < 0
    np.testing.assert_allclose(found.drop(1, without=0), Drops(changed[1:]).drop(0), atol=1e-9)


def precision_and_reach(n_sets, n_models=10, n_items=300, **options):
    """Return means in percent: of S, of the share incorrect, shuffled; and of reach and recall at 20 and 40."""
    rng, rows = np.random.default_rng(soak.seed(6)), []
    for _ in range(n_sets):
        drawn = simulate(rng, n_models, n_items, **options)
        found, is_fault, is_wrong = audit(drawn.responses), drawn.kind > 0, drawn.kind == WRONG_GOLD
        row = [is_fault[first(score, 20)].mean() for score in (
            found.score, share_incorrect(drawn.responses), audit(shuffled(rng, drawn.responses)).score)]  # fmt: skip
        for k in (20, 40):
            row += [found.reach(k)[1], is_wrong[first(found.score, k)].sum() / max(is_wrong.sum(), 1)]
        rows.append(row)
    return 100 * np.mean(rows, axis=0)


def check_precision(n_sets):
    score, share, by_chance, reach_20, recall_20, reach_40, recall_40 = precision_and_reach(n_sets)
    assert score >= 44
    assert score >= share + 4
    assert 8 <= by_chance <= 15
    assert abs(reach_20 - recall_20) <= 6
    assert abs(reach_40 - recall_40) <= 6


@pytest.mark.slow
def test_faults_among_the_first_items():
    check_precision(60)


def test_scores_find_faults_and_shuffled_responses_do_not():
    score, _, by_chance, *_ = precision_and_reach(8)
    assert score > 3 * 11
    assert by_chance < 2 * 11


@pytest.mark.soak
@pytest.mark.parametrize(
    ("n_models", "n_items", "expected"),
    [(3, 100, 30), (3, 300, 40), (3, 900, 55), (5, 100, 28), (5, 300, 45), (5, 900, 61), (10, 100, 32),
     (10, 300, 49), (10, 900, 69), (20, 100, 31), (20, 300, 52), (20, 900, 74)],
)  # fmt: skip
def test_precision_by_models_and_items(n_models, n_items, expected):
    score, share, *_ = precision_and_reach(60, n_models, n_items)
    assert abs(score - expected) <= 6
    assert score > share


@pytest.mark.soak
def test_precision_under_other_conditions():
    minimal_pairs = precision_and_reach(40, options=2, ability=(2, 5))
    assert abs(precision_and_reach(40, ability=(2, 5))[0] - 79) <= 6
    assert abs(precision_and_reach(40, ability=(0.05, 0.8))[0] - 25) <= 7
    assert abs(precision_and_reach(40, attractive=True)[0] - 45) <= 7
    assert minimal_pairs[0] > minimal_pairs[1]


def without_first_items(n_sets, n_items=300, k=40):
    """Return the mean gain in accuracy, in points, from dropping the first items of faultless sets."""
    rng, gains = np.random.default_rng(soak.seed(7)), []
    for _ in range(n_sets):
        given = simulate(rng, 10, n_items, faults=(0, 0, 0)).responses
        found = audit(given)
        rest = np.setdiff1d(np.arange(n_items), first(found.score, k))
        right = found.margins.z > 0
        gains.append((right[:, rest].mean(1) - right.mean(1)).mean())
    return 100 * np.mean(gains)


def test_faultless_sets_gain_when_the_list_is_removed():
    assert 6 <= without_first_items(12) <= 9


def translated(n_sets, n_items, faults, n_languages=4):
    """Return (precision of the first 20, share of flags that are false, recall, share of sets with a flag), percent."""
    rng, rows = np.random.default_rng(soak.seed(8)), []
    for _ in range(n_sets):
        drawn = simulate(rng, 10, n_items, languages=n_languages, faults=faults, **CLOSE)
        found = Drops(drawn.languages)
        t, q = found.drop(0), found.rates(0)
        is_fault, flags = drawn.kind > 0, q <= 0.1
        false = (flags & ~is_fault).sum() / max(flags.sum(), 1)
        recall = (flags & is_fault).sum() / max(is_fault.sum(), 1)
        rows.append([is_fault[first(t, 20)].mean(), false, recall, flags.any()])
    return 100 * np.mean(rows, axis=0)


@pytest.mark.slow
def test_drops_of_translations_with_faults():
    precision, false, _, _ = translated(40, 900, TRANSLATION_FAULTS)
    assert precision >= 62
    assert false <= 16
    assert translated(40, 900, (0, 0, 0))[3] <= 10


def test_drops_find_faults_of_a_translation():
    precision, _, _, _ = translated(3, 300, TRANSLATION_FAULTS)
    assert precision > 4 * 5


@pytest.mark.soak
def test_two_languages_flag_few_items():
    _, false, recall, _ = translated(40, 900, TRANSLATION_FAULTS, n_languages=2)
    assert false <= 12
    assert recall <= 15
