"use strict";
// Plots by Vega-Lite, loaded by the views that draw some. Expressions are interpreted, not compiled: the page's
// content security policy allows no code that is made at run time.
vernacular.plot = (() => {
  const { el, load, script } = vernacular;
  let library = null;

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function config() {
    const ink = colour("plot-ink");
    const faint = colour("plot-faint");
    const text = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: { ...text, gridColor: faint, domainColor: faint, tickColor: faint },
      legend: { ...text, symbolStrokeWidth: 2 },
      point: { color: colour("accent") },
      rule: { color: ink },
      bar: { color: colour("accent") },
      range: { category: [1, 2, 3, 4, 5, 6].map((i) => colour(`series-${i}`)) },
    };
  }

  // Scales that name their values keep those that occur, so that a legend speaks of nothing else.
  function narrow(part, values) {
    for (const inner of Object.values(part)) {
      if (inner === null || typeof inner !== "object") continue;
      if (inner.scale?.domain) inner.scale.domain = values;
      narrow(inner, values);
    }
  }

  // sets: {rows: […], lines: […]}. The description is what a screen reader says. scale: {field: of the rows, colours:
  // [[value, name of a colour in the style sheet], …]}.
  async function draw(name, sets, description, scale) {
    library ??= script("lib/vega.js");
    const place = el("div", { class: "plot", role: "img", "aria-label": description });
    const specifications = await load("plots");
    await library;
    const specification = structuredClone(specifications[name]);
    specification.datasets = { ...sets };
    if (!sets.lines?.length && specification.layer) specification.layer = specification.layer.filter((layer) => layer.data?.name !== "lines");
    specification.autosize = { type: "fit-x", contains: "padding" };
    const settings = config();
    if (scale) {
      const present = new Set(sets.rows.map((row) => row[scale.field]));
      const shown = scale.colours.filter(([value]) => present.has(value));
      narrow(specification, shown.map(([value]) => value));
      settings.range.category = shown.map(([, named]) => colour(named));
    }
    place.render = async () => {
      const view = await vegaEmbed(place, specification, {
        mode: "vega-lite",
        renderer: "svg",
        logLevel: 1, // errors; Vega-Lite warns of heights by step, which are meant
        actions: false,
        ast: true,
        defaultStyle: false,
        config: settings,
        tooltip: { disableDefaultStyle: true },
      });
      place.querySelector("svg")?.setAttribute("aria-hidden", "true");
      place.vega = view.view;
    };
    return place;
  }

  // A plot knows its width only once it stands in the page.
  async function put(parent, ...drawn) {
    for (const place of await Promise.all(drawn)) {
      parent.append(place);
      await place.render();
    }
  }

  return { draw, put };
})();
