"use strict";
// The figures of the task view; each is omitted where its data do not exist.
const taskPlots = (() => {
  const ORDER = [1, 2, 0, 3, 4, 5, 6]; // order of the outcome codes in stacked bars: correct, tie, incorrect, …
  const OUTCOME_COLORS = ORDER.map((code) => format.OUTCOMES[code]).map((name) => [
    name,
    `outcome-${name.replaceAll(" ", "-")}`,
  ]);
  const MOST_SERIES = 6;
  const MOST_POINTS = 3000; // of a scatter plot; every k-th item of a larger evaluation

  const ABOUT = {
    margin: "Score of the best correct option minus score of the best incorrect option: above 0 is correct.",
    surprisal_token: "Surprisal of the sentence per token, nats.",
    surprisal_byte: "Surprisal of the text per byte, nats.",
    surprisal: "Surprisal, nats.",
    chrf: "chrF relative to the most similar correct answer.",
  };
  const about = (index, measure) => ABOUT[measure] ?? `${names.measure(index, measure)} of the item.`;

  // context: {index, task, setting, number, metric, info, model, against, rows: cells, best first}
  async function figures(context) {
    const all = [
      values(context),
      outcomes(context),
      distribution(context),
      categories(context),
      await acrossLanguages(context),
      reliability(context),
      ...surprisal(context),
      await scatter(context),
    ];
    return all.filter(Boolean);
  }

  const file = ({ setting }, name) => `${setting.id} ${name}`;

  // The selected model and the one it is compared with, then the best others.
  function some({ index, task, model, against, rows }, most) {
    const order = [model, against, ...rows.map((row) => row.model), ...task.models].filter(
      (m) => m !== null && m !== undefined,
    );
    return [...new Set(order)].slice(0, most).map((m) => /** @type {const} */ ([m, index.models[m]]));
  }

  function references(rows, unit) {
    const lines = [];
    const scale = unit === "share" ? 100 : 1;
    const first = (column) => rows.find((row) => row[column] !== null)?.[column];
    const [chance, majority] = [first("chance"), first("majority")];
    if (chance !== undefined && chance === majority)
      return [{ line: "chance = most frequent answer", value: chance * scale }];
    if (chance !== undefined) lines.push({ line: "chance", value: chance * scale });
    if (majority !== undefined) lines.push({ line: "most frequent answer", value: majority * scale });
    return lines;
  }

  function values(context) {
    const { index, info, rows } = context;
    const points = rows.map((r) => ({
      model: index.models[r.model],
      ...format.scaled(r, info.unit),
      label: format.value(r.value, info.unit),
      n: r.n,
    }));
    return plot.figure(
      [info.title, format.unit(info.unit)].filter(Boolean).join(", "),
      [info.about ? `${info.about.charAt(0).toUpperCase()}${info.about.slice(1)}. ` : "", "95 % intervals."],
      "values",
      { rows: points, references: references(rows, info.unit) },
      {
        file: file(context, info.name),
        description: `Values of ${format.counted(rows.length, "model")}; the table below contains the same values.`,
        height: 24 * rows.length,
      },
    );
  }

  function outcomes(context) {
    const { index, task, rows } = context;
    const at = new Map(rows.map((row, i) => [row.model, i])); // in the order of the values
    const ordered = [...task.outcomes].sort(
      (a, b) => (at.get(a.model) ?? rows.length) - (at.get(b.model) ?? rows.length),
    );
    const bars = ordered.flatMap(({ model, counts }) =>
      ORDER.flatMap((code) =>
        counts[code]
          ? [
              {
                model: index.models[model],
                outcome: format.OUTCOMES[code],
                order: ORDER.indexOf(code),
                count: counts[code],
              },
            ]
          : [],
      ),
    );
    if (!bars.some((row) => row.order < 3)) return null;
    return plot.figure(
      "Outcomes",
      "A tie with an incorrect option is never counted as correct.",
      "outcomes",
      { rows: bars, pairs: OUTCOME_COLORS, by: "outcome" },
      {
        file: file(context, "outcomes"),
        description: "Numbers of correct, tied and incorrect items by model.",
        height: 24 * task.outcomes.length,
      },
    );
  }

  function distribution(context) {
    const { index, task, model } = context;
    const found = task.distributions.find((row) => row.model === model);
    if (!found) return null;
    const { measure, edges, counts } = found;
    const bars = counts.flatMap(({ outcome, bins }) =>
      bins.flatMap((count, i) =>
        count
          ? [
              {
                start: edges[i],
                end: edges[i + 1],
                count,
                outcome: format.OUTCOMES[outcome],
                order: ORDER.indexOf(outcome),
                span: `${edges[i]} to ${edges[i + 1]}`,
              },
            ]
          : [],
      ),
    );
    const tallest = Math.max(...edges.slice(1).map((_, i) => counts.reduce((sum, { bins }) => sum + bins[i], 0)));
    return plot.figure(
      `Distribution over items: ${index.models[model]}`,
      about(index, measure),
      "distribution",
      {
        rows: bars,
        zero: measure === "margin",
        title: names.measure(index, measure),
        tallest,
        pairs: OUTCOME_COLORS,
        by: "outcome",
      },
      { file: file(context, `${index.models[model]} ${measure}`), description: `Histogram of ${measure} over items.` },
    );
  }

  const inCategories = ({ task, metric }) =>
    task.categories.rows.filter((row) => row.metric === metric && row.value !== null);

  function categories(context) {
    const { task, info, rows } = context;
    const selected = some(context, 4);
    const chosen = inCategories(context).filter((row) => selected.some(([m]) => m === row.model));
    if (!chosen.length) return null;
    const called = new Map(selected);
    const order = [...new Set(chosen.map((row) => row.category))].sort((a, b) =>
      task.categories.names[a].localeCompare(task.categories.names[b]),
    );
    const points = order
      .flatMap((category) => chosen.filter((row) => row.category === category))
      .map((r) => ({
        model: called.get(r.model),
        category: names.category(task.categories.names[r.category]),
        ...format.scaled(r, info.unit),
        label: format.value(r.value, info.unit),
        n: r.n,
      }));
    return plot.figure(
      [`${info.title} by category`, format.unit(info.unit)].filter(Boolean).join(", "),
      selected.length < task.models.length
        ? "The selected model and the best other models."
        : "Intervals are wide for categories with few items.",
      "categories",
      {
        rows: points,
        references: references(rows, info.unit).slice(0, 1),
        pairs: plot.series(selected.map(([, name]) => name)),
        by: "model",
      },
      {
        file: file(context, "categories"),
        description: "Values by category; the table below contains the same values.",
        height: order.length * Math.max(20, 10 * selected.length + 6),
      },
    );
  }

  // The categories of the same task in all languages in which it was evaluated in the same way.
  async function acrossLanguages(context) {
    const { index, setting, metric, info, model } = context;
    if (!inCategories(context).length || info.unit !== "share") return null;
    const same = (other) =>
      ["task", "protocol", "shots", "seed", "style", "prompt"].every((key) => other[key] === setting[key]);
    const rows = [];
    for (const [number, other] of index.evaluations.entries()) {
      if (!same(other)) continue;
      const task = await pieces.task(number);
      for (const row of inCategories({ task, metric })) {
        if (row.model === model)
          rows.push({
            category: names.category(task.categories.names[row.category]),
            language: names.language(other.language),
            value: 100 * row.value,
            label: format.value(row.value, info.unit),
            n: row.n,
          });
      }
    }
    const count = (key) => new Set(rows.map((row) => row[key])).size;
    if (count("language") < 2) return null;
    rows.sort((a, b) => a.category.localeCompare(b.category) || a.language.localeCompare(b.language));
    return plot.figure(
      `${info.title} by category and language: ${index.models[model]}`,
      "Shares in %. An empty cell: no such category in that language.",
      "languages",
      { rows, range: [plot.color("plot-low"), plot.color("plot-high")], limit: 220 },
      {
        file: file(context, `${index.models[model]} categories by language`),
        description: `${info.title} by category in ${count("language")} languages.`,
        height: 22 * count("category"),
      },
    );
  }

  function reliability(context) {
    const { task } = context;
    const selected = some(
      { ...context, rows: context.rows.filter((row) => task.calibration.some(({ model }) => model === row.model)) },
      4,
    );
    const called = new Map(selected);
    const found = task.calibration.filter(({ model }) => called.has(model));
    if (!found.length) return null;
    const points = found.flatMap(({ model, bins }) =>
      bins.map(({ confidence, accuracy, n }) => ({
        model: called.get(model),
        confidence,
        accuracy,
        n,
        bin: format.percent(confidence),
        accuracyLabel: format.percent(accuracy),
      })),
    );
    const errors = found
      .map(
        ({ model, error, expected, signed }) =>
          `${called.get(model)} ${format.percent(error)} (${format.percent(expected)} if perfectly ` +
          `calibrated; ${signed > 0 ? "overconfident" : "underconfident"} by ` +
          `${format.percent(Math.abs(signed))})`,
      )
      .join(", ");
    return plot.figure(
      "Reliability",
      "Is the model right as often as its probability of the chosen option, among all options, claims? " +
        "On the diagonal it is; below, it is overconfident. Larger points have more items. Calibration " +
        `error: ${errors}.`,
      "reliability",
      { rows: points, pairs: plot.series(selected.map(([, name]) => name)), by: "model" },
      { file: file(context, "reliability"), description: `Reliability diagram; calibration error: ${errors}.` },
    );
  }

  function surprisal(context) {
    const { task } = context;
    const selected = some(context, MOST_SERIES);
    const called = new Map(selected);
    const series = plot.series(selected.map(([, name]) => name));
    const kept = (profile) => profile.filter(({ model }) => called.has(model));
    const position = kept(task.surprisal.position).flatMap(({ model, points }) =>
      points.map(({ word: at, nats, n }) => ({
        model: called.get(model),
        at,
        nats,
        n,
        where: `word ${at}`,
        label: format.value(nats, ""),
      })),
    );
    const length = kept(task.surprisal.length).flatMap(({ model, points }) =>
      points.map(({ low, high, nats, n }) => ({
        model: called.get(model),
        at: (low + high) / 2,
        nats,
        n,
        where: `${low} to ${high} characters`,
        label: format.value(nats, ""),
      })),
    );
    const scored = context.task.outcomes.length ? "Of correct options, where there are options." : "";
    return [
      position.length
        ? plot.figure(
            "Surprisal by position",
            `Mean surprisal of the words of the scored text. ${scored}`,
            "profile",
            { rows: position, pairs: series, by: "model", titles: ["word", "nats per word"] },
            { file: file(context, "surprisal by position"), description: "Mean surprisal by position of the word." },
          )
        : null,
      length.length
        ? plot.figure(
            "Surprisal by length",
            `Mean surprisal per character in ranges of length. ${scored}`,
            "profile",
            { rows: length, pairs: series, by: "model", titles: ["characters", "nats per character"] },
            {
              file: file(context, "surprisal by length"),
              description: "Mean surprisal per character by length of the text.",
            },
          )
        : null,
    ];
  }

  // One point per item that both models have: their measures, colored by which of them is correct.
  async function scatter(context) {
    const { index, task, setting, number, model, against } = context;
    if (against === null) return null;
    const [across, up] = [await pieces.results(number, against), await pieces.results(number, model)];
    if (!across.measure || across.measure !== up.measure) return null;
    const other = new Map(across.rows.map((row) => [row.position, row]));
    const right = (row) => row.outcome === 1;
    const judged = up.rows.some((row) => row.outcome <= 2);
    const [left, above] = [index.models[against], index.models[model]];
    const outcomes = judged
      ? {
          3: "both correct",
          2: `only ${format.beginning(above, 30)}`,
          1: `only ${format.beginning(left, 30)}`,
          0: "neither correct",
        }
      : { 0: "item" };
    const pairs = up.rows.filter(
      (row) => row.value !== null && other.get(row.position)?.value !== null && other.has(row.position),
    );
    const step = Math.ceil(pairs.length / MOST_POINTS);
    const rows = pairs
      .filter((_, i) => i % step === 0)
      .map((row) => {
        const pair = other.get(row.position);
        return {
          item: `item ${row.position + 1}`,
          position: row.position,
          x: pair.value,
          y: row.value,
          xLabel: format.signed(pair.value, ""),
          yLabel: format.signed(row.value, ""),
          outcome: outcomes[judged ? 2 * Number(right(row)) + Number(right(pair)) : 0],
        };
      });
    if (rows.length < 2) return null;
    const colors = judged
      ? [
          [outcomes[3], "outcome-correct"],
          [outcomes[2], "series-3"],
          [outcomes[1], "series-4"],
          [outcomes[0], "outcome-incorrect"],
        ]
      : [["item", "series-1"]];
    const open = async (row) => {
      const item = await pieces.item(number, task, row.position);
      location.hash = names.address(["item", setting.id, index.models[model], item.id]);
    };
    return plot.figure(
      "Item by item",
      `${about(index, up.measure)} Across: ${left}; up: ${above}. On the diagonal, the models agree. A point ` +
        `opens its item.${step > 1 ? ` Every ${step}th item is shown.` : ""}`,
      "scatter",
      { rows, pairs: colors, by: "outcome", zero: up.measure === "margin", titles: [left, above] },
      {
        file: file(context, `${above} against ${left} items`),
        description: `Scatter plot of ${up.measure} of ${format.counted(rows.length, "item")} for two models.`,
        onclick: open,
      },
    );
  }

  return { figures };
})();
