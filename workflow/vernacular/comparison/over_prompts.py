"""Means over the prompts of a group: evaluations that differ in their prompt only.

The runs of a group are a table prompts × seeds: one seed (or one per prompt, `seeds: paired`) gives a seed axis of
length 1; seeds that are crossed with prompts give one run per cell. Values are taken over the items that every run
has: rows that are a few-shot example under one seed are excluded from all. Formulas: `statistics.over_prompts`.

The value of the best prompt is stated without the bias of having chosen it. The highest of K values is high partly by
chance: of five equally good prompts with 500 items, the best shows about one point that it does not keep on new items.
A prompt is therefore chosen on one half of the clusters and evaluated on the other half; both directions and several
divisions are averaged.

In the comparisons, the mean over prompts is one question per group, in place of a question per prompt. The rows of
single prompts remain in the tables, outside of Holm's correction: five wordings of a task are not five questions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.pairwise import Pair
from vernacular.comparison.schema import COMPARISONS, PROMPTS
from vernacular.core.tables import finite_or_none
from vernacular.metrics.metric import Metric, chance_level
from vernacular.statistics import over_prompts as statistics
from vernacular.statistics.paired import minimum_detectable_difference
from vernacular.statistics.significance import Test, key_of
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT, SETTING, Evaluation

DIVISIONS = 50  # random divisions into halves; the value changes by less than a tenth of a standard error beyond
CORPUS_RESAMPLES = 400  # a standard error to about 4 %
TEST = "mean over prompts: t over items and prompts, Satterthwaite"
TEST_THESE = "mean over these prompts: t over items"
_SHARED = [name for name in (*SETTING, "dataset") if name not in ("prompt", "seed")]
_SHARES = {
    "share_items": ("items",),
    "share_prompts": ("prompts",),
    "share_seeds": ("seeds", "prompts × seeds"),
    "share_items_prompts": ("items × prompts",),
    "share_rest": ("items × seeds", "items × prompts × seeds"),
}
_COPIED = ("evaluation", *SETTING, "metric", "unit", "higher_is_better", "headline", "n", "p_value", "note")
Aligned = Mapping[str, tuple[Items, dict[str, Side]]]  # what `align` returns, by evaluation


@dataclass(frozen=True)
class PromptGroup:
    """Evaluations that differ in prompt (and seed) only."""

    setting: dict  # SETTING of the group, with "evaluation"; prompt "all", seed null if the runs have several
    runs: tuple[tuple[str, ...], ...]  # (prompts, seeds) IDs of evaluations, the default prompt first, then by name
    prompts: tuple[str, ...]  # name of each row

    @property
    def evaluations(self) -> list[str]:
        return [evaluation for row in self.runs for evaluation in row]


def prompt_groups(evaluations: Mapping[str, dict]) -> list[PromptGroup]:
    """Return the groups with at least two prompts among evaluations (ID -> SETTING, and "dataset").

    Of prompts with different numbers of seeds, each has as many runs as the one with the fewest.
    """
    members: dict[tuple, dict[str, dict[int, str]]] = {}
    for name, spec in evaluations.items():
        prompts = members.setdefault(tuple(spec.get(key) for key in _SHARED), {})
        prompts.setdefault(spec["prompt"], {})[spec["seed"]] = name
    groups = []
    for prompts in members.values():
        if len(prompts) < 2:
            continue
        prompts = dict(sorted(prompts.items(), key=lambda entry: (entry[0] != DEFAULT_PROMPT, entry[0])))
        depth = min(map(len, prompts.values()))
        runs = tuple(tuple(by_seed[seed] for seed in sorted(by_seed)[:depth]) for by_seed in prompts.values())
        first = evaluations[runs[0][0]]
        seeds = {seed for by_seed in prompts.values() for seed in by_seed}
        setting = {name: first[name] for name in SETTING} | {"prompt": ALL_PROMPTS}
        evaluation = Evaluation(**setting | {"seed": 0}, data="", limit=None).id
        setting |= {"seed": seeds.pop() if len(seeds) == 1 else None, "evaluation": evaluation}
        groups.append(PromptGroup(setting, runs, tuple(prompts)))
    return groups


def by_documents(
    evaluations: Mapping[str, dict], documents: Mapping[str, str | None]
) -> tuple[dict[str, dict], list[dict]]:
    """Return evaluations whose "dataset" differs where their documents do, and a note for each that leaves its group.

    Tasks of another tool whose names differ in the prompt may differ in their rows too; items are then no pairs.
    `documents`: hash of an evaluation's documents; None: those of the other prompts.
    """
    first: dict[tuple, str] = {}
    found, notes = {}, []
    for name, spec in evaluations.items():
        digest = documents.get(name)
        if digest and digest != first.setdefault(tuple(spec.get(key) for key in _SHARED), digest):
            spec = spec | {"dataset": f"{spec['dataset']} {digest}"}
            text = "its documents differ from those of the first prompt: not part of the mean over prompts"
            notes.append({"model": None, "evaluation": name, "kind": "prompts", "note": text, "count": None})
        found[name] = spec
    return found, notes


@dataclass(frozen=True)
class GroupValues:
    """Per-item values of some models in a group, over the items that all of them share in all runs."""

    clusters: np.ndarray  # (n,) labels
    chance: np.ndarray  # (n,) chance level of each item
    inputs: dict[str, list[np.ndarray]]  # model -> arrays (n items, prompts, seeds), one per array of the metric
    n_own: dict[str, int]  # model -> number of items that this model has in all runs


def group_values(group: PromptGroup, aligned: Aligned, models: list[str], metric: Metric) -> GroupValues | None:
    """Return the values of `models` in all runs of a group; None if a run has no item in common with the others."""
    shared_ids: set[str] | None = None
    own: dict[str, set[str]] = {}
    for evaluation in group.evaluations:
        items, sides = aligned[evaluation]
        if any(model not in sides for model in models):
            return None
        ids = np.array(items.ids, dtype=object)
        same = np.ones(len(ids), dtype=bool)
        for model in models:
            mask = sides[model].value_mask(metric)
            own[model] = own.get(model, set(ids[mask])) & set(ids[mask])
            same &= mask & (sides[model].text_id == sides[models[0]].text_id)
        shared_ids = set(ids[same]) if shared_ids is None else shared_ids & set(ids[same])
    if not shared_ids:
        return None
    order = sorted(shared_ids)
    shape = (len(order), len(group.runs), len(group.runs[0]))
    inputs = {model: [np.empty(shape) for _ in metric.inputs] for model in models}
    for p, row in enumerate(group.runs):
        for s, evaluation in enumerate(row):
            items, sides = aligned[evaluation]
            positions = {item: i for i, item in enumerate(items.ids)}
            indices = np.array([positions[item] for item in order])
            for model in models:
                for target, array in zip(inputs[model], sides[model].inputs(metric), strict=True):
                    target[:, p, s] = array[indices]
    return GroupValues(items.clusters[indices], items.chance[indices], inputs, {m: len(own[m]) for m in models})


def group_rows(group: PromptGroup, aligned: Aligned, metrics: list[Metric], models: list[str]) -> list[dict]:
    """Return the PROMPTS rows of a group: each model, then all pairs of models (headline metrics)."""
    rows = []
    for metric in metrics:
        available, missing = _split(group, aligned, models, metric)
        found = {model: group_values(group, aligned, [model], metric) for model in available}
        found = {model: values for model, values in found.items() if values is not None}
        own_rows = [_value_row(group, metric, model, values) for model, values in found.items()]
        _add_ranks(own_rows, metric)
        rows += own_rows
        if metric.headline and metric.higher_is_better is not None:
            for baseline, candidate in combinations(models, 2):
                rows += _pair_rows(group, aligned, metric, baseline, candidate, missing)
    return rows


def _split(group, aligned: Aligned, models: list[str], metric: Metric) -> tuple[list[str], dict[str, list[str]]]:
    """Return the models with values under every prompt, and the prompts that each of the others lacks."""
    available, missing = [], {}
    for model in models:
        lacking = [
            prompt
            for prompt, row in zip(group.prompts, group.runs, strict=True)
            if not all(model in aligned[run][1] and aligned[run][1][model].value_mask(metric).any() for run in row)
        ]
        if not lacking:
            available.append(model)
        elif len(lacking) < len(group.prompts):
            missing[model] = lacking
    return available, missing


def _row(group: PromptGroup, metric: Metric, **values) -> dict:
    described = {name: getattr(metric, name) for name in ("unit", "higher_is_better", "headline")}
    shape = {"n_prompts": len(group.prompts), "n_seeds": len(group.runs[0]), "prompts": list(group.prompts)}
    described |= {"metric": metric.name, "evaluations": group.evaluations}
    return dict.fromkeys(PROMPTS.schema.names) | group.setting | described | shape | values


def _value_row(group: PromptGroup, metric: Metric, model: str, values: GroupValues) -> dict:
    arrays = values.inputs[model]
    cells = _cells(metric, arrays)
    found = _mean(metric, [arrays], [1.0], cells, values.clusters)
    by_prompt = cells.mean(axis=1)
    low, high = int(by_prompt.argmin()), int(by_prompt.argmax())
    row = _row(group, metric, model=model, n=len(values.clusters)) | _interval(found, clip=metric.unit == "share")
    row |= {
        "chance_level": chance_level(metric.name, values.chance),
        "prompt_values": by_prompt.tolist(),
        "lowest": finite_or_none(by_prompt[low]),
        "lowest_prompt": group.prompts[low],
        "highest": finite_or_none(by_prompt[high]),
        "highest_prompt": group.prompts[high],
    }
    if not metric.corpus and np.isfinite(arrays[0]).all():
        table = statistics.cluster_table(arrays[0], values.clusters)
        row |= _variances(table)
        if metric.higher_is_better is not None:
            best, corrected = best_prompt(table.mean(axis=2), higher_is_better=metric.higher_is_better)
            row |= {"best_prompt": group.prompts[best], "best_corrected": finite_or_none(corrected)}
        if metric.proportion:
            row["agreement"] = _agreement(arrays[0][:, :, 0])
    return row


def _pair_rows(group, aligned: Aligned, metric: Metric, baseline: str, candidate: str, missing: dict) -> list[dict]:
    """Return the row of a pair: compared only on the same prompts, else with a note that names those that differ."""
    pair = {"model": candidate, "baseline": baseline}
    if lacking := {side: missing[side] for side in (baseline, candidate) if side in missing}:
        texts = [f"{side} has no values for {', '.join(prompts)}" for side, prompts in lacking.items()]
        return [_row(group, metric, **pair, n=0, note=f"different prompts, not compared: {'; '.join(texts)}")]
    values = group_values(group, aligned, [baseline, candidate], metric)
    if values is None:
        return []
    arrays = [values.inputs[model] for model in (baseline, candidate)]
    sides = [_cells(metric, side) for side in arrays]
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = sides[1] - sides[0]
    found = _mean(metric, arrays, [-1.0, 1.0], difference, values.clusters)
    row = _row(group, metric, **pair, n=len(values.clusters)) | _interval(found)
    row |= {
        "baseline_value": finite_or_none(sides[0].mean()),
        "candidate_value": finite_or_none(sides[1].mean()),
        "n_baseline": values.n_own[baseline],
        "n_candidate": values.n_own[candidate],
        "p_value": finite_or_none(found.p),
        "prompt_values": difference.mean(axis=1).tolist(),
    }
    # without a table, the variance between the values, which includes the interaction: nearer to even
    variance_prompts = float(found.sd_prompts**2)
    if not metric.corpus and np.isfinite(difference).all():
        cells = arrays[1][0] - arrays[0][0]
        if np.isfinite(cells).all():
            row |= _variances(statistics.cluster_table(cells, values.clusters))
            variance_prompts = row["variance_prompts"]
    sign = 1 if metric.higher_is_better else -1
    probability = statistics.probability_better(sign * found.value, variance_prompts, found.se, len(group.prompts))
    return [row | {"probability_better": finite_or_none(probability)}]


def _cells(metric: Metric, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the value of each run, (prompts, seeds), of arrays (n items, prompts, seeds)."""
    if not metric.corpus:
        return arrays[0].mean(axis=0)
    _, prompts, seeds = arrays[0].shape
    return np.array(
        [[metric.value([array[:, p, s] for array in arrays]) for s in range(seeds)] for p in range(prompts)]
    )


