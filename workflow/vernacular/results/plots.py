"""The plots of the report as figures of matplotlib, drawn from the tables of a run."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from vernacular.comparison.curves.schema import CURVES
from vernacular.comparison.schema import ESTIMATES, OVERALL
from vernacular.core import artifacts
from vernacular.core.errors import DataError, suggest
from vernacular.core.tables import decimals, percent, rows_of
from vernacular.metrics.metric import display_name
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.report import item_details
from vernacular.report.evaluation import write_evaluation
from vernacular.results.tables import comparisons, find_results, items, measures, summary_table, values
from vernacular.types import ALL_PROMPTS, SETTING

_OUTCOMES = {  # code of an outcome, in the order of the bars: name and color
    item_details.CORRECT: ("correct", "#0b6b68"),
    item_details.TIE: ("tie", "#d9b44a"),
    item_details.INCORRECT: ("incorrect", "#c26a1b"),
    item_details.NOT_SCORED: ("not scored", "0.6"),
    item_details.ACCEPTABLE: ("acceptable", "#3b6ea5"),
    item_details.UNACCEPTABLE: ("unacceptable", "#8b4a8c"),
    item_details.SCORED: ("scored", "#2f8f83"),
}


def plot_values(directory, evaluation: str, metric: str | None = None):
    """Return a figure (matplotlib) of each model's value with its 95 % interval, and chance as a dashed line.

    `metric`: None for the first headline metric.

    Raises:
        DataError: The evaluation or the metric has no values.
        ArtifactError: The summary does not exist or is damaged.
    """
    rows = _chosen(_over_all_items(values(directory)), "evaluation", evaluation)
    rows = _chosen(rows, "metric", metric or _headline(rows))
    return _forest(rows.assign(label=rows["model"]), f"{display_name(rows['metric'].iloc[0])}, {evaluation}", "item")


def plot_categories(directory, model: str, evaluation: str, metric: str | None = None):
    """Return a figure of a model's value in each category of the items; other arguments and errors: `plot_values`."""
    frame = _of_categories(_chosen(_chosen(values(directory), "evaluation", evaluation), "model", model))
    rows = _chosen(frame, "metric", metric or _headline(frame))
    title = f"{display_name(rows['metric'].iloc[0])}, {model}, {evaluation}"
    return _forest(rows.assign(label=rows["category"]), title, "item")


def plot_distribution(directory, model: str, evaluation: str, measure: str = "margin"):
    """Return a figure of a measure of single items, such as the margin of the correct option, by outcome.

    Raises:
        DataError: The evaluation has no results of this model, or its items have no such measure.
        ArtifactError: A file is damaged.
    """
    frame = items(directory, model, evaluation)
    known = measures(frame)
    if measure not in known or not np.isfinite(frame[measure]).any():
        raise DataError(f'{evaluation}: no measure "{measure}" per item.{suggest(measure, known)}')
    frame = frame[np.isfinite(frame[measure].astype(float))]
    names = frame["correct"].map({True: "correct", False: "incorrect"}).fillna("not judged")
    colors = {"correct": "#0b6b68", "incorrect": "#c26a1b", "not judged": "0.6"}
    groups = {name: frame.loc[names == name, measure].astype(float) for name in colors if (names == name).any()}
    figure, axes = _figure(f"{display_name(measure)}, {model}, {evaluation}", f"{len(frame)} items", 3.2)
    shown = [colors[name] for name in groups]
    first, second, *_ = np.histogram_bin_edges(frame[measure], max(8, min(40, round(2 * len(frame) ** 0.5))))
    bins = np.arange(np.floor(first / (step := second - first)), frame[measure].max() / step + 1) * step  # 0 is an edge
    axes.hist(list(groups.values()), bins=bins, stacked=True, color=shown, label=list(groups))
    axes.set(xlabel=display_name(measure), ylabel="items")
    axes.legend()
    return figure


def plot_overall(directory, scope: str = "all"):
    """Return a figure of each model's mean above chance with its 95 % interval; `scope`: "all" or a language.

    Raises:
        DataError: The scope has no means.
        ArtifactError: The comparisons do not exist or are damaged.
    """
    frame = _chosen(summary_table(directory, "overall", OVERALL), "scope", scope)
    rows = frame.rename(columns={"mean": "value", "n_evaluations": "n"}).assign(unit="share", chance_level=0.0)
    return _forest(rows.assign(label=rows["model"]), f"Above chance, {scope}", "evaluation")


