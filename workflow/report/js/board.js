"use strict";
// The table of the leaderboard in both orientations, and its legend. Overall is next to the names, or above all rows.
const board = (() => {
  const { el, data } = vernacular;
  const FEW = 4; // models, side by side, whose intervals are drawn

  // group: "task" or "language", which a heading above several columns states
  /** @param {Index} index */
  function heading(index, column, group = "") {
    const setting = index.evaluations[column.evaluation];
    const info = index.metrics[column.metric];
    const unit = format.unit(info.unit);
    const about = [names.title(index, setting), names.remark(index, setting), info.about].filter(Boolean).join(". ");
    return el(
      "span",
      { class: "heading", title: about },
      group === "task" ? null : el("span", { class: "task" }, data(names.short(index, setting))),
      el(
        "span",
        null,
        group === "language"
          ? null
          : [el("abbr", { title: names.language(setting.language) }, setting.language ?? ""), " "],
        names.manner(setting),
      ),
      el(
        "span",
        { class: "metric" },
        `${info.title} `,
        el("span", { "aria-hidden": "true" }, names.arrow(info)),
        el(
          "span",
          { class: "visually-hidden" },
          info.higher === null ? "" : info.higher ? "higher is better" : "lower is better",
        ),
        unit ? `\u00a0${unit}` : "",
      ),
    );
  }

  const key = (display) => (cell) => (cell === undefined ? null : display(cell).value);

  /** @param {Index} index */
  function content(index, cell, display, axis = null) {
    if (!cell) return el("span", { class: "none", title: "not evaluated, or not possible; see below" }, format.NONE);
    const evaluation = index.evaluations[cell.evaluation];
    return cells.draw(
      cell,
      index.metrics[cell.metric],
      display(cell),
      names.addressOf(evaluation, index.models[cell.model]),
      axis,
      index.symptomsOf.get(`${cell.evaluation} ${cell.model}`),
    );
  }

  const style = (display) => (element, cell) => {
    if (cell) cells.style(element, cell, display(cell));
  };

  // value, interval and number of items, for CSV
  const exported = (name, cell, display) => [
    [name, cell ? display(cell).value : null],
    [`${name} low`, cell ? display(cell).low : null],
    [`${name} high`, cell ? display(cell).high : null],
    [`${name} n`, cell?.n ?? null],
  ];

  /** @param {Index} index */
  function wide(index, models, columns, chosen, display) {
    const over = standing(index, chosen);
    /** @type {Column[]} */
    const list = [table.name("Model", (model) => index.models[model])];
    if (over.size) {
      list.push({
        title: el("span", { title: ABOUT_RANK }, "Rank"),
        name: "rank",
        class: "rank",
        key: (model) => over.get(model)?.rank ?? null,
        csv: (model) => [
          ["rank", over.get(model)?.rank ?? null],
          ["worst rank", over.get(model)?.rank_worst ?? null],
        ],
        cell: (model) => ranks(over.get(model)),
      });
      list.push({
        title: el(
          "span",
          { class: "heading", title: ABOUT_OVERALL },
          el("span", { class: "task" }, "Overall"),
          el("span", null, chosen.language ? names.language(chosen.language) : "all languages"),
          el("span", { class: "metric" }, "above chance %"),
        ),
        name: "overall above chance",
        class: "overall",
        first: "desc",
        key: (model) => over.get(model)?.mean ?? null,
        cell: (model) => overallCell(over.get(model)),
      });
    }
    for (const column of columns) {
      const name = `${index.evaluations[column.evaluation].id} ${index.metrics[column.metric].name}`;
      list.push({
        title: heading(index, column, chosen.by),
        first: index.metrics[column.metric].higher === false ? "asc" : "desc",
        key: (model) => key(display)(column.cells.get(model)),
        cell: (model) => content(index, column.cells.get(model), display),
        csv: (model) => exported(name, column.cells.get(model), display),
        style: (element, model) => style(display)(element, column.cells.get(model)),
      });
    }
    const built = table.make(list, models, {
      class: "board",
      label: "Leaderboard",
      file: "leaderboard",
      caption: "Models down, evaluations across",
      groups: groups(index, list.length - columns.length, columns, chosen.by),
      order: over.size
        ? [
            [1, "asc"],
            [2, "desc"],
          ]
        : [[0, "asc"]],
    });
    return { ...built, text: (model) => index.models[model], noun: "models" };
  }

  // [title, number of columns] of adjacent columns of a task or language, after those of the models.
  /** @param {Index} index */
  function groups(index, first, columns, by) {
    const spans = [["", first]];
    let last = null;
    for (const column of columns) {
      const setting = index.evaluations[column.evaluation];
      if (setting[by] === last) spans.at(-1)[1] += 1;
      else spans.push([by === "task" ? names.short(index, setting) : names.language(setting.language), 1]);
      last = setting[by];
    }
    return spans;
  }

  // Models down; the mean above chance over all evaluations, and of each language or task, across.
  /** @param {Index} index */
  function means(index, models, chosen) {
    const isTask = (scope) => scope.startsWith("task:");
    const shown = (scope) => scope !== "all" && isTask(scope) === (chosen.by === "task");
    const scopes = ["all", ...new Set(index.overall.map((row) => row.scope).filter(shown))];
    const rows = new Map(index.overall.map((row) => [`${row.scope} ${row.model}`, row]));
    const best = new Map(
      scopes.map((scope) => {
        const own = models.map((model) => rows.get(`${scope} ${model}`)?.mean ?? null).filter((mean) => mean !== null);
        return [scope, new Set(own).size > 1 ? Math.max(...own) : null];
      }),
    );
    const called = (scope) =>
      scope === "all"
        ? "Overall"
        : isTask(scope)
          ? names.short(index, /** @type {Evaluation} */ ({ task: scope.slice(5) }))
          : names.language(scope);
    const mark = (row) => {
      if (best.get(row.scope) === null || row.mean <= 0 || row.rank !== 1) return "";
      return row.mean === best.get(row.scope) ? " ★" : " ☆";
    };
    const columns = scopes.map((scope) => ({
      title: el("span", { class: "heading" }, el("span", { class: "task" }, data(called(scope)))),
      name: called(scope),
      first: "desc",
      key: (model) => rows.get(`${scope} ${model}`)?.mean ?? null,
      cell: (model) => overallCell(rows.get(`${scope} ${model}`), mark),
      csv: (model) => {
        const row = rows.get(`${scope} ${model}`);
        return [
          [called(scope), row?.mean ?? null],
          [`${called(scope)} low`, row?.low ?? null],
          [`${called(scope)} high`, row?.high ?? null],
          [`${called(scope)} evaluations`, row?.n ?? null],
        ];
      },
      style: (element, model) => {
        const mean = rows.get(`${scope} ${model}`)?.mean ?? null;
        if (mean !== null) cells.shade(element, Math.max(-1, Math.min(1, mean)));
      },
    }));
    const name = table.name("Model", (model) => index.models[model]);
    const built = table.make([name, ...columns], models, {
      class: "board",
      label: "Means above chance",
      file: `means by ${chosen.by}`,
      caption: `Models down, means per ${chosen.by} across`,
      order: [[1, "desc"]],
    });
    return { ...built, text: (model) => index.models[model], noun: "models" };
  }

  /** @param {Index} index */
  function tall(index, models, columns, chosen, display) {
    const over = standing(index, chosen);
    /** @type {Column[]} */
    const list = [
      {
        title: "Evaluation",
        heading: true,
        class: "name",
        cell: (column) => heading(index, column),
        key: (column) => index.evaluations[column.evaluation].id,
        csv: (column) => [
          ["evaluation", index.evaluations[column.evaluation].id],
          ["metric", index.metrics[column.metric].name],
          ["unit", index.metrics[column.metric].unit],
        ],
      },
    ];
    const axes = models.length <= FEW && chosen.scale === "absolute";
    for (const model of models) {
      list.push({
        title: data(index.models[model], { class: "model" }),
        first: "desc",
        key: (column) => key(display)(column.cells.get(model)),
        cell: (column) => content(index, column.cells.get(model), display, axes ? axis(index, column) : null),
        csv: (column) => exported(index.models[model], column.cells.get(model), display),
        style: (element, column) => style(display)(element, column.cells.get(model)),
      });
    }
    const top = over.size
      ? [
          el(
            "th",
            { scope: "row", class: "name", title: ABOUT_OVERALL },
            el(
              "span",
              { class: "heading" },
              el("span", { class: "task" }, "Overall"),
              el("span", { class: "metric" }, "above chance %"),
            ),
          ),
          models.map((model) => el("td", null, overallCell(over.get(model)))),
        ]
      : null;
    const built = table.make(list, columns, {
      class: "board tall",
      label: "Leaderboard",
      file: "leaderboard",
      caption: "Evaluations down, models across",
      order: [],
      top,
    });
    return {
      ...built,
      text: (column) =>
        `${index.evaluations[column.evaluation].id} ` +
        `${names.title(index, index.evaluations[column.evaluation])} ` +
        `${index.metrics[column.metric].name} ` +
        `${names.language(index.evaluations[column.evaluation].language)}`,
      noun: "evaluations",
    };
  }

  // Shares from 0 to 100 %; other units from the lowest to the highest end of an interval of the row.
  /** @param {Index} index */
  function axis(index, column) {
    if (index.metrics[column.metric].unit === "share") return [0, 1];
    const known = [...column.cells.values()].filter((cell) => cell.low !== null);
    return [Math.min(...known.map((cell) => cell.low)), Math.max(...known.map((cell) => cell.high))];
  }

  const ABOUT_OVERALL = "Mean over evaluations of (value − chance) / (1 − chance), with a 95 % bootstrap interval.";

  const ABOUT_RANK =
    "The possible ranks by the overall mean, from 1 + the number of significantly better models to the number of " +
    "models − that of significantly worse ones.";

  function ranks(row) {
    if (!row?.rank || !row.rank_worst || row.rank === row.rank_worst) return format.count(row?.rank);
    return `${row.rank}\u2009–\u2009${row.rank_worst}`;
  }

  /** @param {Index} index */
  function standing(index, chosen) {
    const scope = chosen.language || "all";
    return new Map(index.overall.filter((row) => row.scope === scope).map((row) => [row.model, row]));
  }

  function overallCell(row, mark = (_) => "") {
    if (!row || row.mean === null) return el("span", { class: "none" }, format.NONE);
    return el(
      "span",
      {
        class: cells.overallClass(row),
        title:
          (row.n_languages > 1
            ? `mean over ${row.n_languages} languages: ${format.value(row.mean_over_languages, "share")}; `
            : "") +
          `over ${format.counted(row.n, "evaluation")}, ${row.excluded ?? 0} excluded; leads in ` +
          `${format.value(row.win_rate, "share")} % of the comparisons with other models`,
      },
      el(
        "span",
        { class: "value" },
        cells.overallText(row),
        mark(row) ? el("span", { class: "mark" }, mark(row)) : null,
      ),
      el("span", { class: "interval" }, row.low === null ? "no interval" : format.interval(row.low, row.high, "share")),
      el(
        "span",
        { class: "n" },
        format.counted(row.n, "evaluation"),
        row.n_languages > 1
          ? ` · ${format.value(row.mean_over_languages, "share")} over ${format.counted(row.n_languages, "language")}`
          : "",
      ),
    );
  }

  // Only what this table shows: its orientation, scale, units and marks.
  /** @param {Index} index */
  function legend(index, chosen, columns, models) {
    if (chosen.means)
      return el(
        "ul",
        { class: "legend", "aria-label": "Legend" },
        el("li", null, ABOUT_OVERALL, " In %: 0 is guessing, 100 is all correct."),
        el(
          "li",
          null,
          "★ highest mean of its column, ☆ not significantly worse than any other model. Equal means, and those at " +
            "chance or worse, have no mark.",
        ),
        el("li", null, "Below a mean: its 95 % interval, and the number of evaluations that all models have."),
      );
    const line = chosen.down === "evaluations" ? "row" : "column"; // contains the models' values of one metric
    const units = new Set(columns.map((column) => index.metrics[column.metric].unit));
    const shares = units.has("share") ? "from 0 to 100 %" : null;
    const shown = columns.flatMap((column) => [...column.cells.values()].map((cell) => [cell, column.metric]));
    const judged = shown.some(([cell]) => cell.chance !== null);
    const lacking = shown.some(([cell, metric]) => cells.lacksInterval(cell, index.metrics[metric]));
    const hasOthers = units.size > (shares ? 1 : 0);
    const range = `from the worst to the best value of the ${line}, or over the width of its intervals`;
    const others = hasOthers ? `${shares ? "other units " : ""}${models > 1 ? range : "no color"}` : null;
    const lines = [
      el(
        "li",
        null,
        el("span", { class: "key", "aria-hidden": "true" }, el("i"), el("i"), el("i")),
        chosen.scale === "absolute"
          ? ` The stronger the color, the better. ${[
              judged ? "Teal: above chance, up to all correct; ochre: below chance" : null,
              shown.some(([cell]) => cell.chance === null)
                ? `${judged ? "without" : "Without"} a chance level: ${[shares && `shares ${shares}`, others].filter(Boolean).join(", ")}`
                : null,
            ]
              .filter(Boolean)
              .join("; ")}.`
          : " Teal is better, ochre is worse; the sign of the value states the same.",
      ),
      el(
        "li",
        null,
        "Below a value: its 95 % interval, the number of items, and of ",
        el("span", { class: "flag" }, "⚑ flagged"),
        " items. ",
        index.symptoms.some((row) => row.severity === "failure")
          ? [el("span", { class: "flag" }, "▲"), " a failure that explains the value; see its task."]
          : null,
      ),
      chosen.down === "evaluations" && models <= FEW && chosen.scale === "absolute"
        ? el(
            "li",
            null,
            el(
              "span",
              { class: "range sample", "aria-hidden": "true" },
              el("i", { class: "extent", vars: { "--from": "30%", "--to": "90%" } }),
              el("i", { class: "chance", vars: { "--at": "15%" } }),
              el("i", { class: "point", vars: { "--at": "60%" } }),
            ),
            [
              " Value and interval",
              shares ? " on an axis from 0 to 100 %" : "",
              hasOthers ? `${shares ? "; other units" : ""} on an axis over the intervals of the row` : "",
              "; the vertical line is chance.",
            ].join(""),
          )
        : null,
      judged && chosen.scale !== "baseline"
        ? el("li", null, el("em", null, "Italic"), ": not distinguishable from chance.")
        : null,
      lacking && chosen.scale !== "baseline" ? el("li", null, cells.ABOUT_PARENTHESES) : null,
      models > 1
        ? el(
            "li",
            null,
            `★ best of its ${line}, ☆ not significantly different from the best (paired tests on the ` +
              `same items, ${verdict.FAMILIES}). Equal values, and those at chance or worse, ` +
              "have no mark.",
          )
        : null,
      chosen.scale === "baseline"
        ? el(
            "li",
            null,
            `Underlined: significant difference (${verdict.FAMILIES}). A difference has no ` +
              "interval if config.yaml does not list the pair under comparisons.",
          )
        : null,
      chosen.scale === "chance"
        ? el(
            "li",
            null,
            "Above chance: (value − chance) / (1 − chance); 0 is guessing, 100 is all correct. Metrics " +
              "without a chance level show –.",
          )
        : null,
      index.overall.length && models > 1 && chosen.down === "models"
        ? el(
            "li",
            null,
            "Rank: the ranks that are possible by the overall mean and its significant differences (Holm correction over all pairs of models).",
          )
        : null,
      index.overall.length
        ? el(
            "li",
            null,
            "Overall: the mean above chance over the evaluations that have a chance level and a value for " +
              "every model; below it, the number of evaluations.",
          )
        : null,
      el("li", null, "Values are rounded; results/summary/results.csv contains all digits."),
    ];
    return el("ul", { class: "legend", "aria-label": "Legend" }, lines);
  }

  return { wide, tall, means, legend };
})();
