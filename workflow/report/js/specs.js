"use strict";
// Vega-Lite specifications of the plots. Datasets and fields have fixed names; texts of models and categories are
// values, never names. Marks of one kind differ in shape or position in addition to color. `colors` and `shapes` are
// scales of the values that occur.
const specs = (() => {
  const NAME = { title: null, sort: null, axis: { labelLimit: 220 } };
  const OUTCOMES = ["correct", "tie", "incorrect", "not scored", "acceptable", "unacceptable", "scored"];
  // An axis of numbers of items up to `highest`. The smallest step of ticks is not respected by stacked marks: few
  // numbers are listed.
  const counts = (highest) => ({
    format: "d",
    ...(highest < 9 ? { values: Array.from({ length: highest + 1 }, (_, i) => i) } : { tickMinStep: 1 }),
  });
  const field = (name, type, more) => ({ field: name, type, ...more });
  const tip = (name, title) => ({ field: name, type: "nominal", title: title ?? name });
  const wide = (layer, more) => ({ width: "container", layer, ...more });

  // Vertical lines for reference values: chance is dashed, the majority baseline dotted and in another color.
  const REFERENCES = ["chance", "most frequent answer", "chance = most frequent answer"];
  function lines(rows, color) {
    if (!rows.length) return [];
    const present = REFERENCES.filter((name) => rows.some((row) => row.line === name));
    const dashes = { chance: [7, 4], "most frequent answer": [2, 3], "chance = most frequent answer": [7, 3, 2, 3] };
    const colors = {
      chance: color("plot-ink"),
      "most frequent answer": color("series-4"),
      "chance = most frequent answer": color("plot-ink"),
    };
    const legend = { orient: "top", title: null, symbolType: "stroke", symbolSize: 400, labelLimit: 220, columns: 2 };
    const scaled = (of) => ({ domain: present, range: present.map((name) => of[name]) });
    return [
      {
        data: { values: rows },
        mark: { type: "rule", strokeWidth: 2 },
        encoding: {
          x: field("value", "quantitative"),
          strokeDash: field("line", "nominal", { scale: scaled(dashes), legend }),
          stroke: field("line", "nominal", { scale: scaled(colors), legend }),
          tooltip: [tip("line")],
        },
      },
    ];
  }

  // The interval of each row that has one; without any, no layer, because its scale would have no extent.
  function interval(rows, more, encoding) {
    const known = rows.filter((row) => row.low !== null && row.high !== null);
    return known.length
      ? [{ data: { values: known }, mark: { type: "rule", ...more }, encoding: { ...encoding, x2: { field: "high" } } }]
      : [];
  }

  // Every model's value with its interval, over the reference lines.
  function values({ rows, references = [], color, title = null, href }) {
    const y = field("model", "nominal", NAME);
    const x = (name) => field(name, "quantitative", { title, scale: { zero: false } });
    return wide([
      ...lines(references, color),
      ...interval(rows, { strokeWidth: 2, color: color("accent-plot") }, { y, x: x("low") }),
      {
        data: { values: rows },
        mark: {
          type: "point",
          filled: true,
          size: 80,
          opacity: 1,
          color: color("accent-plot"),
          cursor: href ? "pointer" : null,
        },
        encoding: {
          y,
          x: x("value"),
          tooltip: [tip("model"), tip("label", "value"), tip("n", href ? "evaluations" : "items")],
        },
      },
    ]);
  }

  // Values by category with intervals, a shape and a color per model.
  function categories({ rows, references = [], color, colors, shapes, narrow }) {
    const padding = references.length && !narrow ? 5 : 0; // at the height of the legend of the lines, beside it
    const legend = { orient: "top", columns: 2, labelLimit: 260, padding };
    const y = field("category", "nominal", NAME);
    const yOffset = field("model", "nominal", { sort: null });
    const x = (name) => field(name, "quantitative", { title: null });
    const fill = field("model", "nominal", { title: null, legend, scale: colors });
    const shape = field("model", "nominal", { title: null, legend, scale: shapes });
    return wide([
      ...lines(references, color),
      ...interval(rows, { strokeWidth: 1.5 }, { y, yOffset, x: x("low"), color: fill }),
      {
        data: { values: rows },
        mark: { type: "point", filled: true, size: 55, opacity: 1 },
        encoding: {
          y,
          yOffset,
          x: x("value"),
          color: fill,
          shape,
          tooltip: [tip("category"), tip("model"), tip("label", "value"), tip("n", "items")],
        },
      },
    ]);
  }

  // A histogram over items, stacked by outcome; no bin contains values of both signs.
  function distribution({ rows, zero, color, colors, tallest, title }) {
    const y = {
      title: "items",
      stack: "zero",
      axis: counts(tallest),
    };
    const bars = {
      data: { values: rows },
      mark: { type: "bar", orient: "vertical" },
      encoding: {
        x: field("start", "quantitative", { bin: "binned", title, axis: { grid: false } }),
        x2: { field: "end" },
        y: field("count", "quantitative", y),
        color: field("outcome", "nominal", { title: null, sort: OUTCOMES, legend: { orient: "top" }, scale: colors }),
        order: field("order", "quantitative"),
        tooltip: [tip("outcome"), tip("count", "items"), tip("span", "value")],
      },
    };
    const rule = {
      data: { values: [{ value: 0 }] },
      mark: { type: "rule", strokeDash: [4, 3], color: color("plot-ink") },
      encoding: { x: field("value", "quantitative") },
    };
    return wide(zero ? [bars, rule] : [bars], { height: 190 });
  }

  // The outcomes of the items, a bar per model.
  function outcomes({ rows, colors }) {
    const totals = new Map();
    for (const { model, count } of rows) totals.set(model, (totals.get(model) ?? 0) + count);
    return {
      width: "container",
      data: { values: rows },
      mark: { type: "bar" },
      encoding: {
        y: field("model", "nominal", NAME),
        x: field("count", "quantitative", {
          title: "items",
          stack: "zero",
          axis: counts(Math.max(...totals.values())),
        }),
        color: field("outcome", "nominal", { title: null, sort: OUTCOMES, legend: { orient: "top" }, scale: colors }),
        order: field("order", "quantitative"),
        tooltip: [tip("model"), tip("outcome"), tip("count", "items")],
      },
    };
  }

  // Candidate minus baseline per evaluation with intervals, a shape and a color per verdict.
  function differences({ rows, color, colors, shapes, narrow }) {
    const y = field("evaluation", "nominal", {
      ...NAME,
      axis: {
        labelLimit: 340,
        labelExpr: "split(datum.label, ': ')",
        labelOffset: -6 * Math.max(...rows.map((row) => row.evaluation.split(": ").length - 1)),
      },
    });
    // its ends are ticks, so that no interval seems to be cut; few on phones, so that no label, such as 0, is omitted
    const ticks = narrow ? 4 : 8;
    const x = (name) =>
      field(name, "quantitative", { title: null, axis: { orient: "top", tickCount: ticks }, scale: { nice: ticks } });
    const fill = field("verdict", "nominal", { title: null, legend: { orient: "top" }, scale: colors });
    const shape = { ...fill, scale: shapes };
    return wide([
      {
        data: { values: [{ value: 0 }] },
        mark: { type: "rule", color: color("plot-ink") },
        encoding: { x: x("value") },
      },
      ...interval(rows, { strokeWidth: 2 }, { y, x: x("low"), color: fill }),
      {
        data: { values: rows },
        mark: { type: "point", filled: true, size: 70, opacity: 1 },
        encoding: {
          y,
          x: x("value"),
          color: fill,
          shape,
          tooltip: [
            tip("evaluation"),
            tip("label", "difference"),
            tip("p"),
            tip("corrected", "p (Holm)"),
            tip("verdict"),
          ],
        },
      },
    ]);
  }

  // Every model's value under each prompt, and below these points the mean over prompts (no prompt) with its interval.
  // Each prompt has its own line, so that equal values do not hide each other.
  function prompts({ rows, color, colors, shapes }) {
    const y = field("model", "nominal", NAME);
    const yOffset = field("line", "nominal", { sort: null, scale: { domain: [...colors.domain, "mean"], padding: 1 } });
    const x = (name) => field(name, "quantitative", { title: null, scale: { zero: false } });
    const fill = field("prompt", "nominal", {
      title: null,
      legend: { orient: "top", columns: 6, labelLimit: 220 },
      scale: colors,
    });
    const lines = rows.map((row) => ({ ...row, line: row.prompt ?? "mean" }));
    const means = lines.filter((row) => row.prompt === null);
    return wide([
      ...interval(means, { strokeWidth: 2, color: color("plot-ink") }, { y, yOffset, x: x("low") }),
      {
        data: { values: means },
        mark: { type: "tick", thickness: 3, size: 16, color: color("plot-ink") },
        encoding: { y, yOffset, x: x("value"), tooltip: [tip("model"), tip("label", "mean over prompts")] },
      },
      {
        data: { values: lines.filter((row) => row.prompt !== null) },
        mark: { type: "point", filled: true, size: 60, opacity: 1 },
        encoding: {
          y,
          yOffset,
          x: x("value"),
          color: fill,
          shape: { ...fill, scale: shapes },
          tooltip: [tip("model"), tip("prompt"), tip("label", "value")],
        },
      },
    ]);
  }

  return { values, categories, distribution, outcomes, differences, prompts };
})();
