"use strict";
// One item and one model: the prompt as sent, the options with their scores, the output, the surprisal of tokens.
(() => {
  const { el, data, notFound, views } = vernacular;

  views.set("item", async (index, route) => {
    const number = index.evaluationNumber.get(route.parts[0]);
    const setting = index.evaluations[number];
    const model = index.modelNumber.get(route.parts[1]);
    if (!setting || model === undefined) return notFound("Item not found: unknown evaluation or model.");
    const task = await pieces.task(number);
    const results = await pieces.results(number, model);
    const order = items.worstFirst(results.rows);
    const position = await pieces.positionOf(number, task, route.parts[2]);
    const at = order.findIndex((row) => row.position === position);
    if (at < 0)
      return notFound(
        `Item “${route.parts[2] ?? ""}” not found in the results of ${index.models[model]} for ${setting.id}.`,
      );
    const item = await pieces.item(number, task, position);
    const details = await pieces.details(number, model, Math.floor(position / task.block));
    const detail = details.rows.find((row) => row.position === position);
    const row = order[at];
    const around = [];
    for (const step of [-1, 1]) {
      const next = order[at + step];
      around.push(next ? (await pieces.item(number, task, next.position)).id : null);
    }
    const address = (id, m = model) => names.address(["item", setting.id, index.models[m], id]);
    const element = el(
      "section",
      { class: "item" },
      widgets.crumbs(
        el("a", { href: "#/leaderboard" }, "Leaderboard"),
        el("a", { href: names.address(["task", setting.id, index.models[model]]) }, data(names.called(index, number))),
        el(
          "a",
          { href: names.address(["items", setting.id, index.models[model]]) },
          "Items of ",
          data(index.models[model]),
        ),
      ),
      widgets.itemHeading(item, setting),
      widgets.around("Other items, worst first", around, address, `${at + 1} of ${order.length}`, [
        "← worse",
        "better →",
      ]),
      outcome(index, item, detail, row, results, details),
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          null,
          parts.prompt(item, detail, details, await pieces.shots(number), setting, task),
          parts.generation(detail, setting),
        ),
        el("div", null, parts.options(item, detail, row, setting, task)),
      ),
      parts.tokens(item, detail, setting, task),
      allValues(index, detail, details),
      el("div", { class: "others" }),
    );
    return {
      title: `${item.id} · ${setting.id}`,
      section: "leaderboard",
      element,
      after: () => otherModels(index, task, number, item, position, model, address, element.querySelector(".others")),
    };
  });

  // The outcome with the measure by which items are sorted, the category, and what was flagged.
  /** @param {Item} item @param {Detail} detail @param {Results["rows"][number]} row @param {Results} results */
  function outcome(index, item, detail, row, results, details) {
    const isNoise = detail.values[details.values.indexOf("within_noise")] === 1;
    const show = results.measure === "margin" ? format.signed : format.value;
    return el(
      "p",
      { class: "verdict" },
      items.badge(row.outcome),
      results.measure && row.value !== null ? ` ${names.measure(index, results.measure)}: ${show(row.value, "")}` : "",
      item.category ? [" · ", data(names.category(item.category))] : null,
      isNoise ? " · ≈ float noise can change this choice" : null,
      detail.flags ? [" · ", el("span", { class: "flag" }, "⚑ ", data(detail.flags))] : null,
    );
  }

  /** @param {Detail} detail @param {Details} details */
  function allValues(index, detail, details) {
    const line = (name, i) =>
      el("div", null, el("dt", null, names.measure(index, name)), el("dd", null, format.value(detail.values[i], "")));
    const lines = details.values.map((name, i) => (detail.values[i] === null ? null : line(name, i)));
    return el("details", null, el("summary", null, "All per-item values"), el("dl", { class: "values" }, lines));
  }

  // Results of the other models; a long list is loaded on demand.
  /** @param {Index} index @param {Task} task @param {Item} item */
  async function otherModels(index, task, number, item, position, model, address, container) {
    const list = task.models.filter((m) => m !== model);
    if (!list.length) return;
    const draw = async () => {
      const lines = [];
      let [measure, heading] = ["", "Outcome"];
      for (const m of list) {
        const piece = await pieces.results(number, m);
        measure = names.measure(index, piece.measure);
        const row = piece.rows.find((row) => row.position === position);
        if (!row) continue;
        heading = items.outcomeTitle([row]);
        lines.push(
          el(
            "tr",
            null,
            el("th", { scope: "row" }, el("a", { href: address(item.id, m) }, data(index.models[m]))),
            el("td", null, items.badge(row.outcome)),
            el("td", null, data(items.answer(row.prediction, item, task.letters))),
            el("td", { class: "number" }, (piece.measure === "margin" ? format.signed : format.value)(row.value, "")),
          ),
        );
      }
      container.replaceChildren(
        el(
          "section",
          null,
          el("h2", null, "Other models on this item"),
          widgets.scrolled(
            "Other models",
            el(
              "table",
              { class: "others" },
              el(
                "thead",
                null,
                el(
                  "tr",
                  null,
                  ["Model", heading, "Output"].map((text) => el("th", { scope: "col" }, text)),
                  el("th", { scope: "col", class: "number" }, measure),
                ),
              ),
              el("tbody", null, lines),
            ),
          ),
        ),
      );
    };
    if (list.length <= 12) await draw();
    else
      container.append(
        el("button", { type: "button", onclick: draw }, `Show the ${list.length} other models on this item`),
      );
  }
})();
