"use strict";
// What explains a model's value, and how it answers: the box "Why this score?" and the profile of the task view.
const diagnosis = (() => {
  const { el, data } = vernacular;

  const name = (code) => code.replaceAll("_", " ");
  const badge = (severity) => el("span", { class: `badge ${severity}` }, severity);

  /** @param {Index} index @param {Task} task @param {Evaluation} setting */
  function box(index, task, setting, model) {
    const found = task.diagnoses.filter((row) => row.model === model);
    const example = ({ item, text }) =>
      el(
        "li",
        null,
        el("a", { href: names.address(["item", setting.id, index.models[model], item]) }, data(item)),
        text ? [": ", data(text, { lang: setting.language })] : null,
      );
    const entry = (row) =>
      el(
        "li",
        null,
        el("strong", null, name(row.code)),
        " ",
        badge(row.severity),
        data(row.sentence),
        el("span", { class: "note" }, ` Reported from: ${row.threshold}.`),
        row.examples.length ? el("ul", { class: "examples" }, row.examples.map(example)) : null,
      );
    return el(
      "section",
      { class: "why", "aria-label": "Why this score?" },
      el("h2", null, "Why this score? ", el("small", null, data(index.models[model]))),
      found.length
        ? el("ol", null, found.map(entry))
        : el("p", { class: "note" }, "No symptom in the stored outputs explains the value."),
    );
  }

  /** @param {Index} index @param {Task} task */
  function profile(index, task, number, model) {
    const answers = task.answers.find((row) => row.model === model);
    const others = [task.generates ? spoken(index, model) : null, overLanguages(index, number, model)];
    const parts = answers ? [labels(task, answers), facts(task, answers), ...others] : others;
    if (!parts.some(Boolean)) return null;
    return el(
      "section",
      { class: "profile" },
      el("h2", null, "Profile of the answers ", el("small", null, data(index.models[model]))),
      parts,
    );
  }

  // The labels with their counts as bars on one scale.
  /** @param {Task} task */
  function labels(task, answers) {
    if (!answers.labels.length) return null;
    const largest = Math.max(...answers.labels.flatMap((row) => [row.predicted, row.gold]));
    const bar = (count) =>
      el("span", { class: "bar", vars: { "--w": `${((100 * count) / largest).toFixed(1)}%` }, "aria-hidden": "true" });
    const counts = (title, field) => ({
      title,
      class: "number score",
      first: "desc",
      key: (row) => row[field],
      cell: (row) => el("span", null, format.count(row[field]), bar(row[field])),
    });
    const label = table.name("Label", (row) => row.label);
    const columns = [label, counts("Predicted", "predicted"), counts("Correct label", "gold")];
    return [
      table.make(columns, answers.labels, {
        class: "numbers",
        label: "Labels",
        file: "labels",
        caption: "Predicted labels against the correct ones",
        order: [],
      }).element,
      confusion(answers),
      answers.without
        ? el("p", { class: "note" }, `${format.counted(answers.without, "item")} without a label, or with a tie.`)
        : null,
      task.letters ? null : el("p", { class: "note" }, "Labels are the options, or correct texts, that items share."),
    ];
  }

  // Items by correct label (rows) and predicted label (columns).
  function confusion({ labels: names, confusion: counts }) {
    const count = (title, number) => table.number(title, (row) => row.counts[number]);
    const correct = table.name("Correct label", (row) => row.label);
    const columns = [correct, ...names.map((row, i) => count(row.label, i)), count("none", names.length)];
    const rows = names.map((row, i) => ({ label: row.label, counts: counts[i] }));
    return table.make(columns, rows, {
      class: "numbers",
      label: "Confusion matrix",
      file: "confusion",
      caption: "Items by correct label (rows) and predicted label (columns)",
      order: [],
    }).element;
  }

  /** @param {Task} _task */
  function facts(_task, { mass, tokens, lengths }) {
    if (mass === null && !tokens.length && lengths === null) return null;
    const shown = tokens.flatMap(({ token, items }, i) => [
      i ? ", " : "",
      el("code", null, data(token)),
      ` ${format.counted(items, "item")}`,
    ]);
    return el(
      "dl",
      { class: "facts" },
      mass === null
        ? null
        : [
            el("dt", null, "Probability of all labels together"),
            el("dd", null, `median ${format.value(mass, "share")} %`),
          ],
      shown.length ? [el("dt", null, "Most probable tokens in place of a label"), el("dd", null, shown)] : null,
      lengths === null
        ? null
        : [
            el("dt", null, "Mean length in characters"),
            el(
              "dd",
              null,
              `chosen options ${lengths[0].toFixed(1)}, correct ones ${lengths[1].toFixed(1)}, all ${lengths[2].toFixed(1)}`,
            ),
          ],
    );
  }

  // The languages of all texts that a model has generated, by the language of the items; null if none is identified.
  /** @param {Index} index */
  function spoken(index, model) {
    const rows = new Map(); // language of the items -> { answered, gold }, counts by language
    const add = (counts, found) => {
      for (const { language, n } of found) counts.set(language, (counts.get(language) ?? 0) + n);
    };
    for (const row of index.spoken.filter((each) => each.model === model)) {
      const { language } = index.evaluations[row.evaluation];
      if (!rows.has(language)) rows.set(language, { language, answered: new Map(), gold: new Map() });
      add(rows.get(language).answered, row.answered);
      add(rows.get(language).gold, row.gold);
    }
    const list = [...rows.values()].filter((row) => row.answered.size);
    if (!list.length) return null;
    const total = (counts) => [...counts.values()].reduce((a, b) => a + b, 0);
    const share = (counts, language) => (counts.size ? (counts.get(language) ?? 0) / total(counts) : null);
    const shown = (value) => (value === null ? format.NONE : `${format.value(value, "share")} %`);
    const found = [...new Set(list.flatMap((row) => [row.language, ...row.answered.keys()]))];
    const called = (code) => (/^[a-z]{2,3}(-|$)/u.test(code) ? names.language(code) : code);
    const columns = [
      table.name(
        "Items in",
        (row) => row.language,
        (row) => names.language(row.language),
      ),
      table.number("Responses", (row) => total(row.answered)),
      table.number("Correct answers in it", (row) => share(row.gold, row.language), shown),
      ...found.map((code) => table.number(called(code), (row) => share(row.answered, code), shown)),
    ];
    return [
      el("h3", null, "Language of the items and of the responses"),
      table.make(columns, list, {
        class: "numbers",
        label: "Languages",
        file: `${index.models[model]} languages`,
        caption: "Share of the responses in each language, by the language of the items",
        order: [],
      }).element,
      el(
        "p",
        { class: "note" },
        "Over all evaluations with generated texts. Responses below 40 letters are joined to blocks, which count as one.",
      ),
    ];
  }

  // The diagnoses of a model in all languages of a task, evaluated in the same way; null with one language only.
  /** @param {Index} index */
  function overLanguages(index, number, model) {
    const settings = ["task", "protocol", "shots", "seed", "style", "prompt"];
    const own = index.evaluations[number];
    const alike = index.evaluations
      .map((setting, i) => ({ setting, i }))
      .filter(({ setting }) => !setting.runs && settings.every((key) => setting[key] === own[key]));
    const of = ({ i }) => index.symptomsOf.get(`${i} ${model}`) ?? [];
    const codes = [...new Set(alike.flatMap((evaluation) => of(evaluation).map((row) => row.code)))];
    if (alike.length < 2 || !codes.length) return null;
    const find = (code, evaluation) => of(evaluation).find((row) => row.code === code);
    const columns = [
      table.name("Diagnosis", (code) => name(code)),
      ...alike.map((evaluation) => ({
        title: el(
          "a",
          { href: names.addressOf(evaluation.setting, index.models[model]) },
          names.language(evaluation.setting.language),
        ),
        name: evaluation.setting.language,
        first: "desc",
        key: (code) => find(code, evaluation)?.share ?? null,
        cell: (code) => {
          const row = find(code, evaluation);
          if (!row) return format.NONE;
          return el(
            "span",
            null,
            row.share === null ? "" : `${format.value(row.share, "share")} % `,
            badge(row.severity),
          );
        },
      })),
    ];
    return [
      el("h3", null, "Diagnoses by language"),
      table.make(columns, codes, {
        class: "numbers",
        label: "Diagnoses by language",
        file: `${own.task} diagnoses`,
        caption: "Share of items with each diagnosis, by language",
        order: [],
      }).element,
    ];
  }

  return { name, box, profile };
})();
