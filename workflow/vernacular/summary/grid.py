"""Worksheet grid: models down, evaluations × metrics across, as positions in the long table.

Names of models, tasks and evaluations are readable as headings of rows and columns.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from vernacular.core.errors import ArtifactError, format_count
from vernacular.core.tables import plain_text, to_frame
from vernacular.metrics.metric import display_name
from vernacular.metrics.schema import METRICS, RESULTS, is_from_samples
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT, SETTING

SAMPLES = " (samples)"  # ABOUT_SAMPLES states what they are
_MAX_TITLE = 28  # characters of a title in a heading; a longer one is shown without its parentheses


@dataclass(frozen=True)
class Headings:
    """Names to show, each unambiguous within one run; without an entry, a task or model has its own name.

    Attributes:
        titles: heading of each task
        notes: remark of each task for readers of its results, where it has one
        settings: heading of each evaluation within its task: "generation · 5 shots"
        models: label of each model: "mine-gl (adapter of mine)"
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    full_titles: Mapping[str, str] = field(default_factory=dict)

    def title(self, task: str) -> str:
        return self.titles.get(task, task)

    def setting(self, evaluation: str) -> str:
        return self.settings.get(evaluation, evaluation)

    def model(self, name: str) -> str:
        return self.models.get(name, name)

    def about(self, task: str) -> list[str]:
        """Return what is known of a task, as lines: name, complete title, note."""
        title = self.full_titles.get(task)
        lines = [task if title is None else f"{title} ({task})", self.notes.get(task)]
        return [plain_text(line)[:500] for line in lines if line]

    def column(self, language: str, title: str, setting: str, metric: str, unit) -> str:
        """Return the name of a column of values in a table without headings above each other.

        >>> Headings().column("gl", "OpenBookQA", "generation · 5 shots", "cosine_accuracy", "share")
        'gl / OpenBookQA / generation 5 shots / Cosine accuracy (share)'
        """
        unit = "" if pd.isna(unit) else f" ({unit})"
        return f"{language} / {title} / {setting.replace(' · ', ' ')} / {display_name(metric)}{unit}"


def make_headings(
    long: pd.DataFrame,
    tasks: Mapping[str, Mapping],
    models: Mapping[str, str] | None = None,
    *,
    default_prompt: bool = False,
) -> Headings:
    """Return the headings of a long table.

    Args:
        long: The table of `grid.combine_tables`.
        tasks: {task: {"title": …, "short_title": …, "note": …}} of the task files; each may be missing.
        models: Label of each model, from `model_labels`.
        default_prompt: Whether the default prompt is named, too, in a task that has values under several.
    """
    names = [task for task in long["task"].unique() if not pd.isna(task)]
    full_titles = {task: title for task in names if (title := tasks.get(task, {}).get("title"))}
    notes = {task: note for task in names if (note := tasks.get(task, {}).get("note"))}
    settings = _settings(long, default_prompt)
    titles = distinct_titles({task: tasks.get(task, {}) for task in names})
    samples = long["dataset_revision"].map(is_from_samples).groupby(long["task"]).agg(["any", "all"])
    for task in samples.index[samples["all"]]:
        titles[task] += SAMPLES
    for task in samples.index[samples["any"] & ~samples["all"]]:
        shown = long[(long["task"] == task) & long["dataset_revision"].map(is_from_samples)]
        settings |= {name: settings[name] + SAMPLES for name in shown["evaluation"].unique()}
    return Headings(titles, notes, settings, models or {}, full_titles)