def _mean(metric: Metric, sides: list, signs: list[float], cells: np.ndarray, clusters) -> statistics.MeanOverPrompts:
    """Return the mean over prompts of a signed sum of `sides` (one model, or candidate - baseline)."""
    if metric.corpus:
        runs = [
            [array[:, p, s] for arrays in sides for array in arrays]
            for p in range(cells.shape[0])
            for s in range(cells.shape[1])
        ]
        width = len(sides[0])

        def statistic(*arrays):
            parts = [metric.corpus(*arrays[i * width : (i + 1) * width]) for i in range(len(signs))]
            return sum(sign * part for sign, part in zip(signs, parts, strict=True))

        with np.errstate(invalid="ignore"):
            variance, n_clusters = statistics.resampled_variance(statistic, runs, clusters, resamples=CORPUS_RESAMPLES)
    else:
        with np.errstate(invalid="ignore"):  # inf - inf
            values = sum(sign * arrays[0].mean(axis=(1, 2)) for sign, arrays in zip(signs, sides, strict=True))
            variance, n_clusters = statistics.clustered_variance(values, clusters)
    values = cells if cells.shape[1] > 1 else cells[:, 0]
    return statistics.mean_over_prompts(values, variance, n_clusters)


def _interval(found: statistics.MeanOverPrompts, *, clip: bool = False) -> dict:
    low, high = (max(0.0, found.low), min(1.0, found.high)) if clip and found.se > 0 else (found.low, found.high)
    names = ("value", "se", "df", "se_items", "se_prompts", "sd_prompts")
    row = {name: finite_or_none(getattr(found, name)) for name in names}
    row |= {"ci_low": finite_or_none(low), "ci_high": finite_or_none(high), "question": found.question}
    notes = []
    if not found.se > 0:
        notes.append("no variation, or undefined in more than a fifth of the resamples: no interval")
    if found.question != statistics.LIKE_THESE:
        notes.append(f"an interval for prompts like these needs at least {statistics.FEWEST_PROMPTS} prompts")
    return row | {"note": "; ".join(notes) or None}


