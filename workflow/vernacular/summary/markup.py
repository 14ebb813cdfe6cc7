"""Tables as LaTeX (booktabs) and Markdown, with all texts escaped."""

import re

from vernacular.core.tables import plain_text
from vernacular.summary import marks
from vernacular.summary.paper import Cell, PaperTable

_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{char: "\\" + char for char in "&%$#_{}"},
    # after the end of a row, [ and * would be read as an argument of \\
    **{char: f"{{{char}}}" for char in "[]*"},
    "†": r"$^{\dagger}$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "∞": r"$\infty$", "·": r"$\cdot$", "…": r"\dots{}",
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


def to_latex(table: PaperTable, label: str = "tab:results") -> str:
    """Return a LaTeX table, which requires the package booktabs."""
    n_columns = len(table.headings[0])
    lines = [
        r"% requires \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex_text(table.caption)}}}",
        rf"  \label{{{label}}}",
        rf"  \begin{{tabular}}{{l{'r' * n_columns}}}",
        r"    \toprule",
    ]
    for level, texts in enumerate(table.headings):
        groups = _groups(table.headings[: level + 1])
        cells = [rf"\multicolumn{{{end - start}}}{{c}}{{{latex_text(texts[start])}}}" for start, end in groups]
        first = "Model" if level == len(table.headings) - 1 else ""
        lines.append(f"    {first} & {' & '.join(cells)} \\\\".replace("     &", "    &"))
        rules = [rf"\cmidrule(lr){{{start + 2}-{end + 1}}}" for start, end in groups if end - start > 1]
        if rules and level < len(table.headings) - 1:
            lines.append(f"    {' '.join(rules)}")
    lines.append(r"    \midrule")
    for model, row in zip(table.models, table.cells, strict=True):
        lines.append(f"    {' & '.join([latex_text(model), *map(_latex_cell, row)])} \\\\")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    text = _latex_number(cell.text)
    text = rf"\textbf{{{text}}}" if cell.mark == marks.BEST else text
    text += r"$^{\dagger}$" if cell.mark == marks.SHARED else ""
    if cell.interval:
        low, high = map(_latex_number, cell.interval)
        text += rf" {{\scriptsize [{low}, {high}]}}"
    return text


def _latex_number(text: str) -> str:
    return latex_text(text) if not text.startswith("-") else f"$-${latex_text(text[1:])}"


def _groups(headings: list[list[str]]) -> list[tuple[int, int]]:
    """Return (start, end) of adjacent columns that agree in all given rows of headings."""
    keys = list(zip(*headings, strict=True))
    starts = [index for index in range(len(keys)) if index == 0 or keys[index] != keys[index - 1]]
    return list(zip(starts, [*starts[1:], len(keys)], strict=True))


def to_markdown(table: PaperTable) -> str:
    """Return a Markdown table (GitHub, pandoc), with the caption as a paragraph below it."""
    headings = [" · ".join(markdown_text(text) for text in column) for column in zip(*table.headings, strict=True)]
    rows = [
        [markdown_text(model), *map(_markdown_cell, row)] for model, row in zip(table.models, table.cells, strict=True)
    ]
    lines = [["Model", *headings], [":--", *(["--:"] * len(headings))], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + f"\n\nTable: {markdown_text(table.caption)}\n"


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = f"**{cell.text}**" if cell.mark == marks.BEST else cell.text
    text += "†" if cell.mark == marks.SHARED else ""
    return text + (f" \\[{cell.interval[0]}, {cell.interval[1]}\\]" if cell.interval else "")
