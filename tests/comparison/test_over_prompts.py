"""Groups of prompts: pooled values, pairs, families of tests, and designs for which nothing is pooled."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from support.result_rows import EVALUATION, row, rows
from vernacular.comparison.align import align
from vernacular.comparison.compare import compare_all
from vernacular.comparison.over_prompts import by_documents, group_rows, prompt_groups
from vernacular.comparison.schema import COMPARISONS, PROMPTS, RANKINGS
from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.statistics.over_prompts import clustered_variance, mean_over_prompts, resampled_variance
from vernacular.types import SETTING, Evaluation

NAMES = ["default", "bare", "formal", "instructed", "question_first"]
SPEC = {name: EVALUATION[name] for name in SETTING} | {"items_stem": "t.gl", "dataset": "t.gl"}


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


ACCURACY = Metric("accuracy", "share", True, "similarity", proportion=True, headline=True)
LOSS = Metric("loss", "nats", False, "surprisal", headline=True)
PRODUCT = Metric(
    "mcc", "score", True, "surprisal", headline=True, corpus=lambda u, v: (u * v).mean(-1), needs=("u", "v")
)
LEFT = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 0, 1]], dtype=float)  # items × prompts
RIGHT = np.array([[1, 1, 1], [0, 1, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1]], dtype=float)


def rows_over_prompts(metric, models, *, shape=None, clusters=None):
    """The rows of a group of models -> {name of a value: (items, prompts × seeds)}."""
    prompts, seeds = shape or (next(iter(next(iter(models.values())).values())).shape[1], 1)
    ids = specs(NAMES[:prompts], seeds=tuple(range(seeds)))
    aligned = {}
    for column, name in enumerate(ids):
        sides = {
            model: [
                row(
                    f"i{n:02}",
                    cluster=clusters and clusters[n],
                    **{key: values[n, column] for key, values in named.items()},
                )
                for n in range(len(next(iter(named.values()))))
            ]
            for model, named in models.items()
        }
        aligned[name] = align(sides)
    (group,) = prompt_groups(ids)
    return group_rows(group, aligned, [metric], list(models))


def spread(table):
    """(variance component of prompts, of items × prompts, squared standard error) of a table (items, prompts)."""
    items, prompts = table.shape
    rest = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    both = (rest**2).sum() / ((items - 1) * (prompts - 1))
    between = table.mean(0).var(ddof=1)
    return between - both / items, both, table.mean(1).var(ddof=1) / items + between / prompts


@pytest.mark.parametrize(("metric", "sign"), [(ACCURACY, 1), (LOSS, -1)])
def test_probability_of_a_lead_uses_the_component_of_the_prompts(metric, sign):
    """The interaction with the items, which is part of the spread of the prompts' values, is not part of it."""
    sides = {"a": {metric.name: LEFT}, "b": {metric.name: RIGHT}}
    difference = RIGHT - LEFT
    pair = one(rows_over_prompts(metric, sides), baseline="a")
    component, both, squared_error = spread(difference)
    assert component > 0.05
    assert (pair["variance_prompts"], pair["variance_items_prompts"]) == pytest.approx((component, both))
    of_items = difference.mean(1).var(ddof=1) - both / 3
    assert pair["variance_items"] == pytest.approx(of_items)
    ratio = sign * difference.mean() / np.sqrt(component + squared_error)
    assert pair["probability_better"] == pytest.approx(stats.t.cdf(ratio, 2))
    assert (pair["value"], pair["se"]) == pytest.approx((difference.mean(), np.sqrt(squared_error)))


def test_probability_of_a_lead_by_a_corpus_statistic_uses_the_variance_between_the_values():
    rng = np.random.default_rng(16)
    sides = {model: {"u": rng.random((30, 4)), "v": rng.random((30, 4))} for model in "ab"}
    sides["b"]["u"] += [0.4, 0.1, 0.3, -0.1]
    pair = one(rows_over_prompts(PRODUCT, sides), baseline="a")
    products = {model: named["u"] * named["v"] for model, named in sides.items()}
    difference = products["b"] - products["a"]
    values = difference.mean(0)
    assert pair["prompt_values"] == pytest.approx(values)
    assert (pair["baseline_value"], pair["candidate_value"]) == pytest.approx([products[m].mean() for m in "ab"])
    assert pair["se_items"] == pytest.approx(difference.mean(1).std(ddof=1) / np.sqrt(30), rel=0.1)  # by 400 draws
    assert pair["variance_prompts"] is None
    differences = [[column] for column in difference.T]
    variance, _ = resampled_variance(lambda values: values.mean(-1), differences, None, resamples=400)
    assert pair["se_items"] == pytest.approx(np.sqrt(variance), rel=1e-9)  # exactly these draws
    probability = stats.t.cdf(pair["value"] / np.sqrt(values.var(ddof=1) + pair["se"] ** 2), 3)
    assert pair["probability_better"] == pytest.approx(probability)
    one_model = one(rows_over_prompts(PRODUCT, sides), baseline=None, model="a")
    assert one_model["se_items"] == pytest.approx(products["a"].mean(1).std(ddof=1) / np.sqrt(30), rel=0.1)


def test_items_of_a_cluster_are_one_observation_of_a_corpus_statistic_and_of_the_components():
    rng = np.random.default_rng(17)
    once = {model: {name: rng.random((30, 3)) for name in ("u", "v", "accuracy")} for model in "ab"}
    once["b"]["accuracy"] += [0.5, 0.0, 0.2]
    twice = {model: {name: np.repeat(values, 2, axis=0) for name, values in once[model].items()} for model in "ab"}
    clusters = [f"c{n // 2}" for n in range(60)]
    for metric in (PRODUCT, ACCURACY):
        pairs = [
            one(rows_over_prompts(metric, once), baseline="a"),
            one(rows_over_prompts(metric, twice, clusters=clusters), baseline="a"),
        ]
        for name in ("value", "se", "df", "n_clusters", "variance_items", "variance_prompts", "probability_better"):
            assert pairs[1][name] == (None if pairs[0][name] is None else pytest.approx(pairs[0][name])), name