def _variances(table: np.ndarray) -> dict:
    """Return the components of a table (clusters, prompts, seeds), and their shares in one run's variance."""
    mean_of_seeds = statistics.components(table.mean(axis=2))
    shares = (statistics.components(table) if table.shape[2] > 1 else mean_of_seeds).shares()
    row = {
        "n_clusters": len(table),
        "variance_items": mean_of_seeds.of("items"),
        "variance_prompts": mean_of_seeds.of("prompts"),
        "variance_items_prompts": mean_of_seeds.of("items", "prompts"),
    }
    for name, effects in _SHARES.items():
        known = [shares[effect] for effect in effects if effect in shares]
        row[name] = sum(known) if known else None
    return row


def _agreement(correct: np.ndarray) -> float:
    """Return the share of items with the same outcome under two prompts, over all pairs of prompts; (n, prompts)."""
    return float(np.mean([(first == second).mean() for first, second in combinations(correct.T, 2)]))


def _add_ranks(rows: list[dict], metric: Metric) -> None:
    """Add the best, worst and mean rank of each model over the prompts."""
    if metric.higher_is_better is None or len(rows) < 2:
        return
    values = np.array([row["prompt_values"] for row in rows])
    ranks = ranks_by_prompt(values, higher_is_better=metric.higher_is_better)
    for row, model_ranks in zip(rows, ranks, strict=True):
        row |= {"rank_best": int(model_ranks.min()), "rank_worst": int(model_ranks.max())}
        row |= {"rank_mean": float(model_ranks.mean()), "ranks": model_ranks.tolist()}


