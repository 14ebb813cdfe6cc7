"use strict";
// The task view: every model's values, outcomes of the items, the distribution over items, and values by category.
(() => {
  const { el, data, notFound, views } = vernacular;
  views.set("task", async (index, route) => {
    const number = index.evaluationNumber.get(route.parts[0]);
    const setting = index.evaluations[number];
    if (!setting) return notFound(`Evaluation “${route.parts[0] ?? ""}” not found.`);
    if (setting.runs) return views.get("prompts")(index, route);
    const task = await pieces.task(number);
    const metric = chosenMetric(index, task, setting, route.query.get("metric"));
    const model = index.modelNumber.get(route.parts[1]) ?? task.models[0];
    const info = index.metrics[metric];
    const against = opponent(index, task, model, route.query.get("against"));
    const plots = el("div", { class: "plots" });
    const remark = names.remark(index, setting);
    const element = el(
      "section",
      null,
      widgets.crumbs(
        el("a", { href: "#/leaderboard" }, "Leaderboard"),
        setting.group === undefined
          ? null
          : el("a", { href: names.addressOf(index.evaluations[setting.group]) }, "All prompts"),
      ),
      widgets.heading(index, setting),
      source(setting, task),
      remark ? el("p", { class: "remark" }, data(remark)) : null,
      setting.note ? el("p", { class: "remark protocol" }, setting.note) : null,
      metric === undefined
        ? el("p", null, "No value could be computed; the provenance view states the reason.")
        : [choices(index, task, setting, metric, model, against), diagnosis.box(index, task, setting, model), plots],
      diagnosis.profile(index, task, number, model),
      estimates(index, task, setting, false),
      estimates(index, task, setting, true),
      values(index, task, setting, model),
      await beside.unpaired(index, number),
      el(
        "details",
        null,
        el("summary", null, "Signatures: values are comparable if these are equal"),
        el(
          "ul",
          { class: "signatures" },
          task.signatures.map((text) => el("li", null, el("code", null, text))),
        ),
      ),
    );
    const after =
      metric === undefined ? null : () => draw({ index, task, setting, number, metric, info, model, against }, plots);
    return { title: `${setting.id}`, section: "leaderboard", element, after };
  });

  // The model of the item-by-item plot: as requested, or a compared one, or the next.
  /** @param {Index} index @param {Task} task */
  function opponent(index, task, model, requested) {
    const others = task.models.filter((m) => m !== model);
    const compared = index.pairs.flatMap(({ baseline, candidate }) =>
      baseline === model ? [candidate] : candidate === model ? [baseline] : [],
    );
    return (
      others.find((m) => index.models[m] === requested) ?? others.find((m) => compared.includes(m)) ?? others[0] ?? null
    );
  }

  /** @param {Index} index @param {Task} task @param {Evaluation} setting */
  function chosenMetric(index, task, setting, requested) {
    const known = [...new Set(task.cells.map((cell) => cell.metric))];
    return known.find((metric) => index.metrics[metric].name === requested) ?? setting.representative ?? known[0];
  }

  /** @param {Evaluation} setting @param {Task} task */
  function source(setting, task) {
    const set = task.dataset;
    if (!set) return null;
    const parts = [
      el("code", null, setting.id),
      set.kind === "samples" ? "demonstration items (samples)" : data(set.from),
      set.config,
      set.split && `split ${set.split}`,
      set.revision && `revision ${set.revision.slice(0, 12)}`,
      set.license && `license ${set.license}`,
      format.counted(task.items, "item"),
      set.limit ? `limit ${set.limit}` : null,
      set.dropped ? `${format.counted(set.dropped, "row")} dropped` : null,
    ];
    return el(
      "p",
      { class: "lead" },
      parts.filter(Boolean).flatMap((part, i) => (i ? [" · ", part] : [part])),
    );
  }

  // Values by labels of speakers, alone and with an automatic score; or those of a model on some items, alone and with
  // what other models answered to all. Both intervals are on the axis of the table.
  /** @param {Index} index @param {Task} task @param {Evaluation} setting */
  function estimates(index, task, setting, borrowed) {
    const rows = (task.estimates ?? []).filter((row) => row.metric.endsWith("_borrowed") === borrowed);
    if (!rows.length) return null;
    const title = (name) => index.metrics.find((metric) => metric.name === name)?.title ?? name;
    const sides = (row) => (row.baseline === null ? row.model : `${row.model} minus ${row.baseline}`);
    /** @returns {[number, number]} */
    const bounds = (kind) => {
      const own = rows.filter((row) => (row.baseline === null) === kind);
      const ends = own.flatMap((row) => [row.ci_low, row.ci_high, row.labels_only_low, row.labels_only_high]);
      const known = ends.filter((end) => end !== null);
      return [Math.min(...known), Math.max(...known)];
    };
    const axes = { values: bounds(true), differences: bounds(false) };
    const alone = (row) => ({ value: row.labels_only, low: row.labels_only_low, high: row.labels_only_high });
    const both = (row) => ({ value: row.value, low: row.ci_low, high: row.ci_high });
    const number = (row, value) =>
      row.baseline === null ? format.value(value, row.unit) : format.signed(value, row.unit);
    const shown = (row, cell) =>
      widgets.valued(number(row, cell.value), format.interval(cell.low, cell.high, row.unit));
    const drawn = (row, cell) =>
      cells.range({ ...cell, chance: null }, row.baseline === null ? axes.values : axes.differences);
    const columns = [
      table.name("Model", sides),
      {
        title: borrowed ? "Metric, and models that are borrowed from" : "Score",
        key: (row) => row.score ?? "",
        cell: (row) => {
          if (borrowed) return data(`${title(row.metric.replace(/_borrowed$/, ""))}: ${row.score}`);
          return row.score === null ? "labels alone" : data(title(row.score));
        },
      },
      {
        title: borrowed ? "Items" : "Agreement ρ",
        class: "number",
        first: "desc",
        key: (row) => (borrowed ? row.n_labels : row.rho),
        cell: (row) => {
          if (borrowed) return `${format.count(row.n_labels)} of ${format.count(row.n)}`;
          return row.rho === null ? format.NONE : row.rho.toFixed(2).replace("-", "−");
        },
      },
      {
        title: borrowed ? "Own items" : "Labels alone",
        first: "desc",
        key: (row) => row.labels_only,
        cell: (row) => shown(row, alone(row)),
      },
      {
        title: borrowed ? "Own items and other models" : "Labels and score",
        first: "desc",
        key: (row) => row.value,
        csv: (row) => Object.entries(row),
        cell: (row) => (row.score === null ? format.NONE : shown(row, both(row))),
      },
      {
        title: borrowed ? "Alone, and with other models" : "Alone, and with the score",
        sortable: false,
        cell: (row) =>
          el("span", { class: "ranges" }, drawn(row, alone(row)), row.score === null ? null : drawn(row, both(row))),
      },
      {
        title: "Width",
        class: "number",
        key: (row) => row.ratio,
        cell: (row) => (row.ratio === null ? format.NONE : `× ${row.ratio.toFixed(2)}`),
      },
    ];
    const caption = borrowed ? "Borrowed from other models" : "Judged by speakers";
    const [first] = rows.filter((row) => row.alpha !== null);
    const interval = first?.alpha_low == null ? "" : ` (${first.alpha_low.toFixed(2)}–${first.alpha_high.toFixed(2)})`;
    return el(
      "div",
      null,
      el("h2", null, caption),
      el(
        "p",
        { class: "note" },
        borrowed
          ? "Estimated from the model's own items and the answers of other models to all; run all items for a published value."
          : `${format.counted(Math.max(...rows.map((row) => row.n_labels)), "item")} with labels. A score narrows the ` +
              "interval as far as it agrees with speakers; choose it before you see the values.",
        first ? ` Agreement of annotators: α = ${first.alpha.toFixed(2)}${interval}.` : "",
      ),
      table.make(columns, rows, {
        class: "numbers",
        label: caption,
        file: `${setting.id} ${borrowed ? "borrowed" : "labels"}`,
        caption,
        order: [],
      }).element,
    );
  }

  // The metrics with values, headline metrics first.
  /** @param {Index} index @param {Task} task */
  function metricsOf(index, task) {
    const { metrics } = index;
    return [...new Set(task.cells.map((cell) => cell.metric))].sort(
      (a, b) => metrics[b].headline - metrics[a].headline || metrics[a].order - metrics[b].order,
    );
  }

  /** @param {Index} index @param {Task} task @param {Evaluation} setting */
  function choices(index, task, setting, metric, model, against) {
    const go = (change) => {
      location.hash = names.address(["task", setting.id, index.models[change.model ?? model]], {
        metric: change.metric ?? index.metrics[metric].name,
        against: index.models[change.against ?? against],
      });
    };
    const metrics = metricsOf(index, task).map((m) => [
      index.metrics[m].name,
      `${index.metrics[m].title} ${names.arrow(index.metrics[m])}`,
    ]);
    const models = (numbers) => numbers.map((m) => [m, index.models[m]]);
    const others = models(task.models.filter((m) => m !== model));
    return widgets.controls(
      widgets.select("metric", "Metric", metrics, index.metrics[metric].name, (name) => go({ metric: name })),
      widgets.select("model", "Model", models(task.models), model, (m) => go({ model: Number(m) })),
      against === null
        ? null
        : widgets.select("against", "Item by item, against", others, against, (m) => go({ against: Number(m) })),
      el(
        "a",
        { class: "button", href: names.address(["items", setting.id, index.models[model]]) },
        "Items, worst first",
      ),
    );
  }

  async function draw(context, container) {
    const { index, task, metric, info } = context;
    const rows = task.cells
      .filter((cell) => cell.metric === metric && cell.value !== null)
      .sort((a, b) => (info.higher === false ? a.value - b.value : b.value - a.value));
    const figures = await taskPlots.figures({ ...context, rows });
    // append all first: a plot measures its column when it is added
    container.append(...figures.map((figure) => figure.element));
    for (const figure of figures) await figure.draw();
    if (task.categories.rows.some((row) => row.metric === metric && row.value !== null))
      container.after(categoryTable(index, task, context.setting, metric, info));
  }

  /** @param {Index} index @param {Task} task @param {Evaluation} setting */
  function values(index, task, setting, model) {
    const metrics = metricsOf(index, task);
    const of = new Map(task.cells.map((cell) => [`${cell.model} ${cell.metric}`, cell]));
    const columns = [
      {
        title: "Model",
        heading: true,
        class: "name",
        key: (m) => index.models[m],
        cell: (m) =>
          el(
            "a",
            {
              href: names.address(["items", setting.id, index.models[m]]),
              "aria-current": m === model ? "true" : null,
            },
            data(index.models[m]),
          ),
      },
      ...metrics.map((metric) => ({
        title: el(
          "span",
          { class: "heading", title: index.metrics[metric].about },
          el("span", null, `${index.metrics[metric].title} ${names.arrow(index.metrics[metric])}`),
          el("span", { class: "metric" }, format.unit(index.metrics[metric].unit) ?? ""),
        ),
        first: index.metrics[metric].higher === false ? "asc" : "desc",
        key: (m) => of.get(`${m} ${metric}`)?.value ?? null,
        csv: (m) => {
          const name = index.metrics[metric].name;
          const cell = of.get(`${m} ${metric}`);
          return [
            [name, cell?.value],
            [`${name} low`, cell?.low],
            [`${name} high`, cell?.high],
            [`${name} n`, cell?.n],
          ];
        },
        cell: (m) => valueCell(of.get(`${m} ${metric}`), index.metrics[metric]),
      })),
    ];
    return el(
      "div",
      null,
      el("h2", null, "All values"),
      task.cells.some((cell) => cells.lacksInterval(cell, index.metrics[cell.metric]))
        ? el("p", { class: "note" }, cells.ABOUT_PARENTHESES)
        : null,
      table.make(columns, task.models, {
        class: "numbers",
        label: "All values",
        file: `${setting.id} values`,
        caption: "Values of every metric by model",
      }).element,
    );
  }

  /** @param {Metric} info */
  function valueCell(cell, info) {
    if (!cell || cell.value === null) return format.NONE;
    return widgets.valued(
      cells.text(cell, info),
      cells.lacksInterval(cell, info) ? "no interval" : format.interval(cell.low, cell.high, info.unit),
      `${format.counted(cell.n, "item")}, ${cell.flagged} flagged, ${format.counted(cell.ties ?? 0, "tie")}`,
    );
  }

  /** @param {Index} index @param {Task} task @param {Evaluation} setting @param {Metric} info */
  function categoryTable(index, task, setting, metric, info) {
    const rows = new Map();
    for (const row of task.categories.rows.filter((each) => each.metric === metric)) {
      if (!rows.has(row.category)) rows.set(row.category, new Map());
      rows.get(row.category).set(row.model, row);
    }
    const columns = [
      table.name(
        "Category",
        ([category]) => task.categories.names[category],
        ([category]) => names.category(task.categories.names[category]),
      ),
      {
        title: "Items",
        class: "number",
        first: "desc",
        key: ([, of]) => Math.max(...[...of.values()].map((row) => row.n)),
        cell: ([, of]) => format.count(Math.max(...[...of.values()].map((row) => row.n))),
      },
      ...task.models.map((model) => ({
        title: data(index.models[model]),
        first: "desc",
        key: ([, of]) => of.get(model)?.value ?? null,
        cell: ([, of]) => {
          const row = of.get(model);
          return row && row.value !== null
            ? widgets.valued(cells.text(row, info), format.interval(row.low, row.high, info.unit))
            : format.NONE;
        },
      })),
    ];
    return el(
      "details",
      { open: rows.size <= 12 },
      el("summary", null, "Table by category"),
      table.make(columns, [...rows.entries()], {
        class: "numbers",
        page: 60,
        label: "By category",
        file: `${setting.id} ${info.name} categories`,
        caption: `${info.title} by category`,
      }).element,
    );
  }
})();
