"""The plots as Vega-Lite specifications, made by Altair; the page brings the data and the colours of its theme.

Each names its data set, and every field by a name of ours: texts of models and categories are values, never names.
Marks of one kind carry shape or position beside their colour, so that nothing hangs on hue alone.
"""

import altair as alt

OUTCOMES = ["right", "tie", "wrong", "not judged", "acceptable", "unacceptable"]


def specifications() -> dict[str, dict]:
    """Name -> Vega-Lite specification; data, heights, and the values of scales by name are left to the page."""
    return {
        "values": _values().to_dict(),
        "categories": _categories().to_dict(),
        "distribution": _distribution().to_dict(),
        "outcomes": _outcomes().to_dict(),
        "differences": _differences().to_dict(),
    }


def _values():
    """Every model's value with its interval, above lines for chance and baselines."""
    rows = alt.Chart(alt.NamedData("rows"))
    y = alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    x = alt.X("value:Q", title=None, scale=alt.Scale(zero=False))
    tip = [alt.Tooltip("model:N"), alt.Tooltip("label:N", title="value"), alt.Tooltip("n:Q", title="items")]
    marked = _lines()
    interval = rows.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q", title=None), x2="high:Q")
    return (
        marked + interval + rows.mark_point(filled=True, size=70, opacity=1).encode(y=y, x=x, tooltip=tip)
    ).properties(width="container")


def _categories():
    """Values by category with intervals, a shape and a colour per model."""
    rows = alt.Chart(alt.NamedData("rows"))
    y = alt.Y("category:N", title=None, sort=None, axis=alt.Axis(labelLimit=220))
    offset = alt.YOffset("model:N", sort=None)
    legend = alt.Legend(orient="top", columns=2, labelLimit=220)  # the same for both, so that it is drawn once
    colour = alt.Color("model:N", title=None, legend=legend, scale=alt.Scale(domain=["model"]))
    shape = alt.Shape("model:N", title=None, legend=legend, scale=alt.Scale(domain=["model"]))
    tip = [alt.Tooltip("category:N"), alt.Tooltip("model:N"), alt.Tooltip("label:N", title="value"),
           alt.Tooltip("n:Q", title="items")]  # fmt: skip
    lines = _lines()
    interval = rows.mark_rule(strokeWidth=1.5).encode(
        y=y, yOffset=offset, x=alt.X("low:Q", title=None), x2="high:Q", color=colour
    )
    points = rows.mark_point(filled=True, size=55, opacity=1).encode(
        y=y, yOffset=offset, x=alt.X("value:Q", title=None), color=colour, shape=shape, tooltip=tip
    )
    return (lines + interval + points).properties(width="container")


def _lines():
    """Dashed upright lines: chance, and whatever else a value is to be held against."""
    lines = alt.Chart(alt.NamedData("lines")).mark_rule(strokeDash=[4, 3])
    return lines.encode(x=alt.X("value:Q", title=None), tooltip=[alt.Tooltip("line:N")])


def _distribution():
    """A histogram over items, stacked by how they came out."""
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
    """How the items came out, a bar per model."""
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
    """Candidate minus baseline per evaluation with intervals; filled where significant, hollow where not."""
    rows = alt.Chart(alt.NamedData("rows"))
    y = alt.Y("evaluation:N", title=None, sort=None, axis=alt.Axis(labelLimit=340))
    legend = alt.Legend(orient="top")
    colour = alt.Color("verdict:N", title=None, legend=legend,
                       scale=alt.Scale(domain=["candidate better", "baseline better", "not told apart"]))  # fmt: skip
    zero = alt.Chart(alt.NamedData("lines")).mark_rule().encode(x=alt.X("value:Q", axis=alt.Axis(orient="top")))
    interval = rows.mark_rule(strokeWidth=2).encode(
        y=y, x=alt.X("low:Q", title=None, axis=alt.Axis(orient="top")), x2="high:Q", color=colour
    )
    tip = [alt.Tooltip("evaluation:N"), alt.Tooltip("label:N", title="difference"), alt.Tooltip("p:N", title="p"),
           alt.Tooltip("verdict:N")]  # fmt: skip
    points = rows.mark_point(filled=True, size=70, opacity=1).encode(
        y=y, x=alt.X("value:Q", title=None, axis=alt.Axis(orient="top")), color=colour, tooltip=tip,
        shape=alt.Shape("verdict:N", title=None, legend=legend,
                        scale=alt.Scale(domain=["candidate better", "baseline better", "not told apart"])),
    )  # fmt: skip
    return (zero + interval + points).properties(width="container")
