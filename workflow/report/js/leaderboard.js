"use strict";
// The leaderboard view: models × evaluations as a heat map, one headline metric per evaluation or all of them.
(() => {
  const { el, data, load, names, format, table, cells, board, views } = vernacular;

  views.set("leaderboard", async (index, route) => {
    const chosen = read(index, route.query);
    const columns = chosenColumns(index, chosen);
    const models = [...index.models.keys()].slice(0, index.n_models);
    const pairs = chosen.scale === "baseline" ? await differences(index, chosen.baseline) : new Map();
    const display = displays(index, columns, chosen, pairs);
    const built =
      chosen.down === "evaluations"
        ? board.tall(index, models, columns, chosen, display)
        : board.wide(index, models, columns, chosen, display);
    const element = el(
      "section",
      { class: "leaderboard" },
      el("h1", null, "Leaderboard"),
      el(
        "p",
        { class: "lead" },
        `${format.counted(models.length, "model")}, ${format.counted(index.evaluations.filter((e) => !e.runs).length, "evaluation")} in ${format.counted(languages(index).length, "language")}. Each value links to its task, its items and their prompts.`,
      ),
      controls(index, chosen, built),
      columns.length ? built.element : el("p", null, "No evaluation has a value for these settings."),
      board.legend(index, chosen, columns, models.length),
      unavailable(index),
    );
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
      language: next.language,
      scale: next.scale === "absolute" ? "" : next.scale,
      baseline: next.scale === "baseline" ? index.models[next.baseline] : "",
      metrics: next.metrics === "all" ? "all" : "",
      down: next.down,
      find: next.find,
    });
  }

  // [{evaluation, metric, cells: Map model -> cell}], columns of a task adjacent
  function chosenColumns(index, chosen) {
    const marks = new Map(
      index.rankings.map(([model, evaluation, metric, mark, rank]) => [
        `${model} ${evaluation} ${metric}`,
        { mark, rank },
      ]),
    );
    const grouped = new Map();
    for (const [evaluation, model, metric, value, low, high, n, flagged, ties, chance] of index.cells) {
      const setting = index.evaluations[evaluation];
      if (chosen.language && setting.language !== chosen.language) continue;
      if (chosen.metrics === "one" && setting.representative !== metric) continue;
      const key = `${evaluation} ${metric}`;
      if (!grouped.has(key)) grouped.set(key, { evaluation, metric, cells: new Map() });
      const { mark = 0, rank = null } = marks.get(`${model} ${evaluation} ${metric}`) ?? {};
      const cell = { evaluation, model, metric, value, low, high, n, flagged, ties, chance, rank };
      grouped.get(key).cells.set(model, { ...cell, mark: cells.belowChance(cell) ? 0 : mark });
    }
    const order = (column) => {
      const setting = index.evaluations[column.evaluation];
      return [
        setting.task,
        setting.language,
        setting.protocol,
        setting.shots ?? 0,
        setting.seed ?? 0,
        index.metrics[column.metric].order,
      ];
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
        differences.set(`${sign > 0 ? right : left} ${row.evaluation} ${row.metric}`, {
          difference: sign * row.difference,
          low,
          high,
          significant: row.significant,
        });
      }
    }
    return differences;
  }

  function displays(index, columns, chosen, pairs) {
    const displayed = new Map();
    for (const column of columns) {
      const spread = spreadOf([...column.cells.values()]);
      const base = column.cells.get(chosen.baseline);
      const reference = base && {
        value: base.value,
        paired: (cell) =>
          cell.model === base.model ? null : pairs.get(`${cell.model} ${cell.evaluation} ${cell.metric}`),
      };
      for (const cell of column.cells.values())
        displayed.set(cell, cells.scaled(cell, index.metrics[column.metric], chosen.scale, spread, reference));
    }
    return (cell) => displayed.get(cell);
  }

  // lowest and highest value of a column, at least a median interval width apart, so that close models have similar colors
  function spreadOf(column) {
    const values = column.map((cell) => cell.value).filter((value) => value !== null);
    const widths = column
      .filter((cell) => cell.low !== null)
      .map((cell) => cell.high - cell.low)
      .sort((a, b) => a - b);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const more = Math.max(0, (widths[widths.length >> 1] ?? 0) - (high - low)) / 2;
    return [low - more, high + more];
  }

  function controls(index, chosen, built) {
    const option = (value, text, current) => el("option", { value, selected: value === current }, text);
    const select = (label, id, options, change) =>
      el("label", { for: id }, label, el("select", { id, onchange: (event) => change(event.target.value) }, options));
    const find = table.finder(built.grid, built.text, {
      id: "find",
      value: chosen.find,
      placeholder: `filter ${built.noun}`,
    });
    find.addEventListener("input", () => {
      chosen.find = find.value;
    });
    if (chosen.find) find.dispatchEvent(new Event("input"));
    const models = index.models.slice(0, index.n_models);
    return el(
      "form",
      { class: "controls", onsubmit: (event) => event.preventDefault() },
      select(
        "Language",
        "language",
        [
          option("", "all", chosen.language),
          languages(index).map((code) => option(code, `${names.language(code)} (${code})`, chosen.language)),
        ],
        (language) => go(index, chosen, { language }),
      ),
      select(
        "Show",
        "scale",
        [
          option("absolute", "absolute values", chosen.scale),
          option("chance", "above chance", chosen.scale),
          index.n_models > 1 ? option("baseline", "against a baseline", chosen.scale) : null,
        ],
        (scale) => go(index, chosen, { scale }),
      ),
      chosen.scale === "baseline"
        ? select(
            "Baseline",
            "baseline",
            models.map((name, i) => option(String(i), name, String(chosen.baseline))),
            (number) => go(index, chosen, { baseline: Number(number) }),
          )
        : null,
      select(
        "Metrics",
        "metrics",
        [option("one", "one per evaluation", chosen.metrics), option("all", "all headline metrics", chosen.metrics)],
        (metrics) => go(index, chosen, { metrics }),
      ),
      select(
        "Rows",
        "down",
        [option("models", "models", chosen.down), option("evaluations", "evaluations", chosen.down)],
        (down) => go(index, chosen, { down }),
      ),
      el("label", { for: "find" }, "Find", find),
    );
  }

  function unavailable(index) {
    if (!index.missing.length) return null;
    const rows = index.missing.map(([model, evaluation, kind, text]) =>
      el("li", null, data(index.models[model]), " · ", data(index.names[evaluation]), ` — ${kind}: `, data(text)),
    );
    return el(
      "details",
      null,
      el("summary", null, `${format.counted(rows.length, "evaluation")} without values`),
      el("ul", null, rows),
    );
  }
})();