def distinct_titles(tasks: Mapping[str, Mapping]) -> dict[str, str]:
    """Return a heading per task: its short title if no other task has it, or else the complete one, or with its name.

    >>> x = {"title": "X"}
    >>> long, short = {"title": "A long title of some benchmark (test)"}, x | {"short_title": "Y"}
    >>> distinct_titles({"a": long, "b": x, "c": x, "d": short})
    {'a': 'A long title of some benchmark', 'b': 'X [b]', 'c': 'X [c]', 'd': 'Y'}
    """
    complete = {task: file.get("title", task) for task, file in tasks.items()}
    short = {task: title if len(title) <= _MAX_TITLE else title.partition(" (")[0] for task, title in complete.items()}
    short |= {task: file["short_title"] for task, file in tasks.items() if "short_title" in file}
    headings = {}
    for task in complete:
        candidates = (short, complete)
        unambiguous = [titles[task] for titles in candidates if list(titles.values()).count(titles[task]) == 1]
        headings[task] = unambiguous[0] if unambiguous else f"{complete[task]} [{task}]"
    return headings


def _settings(long: pd.DataFrame, default_prompt: bool) -> dict[str, str]:
    """Return the heading of each evaluation: protocol, shots, and what else distinguishes it: seed, style, prompt."""
    keys = ["task", "protocol", "shots", "style", "prompt"]
    columns = ["evaluation", "language", *keys, "seed"]
    evaluations = long[columns].drop_duplicates("evaluation").reset_index(drop=True)
    question = evaluations.groupby(["language", *keys[:-1]], dropna=False)["prompt"]
    has_prompts = default_prompt & (question.transform(lambda prompts: prompts.nunique(dropna=False)) > 1)
    n_seeds = evaluations.groupby(keys, dropna=False)["seed"].transform(lambda seeds: seeds.nunique(dropna=False))
    settings = {}
    for row, has_seeds, is_named in zip(evaluations.to_dict("records"), n_seeds > 1, has_prompts, strict=True):
        parts = [] if pd.isna(row["protocol"]) else [row["protocol"].replace("_", " ")]
        parts += [] if pd.isna(row["shots"]) else [format_count(row["shots"], "shot")]
        parts += [f"seed {row['seed']}"] if has_seeds and not pd.isna(row["seed"]) else []
        parts += [row["style"]] if not pd.isna(row["style"]) and row["style"] != "default" else []
        is_default = pd.isna(row["prompt"]) or row["prompt"] == DEFAULT_PROMPT
        prompt = "mean over prompts" if row["prompt"] == ALL_PROMPTS else f"prompt {row['prompt']}"
        parts += [prompt] if is_named or not is_default else []
        settings[row["evaluation"]] = " · ".join(parts)
    return settings


def model_labels(models: Iterable[Mapping]) -> dict[str, str]:
    """Return the label of each model: its name, the base of an adapter, and the precision where models differ in it.

    Args:
        models: Dicts with "name", "base" (None without an adapter), "dtype" and "quantization" (None if unknown).

    >>> model_labels([
    ...     {"name": "a", "base": None, "dtype": "float32", "quantization": None},
    ...     {"name": "b", "base": "a", "dtype": "float32", "quantization": "4bit"},
    ... ])
    {'a': 'a (float32)', 'b': 'b (adapter of a, 4bit)'}
    """
    models = list(models)
    precisions = [model["quantization"] or model["dtype"] for model in models]
    differ = len({precision for precision in precisions if precision}) > 1
    labels = {}
    for model, precision in zip(models, precisions, strict=True):
        details = [f"adapter of {model['base']}"] if model["base"] else []
        details += [precision] if precision and (differ or model["quantization"]) else []
        labels[model["name"]] = f"{model['name']} ({', '.join(details)})" if details else model["name"]
    return labels


MODEL = ["model", "adapter", "model_revision"]  # a model name has one adapter and one revision in a run
COLUMN = [*SETTING, "metric"]
_ORDER = ["base_model", "is_adapter", *MODEL]


