"use strict";
// Rows of the plots of training curves, from the data files `curves` and `e{i}/curves`.
vernacular.curveRows = (() => {
  const { format } = vernacular;
  const REFERENCES = ["previous", "best", "last"];
  const AXES = { step: "steps", tokens: "tokens", words: "words" };

  const positions = (curve, axis) => new Map(curve.positions).get(axis) ?? null;

  // Axes that all curves have, in the order of the first.
  function axes(overview) {
    const [first, ...others] = overview.curves;
    return first.positions.map(([axis]) => axis).filter((axis) => others.every((curve) => positions(curve, axis)));
  }

  // On a logarithmic axis, 0 has no place: it is drawn left of the smallest x, without a line to the next point.
  function places(overview, axis, log) {
    const known = overview.curves.flatMap((curve) => positions(curve, axis) ?? []).filter((x) => x > 0);
    const left = known.length ? Math.min(...known) / 3 : 1;
    return (x) => (log && x === 0 ? left : x);
  }

  const number = (x) => format.count(x);
  const signed = (info) => (value) => format.signed(value, info.unit);
  const plain = (info) => (value) => format.value(value, info.unit);

  // One row per point. shown: "value" or a reference; lines: rows of `e{i}/curves`, of one metric and category.
  function points(overview, lines, { axis, log, shown, info }) {
    const scale = info.unit === "share" ? 100 : 1;
    const place = places(overview, axis, log);
    const text = shown === "value" ? plain(info) : signed(info);
    return lines.flatMap(([c, , , , , values]) => {
      const curve = overview.curves[c];
      const xs = positions(curve, axis);
      if (!xs) return [];
      let part = 0;
      return xs.flatMap((x, k) => {
        const point = values[k];
        const numbers = shown === "value" ? point : point?.[4 + REFERENCES.indexOf(shown)];
        if (!point || point[0] === null || point[0] === undefined) part += 1; // a checkpoint without a value: a gap
        if (!numbers || numbers[0] === null) return [];
        const row = {
          curve: curve.name,
          part: `${curve.name} ${part}`,
          x: place(x),
          value: scale * numbers[0],
          low: times(numbers[1], scale),
          high: times(numbers[2], scale),
          place: `${curve.checkpoints[k]} (${number(x)} ${AXES[axis]})`,
          label: text(numbers[0]),
          range: numbers[1] === null ? "none" : `${text(numbers[1])} to ${text(numbers[2])}`,
          checkpoint: curve.checkpoints[k],
          [axis]: x,
        };
        if (log && x === 0) part += 1;
        return [row];
      });
    });
  }

  // One row per common x of a pair of curves: candidate minus baseline.
  function differences(overview, pair, { log, info }) {
    const [baseline, candidate, , , axis, values] = pair;
    const scale = info.unit === "share" ? 100 : 1;
    const place = places(overview, axis, log);
    const curve = `${overview.curves[candidate].name} − ${overview.curves[baseline].name}`;
    const text = signed(info);
    return values.map(([x, value, low, high]) => ({
      curve,
      part: log && x === 0 ? "0" : "1",
      x: place(x),
      value: scale * value,
      low: times(low, scale),
      high: times(high, scale),
      place: `${number(x)} ${AXES[axis]}`,
      label: text(value),
      range: low === null ? "none" : `${text(low)} to ${text(high)}`,
      [axis]: x,
    }));
  }

  const times = (value, scale) => (value === null || value === undefined ? null : scale * value);

  return { points, differences, axes, positions, AXES };
})();
