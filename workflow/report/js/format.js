"use strict";
// Number formats for display, the only place where the report rounds: shares and percentages to one digit in percent,
// other values to three, as in the workbooks. results.csv contains all digits.
const format = (() => {
  const MINUS = "\u2212";
  const NONE = "\u2013";
  const OUTCOMES = ["incorrect", "correct", "tie", "not scored", "acceptable", "unacceptable", "scored"];

  // of a rounded number: 0.0, not −0.0
  const minus = (text) => text.replace(/^-(?=[0.]+$)/, "").replace("-", MINUS);

  // size: of the largest number beside it, so that both ends of an interval have decimals, or both an exponent
  function value(number, unit, size = Math.abs(number)) {
    if (number === null || number === undefined) return NONE;
    if (unit === "share") return minus((100 * number).toFixed(1));
    if (unit === "percent") return minus(number.toFixed(1));
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return minus(number.toExponential(1));
    return minus(number.toFixed(3));
  }

  function interval(low, high, unit) {
    if (low === null || high === null || low === undefined) return "";
    const size = Math.max(Math.abs(low), Math.abs(high));
    return `${value(low, unit, size)}\u2009–\u2009${value(high, unit, size)}`;
  }

  // A value and its interval as numbers on an axis: shares in percent.
  /** @param {{ value: number | null, low?: number | null, high?: number | null }} cell */
  function scaled({ value, low, high }, unit) {
    const times = (number) => (number === null || number === undefined ? null : (unit === "share" ? 100 : 1) * number);
    return { value: times(value), low: times(low), high: times(high) };
  }

  function signed(number, unit) {
    if (number === null || number === undefined) return NONE;
    const text = value(number, unit);
    return number > 0 ? `+${text}` : text;
  }

  // Of a mean of (value − chance) / (1 − chance), which is no number of points.
  function fromChance(number) {
    return `${value(number, "share")} on a scale from 0 (chance) to 100 (all correct)`;
  }

  function probability(p) {
    if (p === null || p === undefined) return NONE;
    return p < 0.001 ? "< 0.001" : p.toFixed(3);
  }

  function unit(name) {
    return { share: "%", percent: "%" }[name] ?? name;
  }

  const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  function count(number) {
    return number === null || number === undefined ? NONE : integer.format(number);
  }

  // "1 item", "2 items"
  function counted(number, noun) {
    return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
  }

  function seconds(number) {
    if (number === null || number === undefined) return NONE;
    if (number < 100) return `${number.toFixed(1)} s`;
    if (number < 6000) return `${(number / 60).toFixed(1)} min`;
    return `${(number / 3600).toFixed(1)} h`;
  }

  function bytes(number) {
    if (number === null || number === undefined) return NONE;
    return number >= 1e9 ? `${(number / 1e9).toFixed(2)} GB` : `${(number / 1e6).toFixed(1)} MB`;
  }

  // The beginning of a long text, without splitting a character.
  function beginning(text, length) {
    if (text.length <= length) return text;
    return `${Array.from(text.slice(0, 2 * length))
      .slice(0, length)
      .join("")}…`;
  }

  // The beginning of a hash; the name of a release as it is.
  const hash = (text) => (/^[0-9a-f]{17,}$/.test(text) ? beginning(text, 16) : text);

  // 0.123 as "12 %"
  function percent(share) {
    return share === null || share === undefined ? NONE : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}\u00a0%`;
  }

  // "a", "a and b", "a, b and c" of texts or nodes
  function list(parts) {
    return parts.flatMap((part, i) => (i === 0 ? [part] : [i === parts.length - 1 ? " and " : ", ", part]));
  }

  // For searching: ignores case and diacritics.
  function folded(text) {
    return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  }

  return {
    value,
    interval,
    scaled,
    signed,
    fromChance,
    probability,
    unit,
    count,
    counted,
    seconds,
    bytes,
    beginning,
    hash,
    folded,
    percent,
    list,
    OUTCOMES,
    NONE,
    MINUS,
  };
})();