def plot_means(directory, by: str = "language"):
    """Return a figure of models × languages, or `by` "task": means above chance with their 95 % intervals.

    Raises DataError if there are no means, and ArtifactError if the comparisons do not exist or are damaged.
    """
    frame = summary_table(directory, "overall", OVERALL)
    is_task = frame["scope"].str.startswith("task:")
    frame = frame[(frame["scope"] == "all") | (is_task if by == "task" else ~is_task)]
    columns = {"column": frame["scope"].str.removeprefix("task:"), "row": frame["model"], "n": frame["n_evaluations"]}
    frame = frame.assign(**columns, value=frame["mean"])
    return _matrix(frame, f"Means above chance by {by}, %", "evaluation", shade=frame["mean"])


def plot_languages(directory, model: str):
    """Return a figure of a model's first headline value of each task × language, shaded from chance to all correct.

    Raises:
        DataError: The model has no values.
        ArtifactError: The summary does not exist or is damaged.
    """
    frame = _chosen(values(directory), "model", model)
    frame = _over_all_items(frame[frame["headline"].fillna(False) & frame["value"].notna()])
    frame = frame.sort_values("chance_level", key=pd.isna, kind="stable").drop_duplicates("evaluation")
    names = zip(frame["evaluation"], frame["language"], frame["metric"], strict=True)
    rows = [f"{name.replace(f'.{language}.', '.', 1)}: {display_name(metric)}" for name, language, metric in names]
    shade = (frame["value"] - frame["chance_level"]) / (1 - frame["chance_level"])  # NaN without a chance level
    return _matrix(frame.assign(row=rows, column=frame["language"]), model, "item", shade=shade)


def plot_differences(directory, baseline: str, candidate: str, unit: str = "share"):
    """Return a figure of the differences of two models in the headline metrics of a unit, the largest first.

    A filled point is significant (`significant` of docs/comparisons.md).

    Raises:
        DataError: The two models were not compared, or not in this unit.
        ArtifactError: The comparisons do not exist or are damaged.
    """
    frame = _over_all_items(comparisons(directory))
    frame = frame[frame["headline"].fillna(False) & frame["difference"].notna()]
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
    frame = _over_all_items(values(directory))
    own = _chosen(frame, "evaluation", evaluation).iloc[0]
    rows = _chosen(_like(frame, own, "prompt"), "model", model)
    rows = _chosen(rows, "metric", metric or _headline(rows))
    labels = rows["prompt"].where(rows["prompt"] != ALL_PROMPTS, "mean over prompts")
    title = f"{display_name(rows['metric'].iloc[0])}, {model}, {evaluation}"
    return _forest(rows.assign(label=labels), title, "item", is_filled=rows["prompt"] == ALL_PROMPTS)


def plot_curves(directory, evaluation: str, metric: str | None = None):
    """Return a figure of each training curve with its 95 % intervals, by tokens, steps or words, whichever most have.

    A checkpoint without a value is a gap. `metric`: a headline metric, None for the first.

    Raises:
        DataError: The evaluation or the metric has no curves.
        ArtifactError: The curves do not exist or are damaged.
    """
    rows = _chosen(_over_all_items(summary_table(directory, "curves", CURVES)), "evaluation", evaluation)
    rows = _chosen(rows, "metric", metric or rows["metric"].iloc[0])
    axis = rows[["tokens", "step", "words"]].notna().sum().idxmax()
    factor, label = _units(rows["unit"].iloc[0])
    title = f"{display_name(rows['metric'].iloc[0])}, {evaluation}"
    figure, axes = _figure(title, f"{_range(rows['n'])} items")
    for name, curve in rows.sort_values(axis, kind="stable").groupby("curve"):
        x = curve[axis].astype(float)
        [line] = axes.plot(x, factor * curve["value"].astype(float), "o-", label=name)
        bounds = (factor * curve[bound].astype(float) for bound in ("ci_low", "ci_high"))
        axes.fill_between(x, *bounds, alpha=0.2, color=line.get_color())
    if len(levels := rows["chance_level"].dropna().unique()) == 1:
        axes.axhline(factor * levels[0], color="0.35", linestyle="--", linewidth=1)
    axes.set(xlabel=axis, ylabel=label)
    axes.legend()
    return figure


