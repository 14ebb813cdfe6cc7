"""Vega-Lite specifications of the plots, built with Altair; the report adds the data and the colors of its theme.

Datasets and fields have fixed names; texts of models and categories are values, never names. Marks of one kind differ
in shape or position in addition to color, so that they can be distinguished without it.
"""

import altair as alt

from vernacular.report import prompts

VERDICTS = ["candidate better", "baseline better", "not significantly different"]
OUTCOMES = ["correct", "tie", "incorrect", "not scored", "acceptable", "unacceptable"]


def specifications() -> dict[str, dict]:
    """Return the Vega-Lite specifications by name; the report sets data, heights and the domains of named scales."""
    return {
        "values": _values().to_dict(),
        "categories": _categories().to_dict(),
        "distribution": _distribution().to_dict(),
        "outcomes": _outcomes().to_dict(),
        "differences": _differences().to_dict(),
        "prompts": prompts.specification(),
    }


def _values():
    """Plot every model's value with its interval, over lines for chance and baselines."""
    rows = alt.Chart(alt.NamedData("rows"))
    y = alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    x = alt.X("value:Q", title=None, scale=alt.Scale(zero=False))
    tooltip = [alt.Tooltip("model:N"), alt.Tooltip("label:N", title="value"), alt.Tooltip("n:Q", title="items")]
    reference_lines = _lines()
    interval = rows.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q", title=None), x2="high:Q")
    return (
        reference_lines + interval + rows.mark_point(filled=True, size=70, opacity=1).encode(y=y, x=x, tooltip=tooltip)
    ).properties(width="container")


def _categories():
    """Plot values by category with intervals, a shape and a color per model."""
    rows = alt.Chart(alt.NamedData("rows"))
    y = alt.Y("category:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    offset = alt.YOffset("model:N", sort=None)
    legend = alt.Legend(orient="top", columns=2, labelLimit=220)  # identical, so that one legend is drawn
    color = alt.Color("model:N", title=None, legend=legend, scale=alt.Scale(domain=["model"]))
    shape = alt.Shape("model:N", title=None, legend=legend, scale=alt.Scale(domain=["model"]))
    tooltip = [alt.Tooltip("category:N"), alt.Tooltip("model:N"), alt.Tooltip("label:N", title="value"),
           alt.Tooltip("n:Q", title="items")]  # fmt: skip
    lines = _lines()
    interval = rows.mark_rule(strokeWidth=1.5).encode(
        y=y, yOffset=offset, x=alt.X("low:Q", title=None), x2="high:Q", color=color
    )
    points = rows.mark_point(filled=True, size=55, opacity=1).encode(
        y=y, yOffset=offset, x=alt.X("value:Q", title=None), color=color, shape=shape, tooltip=tooltip
    )
    return (lines + interval + points).properties(width="container")


def _lines():
    """Draw dashed vertical lines: chance and other reference values."""
    lines = alt.Chart(alt.NamedData("lines")).mark_rule(strokeDash=[4, 3])
    return lines.encode(x=alt.X("value:Q", title=None), tooltip=[alt.Tooltip("line:N")])


def _distribution():
    """Plot a histogram over items, stacked by outcome."""
    rows = alt.Chart(alt.NamedData("rows"))
    bars = rows.mark_bar(orient="vertical").encode(
        x=alt.X("start:Q", bin="binned", title=None, axis=alt.Axis(grid=False)),
        x2="end:Q",
        y=alt.Y("count:Q", title="items", stack="zero", axis=alt.Axis(tickMinStep=1, format="d")),
        color=alt.Color("outcome:N", title=None, sort=OUTCOMES, legend=alt.Legend(orient="top"),
                        scale=alt.Scale(domain=OUTCOMES)),
        order=alt.Order("order:Q"),
        tooltip=[alt.Tooltip("outcome:N"), alt.Tooltip("count:Q", title="items"), alt.Tooltip("span:N", title="value")],
    )  # fmt: skip
    zero = alt.Chart(alt.NamedData("lines")).mark_rule(strokeDash=[4, 3]).encode(x="value:Q")
    return (bars + zero).properties(width="container", height=190)


def _outcomes():
    """Plot the outcomes of the items, a bar per model."""
    return (
        alt.Chart(alt.NamedData("rows"))
        .mark_bar()
        .encode(
            y=alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
            x=alt.X("count:Q", title="items", stack="zero", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color("outcome:N", title=None, sort=OUTCOMES, legend=alt.Legend(orient="top"),
                            scale=alt.Scale(domain=OUTCOMES)),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("model:N"), alt.Tooltip("outcome:N"), alt.Tooltip("count:Q", title="items")],
        )
        .properties(width="container")
    )  # fmt: skip


def _differences():
    """Plot candidate minus baseline per evaluation with intervals, a shape and a color per verdict."""
    rows = alt.Chart(alt.NamedData("rows"))
    y = alt.Y("evaluation:N", title=None, sort=None, axis=alt.Axis(labelLimit=340))
    legend = alt.Legend(orient="top")
    color = alt.Color("verdict:N", title=None, legend=legend, scale=alt.Scale(domain=VERDICTS))
    zero = alt.Chart(alt.NamedData("lines")).mark_rule().encode(x=alt.X("value:Q", axis=alt.Axis(orient="top")))
    interval = rows.mark_rule(strokeWidth=2).encode(
        y=y, x=alt.X("low:Q", title=None, axis=alt.Axis(orient="top")), x2="high:Q", color=color
    )
    tooltip = [alt.Tooltip("evaluation:N"), alt.Tooltip("label:N", title="difference"), alt.Tooltip("p:N", title="p"),
           alt.Tooltip("verdict:N")]  # fmt: skip
    points = rows.mark_point(filled=True, size=70, opacity=1).encode(
        y=y, x=alt.X("value:Q", title=None, axis=alt.Axis(orient="top")), color=color, tooltip=tooltip,
        shape=alt.Shape("verdict:N", title=None, legend=legend, scale=alt.Scale(domain=VERDICTS)),
    )  # fmt: skip
    return (zero + interval + points).properties(width="container")
