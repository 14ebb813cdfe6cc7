"""Worksheet of a grid: models down, evaluations × metrics across; headings, numbers with format, mark and interval."""

import math
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from openpyxl.formatting.rule import ColorScaleRule
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.errors import format_count
from vernacular.core.tables import format_difference, format_value, is_finite, p_value_text, plain_text
from vernacular.metrics.schema import ABOUT_SAMPLES
from vernacular.statistics.significance import BEST, FAMILIES, NONE, SHARED, Key, marks
from vernacular.summary import cells
from vernacular.summary.grid import Grid, Headings, direction, metric_title

BASELINES = {"chance_level": "chance level", "majority_baseline": "majority baseline"}  # column: its name in comments
LEGEND = [
    "● bold green: the best value of its column.",
    f"○ green: not significantly different from the best: paired test on the same items, {FAMILIES}. Without a test, "
    "only the best is marked; the comment on the column heading names the method. A value at chance or worse has no "
    "mark.",
    "Gray: the 95 % interval includes the chance level or the majority baseline (always the most frequent answer).",
    "(In parentheses): no 95 % interval, so that the difference from chance is unknown (reason: sheet provenance).",
    "Blue: darker is better; shares from chance to 100 %, other units from the worst to the best value of the column.",
    "↑ higher is better, ↓ lower is better; without an arrow, no value is marked.",
    "Units: shares are shown in %; the heading names any other unit.",
    "+ above the columns: further metrics, or the tasks of a language.",
    "Intervals and numbers of items: in the comments on the language sheets.",
    "▲: a failure that explains the value, such as responses without an option (sheet diagnoses).",
    ABOUT_SAMPLES,
    "n/a: evaluated, but no item could be scored, or the value is undefined. Empty: not requested or not possible "
    "(reasons: sheet provenance).",
]
_LEVEL_TITLES = {"language": "language", "title": "task", "setting": "protocol"}
_MEAN_TITLES = {"mean": "Mean above chance (↑)", "rank": "Rank (↓)"}
_MIN_WIDTH, _MAX_WIDTH = 9, 22


def write_headers(
    sheet: Worksheet,
    long: pd.DataFrame,
    layout: Grid,
    columns: cells.Columns,
    *,
    levels: list[str],
    rules: list[str],
    headings: Headings,
) -> None:
    """Write the header rows: one per level, then the metrics.

    Args:
        levels: columns of `layout.columns` above the metric: "language", "title", "setting", or some of them
        rules: (C,) how the marks of each column were determined, for the comment on its metric
    """
    metric_row = len(levels) + 1  # the row of the metrics and the filter arrows
    for row, title in enumerate([*(_LEVEL_TITLES[level] for level in levels), "model"], 1):
        cells.style_header(cells.put_text(sheet, row, 1, title), cells.LEFT_HEADER if row < metric_row else None)
    sheet.cell(1, 1).comment = cells.comment("\n".join(LEGEND), lines=28)
    for row in range(1, metric_row + 1):
        for number in range(2, columns.count + 1):
            cells.style_header(sheet.cell(row, number))
    widths = _write_metrics(sheet, long, layout, columns, metric_row, rules)
    for number, mean in columns.means.items():
        widths[number] = _write_mean(sheet, number, mean, metric_row)
    for level, key in enumerate(levels, 1):
        _write_level(sheet, layout, columns, levels[:level], level, widths, headings)
        if key == "language":
            sheet.row_dimensions[level].height = 18
        if level == 2 and columns.means:  # "19 of 23 evaluations"
            sheet.row_dimensions[level].height = max(sheet.row_dimensions[level].height, 2 * cells.LINE + 3)
    for number, width in widths.items():
        sheet.column_dimensions[get_column_letter(number)].width = width


