"use strict";
// One cell of the leaderboard: value on the selected scale, color intensity, and mark.
vernacular.cells = (() => {
  const { el, format, names } = vernacular;
  const BEST = 2;

  // (value - chance) / (1 - chance): 0 is chance, 1 is all correct
  function aboveChance(cell, number) {
    return cell.chance === null || number === null || cell.chance >= 1 ? null : (number - cell.chance) / (1 - cell.chance);
  }

  // {shown, low, high, unit, heat: -1…1 (negative: worse than the baseline or chance), signed}
  function scaled(cell, facts, scale, spread, reference) {
    if (scale === "chance") {
      const shown = facts.unit === "share" ? aboveChance(cell, cell.value) : null;
      return { shown, low: shown === null ? null : aboveChance(cell, cell.low), high: shown === null ? null : aboveChance(cell, cell.high), unit: "share", heat: clamp(shown ?? 0), signed: true };
    }
    if (scale === "baseline") return against(cell, facts, spread, reference);
    const [low, high] = facts.unit === "share" ? [0, 1] : spread;
    const part = high > low ? (cell.value - low) / (high - low) : 0;
    const heat = cell.value === null || facts.higher === null ? 0 : facts.higher ? part : 1 - part;
    return { shown: cell.value, low: cell.low, high: cell.high, unit: facts.unit, heat: clamp(heat), signed: false };
  }

  function against(cell, facts, spread, reference) {
    if (!reference || reference.value === null || cell.value === null) return { shown: null, low: null, high: null, unit: facts.unit, heat: 0, signed: true, against: true };
    const paired = reference.paired?.(cell) ?? null;
    const shown = paired ? paired.difference : cell.value - reference.value;
    const width = facts.unit === "share" ? 0.3 : Math.max(spread[1] - spread[0], 1e-9);
    const heat = facts.higher === null ? 0 : clamp((facts.higher ? shown : -shown) / width);
    return { shown, low: paired?.low ?? null, high: paired?.high ?? null, unit: facts.unit, heat, signed: true, significant: paired?.significant ?? null, against: true };
  }

  const clamp = (x) => Math.max(-1, Math.min(1, x));

  function nearChance(cell) {
    return cell.chance !== null && cell.low !== null && cell.low <= cell.chance && cell.chance <= cell.high;
  }

  // text for screen readers and tooltips
  function description(cell, facts, look) {
    const parts = [`${names.metric(facts)}: ${look.signed ? format.signed(look.shown, look.unit) : format.value(look.shown, look.unit)}${look.unit === "share" ? " %" : ` ${format.unit(look.unit)}`}`];
    if (look.low !== null) parts.push(`95 % interval ${format.interval(look.low, look.high, look.unit)}`);
    parts.push(format.counted(cell.n, "item"));
    if (cell.flagged) parts.push(`${format.count(cell.flagged)} flagged`);
    if (cell.ties) parts.push(format.counted(cell.ties, "tie"));
    if (cell.chance !== null) parts.push(`chance ${format.value(cell.chance, facts.unit)}`);
    if (cell.mark === BEST) parts.push("best of its column");
    else if (cell.mark) parts.push("not significantly different from the best");
    if (nearChance(cell) && !look.against) parts.push("not distinguishable from chance");
    return parts.join(", ");
  }

  function draw(cell, facts, look, address) {
    const mark = look.shown === null ? null : cell.mark === BEST ? "★" : cell.mark ? "☆" : null;
    const shown = look.signed ? format.signed(look.shown, look.unit) : format.value(look.shown, look.unit);
    const small = [`n\u2009${format.count(cell.n)}`, cell.flagged ? el("span", { class: "flag" }, ` ⚑\u2009${format.count(cell.flagged)}`) : null];
    return el(
      "a",
      { href: address, title: description(cell, facts, look) },
      el("span", { class: "value" }, shown, mark ? el("span", { class: "mark", "aria-hidden": "true" }, mark) : null, mark ? el("span", { class: "visually-hidden" }, cell.mark === BEST ? " best" : " not significantly different from the best") : null),
      el("span", { class: "interval" }, look.low === null ? "\u00a0" : format.interval(look.low, look.high, look.unit)),
      el("span", { class: "n" }, small),
    );
  }

  function dress(element, cell, look) {
    element.classList.add("heat");
    element.classList.toggle("cold", look.heat < 0);
    element.classList.toggle("best", cell.mark === BEST);
    element.classList.toggle("near-chance", nearChance(cell) && !look.against);
    element.classList.toggle("significant", look.significant === true);
    element.style.setProperty("--heat", `${Math.round(100 * Math.abs(look.heat))}%`);
  }

  return { scaled, draw, dress, nearChance };
})();