def plot_outcomes(directory, evaluation: str):
    """Return a figure of the number of each model's items by outcome: correct, a tie, incorrect, or not scored.

    Raises:
        DataError: The evaluation has no results.
        ArtifactError: A file is damaged.
    """
    task, models = _task(directory, evaluation)
    figure, axes = _figure(f"Outcomes, {evaluation}", f"{task['items']} items", 1.2 + 0.3 * len(models))
    counts = np.array([row.counts for row in task["outcomes"]])
    names, left = [models[row.model] for row in task["outcomes"]], 0
    for code, (name, color) in _OUTCOMES.items():
        if counts[:, code].any():
            axes.barh(names, counts[:, code], left=left, color=color, label=name)
            left = left + counts[:, code]
    axes.invert_yaxis()
    axes.set_xlabel("items")
    axes.legend()
    return figure


def plot_reliability(directory, evaluation: str):
    """Return a figure of accuracy against mean confidence, in ten bins of each model's confidence in its choice.

    On the diagonal, a model is right as often as its probabilities say. Errors: `plot_outcomes`; DataError also if the
    evaluation has no options.
    """
    task, models = _task(directory, evaluation)
    if not task["calibration"]:
        raise DataError(f"{evaluation}: no probabilities of options.")
    figure, axes = _figure(f"Reliability, {evaluation}", f"{task['items']} items", 5)
    axes.plot([0, 1], [0, 1], color="0.35", linestyle="--", linewidth=1)
    for row in task["calibration"]:
        confidence, accuracy, _ = zip(*row.bins, strict=True)
        axes.plot(confidence, accuracy, "o-", label=f"{models[row.model]}: error {percent(row.error)}")
    axes.set(xlabel="confidence", ylabel="accuracy")
    axes.legend()
    return figure


def plot_surprisal(directory, evaluation: str, by: str = "position"):
    """Return a figure of each model's mean surprisal per word by position, or `by` "length", per character.

    Of options, the correct ones count. Errors: `plot_outcomes`; DataError also if the texts do not differ in it.
    """
    task, models = _task(directory, evaluation)
    if not (profiles := task["surprisal"][by]):
        raise DataError(f"{evaluation}: no surprisal by {by}.")
    unit, across = ("word", "word") if by == "position" else ("character", "characters")
    figure, axes = _figure(f"Surprisal by {by}, {evaluation}", f"{task['items']} items")
    for row in profiles:
        places = [point.word if by == "position" else (point.low + point.high) / 2 for point in row.points]
        axes.plot(places, [point.nats for point in row.points], "o-", label=models[row.model])
    axes.set(xlabel=across, ylabel=f"nats per {unit}")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def plot_items(directory, baseline: str, candidate: str, evaluation: str):
    """Return a figure with a point per item: its measure (margin, surprisal, …) for two models.

    Raises:
        DataError: A model or the evaluation has no results, or the items have no measure that both models share.
        ArtifactError: A file is damaged.
    """
    sides = []
    for model in (baseline, candidate):
        table = artifacts.read(find_results(directory, model, "tasks", evaluation), TASK_RESULTS)
        found = item_details.classify_outcomes(rows_of(table))
        columns = {"value": found.measure_values, "right": np.equal(found.outcomes, item_details.CORRECT)}
        sides.append((found, pd.DataFrame(columns, index=table["item_id"].to_pylist(), dtype=object)))
    [(left, x), (right, y)] = sides
    if left.measure is None or left.measure != right.measure:
        raise DataError(f"{evaluation}: {baseline} and {candidate} have no common measure of single items.")
    both = x.join(y, lsuffix="_x", rsuffix="_y", how="inner").dropna()
    figure, axes = _figure(f"{display_name(left.measure)} of each item, {evaluation}", f"{len(both)} items", 5)
    axes.axline((0, 0), slope=1, color="0.35", linestyle="--", linewidth=1)
    names = {(True, True): "both correct", (False, True): f"only {candidate}", (True, False): f"only {baseline}"}
    names[False, False] = "neither correct" if item_details.CORRECT in {*left.outcomes, *right.outcomes} else "item"
    styles = [("o", "C0"), ("s", "C2"), ("^", "C1"), ("D", "0.5")]
    for (marker, color), (key, name) in zip(styles, names.items(), strict=True):
        points = both[(both["right_x"] == key[0]) & (both["right_y"] == key[1])]
        if len(points):
            axes.plot(points["value_x"], points["value_y"], marker, color=color, alpha=0.7, label=name)
    axes.set(xlabel=baseline, ylabel=candidate)
    axes.legend()
    return figure