def _write_metrics(sheet: Worksheet, long: pd.DataFrame, layout: Grid, columns: cells.Columns, row: int, rules) -> dict:
    """Write the metric of each column of the grid; return the width of each, by its number in the sheet."""
    names = ("metric", "unit", "higher_is_better", "signature", *BASELINES)
    values_by_name = {name: long[name].astype(object).to_numpy() for name in names}
    widths, lines = {}, 1
    settings, titles = layout.columns["setting"].tolist(), layout.columns["title"].tolist()
    is_narrow = _only_visible_column_of_task(layout, columns)
    for position, (number, rule) in enumerate(zip(columns.numbers.tolist(), rules, strict=True)):
        positions = layout.cells[:, position]
        cell_values = {name: values[positions[positions >= 0]] for name, values in values_by_name.items()}
        unit = cell_values["unit"][0]
        text = metric_title(cell_values["metric"][0], unit, direction(cell_values["higher_is_better"][0]))
        title = cells.put_text(sheet, row, number, text)
        signatures = sorted({plain_text(text) for text in set(cell_values["signature"]) if not pd.isna(text)})
        title.comment = cells.comment(
            "\n".join(line for line in [rule, *_baseline_lines(cell_values, unit), *signatures] if line), lines=8
        )
        headings = f"{plain_text(settings[position])[:200]} {text}"
        if is_narrow[position]:
            headings += f" {plain_text(titles[position])[:200]}"
        longest = max(map(len, headings.split()))
        widths[number] = max(_MIN_WIDTH, min(_MAX_WIDTH, math.ceil(1.15 * longest) + 1))  # bold text is wider
        lines = max(lines, _n_lines(text, widths[number]))
    sheet.row_dimensions[row].height = cells.LINE * max(3, lines)
    return widths


def _write_mean(sheet: Worksheet, number: int, mean: cells.MeanColumn, row: int) -> int:
    """Write the heading of a column of aggregates; return its width."""
    example = next(row for row in mean.rows if row)
    count, excluded = format_count(example["n_evaluations"], "evaluation"), example["n_excluded"]
    if mean.key == "mean" and row > 2:
        total = example["n_evaluations"] + excluded
        cells.put_text(sheet, 2, number, f"{example['n_evaluations']} of {format_count(total, 'evaluation')}")
    text = (
        "Mean of (value - chance) / (1 - chance): 0 % is chance, 100 % is all correct. Over the "
        f"{count} that all models have; {excluded} excluded. Details: sheet overall."
    )
    if mean.key == "rank":
        text = "1 + number of models with a significantly better mean (Holm correction over all pairs of models). "
        text += "Comments contain the worst possible rank. Details: sheet overall."
    cells.put_text(sheet, row, number, _MEAN_TITLES[mean.key]).comment = cells.comment(text, lines=8)
    if mean.scope == "all" and row > 1:
        cells.put_text(sheet, 1, number, "all languages")
    return 7 if mean.key == "rank" else 12


def _write_level(
    sheet: Worksheet, layout: Grid, columns: cells.Columns, keys: list[str], row: int, widths: dict, headings: Headings
) -> None:
    """Write one row of headings, merged where adjacent columns agree in `keys`; a language covers its mean."""
    texts, tasks = layout.columns[keys[-1]].tolist(), layout.columns["task"].tolist()
    hidden = dict(zip(columns.numbers.tolist(), columns.hidden.tolist(), strict=True))
    lines = 1
    for start, end in layout.groups(keys):
        first, last = int(columns.numbers[start]), int(columns.numbers[end - 1])
        if keys == ["language"] and (mean := columns.means.get(first - 1)) and mean.scope == texts[start]:
            first -= 1
        cell = cells.put_text(sheet, row, first, texts[start])
        if keys[-1] == "title":
            cell.comment = cells.comment("\n".join(headings.about(tasks[start])), lines=6)
        if last > first:
            sheet.merge_cells(start_row=row, end_row=row, start_column=first, end_column=last)
        visible = sum(widths[number] for number in range(first, last + 1) if not hidden.get(number))
        lines = max(lines, _n_lines(plain_text(texts[start]), visible)) if visible else lines
    if keys == ["language"]:
        numbers = [number for number, mean in columns.means.items() if mean.scope == "all"]
        if len(numbers) > 1:
            sheet.merge_cells(start_row=row, end_row=row, start_column=numbers[0], end_column=numbers[-1])
    sheet.row_dimensions[row].height = cells.LINE * min(5, lines) + 3