@dataclass(frozen=True)
class Grid:
    """Arrangement of a long table: models down, columns across.

    Attributes:
        models: R rows: the columns `MODEL`, and "label", the name to show
        columns: C rows: the columns `COLUMN`, "evaluation", "title" and "setting", the headings; "headline"; and
            "is_lead", the metric that represents its evaluation where there is no space for the others
        cells: (R, C) positions in the long table, -1 for missing values
    """

    models: pd.DataFrame
    columns: pd.DataFrame
    cells: np.ndarray

    def take(self, series: pd.Series) -> np.ndarray:
        """Return (R, C) floats of one numeric column of the long table, NaN for missing values."""
        values = series.to_numpy(dtype=float, na_value=np.nan)
        return np.where(self.cells < 0, np.nan, np.append(values, np.nan)[self.cells])

    def groups(self, keys: list[str]) -> list[tuple[int, int]]:
        """Return (start, end) of adjacent columns that agree in the headings `keys`."""
        return runs_of_equal(list(zip(*(self.columns[key] for key in keys), strict=True)))

    def with_columns(self, part: slice) -> "Grid":
        """Return the grid with some of its columns."""
        return Grid(self.models, self.columns.iloc[part].reset_index(drop=True), self.cells[:, part])

    def with_models(self, order: list[int]) -> "Grid":
        """Return the grid with the models in another order: positions of its rows."""
        return Grid(self.models.iloc[order].reset_index(drop=True), self.columns, self.cells[order])


def combine_tables(metrics_tables: list[pa.Table]) -> pd.DataFrame:
    """Concatenate all models' rows to one long table: unrounded, columns of METRICS in order, nullable integers.

    Sorted by task, language, protocol, category, metric, model and setting, a base model before its adapters. Raises
    ArtifactError if a model has two values of one metric.
    """
    tables = [table.select(METRICS.schema.names).cast(METRICS.schema) for table in metrics_tables]
    combined = pa.concat_tables([METRICS.schema.empty_table(), *tables])
    long = to_frame(combined)
    identity = [*COLUMN, "category", *MODEL]
    duplicates = long.duplicated(identity)
    if duplicates.any():
        row = long[duplicates].iloc[0]
        raise ArtifactError(
            f"{row['model']}: two values of {row['metric']} in {row['evaluation']}. Specify each metrics file once."
        )
    return sort_rows(long)


def sort_rows(long: pd.DataFrame) -> pd.DataFrame:
    """Sort the long table by task, language, protocol, category, metric, model and setting."""
    run = ["base_model", "is_adapter", "model", "adapter", "shots", "seed", "style", "model_revision", "prompt"]
    sort_columns = ["task", "language", "protocol", "category", "metric", *run]
    return sorted_by(_with_order(long), sort_columns)[METRICS.schema.names]


def as_questions(long: pd.DataFrame, prompt_rows: list[dict]) -> pd.DataFrame:
    """Return the long table without the single prompts for which it has a mean."""
    means = {(row["model"], row["evaluation"]) for _, row in long[long["prompt"] == ALL_PROMPTS].iterrows()}
    single = {
        (row["model"], run)
        for row in prompt_rows
        if (row["model"], row["evaluation"]) in means
        for run in row["evaluations"]
    }
    kept = [key not in single for key in zip(long["model"], long["evaluation"], strict=True)]
    return long[np.array(kept, dtype=bool)].reset_index(drop=True)


def to_arrow(long: pd.DataFrame) -> pa.Table:
    """Convert the long table to Arrow, for `artifacts.write(path, RESULTS, …)`; without positions, they are null."""
    missing = {name: None for name in RESULTS.schema.names if name not in long.columns}
    table = pa.Table.from_pandas(long.assign(**missing), schema=RESULTS.schema, preserve_index=False)
    return table.replace_schema_metadata(None)


