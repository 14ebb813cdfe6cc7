"use strict";
// One cell of the leaderboard: value on the selected scale, color intensity, and mark.
const cells = (() => {
  const { el } = vernacular;
  const BEST = 2;

  // (value - chance) / (1 - chance): 0 is chance, 1 is all correct
  function aboveChance(cell, number) {
    return cell.chance === null || number === null || cell.chance >= 1
      ? null
      : (number - cell.chance) / (1 - cell.chance);
  }

  // Intensity of the color of a value with a chance level, the same in all views: 0 is chance, 1 is all correct, and
  // below chance it is negative. Null without a chance level.
  const heat = (cell) => clamp(aboveChance(cell, cell.value));

  // {value, low, high, unit, heat: -1…1 (negative: worse than the baseline or chance), signed}
  function scaled(cell, info, scale, spread, reference) {
    if (scale === "chance") {
      const value = info.unit === "share" ? aboveChance(cell, cell.value) : null;
      return {
        value,
        low: value === null ? null : aboveChance(cell, cell.low),
        high: value === null ? null : aboveChance(cell, cell.high),
        unit: "share",
        heat: heat(cell) ?? 0,
        signed: true,
      };
    }
    if (scale === "baseline") return against(cell, info, spread, reference);
    const [low, high] = info.unit === "share" ? [0, 1] : spread;
    const part = (cell.value - low) / (high - low);
    const relative = cell.value === null || info.higher === null || high <= low ? 0 : info.higher ? part : 1 - part;
    return {
      value: cell.value,
      low: cell.low,
      high: cell.high,
      unit: info.unit,
      heat: heat(cell) ?? clamp(relative),
      signed: false,
    };
  }

  function against(cell, info, spread, reference) {
    if (!reference || reference.value === null || cell.value === null)
      return { value: null, low: null, high: null, unit: info.unit, heat: 0, signed: true, against: true };
    const paired = reference.paired?.(cell) ?? null;
    const value = paired ? paired.difference : cell.value - reference.value;
    const width = info.unit === "share" ? 0.3 : Math.max(spread[1] - spread[0], 1e-9);
    const heat = info.higher === null ? 0 : clamp((info.higher ? value : -value) / width);
    return {
      value,
      low: paired?.low ?? null,
      high: paired?.high ?? null,
      unit: info.unit,
      heat,
      signed: true,
      significant: paired?.significant ?? null,
      against: true,
    };
  }

  const clamp = (x) => (x === null ? null : Math.max(-1, Math.min(1, x)));

  // A judged value without an interval is in parentheses: whether it differs from chance or from others is unknown.
  const ABOUT_PARENTHESES = "(Parentheses): no interval; the notes under Provenance state why.";
  const lacksInterval = (cell, info) => cell.value !== null && cell.low === null && info.higher !== null;
  const interval = (cell, info) =>
    cell.low === null ? "no 95 % interval" : `95 % interval ${format.interval(cell.low, cell.high, info.unit)}`;

  function text(cell, info, display = { value: cell.value, unit: info.unit, signed: false }) {
    const shown = (display.signed ? format.signed : format.value)(display.value, display.unit);
    return lacksInterval(cell, info) && display.value !== null && !display.against ? `(${shown})` : shown;
  }

  // A value over evaluations as a cell, so that it has the same marks; its chance is 0.
  const overall = (row) => ({ value: row.mean, low: row.low, high: row.high, chance: 0 });
  const SHARE = { unit: "share", higher: true };
  const overallText = (row) => text(overall(row), SHARE);
  const overallClass = (row) => (nearChance(overall(row)) ? "static near-chance" : "static");

  function nearChance(cell) {
    return cell.chance !== null && cell.low !== null && cell.low <= cell.chance && cell.chance <= cell.high;
  }

  const atChance = (cell, info) =>
    cell.chance !== null &&
    cell.value !== null &&
    (info.higher === false ? cell.value >= cell.chance : cell.value <= cell.chance);

  /** @param {Index} index */
  function failure(index, cell) {
    const worst = index.symptomsOf.get(`${cell.evaluation} ${cell.model}`)?.[0];
    return worst?.severity === "failure"
      ? el("span", { class: "flag", title: diagnosis.name(worst.code) }, " ▲")
      : null;
  }

  // text for screen readers and tooltips
  function description(cell, info, display) {
    const value = (display.signed ? format.signed : format.value)(display.value, display.unit);
    const parts = [`${info.title}: ${value}${display.unit === "share" ? " %" : ` ${format.unit(display.unit)}`}`];
    if (display.low !== null || !display.against) parts.push(interval(display, { unit: display.unit }));
    parts.push(format.counted(cell.n, "item"));
    if (cell.flagged) parts.push(`${format.count(cell.flagged)} flagged`);
    if (cell.ties) parts.push(format.counted(cell.ties, "tie"));
    if (cell.chance !== null) parts.push(`chance ${format.value(cell.chance, info.unit)}`);
    if (cell.mark === BEST) parts.push("best model for this metric");
    else if (cell.mark) parts.push("not significantly different from the best");
    if (nearChance(cell) && !display.against) parts.push("not distinguishable from chance");
    return parts.join(", ");
  }

  // The interval on an axis from `low` to `high`, with the value and the chance level; for tables with few columns.
  function range(cell, [low, high]) {
    const at = (value) => `${(100 * clamp01((value - low) / (high - low))).toFixed(1)}%`;
    if (cell.value === null || cell.low === null || high <= low) return null;
    return el(
      "span",
      { class: "range", "aria-hidden": "true" },
      el("i", { class: "extent", vars: { "--from": at(cell.low), "--to": at(cell.high) } }),
      cell.chance === null ? null : el("i", { class: "chance", vars: { "--at": at(cell.chance) } }),
      el("i", { class: "point", vars: { "--at": at(cell.value) } }),
    );
  }
  const clamp01 = (x) => Math.max(0, Math.min(1, x));

  // axis: [low, high] of the drawn interval, or null for none; symptoms: worst first
  function draw(cell, info, display, address, axis = null, symptoms = []) {
    const mark = display.value === null ? null : cell.mark === BEST ? "★" : cell.mark ? "☆" : null;
    const small = [
      `n\u2009${format.count(cell.n)}`,
      cell.flagged ? el("span", { class: "flag" }, ` ⚑\u2009${format.count(cell.flagged)}`) : null,
      symptoms[0]?.severity === "failure"
        ? el("span", { class: "flag" }, ` ▲\u2009${diagnosis.name(symptoms[0].code)}`)
        : null,
    ];
    const codes = symptoms.map((symptom) => diagnosis.name(symptom.code));
    const title = [description(cell, info, display), codes.length ? `diagnosis: ${codes.join(", ")}` : null];
    return el(
      "a",
      { href: address, title: title.filter(Boolean).join("; ") },
      el(
        "span",
        { class: "value" },
        text(cell, info, display),
        mark ? el("span", { class: "mark", "aria-hidden": "true" }, mark) : null,
        mark
          ? el(
              "span",
              { class: "visually-hidden" },
              cell.mark === BEST ? " best" : " not significantly different from the best",
            )
          : null,
      ),
      el(
        "span",
        { class: "interval" },
        display.low === null
          ? lacksInterval(cell, info) && !display.against
            ? "no interval"
            : "\u00a0"
          : format.interval(display.low, display.high, display.unit),
      ),
      axis ? range(cell, axis) : null,
      el("span", { class: "n" }, small),
    );
  }

  // heat: -1…1, 0 without color
  function shade(element, heat) {
    element.classList.add("heat");
    element.classList.toggle("cold", heat < 0);
    element.style.setProperty("--heat", `${Math.round(100 * Math.abs(heat))}%`);
  }

  function style(element, cell, display) {
    shade(element, display.heat);
    element.classList.toggle("best", cell.mark === BEST);
    element.classList.toggle("near-chance", nearChance(cell) && !display.against);
    element.classList.toggle("significant", display.significant === true);
  }

  return {
    scaled,
    failure,
    range,
    draw,
    style,
    shade,
    heat,
    text,
    interval,
    lacksInterval,
    ABOUT_PARENTHESES,
    nearChance,
    overallClass,
    overallText,
    atChance,
  };
})();
