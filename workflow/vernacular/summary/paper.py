"""Table for a paper: a row per model, a column per evaluation, intervals or significance marks, and a caption.

It may be transposed, and is written as LaTeX (booktabs) or Markdown, with all texts escaped. LaTeX headings are wrapped
to the width of the values, and a table that is wider than the text is divided into several.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from vernacular.core.errors import DataError, suggest
from vernacular.core.tables import format_number, plain_text
from vernacular.metrics.metric import display_name
from vernacular.metrics.schema import ABOUT_SAMPLES, is_from_samples
from vernacular.statistics.over_prompts import LIKE_THESE
from vernacular.statistics.significance import ALPHA, BEST, FAMILIES, NONE, SHARED, index_rankings, marks
from vernacular.summary.cells import lacks_interval
from vernacular.summary.grid import ARROWS, Grid, Headings, build_grid, direction, runs_of_equal

_UNITS = {"share": "%", "percent": "%", "score": "", "cosine": ""}  # of the numbers in the table, by unit of the values
_KEY = ("model", "evaluation", "metric")


@dataclass(frozen=True)
class Cell:
    """A value as text, in parentheses without an interval; the interval (None: not shown), the mark, and ‡."""

    text: str
    interval: tuple[str, str] | None = None
    mark: int = NONE
    has_failed: bool = False


@dataclass(frozen=True)
class PaperTable:
    """Texts of a table, not escaped.

    Attributes:
        headings: rows of C headings: language, task, setting, and the metric where columns differ in it
        names: R rows of headings: that of the model
        cells: R rows of C cells; None without a value
        caption: what the numbers are
        corner: above each heading of a row
        limits: characters to which the headings of a row are wrapped; None: not
        is_dense: for one column of a page: a small font, and intervals below the values
        may_be_small: whether a small font is better than several tables
        signatures: of the values, for comments: dataset revision, limit, versions
    """

    headings: list[list[str]]
    names: list[list[str]]
    cells: list[list[Cell | None]]
    caption: str
    corner: list[str] = field(default_factory=lambda: ["Model"])
    limits: list[int] | None = None
    is_dense: bool = False
    may_be_small: bool = False
    signatures: tuple[str, ...] = ()

    @property
    def is_small(self) -> bool:
        """Whether LaTeX sets it in a smaller font, as where a row has several headings."""
        return self.is_dense or self.may_be_small or len(self.corner) > 1

    def points(self, n_characters: float) -> float:
        """Return about how wide a text is in LaTeX, with the space between columns."""
        character, gap = _SMALL if self.is_small else _NORMAL
        return character * n_characters + gap

    def characters(self, points: float) -> int:
        """Return how many characters fit columns of a width."""
        character, gap = _SMALL if self.is_small else _NORMAL
        return max(1, int((points - gap) / character))

    def transposed(self) -> "PaperTable":
        """Return the table with a row per evaluation, whose headings are not repeated, and a column per model."""
        names = [list(name) for name in zip(*self.headings, strict=True)]
        corner = ["Lang.", "Task", "Setting", "Metric"][: len(self.headings)]
        if self.is_dense:  # one heading per row
            names = [[f"{language} {title}: {', '.join(others)}"] for language, title, *others in names]
            corner = ["Evaluation"]
        cells = [list(column) for column in zip(*self.cells, strict=True)]
        headings = [list(row) for row in zip(*self.names, strict=True)]
        return replace(self, headings=headings, names=names, cells=cells, corner=corner)

    def parts(self, width: float) -> list["PaperTable"]:
        """Return the table as tables of adjacent columns, each up to `width` points wide if a column permits it."""
        texts = [[name, *names] for name, *names in zip(self.corner, *self.names, strict=True)]
        limits, sizes = [max(map(len, each)) for each in texts], _column_widths(self)
        shortest = [max(len(piece) for text in each for piece in _pieces(text)) for each in texts]
        least = sum(sizes) if self.is_dense else max(sizes)
        while (own := sum(map(self.points, limits))) + least > width and limits != shortest:
            widest = max(range(len(limits)), key=lambda index: limits[index] - shortest[index])
            limits[widest] -= 1
        parts: list[list[int]] = []
        left = 0.0
        for column, size in enumerate(sizes):
            if not parts or left < size:
                parts.append([])
                left = width - own
            parts[-1].append(column)
            left -= size
        divided = [
            replace(
                self,
                headings=[[texts[column] for column in part] for texts in self.headings],
                cells=[[row[column] for column in part] for row in self.cells],
                caption=self.caption if part[0] == 0 else "(Continued.)",
                limits=limits,
            )
            for part in parts
        ]
        return [page for part in divided for page in part.pages(width)]

    def pages(self, width: float) -> list["PaperTable"]:
        """Return the table as tables of adjacent rows, each as high as a page at most."""
        line = 9.5 if self.is_small else 12.0
        used = line * (8 + 2 * len(self.headings) + self.points(len(self.caption)) / max(width, 100))
        parts: list[list[int]] = [[]]
        for row, names in enumerate(self.names):
            height = line * max(len(_lines(*each)) for each in zip(names, self.limits or [10**6], strict=False))
            if parts[-1] and used + height > _TEXT_HEIGHT:
                parts.append([])
                used = line * (8 + 2 * len(self.headings))
            parts[-1].append(row)
            used += height
        return [
            replace(
                self,
                names=[self.names[row] for row in part],
                cells=[self.cells[row] for row in part],
                caption=self.caption if part[0] == 0 else "(Continued.)",
            )
            for part in parts
            if part
        ]


def choose(long: pd.DataFrame, column: str, names: Sequence[str] | None, option: str) -> pd.DataFrame:
    """Return the rows of `long` over all items whose `column` is one of `names`; None: all of them.

    Raises DataError if a name has no results.
    """
    if names is None:
        return long
    available = long[column].dropna().unique()
    for name in names:
        if name not in available:
            raise DataError(f'{option}: no results of "{name}" in this selection.{suggest(name, available)}')
    return long[long[column].isin(names)]


def make_table(
    long: pd.DataFrame,
    headings: Headings,
    rankings: Iterable[dict],
    *,
    models: Sequence[str],
    metrics: Sequence[str] | None = None,
    intervals: bool = False,
    tests: Mapping[tuple[str, str], Iterable[str]] | None = None,
    prompts: Iterable[dict] = (),
    transpose: bool = False,
    failures: Mapping[tuple[str, str], str] | None = None,
    chance: bool = False,
    dense: bool = False,
) -> PaperTable:
    """Return the table of a selection of the long table.

    Args:
        long: Rows of `grid.combine_tables`, over all items.
        rankings: RANKINGS rows, which determine the values that do not differ significantly from the best.
        models: Names in the order of the rows.
        metrics: Metrics to show; None: for each evaluation the headline metric that represents it.
        intervals: Show intervals instead of significance marks.
        tests: Names of the tests by (evaluation, metric), as far as known.
        prompts: PROMPTS rows, of the means over prompts among the values.
        transpose: A row per evaluation, and a column per model.
        failures: (model, evaluation) -> sentence about a failure that explains its values.
        chance: A further row, of chance levels.
        dense: For one column of a page, as `PaperTable.is_dense`.

    Raises:
        DataError: Nothing is selected.
    """
    rankings = list(rankings)
    order: dict[tuple[str, str], int] = {}
    for row in rankings:
        order.setdefault((row["evaluation"], row["metric"]), len(order))
    long = long[long["category"].fillna("") == ""]
    long = (long[long["headline"].fillna(False).astype(bool)] if metrics is None else long).reset_index(drop=True)
    layout = build_grid(long, headings, by_language=True, metric_order=order)
    shown = layout.columns["is_lead"] if metrics is None else layout.columns["metric"].isin(metrics)
    positions = np.flatnonzero(shown.to_numpy(dtype=bool))
    if not len(positions) or not len(layout.models):
        raise DataError("no headline metric in this selection; choose others with --metrics.")
    rows = {model: index for index, model in enumerate(layout.models["model"])}
    row_order = [rows[model] for model in models if model in rows]
    layout = Grid(layout.models.iloc[row_order], layout.columns.iloc[positions], layout.cells[row_order][:, positions])
    failures = failures or {}
    columns = [_column(long, layout, i, index_rankings(rankings), intervals, failures) for i in range(len(positions))]
    table_headings = [layout.columns[key].tolist() for key in ("language", "title", "setting")]
    table_headings[2] = [setting.replace(" · ", ", ") for setting in table_headings[2]]
    if layout.columns["metric"].nunique() > 1:
        table_headings.append([column[2] for column in columns])
    cells = [list(row) for row in zip(*(column[0] for column in columns), strict=True)]
    means = _means_over_prompts(long, layout, prompts)
    any_lacks_interval = any(cell and cell.text.startswith("(") for row in cells for cell in row)
    tested = [column[1] for column in columns]
    line = "row" if transpose else "column"
    caption = _caption(long, layout, tested, intervals, tests or {}, means, any_lacks_interval, line)
    keys = long.iloc[layout.cells[layout.cells >= 0]][["model", "evaluation"]].itertuples(index=False, name=None)
    if failed := list(dict.fromkeys(failures[key] for key in keys if key in failures)):
        others = f" ({len(failed) - 1} further in notes.csv)" if len(failed) > 1 else ""
        caption += f" ‡: a failure explains the value: {failed[0].rstrip('.')}{others}."
    shown = long["signature"].iloc[layout.cells[layout.cells >= 0]].dropna()
    signatures = tuple(dict.fromkeys(plain_text(text) for text in shown))
    names = [[label] for label in layout.models["label"]]
    if chance:
        names, cells = [*names, ["Chance"]], [*cells, [_chance(long, layout, i) for i in range(len(positions))]]
    table = PaperTable(table_headings, names, cells, caption, is_dense=dense, signatures=signatures)
    return table.transposed() if transpose else table


def _column(
    long: pd.DataFrame, layout: Grid, position: int, rankings: Mapping, intervals: bool, failures: Mapping
) -> tuple:
    """Return the cells of a column, whether tests cover it (None: no value is best), and its metric with an arrow."""
    positions = layout.cells[:, position]
    rows = [None if cell < 0 else long.iloc[cell] for cell in positions]
    first = next(row for row in rows if row is not None)
    value, low, high = (layout.take(long[name])[:, position] for name in ("value", "ci_low", "ci_high"))
    higher_is_better = direction(first["higher_is_better"])
    keys = [None if row is None else (row["model"], row["evaluation"], row["metric"]) for row in rows]
    chance = layout.take(long["chance_level"])[:, position]
    column_marks, tested = marks(keys, value, chance, higher_is_better, rankings)
    is_tested = bool(tested[np.isfinite(value)].all()) if column_marks.any() else None
    if intervals or not is_tested:
        column_marks[column_marks == SHARED] = NONE
    without_interval = lacks_interval(value, low, high, higher_is_better)
    cells = []
    for index, row in enumerate(rows):
        if row is None:
            cells.append(None)
            continue
        text = format_number(value[index], first["unit"])
        text = f"({text})" if without_interval[index] else text
        has_interval = intervals and np.isfinite(low[index]) and np.isfinite(high[index])
        bounds = tuple(format_number(bound[index], first["unit"]) for bound in (low, high)) if has_interval else None
        cells.append(Cell(text, bounds, int(column_marks[index]), keys[index][:2] in failures))
    return cells, is_tested, f"{display_name(first['metric'])} {ARROWS[higher_is_better]}".strip()


def _chance(long: pd.DataFrame, layout: Grid, position: int) -> Cell | None:
    """Return the chance level of a column, a range if it differs between models; None without one."""
    levels = layout.take(long["chance_level"])[:, position]
    levels = np.unique(levels[np.isfinite(levels)])
    unit = long.iloc[layout.cells[:, position].max()]["unit"]
    texts = dict.fromkeys(format_number(level, unit) for level in (levels[[0, -1]] if len(levels) else ()))
    return Cell("–".join(texts)) if texts else None


def _caption(
    long: pd.DataFrame,
    layout: Grid,
    tested: list[bool | None],
    intervals: bool,
    tests: Mapping[tuple[str, str], Iterable[str]],
    means: list[dict],
    any_lacks_interval: bool,
    line: str,
) -> str:
    """Describe metrics, units, numbers of items and of prompts, and what the marks mean; line: "row" or "column"."""
    examples = [long.iloc[column.max()] for column in layout.cells.T]
    sentences = [f"{_describe_metrics(examples)}.", f"{_describe_items(long, layout, line)}."]
    sentences += [f"{_describe_prompts(means)}."] if means else []
    sentences += [ABOUT_SAMPLES] if any(is_from_samples(row["dataset_revision"]) for row in examples) else []
    sentences += ["In parentheses: values without a 95 % interval."] if any_lacks_interval else []
    has_best = any(is_tested is not None for is_tested in tested)
    best = [f"Bold: best value of the {line}."] if has_best else []
    if intervals:
        covers_prompts = any(row["question"] == LIKE_THESE for row in means)
        prompts = ", those of means over at least three prompts also over prompts" if covers_prompts else ""
        return " ".join([*sentences, f"In brackets: 95 % intervals over items{prompts}.", *best])
    sentences += best
    if any(tested):
        keys = [(row["evaluation"], row["metric"]) for row in examples]
        names = [name for key, is_tested in zip(keys, tested, strict=True) if is_tested for name in tests.get(key, ())]
        test = f" ({'; '.join(dict.fromkeys(names))})" if names else ""
        at_chance = (layout.take(long["value"]) <= layout.take(long["chance_level"])).any()
        unmarked = "; no value at chance or worse is marked" if at_chance else ""
        sentences.append(
            f"†: not significantly different from the best: paired tests on the same items{test}, {FAMILIES}, "
            f"significance level {ALPHA}{unmarked}."
        )
    if False in tested:
        columns = layout.columns[["language", "title", "setting"]].itertuples(index=False)
        untested = [
            f"{language} {title}, {setting}".replace(" · ", ", ")
            for (language, title, setting), is_tested in zip(columns, tested, strict=True)
            if is_tested is False
        ]
        suffix = f": {'; '.join(dict.fromkeys(untested))}" if any(tested) else ""
        sentences.append(f"Differences were not tested{suffix}.")
    return " ".join(sentences)


def _describe_metrics(examples: list[pd.Series]) -> str:
    """Return the metrics with unit and direction: "Accuracy in % (higher is better)"."""
    texts = []
    for row in examples:
        unit = "" if pd.isna(row["unit"]) else _UNITS.get(row["unit"], row["unit"])
        higher = row["higher_is_better"]
        better = "" if pd.isna(higher) else f" ({'higher' if higher else 'lower'} is better)"
        texts.append(f"{display_name(row['metric'])}{f' in {unit}' if unit else ''}{better}")
    return "; ".join(dict.fromkeys(texts))


def _describe_items(long: pd.DataFrame, layout: Grid, line: str) -> str:
    """Return the number of items: "n = 500 items", or by dataset where it differs."""
    counts: dict[str, set[int]] = {}
    for position, (language, title) in enumerate(zip(layout.columns["language"], layout.columns["title"], strict=True)):
        cells = layout.cells[:, position]
        counts.setdefault(f"{language} {title}", set()).update(long["n"].iloc[cells[cells >= 0]].tolist())
    ranges = {name: f"{min(n)}" if len(n) == 1 else f"{min(n)}–{max(n)}" for name, n in counts.items()}
    if len(set(ranges.values())) == 1:
        each = f" in each {line}" if len(ranges) > 1 else ""
        return f"n = {next(iter(ranges.values()))} items{each}"
    return "Items: " + "; ".join(f"{name} n = {n}" for name, n in ranges.items())


def _means_over_prompts(long: pd.DataFrame, layout: Grid, prompts: Iterable[dict]) -> list[dict]:
    """Return the PROMPTS rows of the values in the table."""
    positions = layout.cells[layout.cells >= 0]
    shown = set(long.iloc[positions][list(_KEY)].itertuples(index=False, name=None))
    return [row for row in prompts if not row["baseline"] and tuple(row[key] for key in _KEY) in shown]


def _describe_prompts(means: list[dict]) -> str:
    """Return over how many prompts the means are: "Mean over prompts: 5 prompts of the same items"."""
    counts = sorted({row["n_prompts"] for row in means})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    return f"Mean over prompts: {number} wordings of the prompt for the same items"


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{char: "\\" + char for char in "&%$#_{}"},
    # after the end of a row, [ and * would be read as an argument of \\
    **{char: f"{{{char}}}" for char in "[]*"},
    "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "∞": r"$\infty$", "·": r"$\cdot$", "…": r"\dots{}",
    "–": "--",
    "--": "-{}-",  # two hyphens of a name, not a dash
}  # fmt: skip


_LATEX_PATTERN = re.compile("|".join(map(re.escape, sorted(_LATEX, key=len, reverse=True))))


_MARKDOWN_PATTERN = re.compile(r"[\\`*_{}\[\]<>|~#&!$]")


def latex_text(text: str) -> str:
    r"""Escape text for LaTeX.

    >>> print(latex_text("a_b & 50 % [x] a--b"))
    a\_b \& 50 \% {[}x{]} a-{}-b
    """
    return _LATEX_PATTERN.sub(lambda match: _LATEX[match.group()], plain_text(text))


def markdown_text(text: str) -> str:
    r"""Escape text for a cell or a paragraph of Markdown.

    >>> print(markdown_text("a_b|c *d*"))
    a\_b\|c \*d\*
    """
    return _MARKDOWN_PATTERN.sub(lambda match: "\\" + match.group(), plain_text(text))


def to_latex(table: PaperTable, label: str = "tab:results", width: float | None = None) -> str:
    """Return LaTeX tables, which require the package booktabs: one, or several of up to `width` points."""
    parts = [table] if width is None else table.parts(width)
    if len(parts) > 1 and len(small := replace(table, may_be_small=True).parts(width)) == 1:
        parts = small
    labels = [label, *(f"{label}-{number}" for number in range(2, len(parts) + 1))]
    tables = [_latex_table(part, name) for part, name in zip(parts, labels, strict=True)]
    signatures = "".join(f"% {signature}\n" for signature in table.signatures)
    return f"% requires \\usepackage{{booktabs}}\n{signatures}" + "\n".join(tables)


def _latex_table(table: PaperTable, label: str) -> str:
    lines = [
        r"\begin{table}",
        r"  \centering",
        *([r"  \footnotesize\setlength{\tabcolsep}{4pt}"] if table.is_small else []),
        rf"  \caption{{{latex_text(table.caption)}}}",
        rf"  \label{{{label}}}",
        rf"  \begin{{tabular}}{{{'l' * len(table.corner)}{'r' * len(table.headings[0])}}}",
        r"    \toprule",
    ]
    n_own, widths = len(table.corner), _column_widths(table)
    for level, texts in enumerate(table.headings):
        groups = runs_of_equal(list(zip(*table.headings[: level + 1], strict=True)))
        cells = [
            rf"\multicolumn{{{end - start}}}{{c}}{{{_wrapped(texts[start], table.characters(sum(widths[start:end])))}}}"
            for start, end in groups
        ]
        own = table.corner if level == len(table.headings) - 1 else [""] * n_own
        lines.append(f"    {' & '.join([*own, *cells])} \\\\".replace("     &", "    &"))
        rules = [rf"\cmidrule(lr){{{start + 1 + n_own}-{end + n_own}}}" for start, end in groups if end - start > 1]
        if rules and level < len(table.headings) - 1:
            lines.append(f"    {' '.join(rules)}")
    lines.append(r"    \midrule")
    previous: list[str] = []
    limits = table.limits or [max(map(len, names)) for names in zip(*table.names, strict=True)]
    for names, row in zip(table.names, table.cells, strict=True):
        # a heading that the row above has, too, is not repeated
        n_same = next((n for n, pair in enumerate(zip(names, previous, strict=False)) if pair[0] != pair[1]), 0)
        own = [""] * n_same + [
            _wrapped(name, limit, "[l]") for name, limit in zip(names[n_same:], limits[n_same:], strict=True)
        ]
        lines.append(
            f"    {' & '.join([*own, *(_latex_cell(cell, table.is_dense) for cell in row)])} \\\\".replace(
                "     &", "    &"
            )
        )
        previous = names
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


TEXT_WIDTH = 345.0  # points, of the class article
# mean width of a character, and the space between columns, in points; at 10 points, and at 8
_NORMAL, _SMALL = (5.0, 12.0), (4.2, 8.0)
_NARROWEST = {False: 11, True: 8}  # characters of a heading that are not wrapped, by whether the font is small
_TEXT_HEIGHT = 545.0  # points, of the class article


def _column_widths(table: PaperTable) -> list[float]:
    """Return the width of each column in points: of its values, or of the longest word of its own headings."""
    widths = []
    for column, texts in enumerate(zip(*table.headings, strict=True)):
        cells = [row[column] for row in table.cells]
        longest = max((_width(cell, table.is_dense) for cell in cells if cell), default=1)
        # headings above several columns may be wider than one
        pieces = [len(piece) for piece in _pieces(texts[-1])]
        widths.append(table.points(max(longest, _NARROWEST[table.is_small], *pieces)))
    return widths


def _width(cell: Cell, is_dense: bool) -> int:
    """Return the width of a value with its mark and interval, in characters of the value's size."""
    value = len(cell.text) + (cell.mark != NONE) + cell.has_failed
    interval = round(0.7 * sum(map(len, cell.interval))) + 4 if cell.interval else 0
    return max(value, interval) if is_dense else value + interval


