"""Groups of prompts: pooled values, pairs, families of tests, and designs for which nothing is pooled."""

import numpy as np
import pyarrow as pa
import pytest
from support.result_rows import EVALUATION, row, rows
from vernacular.comparison.compare import compare_all
from vernacular.comparison.prompt_groups import by_documents, prompt_groups
from vernacular.comparison.schema import COMPARISONS, PROMPTS, RANKINGS
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.statistics.crossed import clustered_variance
from vernacular.statistics.over_prompts import mean_over_prompts
from vernacular.types import SETTING, Evaluation

NAMES = ["default", "bare", "formal", "instructed", "question_first"]
SPEC = {name: EVALUATION[name] for name in SETTING} | {"items": "t.gl", "dataset": "t.gl"}


def specs(prompts, seeds=(0,), *, paired=False):
    """Evaluations by ID, as the config gives them."""
    found = {}
    for j, prompt in enumerate(prompts):
        for seed in (j,) if paired else seeds:
            spec = SPEC | {"prompt": prompt, "seed": seed}
            known = {name: spec[name] for name in SETTING}
            found[Evaluation(**known, data="samples", limit=None).id] = spec
    return found


def tables(values, ids):
    """{evaluation: TASK_RESULTS} of correct (items, prompts × seeds)."""
    return {name: rows(values[:, column]) for column, name in enumerate(ids)}


def draw(seed, n=60, k=5, quality=0.5):
    rng = np.random.default_rng(seed)
    difficulty, wording = rng.random((n, 1)), 0.1 * rng.standard_normal((1, k))
    return (difficulty + wording + 0.2 * rng.standard_normal((n, k)) < quality).astype(float)


def compare(results, evaluations, pairs=(("a", "b"),)):
    return compare_all(list(pairs), results, evaluations, resamples=200)


def one(found, **keys):
    (match,) = [entry for entry in found if all(entry[name] == value for name, value in keys.items())]
    return match


def test_prompt_is_in_the_id_only_if_it_is_not_the_default():
    known = {name: SPEC[name] for name in SETTING if name != "prompt"} | {"data": "hub", "limit": None}
    name = f"{SPEC['task']}.{SPEC['language']}.{SPEC['protocol']}.{SPEC['shots']}shot"
    assert Evaluation(**known).id == name
    assert Evaluation(**known, prompt="formal").id == f"{name}.formal"


def test_groups_are_evaluations_that_differ_in_prompt_and_seed_only():
    (group,) = prompt_groups(specs(NAMES, paired=True))
    assert group.prompts == tuple(NAMES)
    assert [len(row) for row in group.runs] == [1] * 5
    assert (group.setting["evaluation"], group.setting["prompt"], group.setting["seed"]) == (
        "t.gl.options.0shot.all", "all", None,
    )  # fmt: skip
    (crossed,) = prompt_groups(specs(NAMES, seeds=(0, 1, 2)))
    assert [len(row) for row in crossed.runs] == [3] * 5
    assert prompt_groups(specs(NAMES[:1], seeds=(0, 1))) == []


def test_prompts_of_other_documents_are_not_part_of_a_group():
    ids = specs(NAMES)
    documents = dict.fromkeys(ids, "a") | {next(iter(ids)): None}  # of the first, nothing is known
    assert by_documents(ids, documents) == (ids, [])
    *_, last = ids
    separate, (note,) = by_documents(ids, documents | {last: "b"})
    (group,) = prompt_groups(separate)
    assert group.prompts == tuple(NAMES[:-1])
    assert (note["evaluation"], note["kind"], note["model"]) == (last, "prompts", None)


def test_value_is_the_mean_over_prompts_with_the_interval_of_the_statistics():
    ids, values = specs(NAMES), draw(1)
    found = compare({"a": tables(values, ids)}, ids, pairs=())
    row = one(found.prompts, metric="accuracy")
    variance, n_clusters = clustered_variance(values.mean(1))
    expected = mean_over_prompts(values.mean(0), variance, n_clusters)
    assert (row["value"], row["ci_low"], row["ci_high"], row["df"]) == pytest.approx(
        (expected.value, expected.low, expected.high, expected.df)
    )
    assert row["question"] == "prompts like these"
    assert row["prompt_values"] == pytest.approx(values.mean(0).tolist())
    assert row["lowest"] == pytest.approx(values.mean(0).min())
    assert sum(row[f"share_{name}"] for name in ("items", "prompts", "items_prompts")) == pytest.approx(1)
    assert row["best_corrected"] <= row["highest"]
    assert 0 < row["agreement"] < 1
    pa.Table.from_pylist(found.prompts, schema=PROMPTS.schema)


def test_clusters_enter_the_interval():
    ids, values = specs(NAMES), draw(2)
    doubled = np.repeat(values, 2, axis=0)
    rows_of = {
        name: [row(f"i{n:03}", value, cluster=f"c{n // 2}") for n, value in enumerate(doubled[:, column])]
        for column, name in enumerate(ids)
    }
    once = one(compare({"a": tables(values, ids)}, ids, ()).prompts, metric="accuracy")
    twice = one(compare({"a": rows_of}, ids, ()).prompts, metric="accuracy")
    for name in ("value", "ci_low", "ci_high", "df", "se_items", "se_prompts"):
        assert twice[name] == pytest.approx(once[name]), name


