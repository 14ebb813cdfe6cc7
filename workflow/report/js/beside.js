"use strict";
// What stands beside the values of this run: which metrics decide between its models, and values that others have
// published without results per item, which nothing ranks.
const beside = (() => {
  const { el, data } = vernacular;

  const section = (title, about, columns, rows, label) =>
    el(
      "details",
      { class: "beside" },
      el("summary", null, title),
      el("p", { class: "note" }, about),
      table.make(columns, rows, { class: "numbers plain", page: 20, label, file: label, caption: label, order: [] })
        .element,
    );
  const column = (title, key, cell) => ({ title, key, cell: cell ?? ((row) => data(key(row) ?? format.NONE)) });
  const number = (title, name, show) => ({
    title,
    first: "desc",
    key: (row) => row[name],
    cell: (row) => (row[name] === null ? format.NONE : show(row[name], row)),
  });

  /** @param {Index} index */
  async function deciding(index) {
    const all = index.beside ? (await pieces.beside()).deciding : [];
    const rows = all.filter((row) => row.decision_accuracy !== null);
    const evaluations = (some) => new Set(some.map((row) => row.evaluation)).size;
    if (!all.length) return null;
    if (!rows.length)
      return el(
        "p",
        { class: "note" },
        `Which metric decides is unknown in ${format.counted(evaluations(all), "evaluation")}: ` +
          "deciding_models.csv states why.",
      );
    const share = (value) => `${Math.round(100 * value)} %`;
    const columns = [
      column("Evaluation", (row) => index.names[row.evaluation]),
      column("Metric", (row) => row.title),
      column(
        "Look at",
        (row) => Number(row.is_chosen),
        (row) => (row.is_chosen ? "●" : ""),
      ),
      number("Decision accuracy", "decision_accuracy", share),
      number("On others", "held_out_accuracy", share),
      number("Below", "better_below", (value, row) => `${format.count(value)} ${curveRows.AXES[row.axis]}`),
      number("Signal", "signal", (value) => value.toFixed(3)),
      number("Noise", "noise", (value) => value.toFixed(3)),
      number("Of", "n_curves", (value, row) => format.counted(value, row.axis === "item" ? "model" : "series")),
      number("Common", "n_common", (value, row) => format.counted(value, row.axis === "item" ? "item" : "checkpoint")),
      column("Note", (row) => row.note),
    ];
    const chosen = rows.filter((row) => row.is_chosen);
    const ordered = [...chosen, ...rows.filter((row) => !row.is_chosen)];
    const about =
      "Decision accuracy: share of pairs of series that are in their final order at an earlier checkpoint, or of models " +
      "whose order on half of the items is that on the other half; 50 % is chance. On others: of a metric that was " +
      "chosen on half of the series or models, on the other half.";
    const title = `Which metric decides: one in ${evaluations(chosen)} of ${format.counted(evaluations(all), "evaluation")}`;
    return section(title, about, columns, ordered, "deciding metrics");
  }

  // All values of others, or those of the same items as an evaluation.
  /** @param {Index} index */
  async function unpaired(index, evaluation = null) {
    const all = index.beside ? (await pieces.beside()).unpaired : [];
    const rows = all.filter((row) => evaluation === null || row.evaluation === evaluation);
    if (!rows.length) return null;
    const interval = (show, low, high) => (low === null ? null : `${show(low)} – ${show(high)}`);
    const value = (row) => (each) => format.value(each, row.unit);
    const signed = (row) => (each) => format.signed(each, row.unit);
    const columns = [
      column("Origin", (row) => [row.tool, row.version].filter(Boolean).join(" ")),
      column("Model", (row) => row.outside_model),
      column("Task", (row) => row.outside_task),
      column("Metric", (row) => row.title),
      number("Value", "outside_value", (each, row) =>
        widgets.valued(value(row)(each), interval(value(row), row.outside_low, row.outside_high)),
      ),
      number("n", "outside_n", format.count),
      column("Items", (row) => row.items),
      column("Model here", (row) => row.model),
      number("Value here", "value", (each, row) => value(row)(each)),
      number("Difference", "difference", (each, row) =>
        widgets.valued(signed(row)(each), interval(signed(row), row.difference_low, row.difference_high)),
      ),
      number("p", "p_value", format.probability),
      column("Note", (row) => row.note),
    ];
    const about =
      "Unpaired: values over items without results for each, in no ranking. Only those of the same items have a " +
      "difference, as two independent values; its p is uncorrected.";
    return section(`Values of others, unpaired: ${rows.length}`, about, columns, rows, "unpaired values");
  }

  return { deciding, unpaired };
})();