def _pieces(text: str) -> list[str]:
    """Return the parts of a heading between which it may be wrapped: words, and what follows a hyphen in one.

    >>> _pieces("llama-3.1-8b of 2024")
    ['llama-', '3.1-', '8b', ' of', ' 2024']
    """
    return re.findall(r"\s*[^\s-]*-|\s*[^\s-]+", plain_text(text)) or [""]


def _lines(text: str, limit: int) -> list[str]:
    """Return a heading as the lines that it takes to fit a number of characters."""
    lines = [""]
    for piece in _pieces(text):
        if lines[-1] and len(lines[-1] + piece) > limit:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return lines


def _wrapped(text: str, limit: int, place: str = "") -> str:
    """Return a heading in LaTeX, in several lines if it is long."""
    lines = _lines(text, limit)
    escaped = r" \\ ".join(map(latex_text, lines))
    return escaped if len(lines) == 1 else rf"\shortstack{place}{{{escaped}}}"


def _latex_cell(cell: Cell | None, is_dense: bool = False) -> str:
    if cell is None:
        return "--"
    text = _latex_number(cell.text)
    text = rf"\textbf{{{text}}}" if cell.mark == BEST else text
    text += r"$^{\dagger}$" if cell.mark == SHARED else ""
    text += r"$^{\ddagger}$" if cell.has_failed else ""
    if cell.interval:
        low, high = map(_latex_number, cell.interval)
        interval = rf"{{\scriptsize [{low}, {high}]}}"
        text = rf"\shortstack[r]{{{text} \\ {interval}}}" if is_dense else f"{text} {interval}"
    return text


def _latex_number(text: str) -> str:
    return latex_text(text).replace("-", "$-$", 1)


def to_markdown(table: PaperTable) -> str:
    """Return a Markdown table (GitHub, pandoc), with the caption as a paragraph below it."""
    headings = [" · ".join(markdown_text(text) for text in column) for column in zip(*table.headings, strict=True)]
    rows = [
        [*map(markdown_text, names), *map(_markdown_cell, row)]
        for names, row in zip(table.names, table.cells, strict=True)
    ]
    own = len(table.corner)
    lines = [[*table.corner, *headings], [*[":--"] * own, *(["--:"] * len(headings))], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + f"\n\nTable: {markdown_text(table.caption)}\n"


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = f"**{cell.text}**" if cell.mark == BEST else cell.text
    text += "†" if cell.mark == SHARED else ""
    text += "‡" if cell.has_failed else ""
    return text + (f" \\[{cell.interval[0]}, {cell.interval[1]}\\]" if cell.interval else "")