def build_grid(
    long: pd.DataFrame,
    headings: Headings | None = None,
    *,
    by_language: bool = False,
    metric_order: Mapping[tuple[str, str], int] | None = None,
) -> Grid:
    """Arrange the rows over all items (category "") as models × columns.

    The metric that represents an evaluation comes first, then its other headline metrics, in `metric_order`
    ((evaluation, metric) -> rank) where it is given, then the others by name. Without `headings`, tasks have their own
    names. Raises ArtifactError if two rows belong to one cell.
    """
    headings = headings or make_headings(long, {})
    positions = np.flatnonzero((long["category"].fillna("") == "").to_numpy(dtype=bool))
    rows = long.iloc[positions]
    metric_order = metric_order or {}
    ranks = [metric_order.get(key, len(metric_order)) for key in zip(rows["evaluation"], rows["metric"], strict=True)]
    is_headline = rows["headline"].fillna(False).astype(bool)
    prompt_ranks = rows["prompt"].map({ALL_PROMPTS: 0, DEFAULT_PROMPT: 1}).fillna(2)
    rows = rows.assign(is_secondary=~is_headline, metric_rank=ranks, prompt_rank=prompt_ranks)
    order = ["language", "task"] if by_language else ["task", "language"]
    models, row_of = _distinct(_with_order(rows), MODEL, _ORDER)
    setting = ["protocol", "shots", "style", "prompt_rank", "prompt", "seed"]
    sort_columns = [*order, *setting, "is_secondary", "metric_rank", "metric"]
    columns, column_of = _distinct(rows, COLUMN, sort_columns)
    cells = np.full((len(models), len(columns)), -1)
    cells[row_of, column_of] = positions
    if (cells >= 0).sum() != len(positions):
        raise ArtifactError("two values of one metric for the same model and evaluation; see results.csv.")
    first_rows = long.iloc[cells.max(axis=0)] if len(columns) else long.iloc[:0]
    columns["evaluation"] = first_rows["evaluation"].to_numpy()
    columns["title"] = [headings.title(task) for task in columns["task"]]
    columns["setting"] = [headings.setting(evaluation) for evaluation in columns["evaluation"]]
    columns["headline"] = first_rows["headline"].fillna(False).to_numpy(dtype=bool)
    columns["is_lead"] = _leads(columns, first_rows)
    models["label"] = _labels(models, headings)
    first_of = {evaluation: position for position, evaluation in reversed(list(enumerate(columns["evaluation"])))}
    firsts = columns["evaluation"].map(first_of).to_numpy(dtype=int)
    order = np.lexsort((~columns["is_lead"].to_numpy(dtype=bool), firsts))
    return Grid(models, columns.iloc[order].reset_index(drop=True), cells[:, order])


def with_columns_of(values: pd.DataFrame, rows: Iterable[dict], types: Mapping[str, object]) -> pd.DataFrame:
    """Return the long table with further columns of `rows`, by model, evaluation, category and metric; null elsewhere.

    types: of the columns, by name.
    """
    key = ("model", "evaluation", "category", "metric")
    by_key = {tuple(row[name] for name in key): row for row in rows}
    found = [by_key.get(each, {}) for each in zip(*(values[name].fillna("") for name in key), strict=True)]
    columns = {name: pd.Series([row.get(name) for row in found], values.index, kind) for name, kind in types.items()}
    return values.assign(**columns)


def wide(long: pd.DataFrame, headings: Headings | None = None) -> pd.DataFrame:
    """Return one row per model, by its name in the config, and one column of values per evaluation and metric.

    A column is named "language / task / setting / metric (unit)". Rows over all items only; values by category remain
    in the long table.
    """
    headings = headings or make_headings(long, {})
    layout = build_grid(long, headings, by_language=True)
    units = long["unit"].to_numpy()[layout.cells.max(axis=0)] if len(layout.columns) else []
    parts = layout.columns[["language", "title", "setting", "metric"]].itertuples(index=False)
    names = [headings.column(*part, unit) for part, unit in zip(parts, units, strict=True)]
    values = pd.DataFrame(layout.take(long["value"]), columns=names)
    return pd.concat([pd.DataFrame({"model": pd.Series(unique_names(layout.models), dtype=object)}), values], axis=1)


def runs_of_equal(keys: Sequence) -> list[tuple[int, int]]:
    """Return (start, end) of adjacent columns with equal keys.

    >>> runs_of_equal(["gl", "gl", "ca", "gl"])
    [(0, 2), (2, 3), (3, 4)]
    """
    starts = [index for index, key in enumerate(keys) if index == 0 or key != keys[index - 1]]
    return list(zip(starts, [*starts[1:], len(keys)], strict=True))


