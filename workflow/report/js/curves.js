"use strict";
// Training curves of one evaluation: values, or paired differences, against steps or tokens; one plot per category;
// the statistics of each curve; and which tasks can be trusted.
(() => {
  const { el, data, notFound, views } = vernacular;
  const SHOWN = {
    value: "values",
    previous: "difference to the previous checkpoint",
    best: "difference to the best checkpoint",
    last: "difference to the last checkpoint",
  };
  const UNITS = { step: "1,000 steps", tokens: "10⁹ tokens", words: "10⁹ words" };
  const MOST_CATEGORIES = 24;

  // The ID of an evaluation, which breaks at its dots.
  const breakingId = (setting) =>
    data(setting.id.split(".").flatMap((part, i) => (i ? [el("wbr"), `.${part}`] : [part])));

  views.set("curves", async (index, route) => {
    if (!index.curves?.length) return notFound("No training curves: the config has no series of checkpoints.");
    const overview = await pieces.curves();
    const requested = index.evaluationNumber.get(route.parts[0]);
    const number = index.curves.includes(requested) ? requested : index.curves[0];
    const setting = index.evaluations[number];
    const content = await pieces.evaluationCurves(number);
    const state = choice(index, overview, content, setting, route.query);
    const plots = el("div", null);
    const small = el("div", { class: "plots" });
    const element = el(
      "section",
      null,
      widgets.heading(index, setting, { view: "Training curves" }),
      overview.sentence ? el("p", { class: "headline" }, overview.sentence) : null,
      controls(index, overview, content, setting, state),
      plots,
      statistics(overview, content, state, setting),
      small,
      trust(index, overview),
      areas(index, overview),
    );
    return {
      title: `Curves of ${setting.id}`,
      section: "curves",
      element,
      after: () => draw(overview, content, setting, state, plots, small),
    };
  });

  /** @param {Index} index @param {Curves} overview @param {EvaluationCurves} content @param {Evaluation} setting */
  function choice(index, overview, content, setting, query) {
    const metrics = [...new Set(content.rows.map((row) => row.metric))];
    const metric =
      metrics.find((m) => index.metrics[m].name === query.get("metric")) ??
      (metrics.includes(setting.representative) ? setting.representative : metrics[0]);
    const axes = curveRows.axes(overview);
    const axis = axes.includes(query.get("axis")) ? query.get("axis") : axes[0];
    const pairs = content.pairs.filter((pair) => pair.metric === metric && pair.category === 0);
    const shown = query.get("show") ?? "value";
    const pair = /^pair:\d+$/.test(shown) ? pairs[Number(shown.slice(5))] : null;
    return {
      metrics,
      metric,
      info: index.metrics[metric],
      axes,
      axis,
      pairs,
      pair,
      shown: pair ? shown : shown in SHOWN ? shown : "value",
      log: query.get("scale") === "log",
    };
  }

  /** @param {Index} index @param {Curves} overview @param {EvaluationCurves} content @param {Evaluation} setting */
  function controls(index, overview, content, setting, state) {
    const go = (change) => {
      const next = {
        metric: state.info.name,
        show: state.shown,
        axis: state.axis,
        scale: state.log ? "log" : "",
        id: setting.id,
        ...change,
      };
      location.hash = names.address(["curves", next.id], {
        metric: next.metric,
        show: next.show === "value" ? "" : next.show,
        axis: next.axis === state.axes[0] ? "" : next.axis,
        scale: next.scale,
      });
    };
    const select = (id, label, options, current, key = id) =>
      widgets.select(id, label, options, current, (value) => go({ [key]: value }));
    const name = (c) => overview.curves[c].name;
    const shown = [
      ...Object.entries(SHOWN),
      ...state.pairs.map((pair, i) => [`pair:${i}`, `${name(pair.candidate)} − ${name(pair.baseline)}`]),
    ];
    const first = overview.curves[content.rows[0].curve];
    return widgets.controls(
      select(
        "evaluation",
        "Evaluation",
        index.curves.map((e) => [index.evaluations[e].id, index.evaluations[e].id]),
        setting.id,
        "id",
      ),
      select(
        "metric",
        "Metric",
        state.metrics.map((m) => [index.metrics[m].name, `${index.metrics[m].title} ${names.arrow(index.metrics[m])}`]),
        state.info.name,
      ),
      select("show", "Show", shown, state.shown),
      select(
        "axis",
        "Against",
        state.axes.map((axis) => [axis, curveRows.AXES[axis]]),
        state.axis,
      ),
      select(
        "scale",
        "Scale",
        [
          ["", "linear"],
          ["log", "logarithmic"],
        ],
        state.log ? "log" : "",
      ),
      el(
        "a",
        { class: "button", href: names.address(["curve-item", setting.id, first.name]) },
        "One item over training",
      ),
    );
  }

  const ofCategory = (content, state, category) =>
    content.rows.filter((row) => row.metric === state.metric && row.category === category);

  // The rows and labels of one plot, over all items (category 0) or one category.
  /** @param {Curves} overview @param {EvaluationCurves} content */
  function plotted(overview, content, state, category) {
    const unit = format.unit(state.info.unit);
    const axis = { title: curveRows.AXES[state.pair ? state.pair.axis : state.axis], log: state.log };
    const difference = {
      line: [{ value: 0, name: "no difference" }],
      axis,
      title: `difference, ${unit === "%" ? "points" : unit}`,
    };
    if (state.pair) {
      const { baseline, candidate } = state.pair;
      const pair = content.pairs.find(
        (p) =>
          p.baseline === baseline && p.candidate === candidate && p.metric === state.metric && p.category === category,
      );
      return { ...difference, rows: pair ? curveRows.differences(overview, pair, state) : [] };
    }
    const rows = curveRows.points(overview, ofCategory(content, state, category), state);
    if (state.shown !== "value") return { ...difference, rows };
    const chance = content.chance.find((each) => each.metric === state.metric && each.category === category)?.value;
    const line =
      chance === undefined ? [] : [{ value: (state.info.unit === "share" ? 100 : 1) * chance, name: "chance" }];
    return { rows, line, axis, title: unit };
  }

  /** @param {Curves} overview @param {EvaluationCurves} content @param {Evaluation} setting */
  async function draw(overview, content, setting, state, plots, small) {
    const make = (title, note, category, height) => {
      const drawn = plotted(overview, content, state, category);
      if (!drawn.rows.length) return null;
      const curves = [...new Set(drawn.rows.map((row) => row.curve))];
      return plot.figure(
        title,
        note,
        "curves",
        { ...drawn, pairs: plot.series(curves), by: "curve" },
        {
          file:
            `${setting.id} ${state.info.name} ${category ? content.categories[category] : "curve"} ` +
            `${state.shown.replace(":", " ")}`,
          height,
          description:
            `${state.info.title} of ${format.counted(curves.length, "training curve")}; the table contains ` +
            "the main values.",
          onclick: null,
        },
      );
    };
    const zero =
      state.log && overview.curves.some((curve) => curveRows.positions(curve, state.axis)?.includes(0))
        ? " Position 0 is drawn at the left edge, without a line."
        : "";
    const about = {
      value:
        "Bands: 95 % intervals of each value. They are too wide for differences between checkpoints, " +
        "which were given the same items.",
      previous: "Paired differences on the same items with 95 % intervals.",
    };
    const note =
      (state.shown === "value"
        ? `${about.value}${plotted(overview, content, state, 0).line.length ? " Dashed: chance." : ""}`
        : about.previous) + zero;
    const heading = `${state.info.title}: ${state.pair ? "difference of two curves" : SHOWN[state.shown]}`;
    const whole = make(heading, note, 0, 300);
    const figures = whole ? [[whole, plots]] : [];
    if (!whole) plots.append(el("p", null, "No values to draw."));
    const order = learned(content, state);
    for (const category of order.slice(0, MOST_CATEGORIES)) {
      const figure = make(content.categories[category], null, category, 150);
      if (figure) figures.push([figure, small]);
    }
    if (order.length)
      small.before(
        el("h2", null, "By category"),
        el(
          "p",
          { class: "note" },
          [
            "In the order in which the first curve reaches 90 % of its rise above chance; ",
            "categories that do not end above chance come last.",
            order.length > MOST_CATEGORIES
              ? ` The first ${MOST_CATEGORIES} of ${order.length}; the table above has all.`
              : "",
          ].join(""),
        ),
      );
    for (const [figure, parent] of figures) parent.append(figure.element);
    for (const [figure] of figures) await figure.draw();
  }

  // The categories, those that are learned first first.
  /** @param {EvaluationCurves} content */
  function learned(content, state) {
    const first = new Map();
    for (const { curve, metric, category, statistics } of content.rows) {
      if (metric === state.metric && category && !first.has(category))
        first.set(category, [statistics.learned_90 ?? Infinity, curve]);
    }
    if (first.size === 1) return []; // the same as all items
    return [...first.keys()].sort(
      (a, b) => first.get(a)[0] - first.get(b)[0] || content.categories[a].localeCompare(content.categories[b]),
    );
  }

  /** @param {Curves} overview @param {EvaluationCurves} content @param {Evaluation} setting */
  function statistics(overview, content, state, setting) {
    const shown = new Set([0, ...learned(content, state)]);
    const rows = content.rows.filter((row) => row.metric === state.metric && shown.has(row.category));
    const unit = state.info.unit;
    const axes = [...new Set(rows.map((row) => overview.curves[row.curve].axis))];
    const at = (row, name) => el("span", { class: "static" }, format.count(row.statistics[name]));
    const of = (title, name, cell, more) => ({
      title,
      first: "desc",
      key: (row) => row.statistics[name],
      cell: cell ?? ((row) => format.value(row.statistics[name], unit)),
      ...more,
    });
    const columns = [
      {
        title: "Curve",
        heading: true,
        class: "name",
        key: (row) => overview.curves[row.curve].name,
        cell: (row) =>
          el(
            "a",
            { href: names.address(["curve-item", setting.id, overview.curves[row.curve].name]) },
            data(overview.curves[row.curve].name),
          ),
      },
      {
        title: "Category",
        key: (row) => content.categories[row.category],
        cell: (row) => (row.category ? data(names.category(content.categories[row.category])) : "all items"),
      },
      axes.length > 1 ? table.name("Axis", (row) => curveRows.AXES[overview.curves[row.curve].axis]) : null,
      of("Last", "last", (row) =>
        widgets.valued(
          format.value(row.statistics.last, unit),
          format.interval(row.statistics.last_low, row.statistics.last_high, unit),
        ),
      ),
      of("Best, chosen on these items", "best", (row) =>
        el(
          "span",
          {
            class: "static",
            title:
              row.statistics.best_optimism === null
                ? null
                : `choosing it overstates it by about ${format.value(row.statistics.best_optimism, unit)}`,
          },
          el("span", { class: "value" }, format.value(row.statistics.best, unit)),
          el(
            "span",
            { class: "interval" },
            row.statistics.best_x === null ? "" : `at ${format.count(row.statistics.best_x)}`,
          ),
        ),
      ),
      of(`Slope of the last third, per ${axes.map((axis) => UNITS[axis]).join(" or ")}`, "slope", (row) =>
        widgets.valued(
          format.signed(row.statistics.slope, unit),
          format.interval(row.statistics.slope_low, row.statistics.slope_high, unit),
        ),
      ),
      of("Monotonicity", "monotonicity", (row) => format.value(row.statistics.monotonicity, "")),
      of("Noise", "noise"),
      of("Above chance since", "above_chance_since", (row) => at(row, "above_chance_since"), { first: "asc" }),
      of("50 % at", "learned_50", (row) => at(row, "learned_50"), { first: "asc" }),
      of("90 % at", "learned_90", (row) => at(row, "learned_90"), { first: "asc" }),
      of("As good as last since", "as_good_as_last_since", (row) => at(row, "as_good_as_last_since"), { first: "asc" }),
      { title: "Note", key: (row) => row.note, cell: (row) => row.note ?? "" },
    ].filter(Boolean);
    return el(
      "div",
      null,
      el("h2", null, "Statistics of the curves"),
      table.make(columns, rows, {
        class: "numbers",
        page: 40,
        label: "Statistics of the curves",
        file: `${setting.id} ${state.info.name} curve statistics`,
        caption: "Statistics of each curve by category",
      }).element,
    );
  }

  /** @param {Index} index @param {Curves} overview */
  function trust(index, overview) {
    if (!overview.trust.length) return null;
    const value = (row, name) => (row[name] === null ? format.NONE : row[name].toFixed(2));
    const measure = (title, name, ranged) => ({
      title,
      first: "desc",
      key: (row) => row[name],
      cell: (row) =>
        widgets.valued(
          value(row, name),
          ranged && row[`${name}_low`] !== null ? `${value(row, `${name}_low`)} – ${value(row, `${name}_high`)}` : null,
        ),
    });
    const columns = [
      {
        title: "Evaluation",
        heading: true,
        class: "name",
        key: (row) => index.evaluations[row.evaluation].id,
        cell: (row) =>
          el(
            "a",
            {
              href: names.address(["curves", index.evaluations[row.evaluation].id], {
                metric: index.metrics[row.metric].name,
              }),
            },
            breakingId(index.evaluations[row.evaluation]),
          ),
      },
      {
        title: "Metric",
        key: (row) => index.metrics[row.metric].title,
        cell: (row) => index.metrics[row.metric].title,
      },
      {
        title: "Verdict",
        key: (row) => row.verdict,
        cell: (row) => el("span", { class: `badge ${row.verdict.replaceAll(" ", "-")}` }, row.verdict),
      },
      { title: "Reason", key: (row) => row.reason, cell: (row) => row.reason },
      measure("Monotonicity", "monotonicity", true),
      measure("Signal to noise", "signal_to_noise", true),
      measure("Rank consistency", "rank_consistency", false),
      measure("Decision accuracy", "decision_accuracy", true),
    ];
    return el(
      "div",
      null,
      el("h2", null, "Which tasks can be trusted at this size"),
      table.make(columns, overview.trust, {
        class: "numbers",
        page: 40,
        label: "Trust in tasks",
        file: "task trust",
        caption: "Verdict on each task",
      }).element,
    );
  }

  /** @param {Index} index @param {Curves} overview */
  function areas(index, overview) {
    if (!overview.areas.length) return null;
    const info = (row) => index.metrics[row.metric];
    const name = (c) => overview.curves[c].name;
    const columns = [
      table.name("Curves", (row) => `${name(row.candidate)} − ${name(row.baseline)}`),
      {
        title: "Evaluation",
        key: (row) => index.evaluations[row.evaluation].id,
        cell: (row) => breakingId(index.evaluations[row.evaluation]),
      },
      { title: "Metric", key: (row) => info(row).title, cell: (row) => info(row).title },
      {
        title: "Mean difference",
        first: "desc",
        key: (row) => row.value,
        cell: (row) =>
          widgets.valued(format.signed(row.value, info(row).unit), format.interval(row.low, row.high, info(row).unit)),
      },
      { title: "p (Holm)", key: (row) => row.p, cell: (row) => format.probability(row.p) },
      {
        title: "From, to",
        key: (row) => row.to_x,
        cell: (row) => `${format.count(row.from_x)} to ${format.count(row.to_x)} ${curveRows.AXES[row.axis]}`,
      },
      {
        title: "Better",
        key: (row) => (row.better === null ? null : name(row.better)),
        cell: (row) => (row.better === null ? "" : data(name(row.better))),
      },
    ];
    return el(
      "div",
      null,
      el("h2", null, "Area between two curves, at equal positions"),
      table.make(columns, overview.areas, {
        class: "numbers",
        page: 40,
        label: "Areas between curves",
        file: "curve areas",
        caption: "Area between each two curves",
      }).element,
    );
  }
})();
