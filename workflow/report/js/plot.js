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

  // sets: {rows: […], lines: […]}; domain: the colours of a named scale. The description is what a screen reader says.
  async function draw(name, sets, description, colours) {
    library ??= script("lib/vega.js");
    const place = el("div", { class: "plot", role: "img", "aria-label": description });
    const specifications = await load("plots");
    await library;
    const specification = structuredClone(specifications[name]);
    specification.datasets = { lines: [], ...sets };
    const settings = config();
    if (colours) settings.range.category = colours.map(colour);
    place.render = async () => {
      const view = await vegaEmbed(place, specification, {
        mode: "vega-lite",
        renderer: "svg",
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