def sorted_by(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows sorted: missing values first (a base model precedes its adapters), text case-insensitively.

    Numbers inside a text are ordered by value: step500 precedes step1000.
    """
    keys = list(zip(*(_sort_keys(frame[name]) for name in columns), strict=True))
    return frame.iloc[sorted(range(len(frame)), key=keys.__getitem__)].reset_index(drop=True)


def _sort_keys(column: pd.Series) -> list:
    if not pd.api.types.is_string_dtype(column.dtype):
        return column.astype("Float64").fillna(float("-inf")).tolist()
    texts = column.fillna("").tolist()
    padded = {text: re.sub(r"\d+", lambda digits: digits.group().zfill(20), text) for text in set(texts)}
    key_of = {
        text: (sortable.casefold(), sortable) for text, sortable in padded.items()
    }  # the second orders "A" and "a"
    return [key_of[text] for text in texts]


ARROWS = {True: "↑", False: "↓", None: ""}  # by whether higher is better


def metric_title(metric, unit, higher_is_better: bool | None) -> str:
    """Return a metric's display name with unit and direction; no unit for shares, whose cells are displayed in %.

    >>> metric_title("accuracy", "share", True), metric_title("loss", "nats", False), metric_title("x", "cosine", None)
    ('Accuracy (↑)', 'Loss (nats ↓)', 'X')
    """
    unit = "" if pd.isna(unit) else {"share": "", "score": "", "cosine": ""}.get(unit, unit)
    details = " ".join(part for part in (unit, ARROWS[higher_is_better]) if part)
    name = display_name(metric)
    return f"{name} ({details})" if details else name


def direction(higher_is_better) -> bool | None:
    """Convert `higher_is_better` to a bool, any missing value to None."""
    return None if pd.isna(higher_is_better) else bool(higher_is_better)


def unique_names(models: pd.DataFrame) -> list[str]:
    """Return the names of models; adapter and revision are added to a name that several rows have."""
    is_repeated = models["model"].duplicated(keep=False)
    return [
        f"{name} ({', '.join(part for part in (adapter, revision) if not pd.isna(part))})" if repeated else name
        for name, adapter, revision, repeated in zip(*(models[key] for key in MODEL), is_repeated, strict=True)
    ]


def _labels(models: pd.DataFrame, headings: Headings) -> list[str]:
    names = zip(models["model"], unique_names(models), strict=True)
    return [headings.model(model) if model == name else name for model, name in names]


def _leads(columns: pd.DataFrame, first_rows: pd.DataFrame) -> np.ndarray:
    """Return (C,) whether a column represents its evaluation: the metric that the aggregates use, or else the first."""
    can_be_averaged = columns["headline"].to_numpy() & first_rows["chance_level"].notna().to_numpy()
    can_be_averaged &= first_rows["higher_is_better"].fillna(False).to_numpy(dtype=bool)
    leads: dict[str, int] = {}
    for position, evaluation in enumerate(columns["evaluation"]):
        lead = leads.setdefault(evaluation, position)
        if can_be_averaged[position] and not can_be_averaged[lead]:
            leads[evaluation] = position
    return np.isin(np.arange(len(columns)), list(leads.values()))


def _with_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Add two columns to sort by, so that a base model precedes its adapters whatever their names."""
    return rows.assign(base_model=rows["base"].fillna(rows["model"]), is_adapter=rows["base"].notna())


def _distinct(rows: pd.DataFrame, key: list[str], order: list[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the distinct values of `key` sorted by `order`, and the position of each row's value among them."""
    distinct = sorted_by(rows.drop_duplicates(key), order)[key]
    position = {values: index for index, values in enumerate(_tuples(distinct))}
    return distinct, np.array([position[values] for values in _tuples(rows[key])], dtype=int)


def _tuples(frame: pd.DataFrame):
    columns = (frame[column].astype(object).where(frame[column].notna(), None) for column in frame.columns)
    return zip(*columns, strict=True)
