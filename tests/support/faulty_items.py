"""Simulated responses to items with known faults, also in several languages.

The score of an option is what makes it attractive (for all models, a family, one model), and of the true option a signal
that grows with the ability of the model above the difficulty of the item. Two models of different families that are
both incorrect choose the same option in about 64 % of the cases.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from vernacular.core import artifacts
from vernacular.data.load import make_items, mark_repeats
from vernacular.data.schema import ITEMS
from vernacular.data.tasks import load_task
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.statistics.audit import Responses

OK, WRONG_GOLD, TWO_CORRECT, BROKEN = range(4)
FAMILIES = {3: (2, 1), 5: (2, 2, 1), 10: (4, 3, 2, 1), 20: (8, 4, 3, 2, 1, 1, 1)}
CLOSE = {"shared": 0.85, "natural": 0.2}  # languages: share of the attraction that is common, spread of difficulty


@dataclass(frozen=True)
class Simulated:
    languages: list[Responses]  # faults are in the first
    kind: np.ndarray  # (n,) of the fault

    @property
    def responses(self) -> Responses:
        return self.languages[0]


def simulate(rng, n_models, n_items, *, options=4, ability=(0.2, 3.0), faults=(0.05, 0.03, 0.03), languages=1,
             shared=1.0, natural=0.0, attractive=False) -> Simulated:  # fmt: skip
    """Draw responses; `faults`: shares of wrong golds, of two correct options, and of items without a correct one."""
    sizes = FAMILIES[n_models]
    family = np.repeat(np.arange(len(sizes)), sizes)
    theta = rng.uniform(*ability, len(sizes))[family] + rng.normal(0, 0.3, n_models)
    discrimination, difficulty = np.exp(rng.normal(-0.125, 0.5, n_items)), rng.normal(0.3, 1, n_items)
    length, scale = np.exp(rng.normal(0, 0.35, n_items)), np.exp(rng.normal(0, 0.3, n_models))
    rows, true = np.arange(n_items), rng.integers(options, size=n_items)
    second = (true + rng.integers(1, options, size=n_items)) % options
    kind = rng.choice(4, n_items, p=[1 - sum(faults), *faults])
    attraction = [rng.standard_normal((size, n_items, options)) for size in (1, len(sizes), n_models)]
    if attractive:
        second = np.where(np.arange(options) == true[:, None], -np.inf, attraction[0][0]).argmax(1)
    drawn = []
    for language in range(languages):
        common, kin, own = (
            np.sqrt(shared) * a + np.sqrt(1 - shared) * rng.standard_normal(a.shape) for a in attraction
        )
        utility = common + 0.7 * kin[family] + 0.5 * own
        behind = rng.normal(0.5 * (language == 0), 0.2, n_models) * (languages > 1)
        able = np.maximum(theta - behind, 0.05)[:, None]
        hard = difficulty + natural * rng.standard_normal(n_items)
        signal, gold = discrimination * np.logaddexp(0, 1.5 * (able - hard)) / 1.5, true.copy()
        if language == 0:
            signal[:, kind == BROKEN] = 0
            gold[kind == WRONG_GOLD] = second[kind == WRONG_GOLD]
            gold[kind == BROKEN] = rng.integers(options, size=(kind == BROKEN).sum())
            two = kind == TWO_CORRECT
            utility[:, rows[two], second[two]] += signal[:, two]
        utility[:, rows, true] += signal
        scores = 3 * utility * length[:, None] * scale[:, None, None]
        drawn.append(responses(scores, gold, list(map(str, family))))
    return Simulated(drawn, kind)


def responses(scores: np.ndarray, gold: np.ndarray, families: list[str]) -> Responses:
    """Return scores (M, n, K) with one correct option per item as responses."""
    correct = np.arange(scores.shape[2]) == gold[:, None]
    return Responses([[own] for own in scores], correct, np.ones_like(correct), families)


def shuffled(rng, given: Responses) -> Responses:
    """Return the responses with the items of each model permuted, the correct option first."""
    order = np.argsort(~given.correct, axis=1, kind="stable")
    scores = [rng.permutation(np.take_along_axis(run, order, 1)) for [run] in given.scores]
    return responses(np.array(scores), np.zeros(len(order), int), given.families)


def share_incorrect(given: Responses) -> np.ndarray:
    """Return the share of models, by family, that do not choose the correct option; ties by the margin."""
    margins = []
    for [run] in given.scores:
        best = np.where(given.correct, run, -np.inf).max(1)
        margins.append(best - np.where(given.correct, -np.inf, run).max(1))
    margin = np.array(margins)
    w = 1 / np.array([given.families.count(family) for family in given.families])
    w /= w.sum()
    z = margin / np.median(np.abs(margin), axis=1, keepdims=True)
    return 1 - w @ (margin > 0) - 1e-3 * np.tanh(w @ np.clip(z, -4, 4))


TASK = {
    "task": "rivers",
    "protocols": ["options"],
    "item_type": "question",
    "columns": {"id": "id", "question": "question", "choices": ["a", "b", "c", "d"], "gold": "gold", "gold_format": "index"},
    "source": {"file": "rivers.{language}.jsonl"},
    "languages": {"gl": {}},
}  # fmt: skip
LANGUAGES = ("gl", "es", "pt", "ca")
EVALUATION = "rivers.gl.options.0shot"


def write_run(directory: Path, drawn: Simulated, *, same_ids: bool = True, **settings) -> None:
    """Write a config, its items, and per-item results of its models, as a run leaves them; `settings` of the config.

    Several languages are a parallel task; `same_ids`: an item has the same ID in all of them.
    """
    codes = LANGUAGES[: len(drawn.languages)]
    task = TASK | {"languages": {code: {} for code in codes}, "parallel": len(codes) > 1}
    (directory / "rivers.yaml").write_text(yaml.safe_dump(task), "utf-8")
    names = [f"m{number}" for number in range(len(drawn.responses.scores))]
    models, first = {}, {}
    for name, family in zip(names, drawn.responses.families, strict=True):
        base = first.setdefault(family, name)
        models[name] = {"source": f"lab/{name}"} if base == name else {"base": base, "adapter": f"lab/{name}"}
    config = {"models": models, "tasks": ["."], "evaluations": [{"task": "rivers"}], "audit": {}} | settings
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    columns = load_task(directory / "rivers.yaml")["languages"]["gl"]["columns"]
    for code, given in zip(codes, drawn.languages, strict=True):
        prefix = "q" if same_ids or code == "gl" else code
        rows = [
            {"id": f"{prefix}{i:03}", "question": f"Which river is number {i}?", "gold": int(right)}
            | {letter: f"{letter.upper()}{i}" for letter in "abcd"}
            for i, right in enumerate(given.correct.argmax(1))
        ]
        (directory / f"rivers.{code}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
        items, counts = make_items(rows, "question", columns)
        assert counts["kept"] == len(rows)
        mark_repeats(items)
        write(directory / "resources" / "items" / f"rivers.{code}.parquet", ITEMS, items)
        for name, [scores] in zip(names, given.scores, strict=True):
            results = [_result(item, own) for item, own in zip(items, scores.tolist(), strict=True)]
            write(directory / f"results/{name}/tasks/rivers.{code}.options.0shot.parquet", TASK_RESULTS, results)


def write(path: Path, kind: artifacts.Kind, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    artifacts.write(path, kind, rows, {"fingerprint": path.stem})


def _result(item: dict, scores: list[float]) -> dict:
    best = scores.index(max(scores))
    empty = dict.fromkeys(TASK_RESULTS.schema.names)
    shared = {name: item[name] for name in ("item_id", "cluster_id", "category", "choices", "gold")}
    is_correct = best in item["gold"]
    answered = {"prompt": item["question"], "option_scores": scores, "prediction": item["choices"][best]}
    metrics = {"accuracy": is_correct, "accuracy_uncond": 0.5}
    answered |= {"predicted_indices": [best], "correct": is_correct, "tie": False, "metrics": metrics}
    return empty | shared | answered
