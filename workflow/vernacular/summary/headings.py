"""What stands around the numbers of a grid: the runs on the left, task and metric above."""

import pandas as pd
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.summary.cells import CENTRED, comment, direction, metric_title, put_text, shown, style_header
from vernacular.summary.tables import RUN, Grid
from vernacular.summary.text import plain_text

LEGEND = [
    "● bold green: the best value of its column.",
    "○ green: not told apart from the best. Where models were compared item by item: no significant difference (paired "
    "test, Holm over the column). Elsewhere: its own 95 % interval holds the best value. The comment on a column's "
    "title says which.",
    "Grey: its 95 % interval holds the chance level or the majority baseline (always choosing the commonest answer).",
    "Blue: the bluer the better; shares from chance to 100 %, all else from the column's worst to its best.",
    "↑ higher is better, ↓ lower is better, neither: no value is marked.",
    "Intervals and numbers of items: in the comments on the sheets of the languages.",
    "n/a: asked, but no item could be scored. Empty: not asked, or not possible (then the sheet provenance says why).",
]

_RUN_TITLES = {"model_revision": "revision"}
_RUN_WIDTHS = {"model": 34, "adapter": 18, "style": 14, "model_revision": 14}


def write_runs(sheet: Worksheet, layout: Grid, first: int) -> None:
    """Name the run of each row, from row `first` on; a setting that no run has is hidden."""
    for column, name in enumerate(RUN, 1):
        values = layout.runs[name]
        for row, value in enumerate(values, first):
            if pd.isna(value):
                continue
            if isinstance(value, str):
                put_text(sheet, row, column, value)
            else:
                sheet.cell(row, column, int(value)).alignment = CENTRED
        dimension = sheet.column_dimensions[get_column_letter(column)]
        dimension.width = _RUN_WIDTHS.get(name, 8)
        dimension.hidden = len(values) > 0 and bool(values.isna().all())
    longest = max((len(plain_text(model)) for model in layout.runs["model"]), default=0)
    sheet.column_dimensions["A"].width = min(60, max(12, longest + 2))


def write_headers(sheet: Worksheet, long: pd.DataFrame, layout: Grid, levels: list[str], rules: list[str]) -> None:
    """The header rows: one per level, then the metrics, whose comments tell `rules` (C,), baselines and signatures."""
    last = len(levels) + 1  # the row of the metrics and of the filter's arrows
    for column, name in enumerate(RUN, 1):
        for level in range(1, last):
            style_header(put_text(sheet, level, column, "run"))
        style_header(put_text(sheet, last, column, _RUN_TITLES.get(name, name)))
    for level in range(1, last):
        sheet.merge_cells(start_row=level, end_row=level, start_column=1, end_column=len(RUN))
    sheet.cell(1, 1).comment = comment("\n".join(LEGEND), lines=20)
    names = ("metric", "unit", "higher_is_better", "signature", "chance", "majority")
    facts = {name: long[name].astype(object).to_numpy() for name in names}
    headings = {key: layout.columns[key].tolist() for key in levels}
    for position, rule in enumerate(rules):
        column = len(RUN) + 1 + position
        cells = layout.cells[:, position]
        here = {name: values[cells[cells >= 0]] for name, values in facts.items()}
        for level, key in enumerate(levels, 1):
            style_header(put_text(sheet, level, column, headings[key][position]))
        unit = here["unit"][0]
        text = metric_title(here["metric"][0], unit, direction(here["higher_is_better"][0]))
        title = style_header(put_text(sheet, last, column, text))
        signatures = sorted({plain_text(text) for text in set(here["signature"]) if not pd.isna(text)})
        lines = [rule, *_baselines(here, unit), *signatures]
        title.comment = comment("\n".join(line for line in lines if line), lines=8)
        sheet.column_dimensions[get_column_letter(column)].width = max(12, min(22, len(text) + 2))
    for level in range(1, last):
        _merge_runs_of_equals(sheet, layout, levels[:level], level)
        sheet.row_dimensions[level].height = 30 if levels[level - 1] == "label" else 18
    sheet.row_dimensions[last].height = 45


def group_starts(layout: Grid, keys: list[str]) -> list[bool]:
    """(C,) whether each column says something else in `keys` than the one before it."""
    said = list(zip(*(layout.columns[key].tolist() for key in keys), strict=True))
    return [at == 0 or said[at] != said[at - 1] for at in range(len(said))]


def _merge_runs_of_equals(sheet: Worksheet, layout: Grid, keys: list[str], level: int) -> None:
    """Merge neighbouring header cells that say the same, within the same headings above."""
    starts = [at for at, new in enumerate(group_starts(layout, keys)) if new]
    for start, end in zip(starts, [*starts[1:], len(layout.columns)], strict=True):
        if end - start > 1:
            columns = {"start_column": len(RUN) + 1 + start, "end_column": len(RUN) + end}
            sheet.merge_cells(start_row=level, end_row=level, **columns)


def _baselines(here: dict, unit) -> list[str]:
    found = []
    for name in ("chance", "majority"):
        levels = sorted({shown(level, unit) for level in set(here[name]) if not pd.isna(level)})
        if levels:
            found.append(f"{name}: {', '.join(levels)}")
    return found
