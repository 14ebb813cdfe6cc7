"""Results of a run as pandas DataFrames, for notebooks and scripts.

    >>> from vernacular import results
    >>> results.values("results").query("language == 'gl' and headline")                       # doctest: +SKIP
    >>> results.items("results", "llama-2-gl", "openbookqa.gl.options.0shot")                   # doctest: +SKIP
    >>> results.comparisons("results").query("significant")                                     # doctest: +SKIP
    >>> results.tokens("results", "llama-2-gl", "cola.gl.acceptability.0shot")                  # doctest: +SKIP

The argument `directory` is the directory that the workflow writes, `results`. Files are verified when they are read: a
damaged or moved file raises ArtifactError, which names it.

`evidence` is a paired comparison that may be looked at after every cluster of items, and ended as soon as it is
decided. A bet λ on the differences d₁, d₂, … in [-1, 1], fixed beforehand, has the wealth W_t = Π (1 + λ d_s). If the
mean is 0, its expectation is at most 1, and so is that of the average over several bets. By Ville's inequality, it
reaches 1/α at any time with a probability of at most α (Waudby-Smith & Ramdas 2024, Estimating means of bounded random
variables by betting). A test that is repeated after every cluster has no such bound: it finds 40 of 100 equal models
different.

The clusters must come in an order that is independent of the differences. `hash_order` is that of `limit`, so that a
run with a larger limit continues the sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from vernacular.comparison.curves.schema import CURVES
from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL, PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import DataError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.tables import to_frame
from vernacular.inference.schema import SCORES
from vernacular.metrics.metric import COUNT, display_name
from vernacular.metrics.schema import RESULTS, TASK_RESULTS
from vernacular.metrics.tokens import readable_tokens
from vernacular.protocols.schema import REQUESTS
from vernacular.types import ALL_PROMPTS, SETTING

ALPHA = 0.05
BETS = np.array([-0.8, -0.4, -0.2, -0.1, -0.05, 0.05, 0.1, 0.2, 0.4, 0.8])
_GRID = np.linspace(-1, 1, 2001)  # of possible means, for the confidence sequence


def values(directory) -> pd.DataFrame:
    """Return every value: one row per model, evaluation, metric and category ("" is all items), unrounded.

    Columns as in `results.csv` (docs/tables.md): shares from 0 to 1, surprisal in nats.

    Raises:
        ArtifactError: The summary does not exist or is damaged.
    """
    return to_frame(artifacts.read(Path(directory) / "summary" / "results.parquet", RESULTS))


def comparisons(directory) -> pd.DataFrame:
    """Return the paired comparisons: one row per pair of models, evaluation, metric and category.

    A difference is candidate minus baseline; `p_holm` is set for headline metrics over all items (docs/comparisons.md).

    Raises:
        ArtifactError: The comparisons do not exist or are damaged.
    """
    return to_frame(artifacts.read(Path(directory) / "summary" / "comparisons.parquet", COMPARISONS))


def changes(directory, baseline: str, candidate: str) -> pd.DataFrame:
    """Return the items that improved or regressed between two compared models, the largest regressions first.

    Raises:
        DataError: The two models were not compared.
        ArtifactError: The file is damaged.
    """
    pair = f"{baseline}--{candidate}"
    path = Path(directory) / "comparisons" / pair / "changes.parquet"
    if not path.exists():
        pairs = sorted(entry.parent.name for entry in Path(directory).glob("comparisons/*/changes.parquet"))
        raise DataError(f'{directory}: comparison "{pair}" not found.{suggest(pair, pairs)}')
    return to_frame(artifacts.read(path, CHANGES))


def items(directory, model: str, evaluation: str) -> pd.DataFrame:
    """Return one model's results per item, with a column for each per-item metric.

    Columns: `item_id`, `prompt`, `choices`, `gold` (indices), `option_scores` (nats, or similarity), `prediction`,
    `correct`, `tie`, `flags` and others; then the metrics by name.

    Raises:
        DataError: The model or the evaluation has no results.
        ArtifactError: The file is damaged.
    """
    return item_frame(artifacts.read(_find(directory, model, "tasks", evaluation), TASK_RESULTS))


def item_frame(table: pa.Table) -> pd.DataFrame:
    """Return the rows of a task-results file with a column per metric."""
    values = [dict(row or ()) for row in table["metrics"].to_pylist()]
    metrics = pd.DataFrame([{name: row[name] for name in row if COUNT not in name} for row in values])
    return pd.concat([table.drop_columns(["metrics"]).to_pandas(), metrics], axis=1)


def tokens(directory, model: str, evaluation: str) -> pd.DataFrame:
    """Return the scored tokens of one model: one row per token of each scored span.

    Columns: `item_id`, `role` ("choice:0", "sentence", …), `position` (0 is the first token of the span), `token` (its
    text; of a part of a character, its bytes: <0xC3>), `logprob` (nats; NaN where no token precedes it), `surprisal`
    (its negative), `is_greedy`, `flags`.

    Raises:
        DataError: The model or the evaluation has no scores; evaluations of generated text have none.
        ArtifactError: The file is damaged.
    """
    scores = artifacts.read(_find(directory, model, "scores", evaluation), SCORES)
    path = Path(directory) / "requests" / f"{evaluation}.parquet"
    texts = artifacts.read(path, REQUESTS, columns=["item_id", "role", "prefix", "text"], dictionary_columns=["prefix"])
    return token_frame(scores, texts.to_pylist())


def token_frame(scores: pa.Table, requests: list[dict]) -> pd.DataFrame:
    """Return a row per token of scores; `requests` have item_id, role, prefix and text."""
    texts = {(row["item_id"], row["role"]): row["prefix"] + row["text"] for row in requests}
    frame = scores.select(["item_id", "role", "logprobs", "is_greedy", "flags"]).to_pandas()
    columns = (scores[name].to_pylist() for name in ("item_id", "role", "rendered", "tokens", "offsets"))
    frame["token"] = [
        readable_tokens(texts[item, role] if rendered is None else rendered, tokens or [], offsets or [])
        for item, role, rendered, tokens, offsets in zip(*columns, strict=True)
    ]
    frame["position"] = [range(len(row)) for row in frame["token"]]
    # a request without outputs has one row, with its flags
    frame = frame.explode(["token", "logprobs", "is_greedy", "position"], ignore_index=True)
    frame["logprob"] = frame["logprobs"].astype("float32")
    frame["surprisal"] = -frame["logprob"]
    return frame[["item_id", "role", "position", "token", "logprob", "surprisal", "is_greedy", "flags"]]


def prompts(directory) -> pd.DataFrame:
    """Return the means over several prompts: one row per model or pair of models, evaluation and metric.

    A row of a pair has a `baseline`; its values are differences, candidate (`model`) minus baseline (docs/prompts.md).

    Raises:
        ArtifactError: The comparisons do not exist or are damaged.
    """
    return to_frame(artifacts.read(Path(directory) / "summary" / "prompts.parquet", PROMPTS))


def evidence(directory, baseline: str, candidate: str, evaluation: str, metric: str = "accuracy") -> pd.DataFrame:
    """Return how the evidence of a difference grows, one row per cluster of items that both models have.

    The clusters are in the order in which `limit` takes them. If `evidence` reaches 20 in any row, the models differ at
    a level of 0.05, however often the growing results are looked at (docs/comparisons.md, "Stopping early"). It holds
    for this prompt, one pair and one metric from 0 to 1 per item.

    Columns: `cluster`, `n` (items so far), `difference` (mean of the cluster, candidate minus baseline), `evidence`,
    `low` and `high` (confidence sequence of the difference).

    Raises:
        DataError: A model or the evaluation has no results, or the metric is not one of single items from 0 to 1.
        ArtifactError: A file is damaged.
    """
    sides = []
    for model in (baseline, candidate):
        frame = items(directory, model, evaluation)
        if metric not in frame:
            known = [name for name in frame.columns if name not in TASK_RESULTS.schema.names]
            raise DataError(f'{model}: no metric "{metric}" per item in {evaluation}.{suggest(metric, known)}')
        sides.append(frame.set_index("item_id")[["cluster_id", metric]])
    both = sides[0].join(sides[1], lsuffix="_left", how="inner").dropna(subset=[f"{metric}_left", metric])
    differences = both[metric] - both[f"{metric}_left"]
    if not (differences.abs() <= 1).all():
        raise DataError(f"{evaluation}: {metric} is not a number from 0 to 1.")
    alone = "item " + both.index.to_series()
    clusters = {name: group.to_numpy() for name, group in differences.groupby(both["cluster_id"].fillna(alone))}
    labels = list(clusters)
    labels = [labels[position] for position in hash_order(labels)]
    found = sequential([clusters[label] for label in labels], labels)
    columns = {"cluster": labels, "n": found.n_items, "difference": found.differences, "evidence": found.evidence}
    return pd.DataFrame(columns | {"low": found.low, "high": found.high})


def plot_values(directory, evaluation: str, metric: str | None = None):
    """Return a figure (matplotlib) of each model's value with its 95 % interval, and chance as a dashed line.

    `metric`: None for the first headline metric.

    Raises:
        DataError: The evaluation or the metric has no values.
        ArtifactError: The summary does not exist or is damaged.
    """
    frame = values(directory)
    rows = frame[frame["category"].fillna("") == ""]
    rows = _chosen(rows, "evaluation", evaluation)
    rows = _chosen(rows, "metric", metric or _headline(rows))
    return _forest(rows.assign(label=rows["model"]), f"{display_name(rows['metric'].iloc[0])}, {evaluation}", "item")


def plot_categories(directory, model: str, evaluation: str, metric: str | None = None):
    """Return a figure of a model's value in each category of the items; other arguments and errors: `plot_values`."""
    frame = _chosen(_chosen(values(directory), "evaluation", evaluation), "model", model)
    rows = _chosen(frame[frame["category"].fillna("") != ""], "metric", metric or _headline(frame))
    title = f"{display_name(rows['metric'].iloc[0])}, {model}, {evaluation}"
    return _forest(rows.assign(label=rows["category"]), title, "item")


