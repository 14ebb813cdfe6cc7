"use strict";
// The leaderboard view: models × evaluations as a heat map, one headline metric per evaluation or all of them.
(() => {
  const { el, data, load, names, format, table, cells, views } = vernacular;

  views.set("leaderboard", async (index, route) => {
    const chosen = read(index, route.query);
    const columns = chosenColumns(index, chosen);
    const models = [...new Set([...index.models.keys()].slice(0, index.n_models))];
    const pairs = chosen.scale === "baseline" ? await differences(index, chosen.baseline) : new Map();
    const display = displays(index, columns, chosen, pairs);
    const board = chosen.down === "evaluations" ? tall(index, models, columns, chosen, display) : wide(index, models, columns, chosen, display);
    const element = el("section", { class: "leaderboard" },
      el("h1", null, "Leaderboard"),
      el("p", { class: "lead" }, `${format.counted(models.length, "model")}, ${format.counted(index.evaluations.filter((e) => e.prompt !== "all").length, "evaluation")} in ${format.counted(languages(index).length, "language")}. Each value links to its task, its items and their prompts.`),
      controls(index, chosen, board),
      columns.length ? board.element : el("p", null, "No evaluation has a value for these settings."),
      legend(chosen, models.length),
      unavailable(index));
    return { title: "Leaderboard", element };
  });

  function read(index, query) {
    const narrow = innerWidth < 700;
    const few = index.n_models < 4 && index.evaluations.length > 8;
    return {
      language: query.get("language") ?? "",
      scale: ["absolute", "chance", "baseline"].includes(query.get("scale")) ? query.get("scale") : "absolute",
      baseline: index.modelNumber.get(query.get("baseline")) ?? 0,
      metrics: query.get("metrics") === "all" ? "all" : "one",
      down: query.get("down") ?? (narrow || few ? "evaluations" : "models"),
      find: query.get("find") ?? "",
    };
  }

  const languages = (index) => [...new Set(index.evaluations.map((e) => e.language))].sort();

  function go(index, chosen, change) {
    const next = { ...chosen, ...change };
    location.hash = names.address(["leaderboard"], {
      language: next.language, scale: next.scale === "absolute" ? "" : next.scale,
      baseline: next.scale === "baseline" ? index.models[next.baseline] : "",
      metrics: next.metrics === "all" ? "all" : "", down: next.down, find: next.find,
    });
  }

  // [{evaluation, metric, cells: Map model -> cell}], columns of a task adjacent
  function chosenColumns(index, chosen) {
    const marks = new Map(index.rankings.map(([model, evaluation, metric, mark, rank]) => [`${model} ${evaluation} ${metric}`, { mark, rank }]));
    const grouped = new Map();
    for (const [evaluation, model, metric, value, low, high, n, flagged, ties, chance] of index.cells) {
      const setting = index.evaluations[evaluation];
      if (chosen.language && setting.language !== chosen.language) continue;
      if (chosen.metrics === "one" && setting.representative !== metric) continue;
      const key = `${evaluation} ${metric}`;
      if (!grouped.has(key)) grouped.set(key, { evaluation, metric, cells: new Map() });
      const { mark = 0, rank = null } = marks.get(`${model} ${evaluation} ${metric}`) ?? {};
      grouped.get(key).cells.set(model, { evaluation, model, metric, value, low, high, n, flagged, ties, chance, mark, rank });
    }
    const order = (column) => {
      const setting = index.evaluations[column.evaluation];
      return [setting.task, setting.language, setting.protocol, setting.shots ?? 0, setting.seed ?? 0, index.metrics[column.metric].order];
    };
    return [...grouped.values()].sort((a, b) => {
      const [left, right] = [order(a), order(b)];
      const at = left.findIndex((part, i) => part !== right[i]);
      return at < 0 ? 0 : left[at] < right[at] ? -1 : 1;
    });
  }

  // Paired differences of every model against the baseline, from the configured pairs: Map "model evaluation metric" -> …
  async function differences(index, baseline) {
    const differences = new Map();
    for (const [number, [left, right]] of index.pairs.entries()) {
      if (left !== baseline && right !== baseline) continue;
      const sign = left === baseline ? 1 : -1;
      for (const row of (await load(`p${number}`)).rows) {
        if (row.category !== "" || row.difference === null) continue;
        const ends = [row.ci_low, row.ci_high].map((end) => (end === null ? null : sign * end));
        const [low, high] = sign > 0 ? ends : ends.reverse();
        differences.set(`${sign > 0 ? right : left} ${row.evaluation} ${row.metric}`, { difference: sign * row.difference, low, high, significant: row.significant });
      }
    }
    return differences;
  }

  function displays(index, columns, chosen, pairs) {
    const displayed = new Map();
    for (const column of columns) {
      const spread = spreadOf([...column.cells.values()]);
      const base = column.cells.get(chosen.baseline);
      const reference = base && { value: base.value, paired: (cell) => (cell.model === base.model ? null : pairs.get(`${cell.model} ${cell.evaluation} ${cell.metric}`)) };
      for (const cell of column.cells.values()) displayed.set(cell, cells.scaled(cell, index.metrics[column.metric], chosen.scale, spread, reference));
    }
    return (cell) => displayed.get(cell);
  }

  // lowest and highest value of a column, at least a median interval width apart, so that close models have similar colors
  function spreadOf(column) {
    const values = column.map((cell) => cell.value).filter((value) => value !== null);
    const widths = column.filter((cell) => cell.low !== null).map((cell) => cell.high - cell.low).sort((a, b) => a - b);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const more = Math.max(0, (widths[widths.length >> 1] ?? 0) - (high - low)) / 2;
    return [low - more, high + more];
  }

  function heading(index, column) {
    const setting = index.evaluations[column.evaluation];
    const info = index.metrics[column.metric];
    const unit = format.unit(info.unit);
    return el("span", { class: "heading", title: info.about },
      el("span", { class: "task" }, data(setting.task ?? setting.id)),
      el("span", null, el("abbr", { title: names.language(setting.language) }, setting.language ?? ""), ` ${names.manner(setting)}`),
      el("span", { class: "metric" }, `${info.title} `, el("span", { "aria-hidden": "true" }, names.arrow(info)), el("span", { class: "visually-hidden" }, info.higher === null ? "" : info.higher ? "higher is better" : "lower is better"), unit ? ` ${unit}` : ""));
  }

  function measure(index, column, display) {
    return (cell) => (cell === undefined ? null : display(cell).value);
  }

  function content(index, cell, display) {
    if (!cell) return el("span", { class: "none", title: "not evaluated, or not possible; see below" }, format.NONE);
    const evaluation = index.evaluations[cell.evaluation];
    return cells.draw(cell, index.metrics[cell.metric], display(cell), evaluation.prompt === "all" ? names.address(["prompts", evaluation.id]) : names.address(["task", evaluation.id, index.models[cell.model]]));
  }

  function wide(index, models, columns, chosen, display) {
    const over = standing(index, chosen);
    const list = [{ title: "Model", heading: true, class: "name", key: (model) => index.models[model], cell: (model) => data(index.models[model]) }];
    if (over.size) {
      list.push({ title: "Rank", class: "rank", key: (model) => over.get(model)?.rank ?? null, cell: (model) => format.count(over.get(model)?.rank) });
      list.push({ title: el("span", { class: "heading", title: ABOUT_OVERALL }, el("span", { class: "task" }, "Overall"), el("span", null, chosen.language ? names.language(chosen.language) : "all languages"), el("span", { class: "metric" }, "above chance %")), class: "overall", first: "desc", key: (model) => over.get(model)?.mean ?? null, cell: (model) => overallCell(over.get(model)) });
    }
    for (const column of columns) {
      list.push({
        title: heading(index, column), first: index.metrics[column.metric].higher === false ? "asc" : "desc",
        key: (model) => measure(index, column, display)(column.cells.get(model)),
        cell: (model) => content(index, column.cells.get(model), display),
        style: (element, model) => column.cells.has(model) && cells.style(element, column.cells.get(model), display(column.cells.get(model))),
      });
    }
    const built = table.make(list, models, { class: "board", label: "Leaderboard", caption: el("span", { class: "visually-hidden" }, "Models down, evaluations across"), order: over.size ? [[1, "asc"], [2, "desc"]] : [[0, "asc"]] });
    return { ...built, text: (model) => index.models[model], noun: "models" };
  }

  function tall(index, models, columns, chosen, display) {
    const over = standing(index, chosen);
    const list = [{ title: "Evaluation", heading: true, class: "name", cell: (column) => heading(index, column), key: (column) => index.evaluations[column.evaluation].id }];
    for (const model of models) {
      list.push({
        title: data(index.models[model], { class: "model" }), first: "desc",
        key: (column) => measure(index, column, display)(column.cells.get(model)),
        cell: (column) => content(index, column.cells.get(model), display),
        style: (element, column) => column.cells.has(model) && cells.style(element, column.cells.get(model), display(column.cells.get(model))),
      });
    }
    const foot = over.size ? [el("th", { scope: "row", class: "name", title: ABOUT_OVERALL }, "Overall, above chance %"), models.map((model) => el("td", null, overallCell(over.get(model))))] : null;
    const built = table.make(list, columns, { class: "board tall", label: "Leaderboard", caption: el("span", { class: "visually-hidden" }, "Evaluations down, models across"), order: [], foot });
    return { ...built, text: (column) => `${index.evaluations[column.evaluation].id} ${index.metrics[column.metric].name} ${names.language(index.evaluations[column.evaluation].language)}`, noun: "evaluations" };
  }

  const ABOUT_OVERALL = "Mean over evaluations of (value − chance) / (1 − chance), with a 95 % bootstrap interval; models that are not significantly different share a rank.";

  function standing(index, chosen) {
    const scope = chosen.language || "all";
    return new Map(index.overall.filter((row) => row[1] === scope).map(([model, , mean, low, high, rank, win, n, left]) => [model, { mean, low, high, rank, win, n, left }]));
  }

  function overallCell(row) {
    if (!row || row.mean === null) return el("span", { class: "none" }, format.NONE);
    return el("span", { class: "static", title: `over ${format.counted(row.n, "evaluation")}, ${row.left ?? 0} excluded; leads in ${format.value(row.win, "share")} % of the comparisons with other models` },
      el("span", { class: "value" }, format.value(row.mean, "share")),
      el("span", { class: "interval" }, format.interval(row.low, row.high, "share")),
      el("span", { class: "n" }, format.counted(row.n, "evaluation")));
  }

  function controls(index, chosen, board) {
    const option = (value, text, current) => el("option", { value, selected: value === current }, text);
    const select = (label, id, options, change) => el("label", { for: id }, label, el("select", { id, onchange: (event) => change(event.target.value) }, options));
    const find = table.finder(board.grid, board.text, { id: "find", value: chosen.find, placeholder: `filter ${board.noun}` });
    find.addEventListener("input", () => { chosen.find = find.value; });
    if (chosen.find) find.dispatchEvent(new Event("input"));
    const models = index.models.slice(0, index.n_models);
    return el("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
      select("Language", "language", [option("", "all", chosen.language), languages(index).map((code) => option(code, `${names.language(code)} (${code})`, chosen.language))], (language) => go(index, chosen, { language })),
      select("Show", "scale", [option("absolute", "absolute values", chosen.scale), option("chance", "above chance", chosen.scale), index.n_models > 1 ? option("baseline", "against a baseline", chosen.scale) : null], (scale) => go(index, chosen, { scale })),
      chosen.scale === "baseline" ? select("Baseline", "baseline", models.map((name, i) => option(String(i), name, String(chosen.baseline))), (number) => go(index, chosen, { baseline: Number(number) })) : null,
      select("Metrics", "metrics", [option("one", "one per evaluation", chosen.metrics), option("all", "all headline metrics", chosen.metrics)], (metrics) => go(index, chosen, { metrics })),
      select("Rows", "down", [option("models", "models", chosen.down), option("evaluations", "evaluations", chosen.down)], (down) => go(index, chosen, { down })),
      el("label", { for: "find" }, "Find", find));
  }

  function legend(chosen, models) {
    const line = chosen.down === "evaluations" ? "row" : "column"; // contains the models' values of one metric
    const lines = [
      el("li", null, el("span", { class: "key", "aria-hidden": "true" }, el("i"), el("i"), el("i")), chosen.scale === "absolute" ? ` darker is better: shares from 0 to 100 %, other units from the worst to the best value of the ${line}, or over the width of its intervals` : " teal is better, ochre is worse; the sign of the value states the same"),
      el("li", null, "Second line: 95 % interval. Third line: number of items, and of ", el("span", { class: "flag" }, "⚑ flagged"), " items."),
      chosen.scale === "baseline" ? null : el("li", null, el("em", null, "Italic and gray"), ": not distinguishable from chance."),
      models > 1 ? el("li", null, `★ best of its ${line}, ☆ not significantly different from the best (paired tests on the same items, Holm correction over the ${line}).`) : null,
      chosen.scale === "baseline" ? el("li", null, "Underlined: significant difference. A difference has no interval if config.yaml does not list the pair under comparisons.") : null,
      chosen.scale === "chance" ? el("li", null, "Above chance: (value − chance) / (1 − chance); 0 is guessing, 100 is all correct. Metrics without a chance level show –.") : null,
      el("li", null, "Values are rounded; results/summary/results.csv contains all digits."),
    ];
    return el("ul", { class: "legend", "aria-label": "Legend" }, lines);
  }

  function unavailable(index) {
    if (!index.missing.length) return null;
    const rows = index.missing.map(([model, evaluation, kind, text]) => el("li", null, data(index.models[model]), " · ", data(index.names[evaluation]), ` — ${kind}: `, data(text)));
    return el("details", null, el("summary", null, `${format.counted(rows.length, "evaluation")} without values`), el("ul", null, rows));
  }
})();