def best_prompt(table: np.ndarray, *, higher_is_better: bool = True) -> tuple[int, float]:
    """Return the prompt with the best value in a table (clusters, prompts) of `cluster_table`, and a corrected value.

    That is the value of a prompt chosen by one half of the clusters on the other half; NaN with fewer than 4 clusters.

    >>> best_prompt(np.array([[1.0, 0.0]] * 8))
    (0, 1.0)
    """
    signed = table if higher_is_better else -table
    index, n_clusters = int(signed.mean(axis=0).argmax()), len(table)
    if n_clusters < 4:
        return index, float("nan")
    rng = np.random.default_rng(0)
    values = []
    for _ in range(DIVISIONS):
        order = rng.permutation(n_clusters)
        halves = order[: n_clusters // 2], order[n_clusters // 2 :]
        for chosen_on, valued_on in (halves, halves[::-1]):
            chosen = signed[chosen_on].mean(axis=0).argmax()
            values.append(table[valued_on, chosen].mean())
    return index, float(np.mean(values))


def ranks_by_prompt(values: np.ndarray, *, higher_is_better: bool = True) -> np.ndarray:
    """Return the ranks of models under each prompt, (models, prompts) of `values` (models, prompts); ties share a rank.

    >>> ranks_by_prompt(np.array([[0.5, 0.6], [0.7, 0.6], [0.4, 0.2]])).tolist()
    [[2, 1], [1, 1], [3, 3]]
    """
    signed = values if higher_is_better else -values
    return 1 + (signed[None, :, :] > signed[:, None, :]).sum(axis=1)


def comparison_rows(prompt_rows: Iterable[dict], pairs: list[Pair]) -> list[dict]:
    """Return a COMPARISONS row for each of `pairs` that PROMPTS rows compare, in the direction of the pair."""
    directions = set(pairs)
    rows = []
    for prompt_row in prompt_rows:
        if prompt_row["baseline"] is not None:
            found = prompt_row["baseline"], prompt_row["model"]
            rows += [_comparison_row(prompt_row, pair) for pair in (found, found[::-1]) if pair in directions]
    return rows


def _comparison_row(prompt_row: dict, pair: Pair) -> dict:
    row = dict.fromkeys(COMPARISONS.schema.names) | {name: prompt_row[name] for name in _COPIED}
    sides = ("baseline", "candidate")
    numbers = [prompt_row[name] for name in ("value", "ci_low", "ci_high")]
    if pair[0] != prompt_row["baseline"]:
        sides = sides[::-1]
        numbers = [None if prompt_row[name] is None else -prompt_row[name] for name in ("value", "ci_high", "ci_low")]
    for name, side, model in zip(("baseline", "candidate"), sides, pair, strict=True):
        row |= {name: model, f"{name}_value": prompt_row[f"{side}_value"], f"n_{name}": prompt_row[f"n_{side}"] or 0}
    se, df = (prompt_row[name] if prompt_row[name] is not None else float("nan") for name in ("se", "df"))
    smallest = minimum_detectable_difference(se, df)
    return row | {
        "category": "",
        **dict(zip(("difference", "ci_low", "ci_high"), numbers, strict=True)),
        "test": TEST if prompt_row["question"] == statistics.LIKE_THESE else TEST_THESE,
        "minimum_detectable_difference": finite_or_none(smallest),
    }


def replaced(prompt_rows: Iterable[dict]) -> set[Test]:
    """Return the tests of single prompts for which the test of a mean stands, a PROMPTS row of a pair."""
    return {
        (frozenset((row["baseline"], row["model"])), run, row["metric"])
        for row in prompt_rows
        if row["baseline"] is not None and row["p_value"] is not None
        for run in row["evaluations"]
    }


def without_single_prompts(rows: list[dict], prompt_rows: list[dict]) -> list[dict]:
    """Return COMPARISONS rows without the single prompts for which a mean over prompts stands."""
    singles = replaced(prompt_rows)
    return [row for row in rows if key_of(row) not in singles]
