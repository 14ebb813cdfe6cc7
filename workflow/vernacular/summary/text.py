"""Text that a spreadsheet shows and never runs: names of models and data sets are other people's words."""

import re

CELL_LIMIT = 32_767  # characters of one Excel cell
SHEET_LIMIT = 31  # characters of an Excel sheet name

# Control characters, halves of surrogate pairs and what XML forbids; direction overrides and isolates too, because they
# reorder the text around them (a name can then read as another), and right-to-left letters need none of them.
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_FORMULA_STARTS = tuple("=+-@＝＋－＠")  # the full-width ones start a formula in East Asian versions of Excel


def plain_text(value) -> str:
    """`value` as text of one cell: control, reordering and unencodable characters shown as escapes, length limited.

    >>> plain_text("a\\x1b[31m\\tb")
    'a\\\\x1b[31m b'
    """
    text = str(value)
    if not text.isprintable():  # most texts are, and nothing that is printable is changed
        text = _UNREADABLE.sub(_escape, re.sub(r"[\t\n\r]+", " ", text))
    return text if len(text) <= CELL_LIMIT else text[: CELL_LIMIT - 1] + "…"


def formula_safe(value) -> str:
    """`plain_text` with an apostrophe before what a spreadsheet would take for a formula when it opens a CSV (OWASP).

    >>> formula_safe("=1+1"), formula_safe("gl-1"), formula_safe(" @SUM(A1)")
    ("'=1+1", 'gl-1', "' @SUM(A1)")
    """
    text = plain_text(value)
    return "'" + text if text.lstrip()[:1] in _FORMULA_STARTS else text


def sheet_names(wanted) -> list[str]:
    """Legal Excel sheet names, unique whatever their case, for `wanted` texts in order.

    >>> sheet_names(["gl", "GL", "a/b", ""])
    ['gl', 'GL (2)', 'a_b', '_']
    """
    names, taken = [], {"history"}  # Excel keeps that name for itself
    for text in wanted:
        base = re.sub(r"[\[\]:*?/\\]", "_", plain_text(text)).strip("' ")[:SHEET_LIMIT].rstrip("' ") or "_"
        name, count = base, 1
        while name.casefold() in taken:
            count += 1
            suffix = f" ({count})"
            name = base[: SHEET_LIMIT - len(suffix)] + suffix
        taken.add(name.casefold())
        names.append(name)
    return names


def _escape(found: re.Match) -> str:
    point = ord(found.group())
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"
