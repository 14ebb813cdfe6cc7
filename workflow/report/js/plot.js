"use strict";
// Vega-Lite plots; the library is loaded with the first plot. Expressions are interpreted, not compiled: the
// content security policy of the report forbids code generated at run time.
const plot = (() => {
  const { el, script } = vernacular;
  const SPECIFICATIONS = { ...specs, ...specsCurves, ...specsItems };
  let library = null;

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function config() {
    const ink = color("plot-ink");
    const faint = color("plot-faint");
    const text = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
    return {
      background: getComputedStyle(document.documentElement).backgroundColor,
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: { ...text, gridColor: faint, domainColor: faint, tickColor: faint },
      axisX: { tickCount: 8, labelFlush: false },
      legend: { ...text, symbolStrokeWidth: 2 },
      rule: { color: ink },
    };
  }

  const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"];

  // Scales of the values of `field` that occur in rows, so that a legend lists no others; a value has the same color
  // and shape in all plots. pairs: [[value, name of a color in the style sheet], …]
  function palette(pairs, rows, field) {
    const present = new Set(rows.map((row) => row[field]));
    const shown = pairs
      .map(([value, name], i) => [value, color(name), SHAPES[i % SHAPES.length]])
      .filter(([value]) => present.has(value));
    const domain = shown.map(([value]) => harmless(value));
    return {
      colors: { domain, range: shown.map(([, shade]) => shade) },
      shapes: { domain, range: shown.map(([, , shape]) => shape) },
    };
  }

  const series = (names) => names.map((name, i) => [name, `series-${(i % 6) + 1}`]);

  // Vega uses values as object keys: a model may be called "__proto__" or "constructor". Prepend an invisible
  // character.
  function safe(row) {
    return Object.fromEntries(
      Object.entries(row).map(([name, value]) => [name, typeof value === "string" ? harmless(value) : value]),
    );
  }
  const harmless = (text) => (text in Object.prototype ? `\u2060${text}` : text);

  // On phones, axis labels take less than half of the width, and legend entries are stacked.
  function fit(part, width) {
    for (const [name, inner] of Object.entries(part)) {
      if (name === "data" || inner === null || typeof inner !== "object") continue;
      if (inner.labelLimit)
        inner.labelLimit = Math.min(inner.labelLimit, Math.round((name === "legend" ? 0.8 : 0.42) * width));
      if (name === "legend" && (width < 500 || inner.columns))
        inner.columns = width < 500 ? 1 : Math.min(inner.columns, Math.max(1, Math.floor(width / 230)));
      fit(inner, width);
    }
  }

  // "n = 12 to 64 items" of the rows that have a number, or of histograms the sum of a model's bars; "" if none has.
  function sample(rows, noun) {
    const sums = new Map();
    for (const row of rows) if (row.count !== undefined) sums.set(row.model, (sums.get(row.model) ?? 0) + row.count);
    const numbers = [...rows.map((row) => row.n), ...sums.values()].filter((n) => typeof n === "number");
    if (!numbers.length) return "";
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    return `n = ${low === high ? format.counted(high, noun) : `${format.count(low)} to ${format.counted(high, noun)}`}`;
  }

  // A figure that leaves the report states what it shows: its title, the view that it is from, and n.
  function heading(title, rows, noun) {
    const views = [...document.querySelectorAll("main h1")].map((h1) => h1.textContent.trim());
    const view = views.filter((name) => name !== "Overview");
    const subtitle = [...view, sample(rows, noun)].filter(Boolean);
    const ink = color("plot-ink");
    return { text: title, subtitle, anchor: "start", color: ink, subtitleColor: ink, fontSize: 14, offset: 12 };
  }

  // name: of a specification; data: its arguments, of which `rows` are offered as CSV, and `pairs` and `by` give the
  // colors; about: {title, noun: of n, description (read by screen readers), height, onclick: function of a row}.
  async function draw(name, data, about) {
    library ??= script("lib/vega.js");
    const container = el("div", { class: "plot", role: "img", "aria-label": about.description });
    const rows = data.rows.map((row, i) => ({ ...safe(row), row: i }));
    await library;
    container.render = async () => {
      container.dataset.theme = theme.current(); // on paper, the colors of the dark one are inverted
      const scales = data.pairs ? palette(data.pairs, data.rows, data.by) : {};
      const narrow = container.clientWidth < 500;
      const specification = structuredClone(SPECIFICATIONS[name]({ ...data, ...scales, rows, color, narrow }));
      specification.autosize = { type: "fit-x", contains: "padding" };
      if (about.height) specification.height = Math.max(about.height, 40);
      fit(specification, container.clientWidth);
      if (narrow)
        // legends below each other
        specification.config = {
          legend: { labelFontSize: 10.5, layout: { top: { direction: "vertical", anchor: "start" } } },
        };
      const { view } = await embed(container, { background: "transparent", ...specification });
      container.querySelector("svg")?.setAttribute("aria-hidden", "true");
      container.exported = async () => {
        const title = heading(about.title, data.rows, about.noun ?? "item");
        const width = Math.max(container.clientWidth, 480);
        return (await embed(el("div"), { ...structuredClone(specification), title, width })).view;
      };
      if (about.onclick)
        view.addEventListener("click", (_, item) => {
          if (item?.datum?.row !== undefined) about.onclick(data.rows[item.datum.row]);
        });
    };
    container.makers = {
      PNG: async () => {
        const canvas = await (await container.exported()).toCanvas(2);
        return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
      },
      SVG: async () => (await container.exported()).toSVG(),
      CSV: () =>
        download.csv(
          download.ofObjects(
            data.rows.map((row) => Object.fromEntries(Object.entries(row).filter(([key]) => key !== "order"))),
          ),
        ),
    };
    return container;
  }

  const embed = (element, specification) =>
    vegaEmbed(element, specification, {
      mode: "vega-lite",
      renderer: "svg",
      actions: false,
      ast: true,
      defaultStyle: false,
      config: config(),
      tooltip: { disableDefaultStyle: true },
    });

  // A plot's width is known only once it is in the document.
  async function put(parent, drawn) {
    const container = await drawn;
    parent.append(container);
    await container.render();
    parent.append(download.buttons(container.downloadName ?? "plot", container.makers));
  }

  // A figure with a caption: {element, draw}. `draw` fills it when the figure is in the document.
  function figure(title, note, name, data, about) {
    const element = el(
      "figure",
      null,
      el("figcaption", null, el("h2", null, title), note ? el("p", null, note) : null),
    );
    const fill = async () => {
      const drawn = await draw(name, data, { title, ...about });
      drawn.downloadName = about.file;
      await put(element, drawn);
    };
    return { element, draw: fill };
  }

  return { figure, color, series };
})();
