"use strict";
// Between languages: for one model and one parallel task, a table of languages × languages of one measure; and the items
// that models answer correctly in the reference language and incorrectly in another one.
(() => {
  const { el, data, notFound, views } = vernacular;
  const ABOUT =
    "A difference between languages need not be the model's: faults of a translation and options in another order " +
    "count as inconsistency. Read the items before a conclusion.";

  views.set("languages", async (index, route) => {
    const content = await pieces.languages();
    if (!content.rows.length && !content.notes.length) return notFound("No parallel task in several languages.");
    const title = "Between languages";
    const reasons = content.notes.map((text) => el("li", null, data(text)));
    const summary = el("summary", null, "Not compared"); // a reason may be that of several languages
    const notes = reasons.length ? el("details", { class: "note" }, summary, el("ul", null, reasons)) : null;
    const about = el("p", { class: "lead" }, ABOUT);
    const heading = el("h1", null, title);
    if (!content.rows.length) return { title, element: el("section", null, heading, about, notes) };
    const group = (row) => {
      const setting = index.evaluations[row.evaluation];
      return [setting.task, setting.protocol, setting.shots, setting.seed, setting.style, setting.prompt].join(" ");
    };
    const groups = new Map(content.rows.map((row) => [group(row), row.evaluation]));
    const asked = content.rows.find((row) => index.evaluations[row.evaluation].id === route.parts[0]);
    const own = content.rows.filter((row) => group(row) === group(asked ?? content.rows[0]));
    const first = own[0].evaluation;
    const choose = (values, value) => (values.includes(value) ? value : values[0]);
    const model = choose([...new Set(own.map((row) => row.model))], route.query.get("model"));
    const metrics = [...new Set(own.map((row) => row.metric))];
    const metric = choose(metrics, route.query.get("metric"));
    const go = (change) => {
      const next = { evaluation: index.evaluations[first].id, model, metric, ...change };
      location.hash = names.address(["languages", next.evaluation], { model: next.model, metric: next.metric });
    };
    const called = (e) => `${names.title(index, index.evaluations[e])} · ${names.manner(index.evaluations[e])}`;
    const options = {
      evaluation: [...groups.values()].map((e) => [index.evaluations[e].id, called(e)]),
      model: [...new Set(own.map((row) => row.model))].map((name) => [name, name]),
      metric: metrics.map((name) => [name, own.find((row) => row.metric === name).title]),
    };
    const current = { evaluation: index.evaluations[groups.get(group(own[0]))].id, model, metric };
    const labels = { evaluation: "Task", model: "Model", metric: "Measure" };
    const selects = Object.keys(options).map((key) =>
      widgets.select(key, labels[key], options[key], current[key], (value) => go({ [key]: value })),
    );
    const shown = own.filter((row) => row.model === model && row.metric === metric && !row.baseline);
    const differences = own.filter((row) => row.model === model && row.metric === metric && row.baseline);
    const evaluations = [...new Set(own.map((row) => row.evaluation))].filter((e) => content.lists.includes(e));
    const lists = await Promise.all(evaluations.map((e) => pieces.languageItems(e)));
    const element = el(
      "section",
      null,
      heading,
      about,
      notes,
      widgets.controls(selects),
      matrix(index, shown),
      differences.length ? pairs(index, differences) : null,
      reading(index, evaluations, lists, model),
    );
    return { title, element };
  });

  const value = (number) => (number === null ? format.NONE : number.toFixed(3));
  const signed = (number) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(3)}`;
  const range = (row, show) => (row.low === null ? null : `${show(row.low)} – ${show(row.high)}`);

  /** @param {Index} index */
  function matrix(index, rows) {
    const here = [...new Set(rows.map((row) => row.evaluation))];
    const there = [...new Set(rows.map((row) => row.reference))];
    const language = (e) => index.evaluations[e].language;
    const find = (e, reference) => rows.find((row) => row.evaluation === e && row.reference === reference);
    const columns = [
      {
        title: "Here",
        heading: true,
        class: "name",
        key: (e) => language(e),
        cell: (e) => names.language(language(e)),
      },
      ...there.map((reference) => ({
        title: `There: ${names.language(reference)}`,
        first: "desc",
        key: (e) => find(e, reference)?.value ?? null,
        cell: (e) => {
          const row = find(e, reference);
          if (!row) return format.NONE;
          const items = `${format.counted(row.n, "item")}${row.excluded ? `, ${row.excluded} excluded` : ""}`;
          return el(
            "span",
            { title: items },
            widgets.valued(value(row.value), range(row, value)),
            el("small", null, `unrelated: ${value(row.chance)}`),
          );
        },
      })),
    ];
    const label = rows[0]?.title ?? "";
    return table.make(columns, here, { class: "numbers plain", label, file: "between_languages", caption: label })
      .element;
  }

  /** @param {Index} index */
  function pairs(index, rows) {
    const columns = [
      table.name("Minus", (row) => row.baseline),
      {
        title: "Language",
        key: (row) => index.evaluations[row.evaluation].language,
        cell: (row) => names.language(index.evaluations[row.evaluation].language),
      },
      {
        title: "Difference",
        first: "desc",
        key: (row) => row.value,
        cell: (row) => widgets.valued(row.value === null ? format.NONE : signed(row.value), range(row, signed)),
      },
      { title: "p", key: (row) => row.p, cell: (row) => format.probability(row.p) },
    ];
    const label = "Differences of models";
    return el(
      "div",
      null,
      el("h2", null, label),
      table.make(columns, rows, {
        class: "numbers plain",
        label,
        file: "between_languages_differences",
        caption: label,
      }).element,
    );
  }

  // The items of all languages of a task: those that the model misses first.
  /** @param {Index} index */
  function reading(index, evaluations, lists, model) {
    const rows = lists.flatMap((own, i) => own.map((row) => ({ ...row, evaluation: evaluations[i] })));
    const ordered = [
      ...rows.filter((row) => row.models.includes(model)),
      ...rows.filter((row) => !row.models.includes(model)),
    ];
    const heading = el("h2", null, "Correct in the reference language, incorrect here");
    if (!rows.length) return el("div", null, heading, el("p", null, "No item."));
    const text = (prompt, choices, gold, lang) =>
      el(
        "div",
        { lang, dir: "auto" },
        data(prompt),
        el(
          "ul",
          null,
          choices.map((choice, i) => el("li", null, gold.includes(i) ? "✓ " : "", data(choice))),
        ),
      );
    const columns = [
      {
        title: "Item",
        heading: true,
        class: "name",
        key: (row) => row.item_id,
        cell: (row) => {
          const own = row.models.includes(model) ? model : row.models[0];
          const id = index.evaluations[row.evaluation].id;
          return el("a", { href: names.address(["item", id, own, row.item_id]) }, data(row.item_id));
        },
      },
      {
        title: "Models",
        first: "desc",
        key: (row) => row.models.length,
        cell: (row) => el("span", { title: row.models.join(", ") }, `${row.models.length} of ${row.n_models}`),
      },
      {
        title: "Here",
        key: (row) => row.text,
        cell: (row) => text(row.text, row.choices, row.gold, index.evaluations[row.evaluation].language),
      },
      {
        title: "In the reference language",
        key: (row) => row.reference_text,
        cell: (row) => text(row.reference_text, row.reference_choices, row.gold, row.reference),
      },
      {
        title: "Predicted here",
        key: (row) => row.predictions.join(),
        cell: (row) =>
          el(
            "div",
            null,
            row.models.map((name, i) => el("div", null, data(name), ": ", data(row.predictions[i] ?? format.NONE))),
          ),
      },
    ];
    const label = "Items to read between languages";
    return el(
      "div",
      null,
      heading,
      table.make(columns, ordered, {
        class: "items",
        page: 20,
        label,
        file: "language_items",
        caption: label,
        order: [],
      }).element,
    );
  }
})();