def plot_categories_by_language(directory, model: str, evaluation: str, metric: str | None = None):
    """Return a figure of a model's value in each category × language of a task.

    Other arguments and errors: `plot_values`.
    """
    frame = values(directory)
    own = _chosen(frame, "evaluation", evaluation).iloc[0]
    frame = _of_categories(_chosen(_like(frame, own, "language"), "model", model))
    rows = _chosen(frame, "metric", metric or _headline(frame))
    title = f"{display_name(rows['metric'].iloc[0])}, {model}, {own['task']}, {own['protocol']}"
    shade = rows["value"] if rows["unit"].iloc[0] == "share" else rows["value"] * np.nan
    return _matrix(rows.assign(row=rows["category"], column=rows["language"]), title, "item", shade=shade)


def plot_confusion(directory, model: str, evaluation: str):
    """Return a figure of the number of items by correct label (down) and predicted label (across).

    Errors: `plot_outcomes`; DataError also if items share no labels.
    """
    task, models = _task(directory, evaluation)
    answers = next((row for row in task["answers"] if models[row.model] == model and row.labels), None)
    if answers is None:
        raise DataError(f"{evaluation}: no labels of {model} that items share.")
    names = [row.label for row in answers.labels]
    cells = [
        {"row": name, "column": predicted, "value": count, "shade": count / max(1, sum(counts)), "n": sum(counts)}
        for name, counts in zip(names, answers.confusion, strict=True)
        for predicted, count in zip([*names, "none"], counts, strict=True)
    ]
    frame = pd.DataFrame(cells).assign(unit="count", ci_low=None, ci_high=None)
    return _matrix(frame, f"Correct (down) and predicted labels, {model}, {evaluation}", "item", shade=frame["shade"])


def plot_labels(directory, evaluation: str, is_difference: bool = False):
    """Return a figure of values by labels of speakers or by borrowing: alone (white) and with scores of all items.

    `is_difference`: of pairs of models instead of single models.

    Raises:
        DataError: The evaluation has no such values.
        ArtifactError: The file does not exist or is damaged.
    """
    frame = summary_table(directory, "labels", ESTIMATES)
    frame = _chosen(frame[frame["baseline"].notna() == is_difference], "evaluation", evaluation)
    if is_difference:
        frame = frame.assign(model=frame["model"] + " minus " + frame["baseline"])
    alone = {"labels_only": "value", "labels_only_low": "ci_low", "labels_only_high": "ci_high"}
    without = frame.drop(columns=list(alone.values())).rename(columns=alone).drop_duplicates(["model", "value"])
    rows = pd.concat([without.assign(score="alone"), frame[frame["score"].notna()]], ignore_index=True)
    rows = rows.assign(label=rows["model"] + ": " + rows["score"], n=rows["n_labels"], chance_level=np.nan)
    return _forest(rows, f"Labels, {evaluation}", "labeled item", is_filled=rows["score"] != "alone")


def _task(directory, evaluation: str) -> tuple[dict, list[str]]:
    """Return what the report shows of an evaluation, and the names of its models by number."""
    names = _chosen(values(directory), "evaluation", evaluation)["model"].unique()
    models = [name for name in names if (Path(directory) / name / "tasks" / f"{evaluation}.parquet").exists()]
    with TemporaryDirectory() as temporary:
        task, _, _ = write_evaluation(Path(temporary), 0, evaluation, dict(enumerate(models)), Path(directory))
    return task, models


def _units(unit: str | None) -> tuple[int, str]:
    """Return the factor of drawn values, and their unit: shares are percentages."""
    return (100, "%") if unit == "share" else (1, unit or "")


def _range(counts: pd.Series) -> str:
    """Return the smallest and the largest of some counts, or the only one."""
    known = sorted({int(n) for n in counts.dropna()})
    return "–".join(map(str, dict.fromkeys([known[0], known[-1]])))