def plot_distribution(directory, model: str, evaluation: str, measure: str = "margin"):
    """Return a figure of a measure of single items, such as the margin of the correct option, by outcome.

    Raises:
        DataError: The evaluation has no results of this model, or its items have no such measure.
        ArtifactError: A file is damaged.
    """
    from matplotlib.figure import Figure

    frame = items(directory, model, evaluation)
    if measure not in frame or frame[measure].isna().all():
        known = [name for name in frame.columns if name not in TASK_RESULTS.schema.names]
        raise DataError(f'{evaluation}: no measure "{measure}" per item.{suggest(measure, known)}')
    frame = frame[np.isfinite(frame[measure].astype(float))]
    names = frame["correct"].map({True: "correct", False: "incorrect"}).fillna("not judged")
    colors = {"correct": "#0b6b68", "incorrect": "#c26a1b", "not judged": "0.6"}
    groups = {name: frame.loc[names == name, measure].astype(float) for name in colors if (names == name).any()}
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    shown = [colors[name] for name in groups]
    first, second, *_ = np.histogram_bin_edges(frame[measure], max(8, min(40, round(2 * len(frame) ** 0.5))))
    bins = np.arange(np.floor(first / (step := second - first)), frame[measure].max() / step + 1) * step  # 0 is an edge
    axes.hist(list(groups.values()), bins=bins, stacked=True, color=shown, label=list(groups))
    axes.set_title(f"{display_name(measure)}, {model}, {evaluation}\nn = {len(frame)} items", fontsize=10)
    axes.set_xlabel(display_name(measure))
    axes.set_ylabel("items")
    axes.legend()
    return figure


