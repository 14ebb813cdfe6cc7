"use strict";
// Evaluations with several prompts: a point per prompt, the mean and its interval, ranks, shares of variance,
// wordings.
(() => {
  const { el, data, notFound, views } = vernacular;

  // The link is shown only if there is something to show.
  pieces.index().then((index) => {
    if (!index.n_prompt_groups) return;
    const link = el("a", { href: "#/prompts" }, "Prompts");
    document.querySelector("nav").append(link);
    if (/^#\/prompts/.test(location.hash)) link.setAttribute("aria-current", "page");
  });

  views.set("prompts", async (index, route) => {
    if (!index.n_prompt_groups) return notFound("No evaluation has several prompts. Set prompts: all in config.yaml.");
    const { groups } = await pieces.promptGroups();
    const wanted = index.evaluationNumber.get(route.parts[0]);
    const group =
      groups.find((candidate) => candidate.evaluation === wanted) ?? (route.parts.length ? null : groups[0]);
    if (!group) return notFound(`Evaluation ${route.parts[0]} has no group of prompts.`);
    const setting = index.evaluations[group.evaluation] ?? /** @type {Evaluation} */ ({});
    const metrics = [...new Set(group.rows.map((row) => row.metric))];
    const metric = metrics.find((number) => index.metrics[number].name === route.query.get("metric")) ?? metrics[0];
    const info = index.metrics[metric];
    const rows = group.rows.filter((row) => row.metric === metric);
    const models = rows.filter((row) => row.baseline === null);
    const pairs = rows.filter((row) => row.baseline !== null);
    const drawn = models.length ? figure(index, group, models, info) : null;
    const element = el(
      "section",
      null,
      widgets.heading(index, setting, { title: names.title(index, setting) ?? index.names[group.evaluation] }),
      controls(index, groups, group, metrics, metric),
      drawn?.element,
      means(index, models, info),
      ranks(index, group, models, info),
      variance(index, models),
      differences(index, pairs, info),
      wordings(index, group),
    );
    return { title: `Prompts of ${setting.id ?? ""}`, section: "prompts", element, after: () => drawn?.draw() };
  });

  // A point per prompt; the mean over them, without a prompt, has an interval.
  /** @param {Index} index @param {PromptGroup} group @param {Metric} info */
  function figure(index, group, models, info) {
    const points = models.flatMap((row) =>
      (row.values ?? []).map((value, i) => ({
        model: index.models[row.model],
        prompt: group.prompts[i].name,
        ...format.scaled({ value }, info.unit),
        label: format.value(value, info.unit),
        n: row.n,
      })),
    );
    const bars = models.map((row) => ({
      model: index.models[row.model],
      prompt: null,
      ...format.scaled({ value: row.value, low: row.ci_low, high: row.ci_high }, info.unit),
      label: format.value(row.value, info.unit),
      n: row.n,
    }));
    return plot.figure(
      [`${info.title} by prompt`, format.unit(info.unit)].filter(Boolean).join(", "),
      question(models, group),
      "prompts",
      { rows: [...points, ...bars], pairs: plot.series(group.prompts.map((prompt) => prompt.name)), by: "prompt" },
      {
        file: `${index.names[group.evaluation]} ${info.name}`,
        height: (30 + 9 * group.prompts.length) * models.length,
        description:
          `${info.title} of ${format.counted(models.length, "model")} under ` +
          `${format.counted(group.prompts.length, "prompt")}; the tables below contain the same values.`,
      },
    );
  }

  /** @param {PromptGroup} group */
  function question(models, group) {
    const random = models.some((row) => row.question === "prompts like these");
    const seeds = group.seeds > 1 ? `, ${format.counted(group.seeds, "seed")} each` : "";
    const scope = random
      ? "for other items and for prompts like these"
      : "for other items with these prompts (at least three prompts are needed for more)";
    return (
      `${format.counted(group.prompts.length, "prompt")}${seeds}. A point is one prompt; ` +
      `the line is the mean with its 95 % interval, ${scope}.`
    );
  }

  /** @param {Index} index @param {PromptGroup} group */
  function controls(index, groups, group, metrics, metric) {
    const go = (evaluation, number) => {
      location.hash = names.address(["prompts", index.names[evaluation]], {
        metric: number === undefined ? "" : index.metrics[number].name,
      });
    };
    const evaluations = groups.map((each) => [each.evaluation, index.names[each.evaluation]]);
    const titles = metrics.map((number) => [number, index.metrics[number].title]);
    return widgets.controls(
      widgets.select("group", "Evaluation", evaluations, group.evaluation, (evaluation) => go(evaluation)),
      widgets.select("metric", "Metric", titles, metric, (number) => go(group.evaluation, number)),
    );
  }

  const { number } = table;
  const percent = (x) => (x === null ? format.NONE : `${format.value(x, "share")} %`);
  const named = (index, title = "Model") => table.name(title, (row) => index.models[row.model]);
  const small = (columns, rows, label) =>
    table.make(columns, rows, {
      class: "numbers plain",
      label,
      caption: label,
    }).element;

  /** @param {Index} index @param {Metric} info */
  function means(index, rows, info) {
    const value = (x) => format.value(x, info.unit);
    return el(
      "section",
      null,
      el("h2", null, "Mean over prompts"),
      small(
        [
          named(index),
          number("Mean", "value", value),
          {
            title: "95 % interval",
            key: (row) => row.ci_low,
            cell: (row) => format.interval(row.ci_low, row.ci_high, info.unit) || format.NONE,
          },
          { title: "Interval for", key: (row) => row.question, cell: (row) => row.question ?? format.NONE },
          number("SE, items", "se_items", value),
          number("SE, prompts", "se_prompts", value),
          number("SD of prompts", "sd_prompts", value),
          {
            title: "Lowest",
            key: (row) => row.lowest,
            cell: (row) => el("span", null, value(row.lowest), " ", data(row.lowest_prompt ?? "")),
          },
          {
            title: "Highest",
            key: (row) => row.highest,
            cell: (row) => el("span", null, value(row.highest), " ", data(row.highest_prompt ?? "")),
          },
          number("Best, corrected", "best_corrected", value),
          number("Items", "n", format.count),
          { title: "Note", key: (row) => row.note, cell: (row) => data(row.note ?? "") },
        ],
        rows,
        "Mean over prompts",
      ),
      el(
        "p",
        { class: "note" },
        "Best, corrected: the value of the best prompt, chosen on one half of the items and evaluated on the other.",
      ),
    );
  }

  /** @param {Index} index @param {PromptGroup} group @param {Metric} info */
  function ranks(index, group, rows, info) {
    if (rows.length < 2 || rows.some((row) => row.ranks === null)) return null;
    const columns = group.prompts.map((prompt, i) =>
      number(
        data(prompt.name),
        (row) => row.values[i],
        (x, row) => `${format.value(x, info.unit)} · ${row.ranks[i]}`,
      ),
    );
    const spread = {
      title: "Ranks",
      key: (row) => row.rank_mean,
      cell: (row) =>
        row.rank_best === row.rank_worst ? `${row.rank_best}` : `${row.rank_best}\u2009–\u2009${row.rank_worst}`,
    };
    return el(
      "section",
      null,
      el("h2", null, "Value and rank under each prompt"),
      small([named(index), spread, ...columns], rows, "Value and rank under each prompt"),
    );
  }

  /** @param {Index} index */
  function variance(index, rows) {
    const known = rows.filter((row) => Object.values(row.shares).some((share) => share !== null));
    if (!known.length) return null;
    const sources = Object.keys(known[0].shares).filter((source) => known.some((row) => row.shares[source] !== null));
    return el(
      "section",
      null,
      el("h2", null, "Where the variance of one run comes from"),
      small(
        [named(index), ...sources.map((source) => number(source, (row) => row.shares[source], percent))],
        known,
        "Shares of variance",
      ),
      el(
        "p",
        { class: "note" },
        "Shares of the variance of a value from one prompt. More items reduce those of items only; " +
          "estimates from few prompts are rough.",
      ),
    );
  }

  /** @param {Index} index @param {Metric} info */
  function differences(index, rows, info) {
    if (!rows.length) return null;
    return el(
      "section",
      null,
      el("h2", null, "Differences on the same items and prompts"),
      small(
        [
          named(index, "Candidate"),
          {
            title: "Baseline",
            key: (row) => index.models[row.baseline],
            cell: (row) => data(index.models[row.baseline]),
          },
          number("Difference", "value", (x) => format.signed(x, info.unit)),
          {
            title: "95 % interval",
            key: (row) => row.ci_low,
            cell: (row) => format.interval(row.ci_low, row.ci_high, info.unit) || format.NONE,
          },
          number("p", "p_value", format.probability),
          number("Candidate leads under a new prompt", "probability_better", percent),
          { title: "Note", key: (row) => row.note, cell: (row) => data(row.note ?? "") },
        ],
        rows,
        "Differences on the same items and prompts",
      ),
    );
  }

  /** @param {Index} index @param {PromptGroup} group */
  function wordings(index, group) {
    const blocks = group.prompts.map((prompt) =>
      el(
        "article",
        { class: "wording" },
        el(
          "h3",
          null,
          el("a", { href: names.address(["task", index.names[prompt.evaluation]]) }, data(prompt.name)),
          prompt.reviewed === false ? el("span", { class: "badge not-scored" }, "not reviewed by a speaker") : null,
        ),
        prompt.differs ? el("p", { class: "note" }, data(prompt.differs)) : null,
        el("pre", { class: "sent", dir: "auto" }, prompt.text ?? format.NONE),
      ),
    );
    return el(
      "section",
      null,
      el("h2", null, "Wordings"),
      el("p", null, "The same item under each prompt, without few-shot examples."),
      el("div", { class: "wordings" }, blocks),
    );
  }
})();
