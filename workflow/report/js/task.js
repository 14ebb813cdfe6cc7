"use strict";
// The task view: every model's values, outcomes of the items, the distribution over items, and values by category.
(() => {
  const { el, data, load, names, format, table, plot, views } = vernacular;
  const ORDER = [1, 2, 0, 3, 4, 5]; // order of the outcome codes in stacked bars: correct, tie, incorrect, …
  const OUTCOME_COLORS = ["correct", "tie", "incorrect", "not scored", "acceptable", "unacceptable"].map((name) => [name, `outcome-${name.replaceAll(" ", "-")}`]);

  views.set("task", async (index, route) => {
    const number = index.evaluationNumber.get(route.parts[0]);
    const setting = index.evaluations[number];
    if (!setting) return vernacular.notFound(`Evaluation “${route.parts[0] ?? ""}” not found.`);
    const task = await load(`e${number}/task`);
    const metric = chosenMetric(index, task, setting, route.query.get("metric"));
    const model = index.modelNumber.get(route.parts[1]) ?? task.models[0];
    const info = index.metrics[metric];
    const plots = el("div", { class: "plots" });
    const element = el("section", null,
      el("p", { class: "crumbs" }, el("a", { href: "#/leaderboard" }, "Leaderboard")),
      el("h1", null, data(setting.task ?? setting.id), el("small", null, ` ${names.language(setting.language)} · ${names.manner(setting)}`)),
      source(task),
      metric === undefined ? el("p", null, "No value could be computed; the provenance view states the reason.") : [choices(index, task, setting, metric, model), plots],
      values(index, task, setting, model),
      el("details", null, el("summary", null, "Signatures: values are comparable if these are equal"), el("ul", { class: "signatures" }, task.signatures.map((text) => el("li", null, el("code", null, text))))));
    const after = metric === undefined ? null : () => draw(index, task, metric, info, model, plots);
    return { title: `${setting.id}`, section: "leaderboard", element, after };
  });

  function chosenMetric(index, task, setting, requested) {
    const known = [...new Set(task.cells.map((cell) => cell[1]))];
    return known.find((metric) => index.metrics[metric].name === requested) ?? setting.representative ?? known[0];
  }

  function source(task) {
    const set = task.dataset;
    if (!set) return null;
    const parts = [data(set.from), set.config, set.split && `split ${set.split}`, set.revision && `revision ${set.revision.slice(0, 12)}`, set.license && `license ${set.license}`, format.counted(task.items, "item"), set.dropped ? `${format.counted(set.dropped, "row")} dropped` : null];
    return el("p", { class: "lead" }, parts.filter(Boolean).flatMap((part, i) => (i ? [" · ", part] : [part])));
  }

  function choices(index, task, setting, metric, model) {
    const go = (change) => { location.hash = names.address(["task", setting.id, index.models[change.model ?? model]], { metric: change.metric ?? index.metrics[metric].name }); };
    const known = [...new Set(task.cells.map((cell) => cell[1]))].sort((a, b) => index.metrics[b].headline - index.metrics[a].headline || index.metrics[a].order - index.metrics[b].order);
    return el("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
      el("label", { for: "metric" }, "Metric", el("select", { id: "metric", onchange: (event) => go({ metric: event.target.value }) }, known.map((m) => el("option", { value: index.metrics[m].name, selected: m === metric }, `${index.metrics[m].title} ${names.arrow(index.metrics[m])}`)))),
      el("label", { for: "model" }, "Model", el("select", { id: "model", onchange: (event) => go({ model: Number(event.target.value) }) }, task.models.map((m) => el("option", { value: m, selected: m === model }, index.models[m])))),
      el("a", { class: "button", href: names.address(["items", setting.id, index.models[model]]) }, "Items, worst first"));
  }

  async function draw(index, task, metric, info, model, container) {
    const rows = task.cells.filter((cell) => cell[1] === metric && cell[2] !== null).sort((a, b) => (info.higher === false ? a[2] - b[2] : b[2] - a[2]));
    const scale = info.unit === "share" ? 100 : 1;
    const times = (number) => (number === null ? null : number * scale);
    const lines = reference(rows, scale);
    const modelName = (m) => index.models[m];
    const figure = (title, about) => el("figure", null, el("figcaption", null, el("h2", null, title), about ? el("p", null, about) : null));
    const first = figure(`${info.title}, ${format.unit(info.unit)}`, [info.about ? `${info.about}. ` : "", "95 % intervals.", lines.length ? ` Dashed: ${lines.map((line) => line.line).join("; ")}.` : ""]);
    const figures = [[first, plot.draw("values", { rows: rows.map((r) => ({ model: modelName(r[0]), value: times(r[2]), low: times(r[3]), high: times(r[4]), label: format.value(r[2], info.unit), n: r[5] })), lines }, `Values of ${format.counted(rows.length, "model")}; the table below contains the same values.`, { height: 24 * rows.length })]];
    const outcomes = ranked(task, rows).flatMap(([m, ...counts]) => ORDER.flatMap((code) => (counts[code] ? [{ model: modelName(m), outcome: format.OUTCOMES[code], order: ORDER.indexOf(code), count: counts[code] }] : [])));
    if (outcomes.some((row) => row.order < 3)) figures.push([figure("Outcomes", "A tie with an incorrect option is never counted as correct."), plot.draw("outcomes", { rows: outcomes }, "Numbers of correct, tied and incorrect items by model.", { height: 24 * task.outcomes.length, field: "outcome", colors: OUTCOME_COLORS })]);
    const distribution = task.distributions.find((row) => row[0] === model);
    if (distribution) {
      const [, measure, edges, counts] = distribution;
      const bars = counts.flatMap(([outcome, bins]) => bins.flatMap((count, i) => (count ? [{ start: edges[i], end: edges[i + 1], count, outcome: format.OUTCOMES[outcome], order: ORDER.indexOf(outcome), span: `${edges[i]} to ${edges[i + 1]}` }] : [])));
      figures.push([figure(["Distribution over items: ", data(modelName(model))], ABOUT[measure] ?? measure.replaceAll("_", " ")), plot.draw("distribution", { rows: bars, lines: measure === "margin" ? [{ value: 0 }] : [] }, `Histogram of ${measure} over items.`, { counts: Math.max(...edges.slice(1).map((_, i) => counts.reduce((sum, [, bins]) => sum + bins[i], 0))), field: "outcome", colors: OUTCOME_COLORS })]);
    }
    const selected = [...new Set([model, ...rows.map((row) => row[0])])].slice(0, 4);
    const inCategories = task.categories.rows.filter((row) => row[1] === metric && selected.includes(row[0]) && row[3] !== null);
    if (inCategories.length) {
      const order = [...new Set(inCategories.map((row) => row[2]))].sort((a, b) => task.categories.names[a].localeCompare(task.categories.names[b]));
      const points = order.flatMap((category) => inCategories.filter((row) => row[2] === category)).map((r) => ({ model: modelName(r[0]), category: task.categories.names[r[2]], value: times(r[3]), low: times(r[4]), high: times(r[5]), label: format.value(r[3], info.unit), n: r[6] }));
      figures.push([figure("By category", selected.length < task.models.length ? "The selected model and the first other models." : "Intervals are wide for categories with few items."), plot.draw("categories", { rows: points, lines: lines.slice(0, 1) }, "Values by category; the table below contains the same values.", { height: order.length * Math.max(20, 10 * selected.length + 6), field: "model", colors: selected.map((m, i) => [modelName(m), `series-${i + 1}`]) })]);
    }
    container.append(...figures.map(([holder]) => holder)); // append all first: a plot measures its column when it is added
    for (const [holder, drawing] of figures) await plot.put(holder, drawing);
    if (inCategories.length) container.append(categoryTable(index, task, metric, info));
  }

  // outcomes in the order of the values plotted next to them
  function ranked(task, rows) {
    const at = new Map(rows.map((row, i) => [row[0], i]));
    return [...task.outcomes].sort((a, b) => (at.get(a[0]) ?? rows.length) - (at.get(b[0]) ?? rows.length));
  }

  const ABOUT = {
    margin: "Score of the best correct option minus score of the best incorrect option: above 0 is correct.",
    surprisal_token: "Surprisal of the sentence per token, nats.",
    surprisal: "Surprisal, nats.",
    chrf: "chrF relative to the most similar correct answer.",
  };

  function reference(rows, scale) {
    const lines = [];
    const chance = rows.find((row) => row[8] !== null)?.[8];
    if (chance !== undefined) lines.push({ line: "chance", value: chance * scale });
    const majority = rows.find((row) => row[9] !== null)?.[9];
    if (majority !== undefined) lines.push({ line: "always the most frequent answer", value: majority * scale });
    return lines;
  }

  function values(index, task, setting, model) {
    const metrics = [...new Set(task.cells.map((cell) => cell[1]))].sort((a, b) => index.metrics[b].headline - index.metrics[a].headline || index.metrics[a].order - index.metrics[b].order);
    const of = new Map(task.cells.map((cell) => [`${cell[0]} ${cell[1]}`, cell]));
    const columns = [{ title: "Model", heading: true, class: "name", key: (m) => index.models[m], cell: (m) => el("a", { href: names.address(["items", setting.id, index.models[m]]), "aria-current": m === model ? "true" : null }, data(index.models[m])) },
      ...metrics.map((metric) => ({
        title: el("span", { class: "heading", title: index.metrics[metric].about }, el("span", null, `${index.metrics[metric].title} ${names.arrow(index.metrics[metric])}`), el("span", { class: "metric" }, format.unit(index.metrics[metric].unit) ?? "")),
        first: index.metrics[metric].higher === false ? "asc" : "desc",
        key: (m) => of.get(`${m} ${metric}`)?.[2] ?? null,
        cell: (m) => valueCell(of.get(`${m} ${metric}`), index.metrics[metric]),
      }))];
    return el("div", null, el("h2", null, "All values"), table.make(columns, task.models, { class: "numbers", label: "All values", caption: el("span", { class: "visually-hidden" }, "Values of every metric by model") }).element);
  }

  function valueCell(cell, info) {
    if (!cell || cell[2] === null) return format.NONE;
    return el("span", { class: "static", title: `${format.counted(cell[5], "item")}, ${cell[6]} flagged, ${format.counted(cell[7] ?? 0, "tie")}` }, el("span", { class: "value" }, format.value(cell[2], info.unit)), el("span", { class: "interval" }, format.interval(cell[3], cell[4], info.unit)));
  }

  function categoryTable(index, task, metric, info) {
    const rows = new Map();
    for (const row of task.categories.rows.filter((each) => each[1] === metric)) {
      if (!rows.has(row[2])) rows.set(row[2], new Map());
      rows.get(row[2]).set(row[0], row);
    }
    const columns = [{ title: "Category", heading: true, class: "name", key: ([category]) => task.categories.names[category], cell: ([category]) => data(task.categories.names[category]) },
      { title: "Items", class: "number", first: "desc", key: ([, of]) => Math.max(...[...of.values()].map((row) => row[6])), cell: ([, of]) => format.count(Math.max(...[...of.values()].map((row) => row[6]))) },
      ...task.models.map((model) => ({ title: data(index.models[model]), first: "desc", key: ([, of]) => of.get(model)?.[3] ?? null, cell: ([, of]) => {
        const row = of.get(model);
        return row && row[3] !== null ? el("span", { class: "static" }, el("span", { class: "value" }, format.value(row[3], info.unit)), el("span", { class: "interval" }, format.interval(row[4], row[5], info.unit))) : format.NONE;
      } }))];
    return el("details", { open: rows.size <= 12 }, el("summary", null, "Table by category"), table.make(columns, [...rows.entries()], { class: "numbers", page: 60, label: "By category", caption: el("span", { class: "visually-hidden" }, `${info.title} by category`) }).element);
  }
})();