def plot_overall(directory, scope: str = "all"):
    """Return a figure of each model's mean above chance with its 95 % interval; `scope`: "all" or a language.

    Raises:
        DataError: The scope has no means.
        ArtifactError: The comparisons do not exist or are damaged.
    """
    frame = _chosen(to_frame(artifacts.read(Path(directory) / "summary" / "overall.parquet", OVERALL)), "scope", scope)
    rows = frame.rename(columns={"mean": "value", "n_evaluations": "n"}).assign(unit="share", chance_level=0.0)
    return _forest(rows.assign(label=rows["model"]), f"Above chance, {scope}", "evaluation")


def plot_differences(directory, baseline: str, candidate: str, unit: str = "share"):
    """Return a figure of the differences of two models in the headline metrics of a unit, the largest first.

    A filled point is significant (Holm correction over all headline metrics of the pair).

    Raises:
        DataError: The two models were not compared, or not in this unit.
        ArtifactError: The comparisons do not exist or are damaged.
    """
    frame = comparisons(directory)
    frame = frame[frame["headline"].fillna(False) & (frame["category"].fillna("") == "") & frame["difference"].notna()]
    rows = _chosen(_chosen(_chosen(frame, "baseline", baseline), "candidate", candidate), "unit", unit)
    labels = [
        f"{name}, {display_name(metric)}" for name, metric in zip(rows["evaluation"], rows["metric"], strict=True)
    ]
    rows = rows.rename(columns={"difference": "value"}).assign(label=labels, chance_level=0.0)
    return _forest(rows, f"{candidate} minus {baseline}", "item", is_filled=rows["significant"].fillna(False))