def test_values_of_one_model_by_hand():
    """Prompts 2/5, 1/5, 4/5; two prompts agree on 2, 3 and 2 of 5 items."""
    rows_of = rows_over_prompts(ACCURACY, {"a": {"accuracy": LEFT}, "b": {"accuracy": RIGHT}})
    left, right = one(rows_of, model="a"), one(rows_of, model="b", baseline=None)
    assert left["prompt_values"] == pytest.approx([0.4, 0.2, 0.8])
    assert (left["lowest"], left["lowest_prompt"]) == (pytest.approx(0.2), "bare")
    assert (left["highest"], left["highest_prompt"], left["best_prompt"]) == (pytest.approx(0.8), "formal", "formal")
    agreements = [(LEFT[:, i] == LEFT[:, j]).mean() for i, j in combinations(range(3), 2)]
    assert sorted(agreements) == [0.4, 0.4, 0.6]
    assert left["agreement"] == pytest.approx(np.mean(agreements))
    assert right["prompt_values"] == pytest.approx([0.8, 1, 0.6])
    assert (left["ranks"], right["ranks"]) == ([2, 2, 1], [1, 1, 2])
    assert (left["rank_best"], left["rank_worst"], left["rank_mean"]) == (1, 2, pytest.approx(5 / 3))
    counts = [left[name] for name in ("n", "n_clusters", "n_prompts", "n_seeds", "chance_level")]
    assert counts == [5, 5, 3, 1, 0.5]
    assert (left["ci_low"], left["ci_high"]) == (0, 1)  # shares
    pair = one(rows_of, baseline="a")
    assert pair["ci_high"] > 1  # a difference of shares is not one
    component, both, _ = spread(LEFT)
    of_items = max(0, LEFT.mean(1).var(ddof=1) - both / 3)
    parts = np.array([of_items / 5, max(0, component), both / 5])  # one run has all items
    shares = [left[f"share_{name}"] for name in ("items", "prompts", "items_prompts")]
    assert shares == pytest.approx(parts / parts.sum())
    assert (left["share_seeds"], left["share_rest"], left["note"]) == (None, None, None)


def test_mean_over_crossed_seeds_by_hand():
    rng = np.random.default_rng(18)
    values = rng.random((20, 3, 2)) + 0.5 * rng.random((20, 1, 1)) + 0.3 * rng.random((1, 3, 2))
    sides = {"a": {"loss": np.zeros((20, 6))}, "b": {"loss": values.reshape(20, 6)}}
    rows_of = rows_over_prompts(LOSS, sides, shape=(3, 2))
    prompts, seeds = values.mean((0, 2)).var(ddof=1) / 3, values.mean((0, 1)).var(ddof=1) / 2
    items = values.mean((1, 2)).var(ddof=1) / 20
    component, both, _ = spread(values.mean(2))
    for mean in (one(rows_of, model="b", baseline=None), one(rows_of, baseline="a")):
        assert mean["se_prompts"] == pytest.approx(np.sqrt(prompts + seeds))
        assert mean["se_items"] == pytest.approx(np.sqrt(items))
        assert (mean["variance_prompts"], mean["variance_items_prompts"]) == pytest.approx((component, both))
        assert (mean["n_prompts"], mean["n_seeds"]) == (3, 2)
    ratio = values.mean() / np.sqrt(component + items + prompts + seeds)
    assert mean["probability_better"] == pytest.approx(stats.t.cdf(-ratio, 2))  # three prompts, not six runs


def test_ranks_of_a_lower_is_better_metric():
    found = rows_over_prompts(LOSS, {"a": {"loss": LEFT}, "b": {"loss": RIGHT}})  # means 2/5, 1/5, 4/5 and 4/5, 1, 3/5
    assert [one(found, model=model, baseline=None)["ranks"] for model in "ab"] == [[1, 1, 2], [2, 2, 1]]
    assert [one(found, model=model, baseline=None)["best_prompt"] for model in "ab"] == ["bare", "formal"]


def test_agreement_of_prompts_is_that_under_the_first_seed():
    first, second = np.ones((4, 3)), np.zeros((4, 3))
    second[:2, 0] = 1
    values = np.stack([first, second], axis=2).reshape(4, 6)
    found = one(rows_over_prompts(ACCURACY, {"a": {"accuracy": values}}, shape=(3, 2)), model="a")
    assert found["agreement"] == 1


def test_models_without_spread_have_a_note_and_no_interval():
    left = one(rows_over_prompts(ACCURACY, {"a": {"accuracy": np.ones((4, 3))}}), model="a")
    assert (left["value"], left["se"], left["ci_low"], left["ci_high"]) == (1, 0, None, None)
    assert left["note"] == "no variation, or undefined in more than a fifth of the resamples: no interval"


def test_items_of_each_side_are_counted_and_shared_items_compared():
    left, right = LEFT.copy(), RIGHT.copy()
    left[0, 1] = np.nan  # no value under one prompt
    pair = one(rows_over_prompts(ACCURACY, {"a": {"accuracy": left}, "b": {"accuracy": right}}), baseline="a")
    assert (pair["n"], pair["n_baseline"], pair["n_candidate"]) == (4, 4, 5)
    assert (pair["baseline_value"], pair["candidate_value"]) == pytest.approx((LEFT[1:].mean(), RIGHT[1:].mean()))
