"use strict";
// Vega-Lite specifications of the plots over items: calibration, two models item by item, surprisal, and categories
// across languages.
const specsItems = (() => {
  const field = (name, type, more) => ({ field: name, type, ...more });
  const tip = (name, title) => ({ field: name, type: "nominal", title: title ?? name });
  const legend = { orient: "top", columns: 2, labelLimit: 260 };
  const diagonal = (from, to, color) => ({
    data: {
      values: [
        { x: from, y: from },
        { x: to, y: to },
      ],
    },
    mark: { type: "line", strokeDash: [5, 4], strokeWidth: 1.5, color: color("plot-ink"), opacity: 0.7 },
    encoding: { x: field("x", "quantitative"), y: field("y", "quantitative") },
  });

  // Accuracy against mean confidence by bin of confidence; on the diagonal, a model is as accurate as it is confident.
  function reliability({ rows, color, colors, shapes }) {
    const share = { domain: [0, 1] };
    const axis = { format: "%", tickCount: 5 };
    const fill = field("model", "nominal", { title: null, legend, scale: colors });
    const encoding = {
      x: field("confidence", "quantitative", { title: "confidence", scale: share, axis }),
      y: field("accuracy", "quantitative", { title: "accuracy", scale: share, axis }),
      color: fill,
    };
    const size = field("n", "quantitative", {
      title: "items",
      legend: null,
      scale: { type: "sqrt", domainMin: 0, range: [25, 320] },
    });
    const shape = field("model", "nominal", { title: null, legend, scale: shapes });
    return {
      width: "container",
      height: 300,
      layer: [
        diagonal(0, 1, color),
        { data: { values: rows }, mark: { type: "line", strokeWidth: 1.5 }, encoding },
        {
          data: { values: rows },
          mark: { type: "point", filled: true, opacity: 0.9 },
          encoding: {
            ...encoding,
            size,
            shape,
            tooltip: [tip("model"), tip("bin", "confidence"), tip("accuracyLabel", "accuracy"), tip("n", "items")],
          },
        },
      ],
    };
  }

  // One point per item: the measure of two models.
  function scatter({ rows, color, colors, shapes, zero, titles }) {
    const ends = rows.flatMap((row) => [row.x, row.y]);
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const axis = { title: null, scale: { zero: false, nice: true } };
    const at = (name) => field(name, "quantitative", axis);
    const cross =
      zero && low < 0 && high > 0
        ? ["x", "y"].map((name) => ({
            data: { values: [{ zero: 0 }] },
            mark: { type: "rule", color: color("plot-ink"), opacity: 0.6 },
            encoding: { [name]: field("zero", "quantitative") },
          }))
        : [];
    const outcome = field("outcome", "nominal", { title: null, legend: { ...legend, columns: 4 }, scale: colors });
    return {
      width: "container",
      height: 330,
      layer: [
        ...cross,
        diagonal(low, high, color),
        {
          data: { values: rows },
          // many points are translucent, so that it is seen where they are dense
          mark: { type: "point", filled: true, size: 60, opacity: rows.length > 300 ? 0.6 : 0.85, cursor: "pointer" },
          encoding: {
            x: { ...at("x"), title: titles[0] },
            y: { ...at("y"), title: titles[1] },
            color: outcome,
            shape: { ...outcome, scale: shapes },
            tooltip: [tip("item"), tip("xLabel", "across"), tip("yLabel", "up"), tip("outcome")],
          },
        },
      ],
    };
  }

  // Whole numbers, also where few positions leave room for more ticks.
  function positions(rows) {
    const [low, high] = [Math.min(...rows.map((row) => row.at)), Math.max(...rows.map((row) => row.at))];
    if (high - low >= 9) return { tickMinStep: 1 };
    return { values: Array.from({ length: Math.floor(high) - Math.ceil(low) + 1 }, (_, i) => Math.ceil(low) + i) };
  }

  // Mean surprisal by position or length, a line per model.
  function profile({ rows, colors, shapes, titles }) {
    const encoding = {
      x: field("at", "quantitative", {
        title: titles[0],
        axis: { ...positions(rows), format: "d", grid: false },
        scale: { zero: false },
      }),
      y: field("nats", "quantitative", { title: titles[1], scale: { zero: true } }),
      color: field("model", "nominal", { title: null, legend, scale: colors }),
    };
    const shape = field("model", "nominal", { title: null, legend, scale: shapes });
    return {
      width: "container",
      height: 240,
      // equal values remain visible: later models have smaller points
      data: { values: rows.map((row) => ({ ...row, size: 90 / (1 + 0.6 * colors.domain.indexOf(row.model)) })) },
      layer: [
        { mark: { type: "line", strokeWidth: 2 }, encoding },
        {
          mark: { type: "point", filled: true, opacity: 1 },
          encoding: {
            ...encoding,
            shape,
            size: field("size", "quantitative", { scale: null }),
            tooltip: [tip("model"), tip("where", titles[0]), tip("label", titles[1]), tip("n", "count")],
          },
        },
      ],
    };
  }

  // Categories down, languages across: a value in each cell.
  function languages({ rows, color, range, limit }) {
    const at = {
      y: field("category", "nominal", { title: null, sort: null, axis: { labelLimit: limit } }),
      x: field("language", "nominal", { title: null, axis: { orient: "top", labelAngle: 0 } }),
    };
    return {
      width: "container",
      data: { values: rows },
      layer: [
        {
          mark: { type: "rect", stroke: color("plot-faint") },
          encoding: {
            ...at,
            color: field("value", "quantitative", { legend: null, scale: { domain: [0, 100], range } }),
            tooltip: [tip("category"), tip("language"), tip("label", "value"), tip("n", "items")],
          },
        },
        {
          mark: { type: "text", fontSize: 12, color: color("plot-ink") },
          encoding: { ...at, text: field("label", "nominal") },
        },
      ],
      config: { axis: { grid: false } },
    };
  }

  return { reliability, scatter, profile, languages };
})();
