"use strict";
// The task view: every model's values, outcomes of the items, the distribution over items, and values by category.
(() => {
  const { el, data, load, names, format, table, taskPlots, views } = vernacular;
  views.set("task", async (index, route) => {
    const number = index.evaluationNumber.get(route.parts[0]);
    const setting = index.evaluations[number];
    if (!setting) return vernacular.notFound(`Evaluation “${route.parts[0] ?? ""}” not found.`);
    if (setting.runs) return views.get("prompts")(index, route);
    const task = await load(`e${number}/task`);
    const metric = chosenMetric(index, task, setting, route.query.get("metric"));
    const model = index.modelNumber.get(route.parts[1]) ?? task.models[0];
    const info = index.metrics[metric];
    const against = opponent(index, task, model, route.query.get("against"));
    const plots = el("div", { class: "plots" });
    const remark = names.remark(index, setting);
    const element = el(
      "section",
      null,
      el(
        "p",
        { class: "crumbs" },
        el("a", { href: "#/leaderboard" }, "Leaderboard"),
        setting.group === undefined
          ? null
          : [" › ", el("a", { href: names.place(index.evaluations[setting.group]) }, "All prompts")],
      ),
      el(
        "h1",
        null,
        data(names.title(index, setting)),
        el("small", null, ` ${names.language(setting.language)} · ${names.manner(setting)}`),
      ),
      source(setting, task),
      remark ? el("p", { class: "remark" }, data(remark)) : null,
      setting.note ? el("p", { class: "remark protocol" }, setting.note) : null,
      metric === undefined
        ? el("p", null, "No value could be computed; the provenance view states the reason.")
        : [choices(index, task, setting, metric, model, against), plots],
      values(index, task, setting, model),
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
  function opponent(index, task, model, requested) {
    const others = task.models.filter((m) => m !== model);
    const compared = index.pairs.flatMap(([b, c]) => (b === model ? [c] : c === model ? [b] : []));
    return (
      others.find((m) => index.models[m] === requested) ?? others.find((m) => compared.includes(m)) ?? others[0] ?? null
    );
  }

  function chosenMetric(index, task, setting, requested) {
    const known = [...new Set(task.cells.map((cell) => cell[1]))];
    return known.find((metric) => index.metrics[metric].name === requested) ?? setting.representative ?? known[0];
  }

  function source(setting, task) {
    const set = task.dataset;
    if (!set) return null;
    const parts = [
      el("code", null, setting.id),
      data(set.from),
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

  function choices(index, task, setting, metric, model, against) {
    const go = (change) => {
      location.hash = names.address(["task", setting.id, index.models[change.model ?? model]], {
        metric: change.metric ?? index.metrics[metric].name,
        against: index.models[change.against ?? against],
      });
    };
    const known = [...new Set(task.cells.map((cell) => cell[1]))].sort(
      (a, b) =>
        index.metrics[b].headline - index.metrics[a].headline || index.metrics[a].order - index.metrics[b].order,
    );
    const models = (selected, others) =>
      others.map((m) => el("option", { value: m, selected: m === selected }, index.models[m]));
    return el(
      "form",
      { class: "controls", onsubmit: (event) => event.preventDefault() },
      el(
        "label",
        { for: "metric" },
        "Metric",
        el(
          "select",
          { id: "metric", onchange: (event) => go({ metric: event.target.value }) },
          known.map((m) =>
            el(
              "option",
              { value: index.metrics[m].name, selected: m === metric },
              `${index.metrics[m].title} ${names.arrow(index.metrics[m])}`,
            ),
          ),
        ),
      ),
      el(
        "label",
        { for: "model" },
        "Model",
        el(
          "select",
          { id: "model", onchange: (event) => go({ model: Number(event.target.value) }) },
          models(model, task.models),
        ),
      ),
      against === null
        ? null
        : el(
            "label",
            { for: "against" },
            "Item by item, against",
            el(
              "select",
              { id: "against", onchange: (event) => go({ against: Number(event.target.value) }) },
              models(
                against,
                task.models.filter((m) => m !== model),
              ),
            ),
          ),
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
      .filter((cell) => cell[1] === metric && cell[2] !== null)
      .sort((a, b) => (info.higher === false ? a[2] - b[2] : b[2] - a[2]));
    const figures = await taskPlots.figures({ ...context, rows });
    container.append(...figures.map((figure) => figure.element)); // append all first: a plot measures its column when it is added
    for (const figure of figures) await figure.draw();
    if (task.categories.rows.some((row) => row[1] === metric && row[3] !== null))
      container.after(categoryTable(index, task, context.setting, metric, info));
  }

  function values(index, task, setting, model) {
    const metrics = [...new Set(task.cells.map((cell) => cell[1]))].sort(
      (a, b) =>
        index.metrics[b].headline - index.metrics[a].headline || index.metrics[a].order - index.metrics[b].order,
    );
    const of = new Map(task.cells.map((cell) => [`${cell[0]} ${cell[1]}`, cell]));
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
        key: (m) => of.get(`${m} ${metric}`)?.[2] ?? null,
        csv: (m) => {
          const name = index.metrics[metric].name;
          const cell = of.get(`${m} ${metric}`) ?? [];
          return [
            [name, cell[2]],
            [`${name} low`, cell[3]],
            [`${name} high`, cell[4]],
            [`${name} n`, cell[5]],
          ];
        },
        cell: (m) => valueCell(of.get(`${m} ${metric}`), index.metrics[metric]),
      })),
    ];
    return el(
      "div",
      null,
      el("h2", null, "All values"),
      table.make(columns, task.models, {
        class: "numbers",
        label: "All values",
        file: `${setting.id} values`,
        caption: el("span", { class: "visually-hidden" }, "Values of every metric by model"),
      }).element,
    );
  }

  function valueCell(cell, info) {
    if (!cell || cell[2] === null) return format.NONE;
    return el(
      "span",
      {
        class: "static",
        title: `${format.counted(cell[5], "item")}, ${cell[6]} flagged, ${format.counted(cell[7] ?? 0, "tie")}`,
      },
      el("span", { class: "value" }, format.value(cell[2], info.unit)),
      el("span", { class: "interval" }, format.interval(cell[3], cell[4], info.unit)),
    );
  }

  function categoryTable(index, task, setting, metric, info) {
    const rows = new Map();
    for (const row of task.categories.rows.filter((each) => each[1] === metric)) {
      if (!rows.has(row[2])) rows.set(row[2], new Map());
      rows.get(row[2]).set(row[0], row);
    }
    const columns = [
      {
        title: "Category",
        heading: true,
        class: "name",
        key: ([category]) => task.categories.names[category],
        cell: ([category]) => data(task.categories.names[category]),
      },
      {
        title: "Items",
        class: "number",
        first: "desc",
        key: ([, of]) => Math.max(...[...of.values()].map((row) => row[6])),
        cell: ([, of]) => format.count(Math.max(...[...of.values()].map((row) => row[6]))),
      },
      ...task.models.map((model) => ({
        title: data(index.models[model]),
        first: "desc",
        key: ([, of]) => of.get(model)?.[3] ?? null,
        cell: ([, of]) => {
          const row = of.get(model);
          return row && row[3] !== null
            ? el(
                "span",
                { class: "static" },
                el("span", { class: "value" }, format.value(row[3], info.unit)),
                el("span", { class: "interval" }, format.interval(row[4], row[5], info.unit)),
              )
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
        caption: el("span", { class: "visually-hidden" }, `${info.title} by category`),
      }).element,
    );
  }
})();