def plot_prompts(directory, model: str, evaluation: str, metric: str | None = None):
    """Return a figure of a model's value with each prompt, and their mean; `evaluation`: with any of the prompts.

    Other arguments and errors: `plot_values`.
    """
    frame = values(directory)
    frame = frame[frame["category"].fillna("") == ""]
    own = _chosen(frame, "evaluation", evaluation).iloc[0]
    names = [name for name in SETTING if name != "prompt"]
    same = (frame[names].astype(object) == own[names]).all(axis=1)
    rows = _chosen(frame[same], "model", model)
    rows = _chosen(rows, "metric", metric or _headline(rows))
    labels = rows["prompt"].where(rows["prompt"] != ALL_PROMPTS, "mean over prompts")
    title = f"{display_name(rows['metric'].iloc[0])}, {model}, {evaluation}"
    return _forest(rows.assign(label=labels), title, "item", is_filled=rows["prompt"] == ALL_PROMPTS)


def plot_curves(directory, evaluation: str, metric: str | None = None):
    """Return a figure of each training curve with its 95 % intervals, by tokens, or by steps if any are unknown.

    A checkpoint without a value is a gap. `metric`: a headline metric, None for the first.

    Raises:
        DataError: The evaluation or the metric has no curves.
        ArtifactError: The curves do not exist or are damaged.
    """
    from matplotlib.figure import Figure

    frame = to_frame(artifacts.read(Path(directory) / "summary" / "curves.parquet", CURVES))
    rows = _chosen(frame[frame["category"].fillna("") == ""], "evaluation", evaluation)
    rows = _chosen(rows, "metric", metric or rows["metric"].iloc[0])
    axis = "step" if rows["tokens"].isna().any() else "tokens"
    factor, label = _units(rows["unit"].iloc[0])
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, curve in rows.sort_values(axis, kind="stable").groupby("curve"):
        x = curve[axis].astype(float)
        [line] = axes.plot(x, factor * curve["value"].astype(float), "o-", label=name)
        bounds = (factor * curve[bound].astype(float) for bound in ("ci_low", "ci_high"))
        axes.fill_between(x, *bounds, alpha=0.2, color=line.get_color())
    if len(levels := rows["chance_level"].dropna().unique()) == 1:
        axes.axhline(factor * levels[0], color="0.35", linestyle="--", linewidth=1)
    title = f"{display_name(rows['metric'].iloc[0])}, {evaluation}"
    axes.set_title(f"{title}\nn = {_range(rows['n'])} items", fontsize=10)
    axes.set_xlabel(axis)
    axes.set_ylabel(label)
    axes.legend()
    return figure


def _units(unit: str | None) -> tuple[int, str]:
    """Return the factor of drawn values, and their unit: shares are percentages."""
    return (100, "%") if unit == "share" else (1, unit or "")


def _range(counts: pd.Series) -> str:
    """Return the smallest and the largest of some counts, or the only one."""
    known = sorted({int(n) for n in counts.dropna()})
    return "–".join(map(str, dict.fromkeys([known[0], known[-1]])))


def _headline(rows: pd.DataFrame) -> str | None:
    """Return the first headline metric of some values."""
    return next(iter(rows.loc[rows["headline"].fillna(False), "metric"]), None)


def _chosen(frame: pd.DataFrame, column: str, name: str | None) -> pd.DataFrame:
    """Return the rows with a name in a column. Raises DataError with the closest name if there are none."""
    if name not in (known := frame[column].dropna().unique()):
        raise DataError(f'{column}: no results of "{name}".{suggest(str(name), known)}')
    return frame[frame[column] == name]