def test_pair_is_compared_on_cells_and_stands_for_one_question():
    ids = specs(NAMES)
    left, right = draw(3, quality=0.4), draw(3, quality=0.6)
    found = compare({"a": tables(left, ids), "b": tables(right, ids)}, ids)
    difference = right - left
    row = one(found.comparisons, evaluation="t.gl.options.0shot.all", metric="accuracy")
    variance, n_clusters = clustered_variance(difference.mean(1))
    expected = mean_over_prompts(difference.mean(0), variance, n_clusters)
    assert (row["difference"], row["p_value"]) == pytest.approx((expected.value, expected.p))
    assert (row["baseline_value"], row["candidate_value"]) == pytest.approx((left.mean(), right.mean()))
    assert "Satterthwaite" in row["test"]
    single = [row for row in found.comparisons if row["prompt"] != "all" and row["metric"] == "accuracy"]
    assert len(single) == 5
    assert all(row["p_holm"] is None and row["n_tests"] is None for row in single)
    pair = one(found.prompts, metric="accuracy", baseline="a")
    assert 0.5 < pair["probability_better"] <= 1
    pa.Table.from_pylist(found.comparisons, schema=COMPARISONS.schema)


def test_family_of_tests_has_the_same_size_with_one_prompt_and_with_five():
    n_tests = []
    for names in (NAMES[:1], NAMES):
        ids = specs(names)
        results = {model: tables(draw(seed, k=len(names)), ids) for model, seed in (("a", 4), ("b", 5))}
        found = compare(results, ids)
        (size,) = {row["n_tests"] for row in found.comparisons if row["n_tests"] is not None}
        n_tests.append(size)
    assert n_tests[0] == n_tests[1]


def test_direction_of_a_pair_follows_the_config():
    ids = specs(NAMES)
    results = {model: tables(draw(seed), ids) for model, seed in (("a", 6), ("b", 7))}
    key = {"evaluation": "t.gl.options.0shot.all", "metric": "accuracy"}
    forward = one(compare(results, ids).comparisons, **key)
    backward = one(compare(results, ids, pairs=[("b", "a")]).comparisons, **key)
    assert (backward["baseline"], backward["candidate"]) == ("b", "a")
    assert backward["difference"] == pytest.approx(-forward["difference"])
    assert (backward["ci_low"], backward["ci_high"]) == pytest.approx((-forward["ci_high"], -forward["ci_low"]))
    assert backward["baseline_value"] == pytest.approx(forward["candidate_value"])


def test_ranks_over_prompts_and_of_the_means():
    ids = specs(NAMES)
    results = {model: tables(draw(8, quality=quality), ids) for model, quality in (("a", 0.3), ("b", 0.7), ("c", 0.69))}
    found = compare(results, ids, pairs=())
    ranks = {row["model"]: row["ranks"] for row in found.prompts if row["metric"] == "accuracy" and not row["baseline"]}
    assert ranks["a"] == [3] * 5
    assert set(ranks["b"]) | set(ranks["c"]) <= {1, 2}
    means = [row for row in found.rankings if row["evaluation"].endswith(".all") and row["metric"] == "accuracy"]
    assert {row["model"]: row["rank"] for row in means}["a"] == 3
    pa.Table.from_pylist(found.rankings, schema=RANKINGS.schema)


def test_two_prompts_have_no_interval_for_other_prompts_and_a_note():
    ids = specs(NAMES[:2])
    results = {model: tables(draw(seed, k=2), ids) for model, seed in (("a", 9), ("b", 10))}
    found = compare(results, ids)
    for mean in found.prompts:
        assert mean["question"] == "these prompts"
        assert "at least 3 prompts" in mean["note"]
        assert mean["probability_better"] is None
    row = one(found.comparisons, evaluation="t.gl.options.0shot.all", metric="accuracy")
    assert row["test"] == "mean over these prompts: t over items"


def test_different_prompts_are_not_compared_and_named():
    ids = specs(NAMES)
    results = {model: tables(draw(seed), ids) for model, seed in (("a", 11), ("b", 12))}
    empty = TASK_RESULTS.schema.empty_table()
    results["b"] |= {name: empty for name in ids if name.endswith((".bare", ".formal"))}
    found = compare(results, ids)
    (row,) = [row for row in found.prompts if row["baseline"] and row["metric"] == "accuracy"]
    assert row["value"] is None
    assert row["note"] == "different prompts, not compared: b has no values for bare, formal"
    single = [row for row in found.comparisons if row["prompt"] in NAMES and row["metric"] == "accuracy"]
    assert any(row["n_tests"] for row in single)  # the prompts that both have remain questions of their own


def test_only_items_that_all_prompts_have_are_pooled():
    ids, values = specs(NAMES, paired=True), draw(13)
    results = tables(values, ids)
    few_shot = dict(zip(ids, range(5), strict=True))  # one item per seed is a few-shot example
    results = {
        name: [row for row in table if row["item_id"] != f"i{few_shot[name]:02}"] for name, table in results.items()
    }
    row = one(compare({"a": results}, ids, ()).prompts, metric="accuracy")
    assert row["n"] == 55
    assert row["value"] == pytest.approx(values[5:].mean())


def test_seeds_that_are_crossed_have_a_share_of_their_own():
    names = NAMES[:3]
    ids, rng = specs(names, seeds=(0, 1, 2)), np.random.default_rng(14)
    values = (rng.random((60, 9)) + 0.3 * rng.random((60, 1)) < 0.6).astype(float)
    row = one(compare({"a": tables(values, ids)}, ids, ()).prompts, metric="accuracy")
    assert (row["n_prompts"], row["n_seeds"]) == (3, 3)
    parts = ("items", "prompts", "seeds", "items_prompts", "rest")
    assert sum(row[f"share_{name}"] for name in parts) == pytest.approx(1)
    assert row["value"] == pytest.approx(values.mean())


def test_one_prompt_has_no_rows():
    ids = specs(NAMES[:1], seeds=(0, 1))
    found = compare({"a": tables(draw(15, k=2), ids), "b": tables(draw(16, k=2), ids)}, ids)
    assert found.prompts == []
    assert not [row for row in found.comparisons + found.rankings if row["prompt"] != "default"]
