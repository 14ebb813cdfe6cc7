"use strict";
// The first view: what was evaluated, which model is best and whether that is significant, and a heat map of languages
// and tasks.
(() => {
  const { el, data, views } = vernacular;

  const MOST_BARS = 15; // models in the plot; the leaderboard shows all

  views.set("overview", async (index, route) => {
    const models = [...index.models.keys()].slice(0, index.n_models);
    const shown = choice(index, route.query.get("show"));
    const over = ranked(index, "all");
    const known = over.filter((row) => row.mean !== null);
    const bars = known.slice(0, MOST_BARS);
    const standing =
      bars.length > 1
        ? plot.figure(
            "Overall, % above chance",
            [
              "Mean over evaluations with a chance level: 0 is guessing, 100 is all correct. Ranks by it are corrected over all pairs of models (Holm).",
            ].concat(
              bars.some((row) => row.low !== null) ? " 95 % intervals." : " There are too few items for intervals.",
              known.length > bars.length ? ` The best ${bars.length} of ${known.length} models.` : "",
            ),
            "values",
            {
              rows: bars.map((row) => ({
                model: index.models[row.model],
                ...format.scaled({ value: row.mean, low: row.low, high: row.high }, "share"),
                label: format.value(row.mean, "share"),
                n: row.n,
              })),
              references: bars.some((row) => row.low < 0.1) ? [{ line: "chance", value: 0 }] : [],
            },
            {
              file: "overall",
              noun: "evaluation",
              height: 26 * bars.length,
              description:
                `Overall values of ${format.counted(bars.length, "model")}; the leaderboard contains the ` +
                "same values.",
            },
          )
        : null;
    const map = await heatMap(index, models, shown);
    const element = el(
      "section",
      { class: "overview" },
      el("h1", null, "Overview"),
      el("p", { class: "headline" }, headline(index, over)),
      tiles(index, models),
      el(
        "div",
        { class: "two" },
        el("section", { class: "map" }, el("h2", null, "Languages and tasks"), chooser(index, models, shown), map),
        el("div", null, standing?.element, comparisons(index)),
      ),
      el("p", null, el("a", { class: "button", href: "#/leaderboard" }, "Leaderboard: all values with intervals")),
    );
    return { title: "Overview", element, after: () => standing?.draw() };
  });

  /** @param {Index} index */
  function ranked(index, scope) {
    return index.overall
      .filter((row) => row.scope === scope && row.model < index.n_models)
      .sort((a, b) => (b.mean ?? -Infinity) - (a.mean ?? -Infinity));
  }

  const name = (index, row) => el("strong", null, data(index.models[row.model]));

  // Why no model has a value, as the terminal states it: the reasons, by the number of their evaluations.
  /** @param {Index} index */
  function withoutValue(index) {
    const reasons = new Map();
    const known = new Set(index.cells.filter((cell) => cell.value !== null).map((cell) => cell.evaluation));
    for (const { evaluation, kind, note } of index.missing)
      if (kind === "unavailable" && !known.has(evaluation))
        reasons.set(note, (reasons.get(note) ?? new Set()).add(evaluation));
    const missing = new Set([...reasons.values()].flatMap((evaluations) => [...evaluations]));
    if (!missing.size) return "No overall value: no evaluation has a chance level and a value for every model.";
    const sorted = [...reasons].sort(([, a], [, b]) => b.size - a.size);
    return [
      `No overall value: ${missing.size} of ${format.counted(index.evaluations.length, "evaluation")} ` +
        "could not be completed. ",
      sorted
        .slice(0, 3)
        .map(([note, evaluations]) => [data(note), ` (${format.counted(evaluations.size, "evaluation")}). `]),
      sorted.length > 3 ? `Provenance lists ${sorted.length - 3} further reasons.` : "",
    ];
  }

  // One sentence: the best model, and whether it is significantly better than the others that have an overall value.
  /** @param {Index} index */
  function headline(index, over) {
    const best = over[0];
    if (!best || best.mean === null) return withoutValue(index);
    const value =
      `${format.fromChance(best.mean)}` +
      `${best.low === null ? "" : ` (95 % interval ${format.interval(best.low, best.high, "share")})`}, ` +
      `the mean of (value − chance) / (1 − chance) over ${format.counted(best.n, "evaluation")}` +
      (best.n_languages > 1
        ? `; each of ${format.counted(best.n_languages, "language")} counted once, it is ` +
          `${format.value(best.mean_over_languages, "share")}` +
          (best.languages_low === null ? "" : ` (${format.interval(best.languages_low, best.languages_high, "share")})`)
        : "");
    const guess =
      best.low === null
        ? " Its difference from chance is unknown: there are too few items for an interval."
        : best.low <= 0 && best.high >= 0
          ? " This is not distinguishable from guessing."
          : "";
    if (over.length === 1) return [name(index, best), ` scores ${value}.`, guess];
    const sharing = over.slice(1).filter((row) => row.rank === best.rank);
    if (!sharing.length)
      return [
        name(index, best),
        ` is the best of ${format.counted(over.length, "model")}, significantly better than ` +
          `${over.length === 2 ? "the other" : "all others"}: ${value}.`,
        guess,
      ];
    const others = sharing.length > 3 ? [`${sharing.length} others`] : sharing.map((row) => name(index, row));
    return [
      name(index, best),
      ` has the highest overall value of ${format.counted(over.length, "model")}, but not significantly: `,
      format.list(others),
      ` ${sharing.length === 1 ? "shares" : "share"} its rank. The value is ${value}.`,
      guess,
    ];
  }

  /** @param {Index} index */
  function tiles(index, models) {
    const items = new Map();
    for (const e of index.evaluations)
      items.set(`${e.task} ${e.language}`, Math.max(items.get(`${e.task} ${e.language}`) ?? 0, e.items));
    const count = (values) => new Set(values).size;
    const one = (number, noun) =>
      el("div", null, el("dd", null, format.count(number)), el("dt", null, number === 1 ? noun : `${noun}s`));
    return el(
      "dl",
      { class: "tiles" },
      one(models.length, "model"),
      one(count(index.evaluations.map((e) => e.language)), "language"),
      one(count(index.evaluations.map((e) => e.task)), "task"),
      one(index.evaluations.filter((e) => !e.runs).length, "evaluation"),
      one(
        [...items.values()].reduce((a, b) => a + b, 0),
        "item",
      ),
    );
  }

  // {kind: "best"}, {kind: "model", model} or {kind: "pair", pair}
  /** @param {Index} index */
  function choice(index, requested) {
    const [kind, text] = (requested ?? "").split(":");
    const number = Number(text);
    if (kind === "model" && number >= 0 && number < index.n_models) return { kind, model: number };
    if (kind === "pair" && index.pairs[number]) return { kind, pair: number };
    return { kind: "best" };
  }

  /** @param {Index} index */
  function chooser(index, models, shown) {
    const current = shown.kind === "model" ? `model:${shown.model}` : shown.kind === "pair" ? `pair:${shown.pair}` : "";
    if (models.length < 2) return null;
    const options = [
      ["", "best model of each cell"],
      ...models.map((m) => [`model:${m}`, index.models[m]]),
      ...index.pairs.map((pair, i) => [`pair:${i}`, names.sides(index, pair).reverse().join(" − ")]),
    ];
    return widgets.controls(
      widgets.select("show", "Show", options, current, (show) => {
        location.hash = names.address(["overview"], { show });
      }),
    );
  }

  // Rows: tasks as they are evaluated; columns: languages. One headline metric represents an evaluation.
  /** @param {Index} index */
  async function heatMap(index, models, shown) {
    const cellsOf = representativeCells(index);
    const pick = await picker(index, cellsOf, shown);
    const languages = [...new Set(index.evaluations.map((e) => e.language))].sort();
    // metric, direction and unit of the cells of a row, which phones and paper show, too
    const measured = (numbers) => {
      const found = numbers
        .flatMap((number) => (cellsOf.get(number) ?? []).slice(0, 1))
        .map((cell) => index.metrics[cell.metric]);
      return [
        ...new Set(
          found.map((info) => [info.title, names.arrow(info), format.unit(info.unit)].filter(Boolean).join(" ")),
        ),
      ];
    };
    const csv = [["task", "setting", "language", "metric", "model", "value", "n", "chance"]];
    const body = tasks(index, cellsOf).map(({ setting, of }) =>
      el(
        "tr",
        null,
        el(
          "th",
          {
            scope: "row",
            class: "name",
            title: [names.title(index, setting), names.remark(index, setting)].filter(Boolean).join(". "),
          },
          el("span", { class: "task" }, data(names.short(index, setting))),
          el("span", { class: "metric" }, names.manner(setting)),
          el("span", { class: "metric" }, format.list(measured([...of.values()]))),
        ),
        languages.map((language) => {
          const number = of.get(language);
          if (number === undefined) return el("td", null);
          const found = pick(number);
          if (!found) return el("td", null, el("span", { class: "none", title: "no value" }, format.NONE));
          csv.push([setting.task, names.manner(setting), language, ...exported(index, found, shown)]);
          return found.cell
            ? valueCell(index, index.evaluations[number], found, shown, models.length)
            : differenceCell(index, found, shown);
        }),
      ),
    );
    return el(
      "div",
      null,
      widgets.scrolled(
        "Languages and tasks",
        el(
          "table",
          { class: "map" },
          el("caption", { class: "visually-hidden" }, "Values by task and language"),
          el("thead", null, mapHead(index, languages, shown)),
          el("tbody", null, body),
        ),
      ),
      download.buttons("languages and tasks", { CSV: () => download.csv(csv) }),
      el("p", { class: "note" }, mapNote(models, shown, [...cellsOf.values()].flat(), index)),
    );
  }

  // Evaluation -> the cells of the metric that represents it, a cell per model of this run.
  /** @param {Index} index */
  function representativeCells(index) {
    const cellsOf = new Map();
    for (const cell of index.cells) {
      const { evaluation, model, metric, value } = cell;
      if (index.evaluations[evaluation].representative !== metric || value === null || model >= index.n_models)
        continue;
      if (!cellsOf.has(evaluation)) cellsOf.set(evaluation, []);
      cellsOf.get(evaluation).push(cell);
    }
    return cellsOf;
  }

  // The rows of the map: {setting, of: Map language -> evaluation}.
  /** @param {Index} index */
  function tasks(index, cellsOf) {
    const rows = new Map();
    index.evaluations.forEach((setting, number) => {
      if (setting.group !== undefined && !cellsOf.has(number)) return; // the mean over prompts stands for it
      const key = [setting.task, names.manner(setting)].join("\u0000");
      if (!rows.has(key)) rows.set(key, { setting, of: new Map() });
      rows.get(key).of.set(setting.language, number);
    });
    return [...rows.values()];
  }

  // A function of an evaluation: what its cell of the map shows, null without a value.
  /** @param {Index} index @returns {Promise<(number: number) => Found | null>} */
  async function picker(index, cellsOf, shown) {
    const compared = shown.kind === "pair" ? (await pieces.differences(shown.pair)).rows : [];
    const differences = new Map(compared.map((row) => [`${row.evaluation} ${row.metric}`, row]));
    const sharing = new Map(); // evaluation and metric -> number of models that are not worse than the best
    for (const { evaluation, metric, worse } of index.rankings)
      sharing.set(`${evaluation} ${metric}`, (sharing.get(`${evaluation} ${metric}`) ?? 0) + !worse);
    return (number) => {
      const all = cellsOf.get(number) ?? [];
      if (!all.length) return null;
      const info = index.metrics[all[0].metric];
      if (shown.kind === "pair") {
        const row = differences.get(`${number} ${all[0].metric}`);
        return row && row.difference !== null ? { info, row } : null;
      }
      if (shown.kind === "model") {
        const cell = all.find((each) => each.model === shown.model);
        return cell ? { info, cell } : null;
      }
      const best = [...all].sort((a, b) => (info.higher === false ? a.value - b.value : b.value - a.value))[0];
      const equal = all.filter((cell) => cell.value === best.value).length;
      const alone = all.length > 1 && sharing.get(`${number} ${best.metric}`) === 1;
      return { info, cell: best, equal, alone };
    };
  }

  // Metric, model, value, items and chance of a cell, for CSV.
  /** @param {Index} index @param {Found} found */
  function exported(index, { info, cell, row }, shown) {
    if (cell) return [info.name, index.models[cell.model], cell.value, cell.n, cell.chance];
    return [info.name, names.sides(index, index.pairs[shown.pair]).reverse().join(" − "), row.difference, row.n, null];
  }

  /** @param {Index} index */
  function mapHead(index, languages, shown) {
    const head = el(
      "tr",
      null,
      el("th", { scope: "col", class: "name" }, "Task"),
      languages.map((language) => el("th", { scope: "col" }, names.language(language))),
    );
    if (shown.kind === "pair" || !index.overall.length) return head;
    const top = el(
      "tr",
      { class: "top" },
      el("th", { scope: "row", class: "name" }, "Overall, above chance"),
      languages.map((language) => el("td", null, overall(index, language, shown))),
    );
    return [head, top];
  }

  /** @param {Index} index */
  function mapNote(models, shown, all, index) {
    if (shown.kind === "pair")
      return `Candidate minus baseline; teal is better, ochre is worse, underlined: significant (${verdict.FAMILIES}).`;
    const underlined = ` Underlined: significantly better than all other models (${verdict.FAMILIES}).`;
    return [
      "Teal: above chance, ochre: below; shares in %. Italic: not distinguishable from chance.",
      shown.kind === "best" && models.length > 1 ? underlined : "",
      " A metric without a chance level has no color.",
      index.symptoms.some((row) => row.severity === "failure")
        ? " ▲: a failure that explains the value; see its task."
        : "",
      all.some((cell) => cells.lacksInterval(cell, index.metrics[cell.metric])) ? ` ${cells.ABOUT_PARENTHESES}` : "",
      index.noise.length
        ? ` Float noise can change ${format.counted(
            index.noise.reduce((sum, row) => sum + row.n, 0),
            "choice",
          )} (≈ in the views of items).`
        : "",
    ].join("");
  }

  /** @typedef {{ info: Metric, row?: Comparison, cell?: any, equal?: number, alone?: boolean }} Found */

  /** @param {Index} index @param {Evaluation} setting @param {Found} found */
  function valueCell(index, setting, { info, cell, equal, alone }, shown, n) {
    const second =
      shown.kind === "best" && n > 1
        ? equal > 1
          ? format.counted(equal, "model")
          : data(index.models[cell.model], { class: "who" })
        : cell.chance === null
          ? info.title
          : `chance ${format.value(cell.chance, info.unit)}`;
    const noise = index.noiseOf.get(`${cell.evaluation} ${cell.model}`);
    const element = el(
      "td",
      null,
      el(
        "a",
        {
          href: names.addressOf(setting, index.models[cell.model]),
          title:
            `${info.title}: ${format.value(cell.value, info.unit)} ${format.unit(info.unit)}, ` +
            `${cells.interval(cell, info)}, ${format.counted(cell.n, "item")}` +
            `${noise ? `, ${format.count(noise)} within float noise` : ""}`,
        },
        el("span", { class: "value" }, cells.text(cell, info), cells.failure(index, cell)),
        el("span", { class: "n" }, second),
      ),
    );
    cells.shade(element, cells.heat(cell) ?? 0);
    element.classList.toggle("near-chance", cells.nearChance(cell));
    element.classList.toggle("significant", n > 1 && Boolean(alone) && !cells.atChance(cell, info));
    return element;
  }

  /** @param {Index} index @param {Found} found */
  function differenceCell(index, { info, row }, shown) {
    const [b, c] = names.sides(index, index.pairs[shown.pair]);
    const element = el(
      "td",
      null,
      el(
        "a",
        {
          href: names.address(["comparison", b, c]),
          title:
            `${info.title}: ${format.signed(row.difference, info.unit)}, 95 % interval ` +
            `${format.interval(row.ci_low, row.ci_high, info.unit)}, ${format.counted(row.n, "item")}`,
        },
        el("span", { class: "value" }, format.signed(row.difference, info.unit)),
        el("span", { class: "n" }, row.better ? "significant" : "\u00a0"),
      ),
    );
    const size = info.unit === "share" ? row.difference / 0.3 : Math.sign(row.difference) * 0.4;
    cells.shade(element, info.higher === null ? 0 : Math.max(-1, Math.min(1, info.higher ? size : -size)));
    element.classList.toggle("significant", Boolean(row.better));
    return element;
  }

  /** @param {Index} index */
  function overall(index, language, shown) {
    const rows = ranked(index, language);
    const row = shown.kind === "model" ? rows.find((each) => each.model === shown.model) : rows[0];
    if (!row || row.mean === null) return el("span", { class: "none" }, format.NONE);
    const equal = rows.filter((each) => each.mean === row.mean).length;
    const isBest = shown.kind === "best" && index.n_models > 1;
    return el(
      "span",
      {
        class: cells.overallClass(row),
        title: `${index.models[row.model]}, over ${format.counted(row.n, "evaluation")}`,
      },
      el("span", { class: "value" }, cells.overallText(row)),
      el(
        "span",
        { class: "n" },
        !isBest
          ? format.counted(row.n, "evaluation")
          : equal > 1
            ? format.counted(equal, "model")
            : data(index.models[row.model], { class: "who" }),
      ),
    );
  }

  /** @param {Index} index */
  function comparisons(index) {
    if (!index.pairs.length) return null;
    const MOST = 6;
    const list = index.pairs
      .slice(0, MOST)
      .map((pair) =>
        el(
          "li",
          null,
          verdict.sentences(index, pair),
          " ",
          el("a", { href: verdict.link(index, pair) }, "See the comparison"),
        ),
      );
    return el(
      "section",
      null,
      el("h2", null, "Comparisons"),
      el("ul", { class: "verdicts" }, list),
      index.pairs.length > MOST
        ? el("p", null, el("a", { href: "#/comparison" }, `All ${index.pairs.length} comparisons`))
        : null,
    );
  }
})();