def _forest(rows: pd.DataFrame, title: str, noun: str, is_filled=None):
    """Return a figure with a point and an interval per row, the highest value first; chance is a dashed line."""
    from matplotlib.figure import Figure  # takes half a second, which readers of tables need not wait for

    factor, label = _units(rows["unit"].iloc[0])
    rows = rows.assign(is_filled=True if is_filled is None else is_filled).sort_values("value", kind="stable")
    figure = Figure(figsize=(7, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, (_, row) in enumerate(rows.iterrows()):
        axes.plot(factor * row[["ci_low", "ci_high"]].astype(float), [place, place], color="0.35", linewidth=1.5)
        fill = {} if row["is_filled"] else {"markerfacecolor": "white"}
        axes.plot(factor * row["value"], place, "o", color="#0b6b68", **fill)
    if len(levels := rows["chance_level"].dropna().unique()) == 1:
        axes.axvline(factor * levels[0], color="0.35", linestyle="--", linewidth=1)
    else:  # categories with different numbers of options
        axes.plot(factor * rows["chance_level"].astype(float), range(len(rows)), "|", color="0.35", markersize=12)
    axes.set_yticks(range(len(rows)), rows["label"])
    axes.set_title(f"{title}\nn = {_range(rows['n'])} {noun}s", fontsize=10)
    axes.set_xlabel(label)
    return figure


def _find(directory, model: str, kind: str, evaluation: str) -> Path:
    """Return the file of a model's evaluation. Raises DataError with the closest names if it does not exist."""
    root = Path(directory)
    path = root / model / kind / f"{evaluation}.parquet"
    if path.exists():
        return path
    models = sorted(entry.parent.name for entry in root.glob("*/metrics.parquet"))
    if model not in models:
        raise DataError(f'{root}: model "{model}" not found.{suggest(model, models)}')
    names = sorted(entry.stem for entry in path.parent.glob("*.parquet"))
    raise DataError(f'{path.parent}: evaluation "{evaluation}" not found.{suggest(evaluation, names)}')


@dataclass(frozen=True)
class Sequential:
    """A sequential comparison of T clusters.

    Attributes:
        differences: (T,) mean difference of each cluster, in [-1, 1]
        evidence: (T,) average wealth of the bets against equality; 20 or more at any time is significant
        n_items: (T,) number of items up to each cluster
        decided: position of the first cluster at which the evidence is 1/α; None if it is nowhere
        low, high: (T,) confidence sequence: it contains the true mean at all times with a probability of 1 - α
    """

    differences: np.ndarray
    evidence: np.ndarray
    n_items: np.ndarray
    decided: int | None
    low: np.ndarray
    high: np.ndarray


def hash_order(clusters: Sequence[str], seed: int = 0) -> list[int]:
    """Return the positions of the clusters in the order in which `limit` takes them: by a hash of seed and label."""
    return sorted(range(len(clusters)), key=lambda position: fingerprint([seed, clusters[position]]))


def sequential(values: Sequence[np.ndarray], clusters: Sequence[str], *, seed: int = 0) -> Sequential:
    """Return the evidence after each cluster.

    Args:
        values: Differences of the items of each cluster, in [-1, 1].
        clusters: Their labels, in hash order.

    Raises:
        ValueError: The clusters are in another order, in which rows may be sorted by difficulty or topic; or a value is
            not in [-1, 1].
    """
    if hash_order(clusters, seed) != list(range(len(clusters))):
        raise ValueError("the clusters are not in hash order, so the evidence would depend on how the rows are sorted.")
    differences = np.array([np.mean(cluster) for cluster in values], dtype=float)
    if not (np.abs(differences) <= 1).all():
        raise ValueError("differences must be numbers from -1 to 1.")
    evidence = wealth(differences)
    reached = np.flatnonzero(evidence >= 1 / ALPHA)
    low, high = _confidence_sequence(differences)
    counts = np.cumsum([len(cluster) for cluster in values]).astype(int)
    return Sequential(differences, evidence, counts, int(reached[0]) if len(reached) else None, low, high)


def wealth(differences: np.ndarray) -> np.ndarray:
    """Return the average wealth of BETS after each difference; (..., T) of (..., T).

    >>> wealth(np.array([1.0, -1.0])).round(4).tolist()
    [1.0, 0.8295]
    """
    products = [np.cumprod(1 + bet * differences, axis=-1) for bet in BETS]
    return np.mean(products, axis=0)


def _confidence_sequence(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (T,) ends of the means that no bet has refuted so far; bets on d - m are divided by 1 + |m|."""
    low, high = np.empty(len(differences)), np.empty(len(differences))
    logs = np.zeros((len(BETS), len(_GRID)))
    scaled = BETS[:, None] / (1 + np.abs(_GRID))
    remaining = np.ones(len(_GRID), dtype=bool)
    for time, difference in enumerate(differences):
        logs += np.log1p(scaled * (difference - _GRID))
        remaining &= np.exp(logs).mean(axis=0) < 1 / ALPHA
        kept = _GRID[remaining]
        low[time], high[time] = (kept[0], kept[-1]) if len(kept) else (np.nan, np.nan)
    return low, high
