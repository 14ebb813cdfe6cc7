"""Groups of evaluations that differ in their prompt only, and their per-item values on shared items.

The runs of a group are a table prompts × seeds: one seed (or one per prompt, `seeds: paired`) gives a seed axis of
length 1; seeds that are crossed with prompts give one run per cell. Values are taken over the items that every run
has: rows that are a few-shot example under one seed are excluded from all.

In the comparisons, the mean over prompts is one question per group, in place of a question per prompt. The rows of
single prompts remain in the tables, outside of Holm's correction: five wordings of a task are not five questions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.pairwise import Pair
from vernacular.comparison.schema import COMPARISONS
from vernacular.metrics.metric import Metric
from vernacular.statistics.over_prompts import LIKE_THESE, detectable
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT, SETTING, Evaluation

_SHARED = [name for name in (*SETTING, "dataset") if name not in ("prompt", "seed")]


@dataclass(frozen=True)
class PromptGroup:
    """Evaluations that differ in prompt (and seed) only.

    Attributes:
        setting: SETTING of the group, with "evaluation"; prompt "all", seed null if the runs have several
        runs: (prompts, seeds) IDs of evaluations, the default prompt first, then by name
        prompts: name of each row
    """

    setting: dict
    runs: tuple[tuple[str, ...], ...]
    prompts: tuple[str, ...]

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
        setting = {name: first[name] for name in SETTING} | {
            "prompt": ALL_PROMPTS,
            "seed": seeds.pop() if len(seeds) == 1 else None,
            "evaluation": _group_id(first),
        }
        groups.append(PromptGroup(setting, runs, tuple(prompts)))
    return groups


def by_documents(
    evaluations: Mapping[str, dict], documents: Mapping[str, str | None]
) -> tuple[dict[str, dict], list[dict]]:
    """Return evaluations whose "dataset" differs where their documents do, and a note for each that leaves its group.

    Tasks of another tool whose names differ in the prompt may differ in their rows too; items are then no pairs.

    Args:
        documents: hash of an evaluation's documents; None: those of the other prompts
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


def _group_id(spec: dict) -> str:
    """Return the ID of a group: that of a member without its seed, with "all" for its prompt."""
    setting = {name: spec[name] for name in SETTING} | {"seed": 0, "prompt": ALL_PROMPTS}
    return Evaluation(**setting, data="", limit=None).id


@dataclass(frozen=True)
class GroupValues:
    """Per-item values of some models in a group, over the items that all of them share in all runs.

    Attributes:
        clusters: (n,) labels
        chance: (n,) chance level of each item
        inputs: model -> arrays (n items, prompts, seeds), one per array that the metric needs
        n_own: model -> number of items that this model has in all runs
    """

    clusters: np.ndarray
    chance: np.ndarray
    inputs: dict[str, list[np.ndarray]]
    n_own: dict[str, int]


def group_values(
    group: PromptGroup, aligned: Mapping[str, tuple[Items, dict[str, Side]]], models: list[str], metric: Metric
) -> GroupValues | None:
    """Return the values of `models` in all runs of a group; None if a run has no item in common with the others.

    `aligned` holds what `align` returns, by evaluation.
    """
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
    n_arrays = len(metric.needs) if metric.corpus else 1
    inputs = {model: [np.empty(shape) for _ in range(n_arrays)] for model in models}
    for p, row in enumerate(group.runs):
        for s, evaluation in enumerate(row):
            items, sides = aligned[evaluation]
            positions = {item: i for i, item in enumerate(items.ids)}
            indices = np.array([positions[item] for item in order])
            for model in models:
                for target, array in zip(inputs[model], sides[model].inputs(metric), strict=True):
                    target[:, p, s] = array[indices]
    return GroupValues(items.clusters[indices], items.chance[indices], inputs, {m: len(own[m]) for m in models})


_KEY = ("baseline", "candidate", "evaluation", "metric")
TEST = "mean over prompts: t over items and prompts, Satterthwaite"
TEST_THESE = "mean over these prompts: t over items"
_COPIED = ("evaluation", *SETTING, "metric", "unit", "higher_is_better", "headline", "n", "p_value", "note")


def comparison_rows(prompt_rows: Iterable[dict], pairs: list[Pair]) -> list[dict]:
    """Return a COMPARISONS row for each of `pairs` that PROMPTS rows compare, in the direction of the pair."""
    directions = {pair: 1.0 for pair in pairs}
    rows = []
    for prompt_row in prompt_rows:
        if prompt_row["baseline"] is None:
            continue
        found = prompt_row["baseline"], prompt_row["model"]
        for pair, reverse in ((found, False), (found[::-1], True)):
            if pair in directions:
                rows.append(_row(prompt_row, pair, reverse=reverse))
    return rows


def _row(prompt_row: dict, pair: Pair, *, reverse: bool) -> dict:
    row = dict.fromkeys(COMPARISONS.schema.names) | {name: prompt_row[name] for name in _COPIED}
    names = ("baseline", "candidate")
    ends = [prompt_row["ci_low"], prompt_row["ci_high"]]
    difference = prompt_row["value"]
    if reverse:
        names = names[::-1]
        ends = [None if end is None else -end for end in reversed(ends)]
        difference = None if difference is None else -difference
    for name, source in zip(("baseline", "candidate"), names, strict=True):
        row |= {f"{name}_value": prompt_row[f"{source}_value"], f"n_{name}": prompt_row[f"n_{source}"] or 0}
    return row | {
        "baseline": pair[0],
        "candidate": pair[1],
        "category": "",
        "difference": difference,
        "ci_low": ends[0],
        "ci_high": ends[1],
        "test": TEST if prompt_row["question"] == LIKE_THESE else TEST_THESE,
        "minimum_detectable_difference": detectable(prompt_row["se"], prompt_row["df"]),
    }


def replaced(rows: Iterable[dict], prompt_rows: Iterable[dict]) -> set[tuple[str, str, str, str]]:
    """Return (baseline, candidate, evaluation, metric) of the single prompts for which one of `rows`, a mean, stands.

    `rows`: per COMPARISONS; those that are no means stand for nothing else.
    """
    runs = {(row["evaluation"], row["metric"]): row["evaluations"] for row in prompt_rows}
    return {
        (row["baseline"], row["candidate"], run, row["metric"])
        for row in rows
        if row["prompt"] == ALL_PROMPTS and row["p_value"] is not None
        for run in runs[row["evaluation"], row["metric"]]
    }


def without_single_prompts(rows: list[dict], prompt_rows: list[dict]) -> list[dict]:
    """Return COMPARISONS rows without the single prompts for which a mean over prompts stands."""
    singles = replaced(rows, prompt_rows)
    return [row for row in rows if tuple(row[name] for name in _KEY) not in singles]