def _only_visible_column_of_task(layout: Grid, columns: cells.Columns) -> list[bool]:
    """Return (C,) whether the heading of a column's task is not wider than this column."""
    tasks = list(zip(layout.columns["language"], layout.columns["task"], strict=True))
    visible = Counter(task for task, is_hidden in zip(tasks, columns.hidden, strict=True) if not is_hidden)
    return [visible[task] <= 1 for task in tasks]


def _n_lines(text: str, width: float) -> int:
    """Return the number of lines of a wrapped text in a column of `width` characters."""
    lines, used = 1, 0
    for word in text.split():
        length = math.ceil(len(word) * 1.05)
        if used and used + 1 + length > width:
            lines, used = lines + 1, 0
        used += length + (1 if used else 0)
        lines, used = lines + int(used // (width + 1)), used % (width + 1)
    return lines


def _baseline_lines(values: dict, unit) -> list[str]:
    lines = []
    for column, name in BASELINES.items():
        levels = sorted({format_value(level, unit) for level in set(values[column]) if not pd.isna(level)})
        if levels:
            lines.append(f"{name}: {', '.join(levels)}")
    return lines


_FONTS = {BEST: cells.BOLD_GREEN, SHARED: cells.GREEN}
_GRAY_FONTS = {BEST: cells.BOLD_GRAY}
_FLOATS = ("value", "ci_low", "ci_high", *BASELINES, "n", "n_flagged", "n_ties")


def write_grid(
    sheet: Worksheet,
    long: pd.DataFrame,
    layout: Grid,
    columns: cells.Columns,
    *,
    levels: list[str],
    comments: bool,
    rankings: Mapping[Key, dict],
    headings: Headings,
    failures: Collection[tuple[str, str]] = (),
) -> None:
    """Write the models and columns of `layout`, whose cells are positions in `long`, to `sheet`.

    Args:
        levels: header rows above the metric: ["title", "setting"] on a sheet of one language
        comments: whether each value has a comment with its interval and counts
        rankings: rankings by key, {} if no models were compared
        failures: model and evaluation of values that a failure explains
    """
    first_row = len(levels) + 2  # the row of the first model
    arrays = {name: layout.take(long[name]) for name in _FLOATS}
    keys = [*zip(long["model"], long["evaluation"], long["metric"], strict=True), None]  # [-1]: missing values
    units, directions = long["unit"].tolist(), long["higher_is_better"].tolist()
    starts, set_style, rules = {start for start, _ in layout.groups(levels)}, cells.Styles(), []
    for position, number in enumerate(columns.numbers.tolist()):
        positions = layout.cells[:, position]
        first_value = positions[positions >= 0][0]
        unit, higher_is_better = units[first_value], direction(directions[first_value])
        column = {name: array[:, position] for name, array in arrays.items()}
        row_keys = [keys[cell] for cell in positions]
        column_marks, tested = marks(row_keys, column["value"], column["chance_level"], higher_is_better, rankings)
        rules.append(_marking_rule(column_marks, tested, column["value"]))
        is_near_chance = cells.near_chance(column["ci_low"], column["ci_high"], column["chance_level"])
        is_near_chance |= cells.near_chance(column["ci_low"], column["ci_high"], column["majority_baseline"])
        without_interval = cells.lacks_interval(column["value"], column["ci_low"], column["ci_high"], higher_is_better)
        has_marks = bool(column_marks.any())
        border = cells.GROUP_START if position in starts else None
        for row in range(len(layout.models)):
            if positions[row] < 0:
                if border is not None:
                    set_style(sheet.cell(first_row + row, number), border=border)
                continue
            mark = int(column_marks[row]) if has_marks else None
            values = {name: float(array[row]) for name, array in column.items()}
            cell = cells.put_number(sheet, first_row + row, number, values["value"])
            font = _GRAY_FONTS.get(mark, cells.GRAY) if is_near_chance[row] else _FONTS.get(mark)
            alignment = cells.RIGHT if cell.data_type == "s" else None  # "n/a" is aligned like numbers
            number_format = cells.number_format(unit, mark, bool(without_interval[row]))
            number_format += cells.FAILED if row_keys[row][:2] in failures else ""
            set_style(cell, number_format=number_format, font=font, border=border, alignment=alignment)
            if comments:
                ranking = rankings.get(row_keys[row])
                cell.comment = cells.comment(describe(values, unit, ranking))
        add_scale(
            sheet,
            _cell_range(number, first_row, layout),
            column["value"],
            unit,
            column["chance_level"],
            higher_is_better,
        )
    for number, mean in columns.means.items():
        _write_means(sheet, number, mean, first_row, set_style)
        if mean.key == "mean":
            add_scale(sheet, _cell_range(number, first_row, layout), [], "share", [], True)
    write_headers(sheet, long, layout, columns, levels=levels, rules=rules, headings=headings)
    _write_models(sheet, layout, first_row)
    cells.set_outline(sheet, columns)
    last_column = get_column_letter(columns.count)
    sheet.freeze_panes = sheet.cell(first_row, 2)
    sheet.auto_filter.ref = f"A{first_row - 1}:{last_column}{first_row - 1 + len(layout.models)}"
    sheet.print_title_rows = f"1:{first_row - 1}"
    sheet.print_title_cols = "A:A"
    cells.set_print(sheet, has_marks=True)


def describe(values: dict[str, float], unit, ranking: dict | None = None) -> str:
    """Return the comment of one value: interval, baselines, counts, difference from the best; only what is known."""
    lines = []
    low, high = values["ci_low"], values["ci_high"]
    if math.isfinite(low) and math.isfinite(high):
        lines.append(f"95 % interval {format_value(low, unit)} to {format_value(high, unit)}")
    elif math.isfinite(values["value"]):
        lines.append("no 95 % interval")
    levels = [
        f"{name} {format_value(values[column], unit)}"
        for column, name in BASELINES.items()
        if math.isfinite(values[column])
    ]
    lines += [", ".join(levels)] if levels else []
    labels = {"n": "items", "n_flagged": "flagged", "n_ties": "ties"}
    lines.append(
        ", ".join(f"{name} {values[key]:.0f}" for key, name in labels.items() if values[key] > 0 or key == "n")
    )
    if ranking and ranking["best"] != ranking["model"] and is_finite(ranking["difference"]):
        p = f", {p_value_text(ranking['p_holm'])} (Holm)" if is_finite(ranking["p_holm"]) else ""
        difference, best = format_difference(ranking["difference"], unit), plain_text(ranking["best"])[:80]
        lines.append(f"{difference} against the best, {best}{p}")
    return "\n".join(lines)


def _marking_rule(column_marks: np.ndarray, tested: np.ndarray, values: np.ndarray) -> str:
    """Describe how the marks of a column were determined; "" if there are none."""
    if not column_marks.any():
        return ""
    if tested[np.isfinite(values)].all():
        return f"● best; ○ by paired tests on the same items, {FAMILIES}."
    return "● best; not all models were tested against it."


def _write_means(
    sheet: Worksheet, number: int, mean: cells.MeanColumn, first_row: int, set_style: cells.Styles
) -> None:
    """Write the aggregates of the models; the best mean and those that do not differ from it are marked."""
    values = [math.nan if row is None else row["mean"] for row in mean.rows]
    best = max((value for value in values if is_finite(value)), default=math.nan)
    has_marks = len({value for value in values if is_finite(value)}) > 1
    for index, (row, value) in enumerate(zip(mean.rows, values, strict=True)):
        if row is None:
            continue
        if mean.key == "rank":
            if row["rank"] is not None:
                cell = cells.put_number(sheet, first_row + index, number, row["rank"])
                set_style(cell, number_format="0", alignment=cells.CENTERED)
                cell.comment = cells.comment(f"possible ranks: {rank_range(row)}")
            continue
        is_above_chance = is_finite(value) and value > 0
        mark = BEST if value == best else SHARED if row["rank"] == 1 else NONE
        mark = (mark if is_above_chance else NONE) if has_marks else None
        cell = cells.put_number(sheet, first_row + index, number, value)
        lacks_interval = not is_finite(row["ci_low"])
        number_format = cells.number_format("share", mark, lacks_interval)
        set_style(cell, number_format=number_format, font=_FONTS.get(mark), border=cells.GROUP_START)
        lines = [f"rank {rank_range(row)} of {sum(other is not None for other in mean.rows)}"] if row["rank"] else []
        if is_finite(row["ci_low"]) and is_finite(row["ci_high"]):
            low, high = (format_value(row[name], "share") for name in ("ci_low", "ci_high"))
            lines.insert(0, f"95 % interval {low} to {high}")
        if is_finite(row["win_rate"]):
            lines.append(f"win rate {format_value(row['win_rate'], 'share')}")
        cell.comment = cells.comment("\n".join(lines)) if lines else None


def rank_range(row: dict) -> str:
    """Return the possible ranks of a model.

    >>> rank_range({"rank": 1, "rank_worst": 3}), rank_range({"rank": 2, "rank_worst": 2})
    ('1–3', '2')
    """
    worst = row.get("rank_worst")
    return str(row["rank"]) if worst in (None, row["rank"]) else f"{row['rank']}–{worst}"


def _write_models(sheet: Worksheet, layout: Grid, first_row: int) -> None:
    """Write the name of each row's model, with its adapter and revision as a comment."""
    for row, model in enumerate(layout.models.to_dict("records"), first_row):
        cell = cells.put_text(sheet, row, 1, model["label"])
        cell.alignment = cells.TOP
        details = {"adapter": model["adapter"], "revision": model["model_revision"]}
        lines = [f"{name} {plain_text(value)[:200]}" for name, value in details.items() if not pd.isna(value)]
        cell.comment = cells.comment("\n".join(lines)) if lines else None
    longest = max((len(plain_text(label)) for label in layout.models["label"]), default=0)
    sheet.column_dimensions["A"].width = min(50, max(14, longest + 2))


def _cell_range(number: int, first_row: int, layout: Grid) -> str:
    letter = get_column_letter(number)
    return f"{letter}{first_row}:{letter}{first_row - 1 + len(layout.models)}"


_WORSE_COLOR, _BETTER_COLOR = "FFFFFF", "9ECAE1"


def add_scale(sheet: Worksheet, cell_range: str, values, unit, chance, higher_is_better: bool | None) -> None:
    """Add a color scale to `cell_range` (like "G3:G9") that hold `values`; values and chance are (R,), NaN if missing.

    A share for which higher is better is scaled from chance (0 without a chance level) to 1, so that equal colors mean
    equal values in every column. Other values have no natural bounds and are scaled from the column's minimum to its
    maximum, if at least three values differ: two would always span the scale. No scale if neither direction is better.
    """
    values, chance = (np.asarray(array, dtype=float) for array in (values, chance))
    if higher_is_better is None:
        return
    if unit == "share" and higher_is_better:
        levels = chance[np.isfinite(chance)]
        start = float(levels.max()) if len(levels) and levels.max() < 1 else 0.0
        scale = {"start_type": "num", "start_value": start, "end_type": "num", "end_value": 1}
    elif len(np.unique(values[np.isfinite(values)])) >= 3:
        scale = {"start_type": "min", "end_type": "max"}
    else:
        return
    low, high = (_WORSE_COLOR, _BETTER_COLOR) if higher_is_better else (_BETTER_COLOR, _WORSE_COLOR)
    sheet.conditional_formatting.add(cell_range, ColorScaleRule(**scale, start_color=low, end_color=high))
