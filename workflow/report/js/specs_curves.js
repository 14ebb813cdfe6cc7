"use strict";
// Vega-Lite specifications of training curves. A line is interrupted where a checkpoint has no value (`part`), points
// are always drawn, and nothing is smoothed. Curves with equal values remain visible: lines have different dashes, and
// later curves smaller points.
const specsCurves = (() => {
  const field = (name, type, more) => ({ field: name, type, ...more });
  const tip = (name, title) => ({ field: name, type: "nominal", title: title ?? name });
  const legend = { orient: "top", columns: 2, labelLimit: 260, symbolOpacity: 1, symbolStrokeWidth: 0 };
  const NUMBER = "datum.value === 0 ? '0' : format(datum.value, '~s')"; // 4k, 2M

  const DASHES = [
    [1, 0],
    [9, 4],
    [3, 3],
    [12, 3, 3, 3],
    [6, 6],
    [1, 4],
  ];
  const SIZES = [95, 70, 52, 38, 28, 20];

  // rows: {curve, part, x, value, low, high, place, label, range}; line: [{value, name}] horizontal references;
  // axis: {title, log}; title: of the values; shade: whether intervals are bands instead of rules
  function curves({ rows, line, axis, title, color, colors, shapes }) {
    const scale = axis.log ? { type: "log", nice: false } : { zero: false, nice: false };
    const x = field("x", "quantitative", {
      title: axis.title,
      scale,
      axis: { labelExpr: NUMBER, tickCount: 6, grid: false },
    });
    const y = (name) => field(name, "quantitative", { title, scale: { zero: false }, axis: { tickCount: 5 } });
    const fill = field("curve", "nominal", { title: null, legend, scale: colors });
    const shape = field("curve", "nominal", { title: null, legend, scale: shapes });
    const part = field("part", "nominal");
    const dash = field("curve", "nominal", {
      title: null,
      legend,
      scale: { domain: colors.domain, range: colors.domain.map((_, i) => DASHES[i % DASHES.length]) },
    });
    const sized = rows.map((row) => ({ ...row, size: SIZES[colors.domain.indexOf(row.curve) % SIZES.length] }));
    const size = field("size", "quantitative", { scale: null });
    const known = rows.filter((row) => row.low !== null && row.high !== null);
    const references = line.length
      ? [
          {
            data: { values: line },
            mark: { type: "rule", strokeDash: [7, 4], strokeWidth: 1.5, color: color("plot-ink") },
            encoding: { y: y("value"), tooltip: [tip("name")] },
          },
        ]
      : [];
    const band = known.length
      ? [
          {
            data: { values: known },
            mark: { type: "area", opacity: 0.16 },
            encoding: { x, y: y("low"), y2: { field: "high" }, color: fill, detail: part },
          },
          {
            data: { values: known },
            mark: { type: "rule", opacity: 0.45 },
            encoding: { x, y: y("low"), y2: { field: "high" }, color: fill },
          },
        ]
      : [];
    return {
      width: "container",
      layer: [
        ...references,
        ...band,
        {
          data: { values: rows },
          mark: { type: "line", strokeWidth: 1.6 },
          encoding: { x, y: y("value"), color: fill, strokeDash: dash, detail: part },
        },
        {
          data: { values: sized },
          mark: { type: "point", filled: true, opacity: 1 },
          encoding: {
            x,
            y: y("value"),
            color: fill,
            shape,
            size,
            tooltip: [tip("curve"), tip("place", "checkpoint"), tip("label", "value"), tip("range", "95 % interval")],
          },
        },
      ],
    };
  }

  return { curves };
})();
