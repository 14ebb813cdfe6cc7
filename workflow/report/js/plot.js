"use strict";
// Vega-Lite plots; the library is loaded with the first plot. Expressions are interpreted, not compiled: the
// content security policy of the report forbids code generated at run time.
vernacular.plot = (() => {
  const { el, load, script } = vernacular;
  let library = null;

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function config() {
    const ink = color("plot-ink");
    const faint = color("plot-faint");
    const text = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: { ...text, gridColor: faint, domainColor: faint, tickColor: faint },
      axisX: { tickCount: 8, labelFlush: false },
      legend: { ...text, symbolStrokeWidth: 2 },
      point: { color: color("accent") },
      rule: { color: ink },
      bar: { color: color("accent") },
      range: { category: [1, 2, 3, 4, 5, 6].map((i) => color(`series-${i}`)) },
    };
  }

  // Restrict named scale domains to the values that occur, so that the legend lists no others.
  function narrow(part, values) {
    for (const inner of Object.values(part)) {
      if (inner === null || typeof inner !== "object") continue;
      if (inner.scale?.domain) inner.scale.domain = values;
      narrow(inner, values);
    }
  }

  // Vega uses values as object keys: a model may be called "__proto__" or "constructor". Prepend an invisible character.
  function safe(row) {
    return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, typeof value === "string" ? harmless(value) : value]));
  }
  const harmless = (text) => (text in Object.prototype ? `\u2060${text}` : text);

  // On phones, axis labels take less than half of the width, and legend entries are stacked.
  function fit(part, width) {
    for (const [name, inner] of Object.entries(part)) {
      if (inner === null || typeof inner !== "object") continue;
      if (inner.labelLimit) inner.labelLimit = Math.min(inner.labelLimit, Math.round(0.42 * width));
      if (name === "legend" && width < 500) inner.columns = 1;
      fit(inner, width);
    }
  }

  // sets: {rows: […], lines: […]}. The description is read by screen readers. scale: {height, counts:
  // the tallest bar, field: name of a field of the rows,
  // colors: [[value, name of a color in the style sheet], …]}.
  async function draw(name, sets, description, scale) {
    library ??= script("lib/vega.js");
    const container = el("div", { class: "plot", role: "img", "aria-label": description });
    const specifications = await load("plots");
    await library;
    const specification = structuredClone(specifications[name]);
    specification.datasets = Object.fromEntries(Object.entries(sets).map(([set, rows]) => [set, rows.map(safe)]));
    if (!sets.lines?.length && specification.layer) specification.layer = specification.layer.filter((layer) => layer.data?.name !== "lines");
    specification.autosize = { type: "fit-x", contains: "padding" };
    if (scale?.counts < 6) specification.layer[0].encoding.y.axis.values = Array.from({ length: scale.counts + 1 }, (_, i) => i);
    if (scale?.height) specification.height = Math.max(scale.height, 40);
    const settings = config();
    if (scale?.colors) {
      const present = new Set(sets.rows.map((row) => row[scale.field]));
      const shown = scale.colors.filter(([value]) => present.has(value));
      narrow(specification, shown.map(([value]) => harmless(value)));
      settings.range.category = shown.map(([, named]) => color(named));
    }
    container.render = async () => {
      fit(specification, container.clientWidth);
      const view = await vegaEmbed(container, specification, {
        mode: "vega-lite",
        renderer: "svg",
        actions: false,
        ast: true,
        defaultStyle: false,
        config: settings,
        tooltip: { disableDefaultStyle: true },
      });
      container.querySelector("svg")?.setAttribute("aria-hidden", "true");
      container.vega = view.view;
    };
    return container;
  }

  // A plot's width is known only once it is in the document.
  async function put(parent, ...drawn) {
    for (const container of await Promise.all(drawn)) {
      parent.append(container);
      await container.render();
    }
  }

  return { draw, put };
})();
