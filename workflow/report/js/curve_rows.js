"use strict";
// Rows of the plots of training curves, from the data files `curves` and `e{i}/curves`.
const curveRows = (() => {
  const AXES = { step: "steps", tokens: "tokens", words: "words" };

  const positions = (curve, axis) => curve.positions.find((each) => each.name === axis)?.positions ?? null;

  // Axes that all curves have, or else those of any, against which only some curves are drawn.
  /** @param {Curves} overview */
  function axes(overview) {
    const known = [...new Set(overview.curves.flatMap((curve) => curve.positions.map((axis) => axis.name)))];
    const shared = known.filter((axis) => overview.curves.every((curve) => positions(curve, axis)));
    return shared.length ? shared : known;
  }

  // On a logarithmic axis, 0 has no place: it is drawn left of the smallest x, without a line to the next point.
  /** @param {Curves} overview */
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
    const place = places(overview, axis, log);
    const text = shown === "value" ? plain(info) : signed(info);
    return lines.flatMap((line) => {
      const curve = overview.curves[line.curve];
      const xs = positions(curve, axis);
      if (!xs) return [];
      let part = 0;
      return xs.flatMap((x, k) => {
        const point = line.points[k];
        const numbers = shown === "value" ? point : point?.[shown];
        if (!point || point.value === null) part += 1; // a checkpoint without a value: a gap
        if (!numbers || numbers.value === null) return [];
        const row = {
          curve: curve.name,
          part: `${curve.name} ${part}`,
          x: place(x),
          ...format.scaled(numbers, info.unit),
          place: `${curve.checkpoints[k]} (${number(x)} ${AXES[axis]})`,
          label: text(numbers.value),
          range: numbers.low === null ? "none" : `${text(numbers.low)} to ${text(numbers.high)}`,
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
    const { baseline, candidate, axis } = pair;
    const place = places(overview, axis, log);
    const curve = `${overview.curves[candidate].name} − ${overview.curves[baseline].name}`;
    const text = signed(info);
    return pair.points.map(({ x, value, low, high }) => ({
      curve,
      part: log && x === 0 ? "0" : "1",
      x: place(x),
      ...format.scaled({ value, low, high }, info.unit),
      place: `${number(x)} ${AXES[axis]}`,
      label: text(value),
      range: low === null ? "none" : `${text(low)} to ${text(high)}`,
      [axis]: x,
    }));
  }

  return { points, differences, axes, positions, AXES };
})();
