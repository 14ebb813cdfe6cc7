"""A comparison in one sentence: who is better, by how much, how sure; or what so few items could not have shown."""

from vernacular.summary.cells import change, finite, shown
from vernacular.summary.text import plain_text


def in_words(row: dict) -> str:
    """What one row of the comparisons says, for a reader who does not read p-values.

    "mine is better than base by 3.1 points (95 % interval +1.2 points to +5.0 points)."
    "No significant difference (+0.4 points); 500 items would have shown one of 4.2 points or more."
    """
    baseline, candidate = plain_text(row["baseline"])[:80], plain_text(row["candidate"])[:80]
    unit, difference = row["unit"], _number(row["difference"])
    if difference is None:
        return f"Not comparable: {row['note'] or 'no item has a value on both sides'}."
    if row["better"]:
        ahead, behind = (candidate, baseline) if row["better"] == "candidate" else (baseline, candidate)
        way = "better" if row["higher_is_better"] is not False else "better (lower)"
        text = f"{ahead} is {way} than {behind} by {_size(difference, unit)}{_interval(row, difference < 0)}."
    elif row["significant"]:
        differs = f"{candidate} differs from {baseline} by {change(difference, unit)}{_interval(row)}"
        text = f"{differs}; neither direction is better."
    elif _number(row["p_value"]) is None:
        text = f"Not tested: {change(difference, unit)}."
    else:
        least = _number(row["smallest_difference"])
        would = f"; {row['n']} items would have shown one of {_size(least, unit)} or more" if least is not None else ""
        text = f"No significant difference ({change(difference, unit)}){would}."
    return text if not row["note"] else f"{text} {row['note']}"


def _interval(row: dict, turned: bool = False) -> str:
    """The interval of the difference; `turned`: of baseline - candidate."""
    low, high = _number(row["ci_low"]), _number(row["ci_high"])
    if low is None or high is None:
        return ""
    low, high = (-high, -low) if turned else (low, high)
    return f" (95 % interval {change(low, row['unit'])} to {change(high, row['unit'])})"


def _size(value: float, unit) -> str:
    return change(abs(value), unit).removeprefix("+") if unit == "share" else shown(abs(value), unit)


def _number(value) -> float | None:
    """None for whatever is missing or no finite number."""
    return float(value) if finite(value) else None
