"""Colour scales: one hue from white to blue, the better the bluer, so that no one must tell red from green.

They are conditional formats, which follow the numbers when a person edits or copies the sheet. The numbers stay
readable on every shade, so the colour only repeats what they say.
"""

import numpy as np
from openpyxl.formatting.rule import ColorScaleRule
from openpyxl.worksheet.worksheet import Worksheet

_WORSE, _BETTER = "FFFFFF", "9ECAE1"


def add_scale(sheet: Worksheet, cells: str, values, unit, chance, higher_is_better: bool | None) -> None:
    """Shade `cells` (like "G3:G9") that show `values`, (R,) floats, NaN where missing; `chance` (R,) likewise.

    A share that is better high runs from chance (0 where it has none) to 1, so that equal shades mean equal values in
    every column. What has no natural ends runs from the column's lowest to its highest, which two values would always
    fill: so only where three runs differ. Nothing is shaded where neither direction is better.
    """
    values, chance = (np.asarray(array, dtype=float) for array in (values, chance))
    if higher_is_better is None:
        return
    if unit == "share" and higher_is_better:
        levels = chance[np.isfinite(chance)]
        lowest = float(levels.max()) if len(levels) and levels.max() < 1 else 0.0
        ends = {"start_type": "num", "start_value": lowest, "end_type": "num", "end_value": 1}
    elif len(np.unique(values[np.isfinite(values)])) >= 3:
        ends = {"start_type": "min", "end_type": "max"}
    else:
        return
    low, high = (_WORSE, _BETTER) if higher_is_better else (_BETTER, _WORSE)
    sheet.conditional_formatting.add(cells, ColorScaleRule(**ends, start_color=low, end_color=high))