def _over_all_items(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are not of a category."""
    return frame[frame["category"].fillna("") == ""]


def _headline(rows: pd.DataFrame) -> str:
    """Return the first headline metric of some values. Raises DataError if there is none, as without gold."""
    if (metric := next(iter(rows.loc[rows["headline"].fillna(False), "metric"]), None)) is None:
        known = suggest("", rows["metric"].unique())
        raise DataError(
            f"{', '.join(rows['evaluation'].unique())}: no value of a headline metric; name another.{known}"
        )
    return metric


def _like(frame: pd.DataFrame, own: pd.Series, name: str) -> pd.DataFrame:
    """Return the rows with the settings of a row, except for `name`; a missing one is equal to another."""
    names = [each for each in SETTING if each != name]
    return frame[(frame[names].astype(object).fillna("") == own[names].fillna("")).all(axis=1)]


def _chosen(frame: pd.DataFrame, column: str, name: str | None) -> pd.DataFrame:
    """Return the rows with a name in a column. Raises DataError with the closest name if there are none."""
    if name not in (known := frame[column].dropna().unique()):
        raise DataError(f'{column}: no results of "{name}".{suggest(str(name), known)}')
    return frame[frame[column] == name]


def _of_categories(frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame[frame["category"].fillna("") != ""]
    if rows.empty:
        raise DataError(f"{frame['evaluation'].iloc[0]}: its items have no categories.")
    return rows


def _figure(title: str, n: str, height: float = 3.6):
    """Return a figure and its axes, below what they show and the number of items."""
    from matplotlib.figure import Figure  # takes half a second, which readers of tables need not wait for

    figure = Figure(figsize=(7, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{title}\nn = {n}", fontsize=10)
    return figure, axes


def _forest(rows: pd.DataFrame, title: str, noun: str, is_filled=None):
    """Return a figure with a point and an interval per row, the best value first; chance is a dashed line."""
    factor, label = _units(rows["unit"].iloc[0])
    rows = rows.assign(is_filled=True if is_filled is None else is_filled).sort_values("value", kind="stable")
    if "higher_is_better" in rows and rows["higher_is_better"].eq(False).all():
        rows = rows[::-1]
    figure, axes = _figure(title, f"{_range(rows['n'])} {noun}s", 1.2 + 0.3 * len(rows))
    for place, (_, row) in enumerate(rows.iterrows()):
        axes.plot(factor * row[["ci_low", "ci_high"]].astype(float), [place, place], color="0.35", linewidth=1.5)
        fill = {} if row["is_filled"] else {"markerfacecolor": "white"}
        axes.plot(factor * row["value"], place, "o", color="#0b6b68", **fill)
    if len(levels := rows["chance_level"].dropna().unique()) == 1:
        axes.axvline(factor * levels[0], color="0.35", linestyle="--", linewidth=1)
    else:  # categories with different numbers of options
        axes.plot(factor * rows["chance_level"].astype(float), range(len(rows)), "|", color="0.35", markersize=12)
    axes.set_yticks(range(len(rows)), rows["label"])
    axes.set_xlabel(label)
    return figure


def _matrix(cells: pd.DataFrame, title: str, noun: str, shade: pd.Series):
    """Return a figure with a value and its interval in each row × column; `shade`: from -1 (ochre) to 1 (teal)."""
    if cells.empty:
        raise DataError(f"{title}: no values.")
    rows, columns = list(dict.fromkeys(cells["row"])), list(dict.fromkeys(cells["column"]))
    figure, axes = _figure(title, f"{_range(cells['n'])} {noun}s", 1.2 + 0.45 * len(rows))
    figure.set_figwidth(3 + 1.1 * len(columns))
    colors = np.full((len(rows), len(columns)), np.nan)
    for (_, cell), color in zip(cells.iterrows(), shade, strict=True):
        place = rows.index(cell["row"]), columns.index(cell["column"])
        colors[place] = color
        if pd.isna(cell["value"]):
            continue
        factor, digits = (100, 1) if cell.get("unit", "share") == "share" else (1, 0 if cell["unit"] == "count" else 2)
        text = decimals(factor * cell["value"], digits)
        if pd.notna(cell["ci_low"]):
            text += f"\n{decimals(factor * cell['ci_low'], digits)} to {decimals(factor * cell['ci_high'], digits)}"
        axes.text(place[1], place[0], text, ha="center", va="center", fontsize=8)
    axes.imshow(colors, cmap="BrBG", vmin=-1, vmax=1, alpha=0.6, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    return figure
