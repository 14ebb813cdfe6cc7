"use strict";
// Provenance: models, datasets, how each evaluation was run, notes, and the time of each job.
(() => {
  const { el, data, views } = vernacular;

  views.set("provenance", async (index) => {
    const all = await pieces.provenance();
    const element = el(
      "section",
      null,
      el("h1", null, "Provenance"),
      el("p", { class: "lead" }, `Vernacular ${all.version}${versions(all.runs)}`),
      block("Models", all.models, [
        text("Model", "name", "name"),
        text("Source", "source"),
        text("Revision", "revision", "code"),
        text("Architecture", "architecture"),
        number("Size", "bytes", format.bytes),
        text("Base", "base"),
        text("Adapter", "adapter_source"),
        text("Adapter revision", "adapter_revision", "code"),
        text("Fingerprint", "fingerprint", "code"),
        text("Unavailable", "unavailable"),
      ]),
      block("Datasets", all.datasets, [
        text("Task", "task", "name"),
        text("Language", "language"),
        text("Source", "from"),
        text("Config", "config"),
        text("Split", "split"),
        text("Revision", "revision", "code"),
        text("License", "license"),
        text("Citation", "citation", "long"),
        number("Rows read", "read"),
        number("Items", "items"),
        number("Dropped", "dropped"),
        number("Repaired", "repaired"),
        text("sha256", "sha256", "code"),
      ]),
      block("Runs", all.runs, runs(index)),
      block(
        "Notes",
        all.notes,
        [
          text("Kind", "kind", "name"),
          text("Note", "note"),
          number("Count", "count"),
          text("Models", "models"),
          text("Evaluations", "evaluations"),
        ],
        "No rows dropped or repaired, no outputs flagged, no fallback used.",
      ),
      block(
        "Time per job",
        all.jobs,
        [
          text("Stage", "stage", "name"),
          text("Job", "job"),
          number("Time", "seconds", format.seconds),
          number("CPU time", "cpu", format.seconds),
          number("Memory, MB", "memory"),
        ],
        "No benchmark files of Snakemake found.",
      ),
    );
    return { title: "Provenance", element };
  });

  const text = (title, key, style) => ({
    title,
    heading: style === "name",
    class: style ?? "",
    key: (row) => row[key],
    cell: (row) =>
      row[key] === null || row[key] === undefined
        ? ""
        : style === "code"
          ? el("code", { title: row[key] }, data(format.hash(String(row[key]))))
          : data(String(row[key])),
  });
  const { number } = table;
  const named = (title, key, list) => ({
    title,
    key: (row) => list[row[key]] ?? null,
    cell: (row) => data(list[row[key]] ?? ""),
  });

  /** @param {Index} index */
  function runs(index) {
    return [
      named("Model", "model", index.models),
      named("Evaluation", "evaluation", index.names),
      text("Strategy", "strategy"),
      text("Fallback", "fallback"),
      text("Engine", "engine"),
      text("dtype", "dtype"),
      text("Device", "device"),
      text("Quantization", "quantization"),
      text("Code", "code"),
      number("Items", "items"),
      number("Requests", "requests"),
      number("Input tokens", "tokens"),
      number("Generated tokens", "generated"),
      number("Time", "seconds", format.seconds),
      {
        title: "Flagged",
        key: (row) => (row.flags ?? []).reduce((sum, { count }) => sum + count, 0),
        cell: (row) => data((row.flags ?? []).map(({ flag, count }) => `${flag}: ${count}`).join("; ")),
      },
      number("Skipped", "skipped"),
      text("Reason for missing values", "reason"),
    ];
  }

  function versions(rows) {
    const versions = [
      ...new Set(
        rows.flatMap((row) =>
          [row.torch && `torch ${row.torch}`, row.transformers && `transformers ${row.transformers}`].filter(Boolean),
        ),
      ),
    ];
    return versions.length ? ` · ${versions.join(" · ")}` : "";
  }

  function block(title, rows, columns, empty) {
    const used = columns.filter(
      (column) => column.heading || rows.some((row) => ![null, undefined, "", 0].includes(column.key(row))),
    );
    const content = rows.length
      ? table.make(used, rows, {
          class: "numbers plain",
          page: 50,
          label: title,
          caption: title,
        }).element
      : el("p", { class: "note" }, empty ?? "None.");
    return el("section", null, el("h2", null, title), content);
  }
})();
