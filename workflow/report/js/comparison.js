"use strict";
// Two models on the same items: differences with paired intervals, and the improved and regressed items.
(() => {
  const { el, data, notFound, views } = vernacular;
  const VERDICTS = [
    ["candidate better", "verdict-better-candidate"],
    ["baseline better", "verdict-better-baseline"],
    ["not significant", "verdict-unjudged"],
    ["not tested", "verdict-unjudged"],
  ];

  views.set("comparison", async (index, route) => {
    if (!index.pairs.length)
      return {
        title: "Comparisons",
        element: el(
          "section",
          null,
          el("h1", null, "Comparisons"),
          el(
            "p",
            null,
            "No models are compared. Specify pairs under ",
            el("code", null, "comparisons:"),
            " in config.yaml.",
          ),
        ),
      };
    const [left, right] = [index.modelNumber.get(route.parts[0]), index.modelNumber.get(route.parts[1])];
    const requested = index.pairs.findIndex((pair) => pair.baseline === left && pair.candidate === right);
    if (route.parts.length >= 2 && requested < 0)
      return notFound(
        `The pair ${route.parts[0]}, ${route.parts[1]} is not compared. Specify it under comparisons: in config.yaml.`,
      );
    const number = Math.max(requested, 0);
    const pair = await pieces.differences(number);
    const [baseline, candidate] = names.sides(index, index.pairs[number]);
    const context = { number, pair, baseline, candidate };
    return route.parts[2] === undefined ? overview(index, context) : changed(index, context, route);
  });

  function top(index, { number, baseline, candidate }, more) {
    const choose = (i) => {
      location.hash = names.address(["comparison", ...names.sides(index, index.pairs[i])]);
    };
    const pairs = index.pairs.map((pair, i) => [i, names.sides(index, pair).join(" → ")]);
    return [
      el("h1", null, data(candidate), el("small", null, " against ", data(baseline))),
      widgets.controls(widgets.select("pair", "Baseline → candidate", pairs, number, choose), more),
    ];
  }

  const verdictOn = (row) =>
    row.n_tests === null ? "not tested" : row.better ? `${row.better} better` : "not significant";

  /** @param {Index} index */
  function overview(index, context) {
    const { number, pair, baseline, candidate } = context;
    const rows = pair.rows.filter((row) => row.category === "");
    const headline = rows.filter((row) => row.headline && row.difference !== null && !row.single);
    const counts = new Map(pair.changes.map((counts) => [counts.evaluation, counts]));
    // equal values of items that differ have an interval
    const differs = (row) => row.difference !== 0 || Boolean(row.ci_low) || Boolean(row.ci_high);
    const figures = el("div", { class: "wideplots" });
    const heading = headline.some(differs)
      ? [
          el("h2", null, "Difference, candidate minus baseline"),
          el(
            "p",
            { class: "note" },
            "Shares in percentage points, with 95 % paired intervals. A model is marked as better if the " +
              `difference is significant (${verdict.FAMILIES}). Evaluations without any difference are omitted.`,
          ),
        ]
      : null;
    const element = el(
      "section",
      null,
      top(index, context),
      el("p", { class: "headline" }, verdict.sentences(index, index.pairs[number])),
      heading,
      figures,
      differences(index, context, rows, counts, differs),
      byCategory(index, context),
    );
    const after = async () => {
      for (const [unit, rows] of [...grouped(headline.filter(differs), index)].sort(
        ([a], [b]) => Number(b === "share") - Number(a === "share"),
      )) {
        // by effect: what improves is above
        const bySize = [...rows].sort((a, b) => effect(index, b) - effect(index, a));
        const line = innerWidth < 500 ? ": " : ", ";
        const points = bySize.map((row) => ({
          evaluation: label(index, row, line),
          ...format.scaled({ value: row.difference, low: row.ci_low, high: row.ci_high }, unit),
          label: format.signed(row.difference, unit),
          n: row.n,
          p: format.probability(row.p_value),
          corrected: format.probability(row.p_holm),
          verdict: verdictOn(row),
        }));
        const name = unit === "share" ? "percentage points" : (unit ?? "");
        const drawn = plot.figure(
          `${candidate} minus ${baseline}, ${name}`,
          null,
          "differences",
          {
            rows: points,
            pairs: VERDICTS.filter(([name]) => points.some((point) => point.verdict === name)),
            by: "verdict",
          },
          {
            file: `${candidate} against ${baseline} ${name}`,
            description:
              `Differences of ${format.counted(points.length, "value")} between ${candidate} and ` +
              `${baseline}; the table below contains the same values.`,
            height: (line === ", " ? 34 : 46) * points.length,
          },
        );
        figures.append(drawn.element); // one after another: shares first
        await drawn.draw();
      }
    };
    return { title: `${candidate} against ${baseline}`, element, after };
  }

  // The difference, positive where the candidate is better.
  /** @param {Index} index @param {Comparison} row */
  const effect = (index, row) => (index.metrics[row.metric].higher === false ? -row.difference : row.difference);

  // Plot label, divided into lines at the colons: the end of a longer line is not shown, where evaluations differ.
  /** @param {Index} index */
  function label(index, row, line) {
    const setting = index.evaluations[row.evaluation];
    const measured = index.metrics[row.metric].title;
    return setting
      ? `${setting.language} ${names.short(index, setting)}: ${names.manner(setting)}${line}${measured}`
      : `${index.names[row.evaluation]}: ${measured}`;
  }

  /** @param {Index} index */
  function grouped(rows, index) {
    const byUnit = new Map();
    for (const row of rows) {
      const unit = index.metrics[row.metric].unit;
      byUnit.set(unit, [...(byUnit.get(unit) ?? []), row]);
    }
    return byUnit;
  }

  const ASCENDING = { first: "asc" };
  const difference = (unit) =>
    table.number("Difference", "difference", (value, r) =>
      widgets.valued(format.signed(value, unit(r)), format.interval(r.ci_low, r.ci_high, unit(r))),
    );

  /** @param {Index} index */
  function columnsOf(index, { baseline, candidate }, counts) {
    const unit = (row) => index.metrics[row.metric].unit;
    const link = (row, kind, number) =>
      el(
        "a",
        { href: names.address(["comparison", baseline, candidate, index.names[row.evaluation]], { show: kind }) },
        format.count(number),
      );
    const changes = (title, kind) =>
      table.number(
        title,
        (row) => counts.get(row.evaluation)?.[kind] ?? null,
        (number, row) => (number === null ? format.NONE : link(row, kind, number)),
      );
    const titled = (title, p) => el("span", { title }, format.probability(p));
    return [
      {
        title: "Evaluation",
        heading: true,
        class: "name evaluation",
        key: (r) => index.names[r.evaluation],
        cell: (r) => called(index, r),
      },
      {
        title: "Metric",
        key: (r) => index.metrics[r.metric].name,
        cell: (r) => `${index.metrics[r.metric].title} ${names.arrow(index.metrics[r.metric])}`,
      },
      {
        title: "Items",
        class: "number",
        key: (r) => r.n,
        cell: (r) =>
          el("span", { title: r.note }, format.count(r.n), r.note ? el("span", { class: "flag" }, " *") : null),
      },
      table.number("Baseline", "baseline_value", (value, r) => format.value(value, unit(r)), ASCENDING),
      table.number("Candidate", "candidate_value", (value, r) => format.value(value, unit(r)), ASCENDING),
      {
        ...difference(unit),
        csv: (r) => [
          ["Difference", r.difference],
          ["low", r.ci_low],
          ["high", r.ci_high],
          ["unit", unit(r)],
        ],
      },
      table.number("p", "p_value", (p, r) => titled(`${r.test ?? ""}; uncorrected`, p), ASCENDING),
      table.number("p (Holm)", "p_holm", (p, r) => titled(aboutCorrection(r), p), ASCENDING),
      table.number(
        "Minimum detectable",
        "minimum_detectable_difference",
        (value, r) => format.value(value, unit(r)),
        ASCENDING,
      ),
      {
        title: "Verdict",
        key: (r) => verdictOn(r),
        cell: (r) => el("span", { class: `badge ${verdictOn(r).replaceAll(" ", "-")}` }, verdictOn(r)),
      },
      changes("Improved", "improved"),
      changes("Regressed", "regressed"),
    ];
  }

  /** @param {Comparison} row */
  function aboutCorrection(row) {
    return row.n_tests ? `${verdict.FAMILIES}: ${format.counted(row.n_tests, "test")} of this pair` : "in no family";
  }

  // The rows that differ, and folded below them those without any difference and those of single prompts.
  /** @param {Index} index @param {Comparison[]} rows */
  function differences(index, context, rows, counts, differs) {
    const { baseline, candidate } = context;
    const columns = columnsOf(index, context, counts);
    const headline = rows.filter((row) => row.headline);
    const listed = headline.length ? headline : rows;
    const [shown, singles] = [listed.filter((row) => !row.single), listed.filter((row) => row.single)];
    const make = (rows, label) =>
      table.make(columns, rows, {
        class: "numbers",
        page: 100,
        label,
        file: `${candidate} against ${baseline} ${label}`,
        caption: `${label} by evaluation`,
      }).element;
    const [different, same] = [shown.filter(differs), shown.filter((row) => !differs(row))];
    const fold = (rows, summary, label) => {
      const folded = el("details", null, el("summary", null, summary));
      folded.addEventListener("toggle", () => folded.append(make(rows, label)), { once: true });
      return rows.length ? folded : null;
    };
    const notes = [...new Set(rows.flatMap((row) => row.note?.split("; ") ?? []))]; // a fact once, whatever else a row notes
    return el(
      "div",
      null,
      el("h2", null, "Table of differences"),
      different.length ? make(different, "Differences") : el("p", null, "No evaluation differs."),
      fold(same, `${format.counted(same.length, "row")} without any difference`, "Rows without any difference"),
      fold(
        singles,
        `${format.counted(singles.length, "row")} of single prompts, which are not part of the Holm correction`,
        "Single prompts",
      ),
      notes.length ? el("p", { class: "note" }, "* ", notes.join("; ")) : null,
      el(
        "p",
        { class: "note" },
        `Intervals and p are uncorrected; the verdict uses p (Holm): ${verdict.FAMILIES}. ` +
          "Minimum detectable: the smallest difference that a test with these items detects with a probability of " +
          "80 %, uncorrected. Improved: only the candidate is correct. Regressed: only the baseline is correct. The numbers " +
          "link to the items.",
      ),
    );
  }

  // Title of the task, language and manner of an evaluation; the name of one that only external results have.
  /** @param {Index} index */
  function called(index, row) {
    const setting = index.evaluations[row.evaluation];
    if (!setting) return data(index.names[row.evaluation]);
    return el(
      "a",
      { href: names.addressOf(setting), title: `${names.title(index, setting)}, ${setting.id}` },
      el("span", { class: "task" }, data(names.short(index, setting))),
      el("span", { class: "metric" }, `${names.language(setting.language)} · ${names.manner(setting)}`),
    );
  }

  // Many rows: loaded when the section is opened.
  function byCategory(index, { number, pair }) {
    if (!pair.in_categories) return null;
    const details = el("details", null, el("summary", null, "By category"));
    details.addEventListener(
      "toggle",
      async () => {
        const rows = (await pieces.categories(number)).filter((row) => row.difference !== null);
        details.append(categories(index, rows));
      },
      { once: true },
    );
    return details;
  }

  /** @param {Index} index */
  function categories(index, rows) {
    const unit = (row) => index.metrics[row.metric].unit;
    const columns = [
      table.name(
        "Evaluation",
        (r) => index.names[r.evaluation],
        (r) => names.called(index, r.evaluation),
      ),
      { title: "Category", key: (r) => r.category, cell: (r) => data(names.category(r.category)) },
      { title: "Metric", key: (r) => index.metrics[r.metric].name, cell: (r) => index.metrics[r.metric].title },
      table.number("Items", "n", format.count, ASCENDING),
      difference(unit),
      table.number("p, uncorrected", "p_value", format.probability, ASCENDING),
    ];
    return table.make(columns, rows, {
      class: "numbers",
      page: 50,
      label: "By category",
      caption: "Differences by category",
    }).element;
  }

  // Change, item and both outputs, which link to the item.
  /** @param {Index} index @param {any} context @param {Route} route @param {Evaluation} setting */
  function columnsOfItems(index, { baseline, candidate }, route, setting, letters) {
    const link = (row, name) =>
      row.position !== null && index.modelNumber.get(name) < index.n_models
        ? names.address(["item", route.parts[2], name, row.item.id])
        : null;
    const answer = (row, i, name) =>
      link(row, name)
        ? el("a", { href: link(row, name), dir: "auto" }, format.beginning(predictionOf(row, i) || "(empty)", 120))
        : data(format.beginning(predictionOf(row, i) ?? format.NONE, 120));
    const predictionOf = (row, side) => (letters ? items.withTexts(row[side], row.item) : row[side]);
    return [
      {
        title: "Change",
        class: "outcome",
        key: (r) => r.change,
        cell: (r) =>
          el(
            "span",
            { class: `badge ${r.change === "improved" ? "correct" : "incorrect"}` },
            r.change === "improved" ? "▲ improved" : "▼ regressed",
          ),
      },
      {
        title: "Item",
        heading: true,
        class: "prompt",
        key: (r) => items.label(r.item),
        cell: (r) => data(format.beginning(items.label(r.item), 220), { lang: setting?.language }),
      },
      {
        title: "Correct",
        class: "answer",
        key: (r) => items.gold(r.item, letters),
        cell: (r) => data(format.beginning(items.gold(r.item, letters), 120), { lang: setting?.language }),
      },
      {
        title: data(baseline),
        class: "answer",
        key: (r) => r.baseline_prediction,
        cell: (r) => answer(r, "baseline_prediction", baseline),
      },
      {
        title: data(candidate),
        class: "answer",
        key: (r) => r.candidate_prediction,
        cell: (r) => answer(r, "candidate_prediction", candidate),
      },
      {
        title: "Margin change",
        class: "number",
        key: (r) => r.margin_difference,
        cell: (r) => format.signed(r.margin_difference, ""),
      },
    ];
  }

  // The improved and regressed items of one evaluation.
  /** @param {Index} index @param {Route} route */
  async function changed(index, context, route) {
    const { number, pair, baseline, candidate } = context;
    const evaluation = index.evaluationNumber.get(route.parts[2]);
    if (!pair.changes.some((counts) => counts.evaluation === evaluation))
      return notFound(`No improved or regressed items in “${route.parts[2]}”.`);
    const rows = await pieces.changes(number, evaluation);
    const setting = index.evaluations[evaluation];
    const task = setting ? await pieces.task(evaluation) : null;
    for (const row of rows) row.item ??= await pieces.item(evaluation, task, row.position);
    const show = route.query.get("show") ?? "";
    const letters = Boolean(task?.letters);
    const columns = columnsOfItems(index, context, route, setting, letters);
    const built = table.make(columns, rows, {
      class: "items",
      page: 50,
      label: "Improved and regressed items",
      caption: "Improved and regressed items, worst first",
    });
    const find = table.finder(
      built.grid,
      (r) =>
        `${r.item.id} ${r.item.prompt} ${r.item.options.join(" ")} ${r.baseline_prediction} ${r.candidate_prediction}`,
      {
        id: "find",
      },
    );
    built.grid.search.fixed("show", show ? (_, r) => r.change === show : null);
    built.grid.draw();
    const go = (show) => {
      location.hash = names.address(["comparison", baseline, candidate, route.parts[2]], { show });
    };
    const kinds = [
      ["", "improved and regressed"],
      ["improved", "improved"],
      ["regressed", "regressed"],
    ];
    const element = el(
      "section",
      null,
      widgets.crumbs(
        el("a", { href: names.address(["comparison", baseline, candidate]) }, "Comparison"),
        data(names.called(index, evaluation)),
      ),
      top(index, context, [
        widgets.select("show", "Show", kinds, show, go),
        el("label", { for: "find" }, "Find", find),
      ]),
      el(
        "p",
        { class: "note" },
        "Margin change: how much the score of the correct option, relative to the best incorrect option, rose (+) or " +
          `fell (${format.MINUS}).`,
      ),
      built.element,
    );
    return {
      title: `Improved and regressed items in ${names.called(index, evaluation)}`,
      section: "comparison",
      element,
    };
  }
})();
