"""A plot of all differences, as SVG: one row per protocol and tool, one circle per tenth of a decade."""

import math
from html import escape

LEFT, RIGHT, TOP, ROW = 190, 20, 34, 24
LOW, HIGH = -9, 2  # decades; smaller differences, and 0, are drawn at the left end
WIDTH = 860
COLORS = {False: "#2563a8", True: "#c2410c"}  # value within the tolerance, or equal up to float noise; known difference


def svg(rows: list[tuple[str, list[tuple[float, bool]]]], tolerance: float) -> str:
    """Return the plot; `rows`: label, and (difference, whether it is a known difference) of its values."""
    height = TOP + ROW * len(rows) + 42
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"',
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="16">difference from the other tool, per value (nats, bits, or similarity)</text>',
    ]
    bottom = TOP + ROW * len(rows)
    for decade in range(LOW, HIGH + 1):
        x = _x(decade)
        parts.append(f'<line x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{bottom}" stroke="#e5e7eb"/>')
        label = "≤ 10" if decade == LOW else "10"
        exponent = str(decade).replace("-", "−")
        superscript = f'<tspan dy="-4" font-size="9">{exponent}</tspan>'
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" fill="#374151">{label}{superscript}</text>')
    x = _x(math.log10(tolerance))
    parts.append(f'<line x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{bottom}" stroke="#111827" stroke-dasharray="4 3"/>')
    for i, (label, values) in enumerate(rows):
        y = TOP + ROW * i + ROW // 2
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
        for (position, is_known), count in sorted(_counts(values).items()):
            radius = round(min(1.5 + math.sqrt(count) * 0.8, ROW / 2), 1)
            circle = f'<circle cx="{_x(position)}" cy="{y}" r="{radius}" fill="{COLORS[is_known]}" fill-opacity="0.55">'
            parts.append(f"{circle}<title>{count}</title></circle>")
    y = bottom + 34
    for x, is_known, text in (
        (LEFT, False, "equal up to float noise"),
        (LEFT + 190, True, "a difference listed below"),
    ):
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{COLORS[is_known]}" fill-opacity="0.55"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">{text}</text>')
    parts.append(f'<text x="{LEFT + 400}" y="{y}">dashed: {tolerance:.0e}; area: number of values</text>')
    return "\n".join([*parts, "</svg>", ""])


def _counts(values: list[tuple[float, bool]]) -> dict[tuple[float, bool], int]:
    counts: dict[tuple[float, bool], int] = {}
    for difference, is_known in values:
        position = math.log10(difference) if difference > 0 else LOW
        key = (min(max(round(position, 1), LOW), HIGH), is_known)
        counts[key] = counts.get(key, 0) + 1
    return counts


def _x(decade: float) -> float:
    return round(LEFT + (decade - LOW) / (HIGH - LOW) * (WIDTH - LEFT - RIGHT), 1)
