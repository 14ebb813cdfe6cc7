"use strict";
// The leaderboard view: models × evaluations as a heat map, one headline metric per evaluation or all of them.
(() => {
  const { el, data, views } = vernacular;

  views.set("leaderboard", async (index, route) => {
    const chosen = read(index, route.query);
    const columns = chosenColumns(index, chosen);
    const models = [...index.models.keys()].slice(0, index.n_models);
    const pairs = chosen.scale === "baseline" ? await differences(index, chosen.baseline) : new Map();
    const display = displays(index, columns, chosen, pairs);
    const built = chosen.means
      ? board.means(index, models, chosen)
      : chosen.down === "evaluations"
        ? board.tall(index, models, columns, chosen, display)
        : board.wide(index, models, columns, chosen, display);
    const element = el(
      "section",
      { class: "leaderboard" },
      el("h1", null, "Leaderboard"),
      el(
        "p",
        { class: "lead" },
        `${format.counted(models.length, "model")}, ` +
          `${format.counted(index.evaluations.filter((e) => !e.runs).length, "evaluation")} in ` +
          `${format.counted(languages(index).length, "language")}. Each value links to its task, its items ` +
          "and their prompts.",
      ),
      controls(index, chosen, built),
      columns.length || chosen.means ? built.element : el("p", null, "No evaluation has a value for these settings."),
      board.legend(index, chosen, columns, models.length),
      unavailable(index),
      await beside.deciding(index),
      await beside.unpaired(index),
    );
    return { title: "Leaderboard", element };
  });

  /** @param {Index} index */
  function read(index, query) {
    const narrow = innerWidth < 700;
    const [by, means] = (query.get("by") ?? "").split("-");
    const few = index.n_models < 4 && index.evaluations.length > 8;
    return {
      language: query.get("language") ?? "",
      scale: ["absolute", "chance", "baseline"].includes(query.get("scale")) ? query.get("scale") : "absolute",
      baseline: index.modelNumber.get(query.get("baseline")) ?? 0,
      metrics: query.get("metrics") === "all" ? "all" : "one",
      down: query.get("down") ?? (narrow || few ? "evaluations" : "models"),
      find: query.get("find") ?? "",
      by: by === "language" ? "language" : "task",
      means: means === "means" && index.overall.length > 0,
    };
  }

  const languages = (index) => [...new Set(index.evaluations.map((e) => e.language))].sort();

  /** @param {Index} index */
  function go(index, chosen, change) {
    const next = { ...chosen, ...change };
    location.hash = names.address(["leaderboard"], {
      language: next.language,
      scale: next.scale === "absolute" ? "" : next.scale,
      baseline: next.scale === "baseline" ? index.models[next.baseline] : "",
      metrics: next.metrics === "all" ? "all" : "",
      down: next.down,
      find: next.find,
      by: next.means ? `${next.by}-means` : next.by === "task" ? "" : next.by,
    });
  }

  // [{evaluation, metric, cells: Map model -> cell}], columns of a task adjacent
  /** @param {Index} index */
  function chosenColumns(index, chosen) {
    const marks = new Map(index.rankings.map((row) => [`${row.model} ${row.evaluation} ${row.metric}`, row]));
    const grouped = new Map();
    for (const cell of index.cells) {
      const { evaluation, model, metric } = cell;
      const setting = index.evaluations[evaluation];
      if (chosen.language && setting.language !== chosen.language) continue;
      if (chosen.metrics === "one" && setting.representative !== metric) continue;
      const key = `${evaluation} ${metric}`;
      if (!grouped.has(key)) grouped.set(key, { evaluation, metric, cells: new Map() });
      const { mark = 0 } = marks.get(`${model} ${evaluation} ${metric}`) ?? {};
      grouped.get(key).cells.set(model, { ...cell, mark });
    }
    const order = (column) => {
      const setting = index.evaluations[column.evaluation];
      return [
        ...(chosen.by === "task" ? [setting.task, setting.language] : [setting.language, setting.task]),
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

  // Paired differences of every model against the baseline, from the configured pairs: Map "model evaluation metric"
  // -> …
  /** @param {Index} index */
  async function differences(index, baseline) {
    const differences = new Map();
    for (const [number, pair] of index.pairs.entries()) {
      if (pair.baseline !== baseline && pair.candidate !== baseline) continue;
      const sign = pair.baseline === baseline ? 1 : -1;
      for (const row of (await pieces.differences(number)).rows) {
        if (row.category !== "" || row.difference === null) continue;
        const ends = [row.ci_low, row.ci_high].map((end) => (end === null ? null : sign * end));
        const [low, high] = sign > 0 ? ends : ends.reverse();
        differences.set(`${sign > 0 ? pair.candidate : pair.baseline} ${row.evaluation} ${row.metric}`, {
          difference: sign * row.difference,
          low,
          high,
          significant: row.significant,
        });
      }
    }
    return differences;
  }

  /** @param {Index} index */
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

  // lowest and highest value of a column, at least a median interval width apart, so that close models have similar
  // colors; one value alone is neither
  function spreadOf(column) {
    const values = column.map((cell) => cell.value).filter((value) => value !== null);
    const widths = column
      .filter((cell) => cell.low !== null)
      .map((cell) => cell.high - cell.low)
      .sort((a, b) => a - b);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    if (values.length < 2) return [low, low];
    const more = Math.max(0, (widths[widths.length >> 1] ?? 0) - (high - low)) / 2;
    return [low - more, high + more];
  }

  /** @param {Index} index */
  function controls(index, chosen, built) {
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
    const grouping = widgets.select(
      "by",
      "Values",
      [
        ["task", "by task"],
        ["language", "by language"],
        ...(index.overall.length
          ? [
              ["language-means", "means per language"],
              ["task-means", "means per task"],
            ]
          : []),
      ],
      chosen.means ? `${chosen.by}-means` : chosen.by,
      (value) => go(index, chosen, { by: value.split("-")[0], means: value.endsWith("-means") }),
    );
    if (chosen.means) return widgets.controls(grouping, el("label", { for: "find" }, "Find", find));
    return widgets.controls(
      grouping,
      widgets.select(
        "language",
        "Language",
        [["", "all"], ...languages(index).map((code) => [code, `${names.language(code)} (${code})`])],
        chosen.language,
        (language) => go(index, chosen, { language }),
      ),
      widgets.select(
        "scale",
        "Show",
        [
          ["absolute", "absolute values"],
          ["chance", "above chance"],
          ...(index.n_models > 1 ? [["baseline", "against a baseline"]] : []),
        ],
        chosen.scale,
        (scale) => go(index, chosen, { scale }),
      ),
      chosen.scale === "baseline"
        ? widgets.select(
            "baseline",
            "Baseline",
            models.map((name, i) => [String(i), name]),
            String(chosen.baseline),
            (number) => go(index, chosen, { baseline: Number(number) }),
          )
        : null,
      widgets.select(
        "metrics",
        "Metrics",
        [
          ["one", "one per evaluation"],
          ["all", "all headline metrics"],
        ],
        chosen.metrics,
        (metrics) => go(index, chosen, { metrics }),
      ),
      widgets.select(
        "down",
        "Rows",
        ["models", "evaluations"].map((name) => [name, name]),
        chosen.down,
        (down) => go(index, chosen, { down }),
      ),
      el("label", { for: "find" }, "Find", find),
    );
  }

  /** @param {Index} index */
  function unavailable(index) {
    if (!index.missing.length) return null;
    const rows = index.missing.map((row) =>
      el(
        "li",
        null,
        data(index.models[row.model]),
        " · ",
        data(names.called(index, row.evaluation)),
        ` — ${row.kind}: `,
        data(row.note),
      ),
    );
    return el(
      "details",
      null,
      el("summary", null, `${format.counted(rows.length, "evaluation")} with missing values`),
      el("ul", null, rows),
    );
  }
})();
