"use strict";
// One item and one model: the prompt as sent, the options with their scores, the output, the surprisal of tokens.
(() => {
  const { el, data, load, names, format, items, parts, views } = vernacular;

  views.set("item", async (index, route) => {
    const number = index.evaluationNumber.get(route.parts[0]);
    const setting = index.evaluations[number];
    const model = index.modelNumber.get(route.parts[1]);
    if (!setting || model === undefined) return vernacular.notFound("Item not found: unknown evaluation or model.");
    const task = await load(`e${number}/task`);
    const results = await load(`e${number}/m${model}`);
    const order = items.worstFirst(results.rows.map(items.row));
    const match = await find(number, task, route.parts[2]);
    const at = match ? order.findIndex((row) => row.position === match.position) : -1;
    if (at < 0)
      return vernacular.notFound(
        `Item “${route.parts[2] ?? ""}” not found in the results of ${index.models[model]} for ${setting.id}.`,
      );
    const block = Math.floor(match.position / task.block);
    const details = await load(`e${number}/m${model}b${block}`);
    const detail = details.rows.find((row) => row[0] === match.position);
    const row = order[at];
    const around = [];
    for (const step of [-1, 1]) around.push(await idOf(number, task, order[at + step]));
    const address = (id, m = model) => names.address(["item", setting.id, index.models[m], id]);
    const measured =
      results.measure && row.measured !== null
        ? ` ${results.measure.replaceAll("_", " ")} ${results.measure === "margin" ? format.signed(row.measured, "") : format.value(row.measured, "")}`
        : "";
    const element = el(
      "section",
      { class: "item" },
      el(
        "p",
        { class: "crumbs" },
        el("a", { href: "#/leaderboard" }, "Leaderboard"),
        " › ",
        el("a", { href: names.address(["task", setting.id, index.models[model]]) }, data(setting.id)),
        " › ",
        el(
          "a",
          { href: names.address(["items", setting.id, index.models[model]]) },
          "Items of ",
          data(index.models[model]),
        ),
      ),
      el(
        "h1",
        { class: "excerpt" },
        data(format.beginning(items.label(match.item).trim().split("\n")[0], 90), { lang: setting.language }),
        el("small", null, " item ", data(format.beginning(match.item[0], 40))),
      ),
      el(
        "nav",
        { class: "around", "aria-label": "Other items, worst first" },
        around[0] === null
          ? null
          : el(
              "a",
              { class: "button", rel: "prev", href: address(around[0]), "aria-keyshortcuts": "ArrowLeft k" },
              "← worse",
            ),
        el("span", null, `${at + 1} of ${order.length}`),
        around[1] === null
          ? null
          : el(
              "a",
              { class: "button", rel: "next", href: address(around[1]), "aria-keyshortcuts": "ArrowRight j" },
              "better →",
            ),
      ),
      el(
        "p",
        { class: "verdict" },
        items.badge(row.outcome),
        measured,
        match.item[1] ? [" · ", data(match.item[1])] : null,
        detail[3] ? [" · ", el("span", { class: "flag" }, "⚑ ", data(detail[3]))] : null,
      ),
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          null,
          parts.prompt(match.item, detail, details, await load(`e${number}/shots`), setting, task),
          parts.generation(detail, setting),
        ),
        el("div", null, parts.options(match.item, detail, row, setting, task)),
      ),
      parts.tokens(match.item, detail, setting, task),
      el(
        "details",
        null,
        el("summary", null, "All per-item values"),
        el(
          "dl",
          { class: "values" },
          details.values.map((name, i) =>
            detail[2][i] === null
              ? null
              : el(
                  "div",
                  null,
                  el("dt", null, name.replaceAll("_", " ")),
                  el("dd", null, format.value(detail[2][i], "")),
                ),
          ),
        ),
      ),
      el("div", { class: "others" }),
    );
    return {
      title: `${match.item[0]} · ${setting.id}`,
      section: "leaderboard",
      element,
      after: () => otherModels(index, task, number, match, model, address, element.querySelector(".others")),
    };
  });

  async function find(number, task, id) {
    for (let block = 0; block * task.block < task.items; block++) {
      const position = (await load(`e${number}/i${block}`)).findIndex((item) => item[0] === id);
      if (position >= 0)
        return { position: block * task.block + position, item: (await load(`e${number}/i${block}`))[position] };
    }
    return null;
  }

  async function idOf(number, task, row) {
    if (!row) return null;
    const block = Math.floor(row.position / task.block);
    return (await load(`e${number}/i${block}`))[row.position - block * task.block][0];
  }

  // Results of the other models; a long list is loaded on demand.
  async function otherModels(index, task, number, match, model, address, container) {
    const list = task.models.filter((m) => m !== model);
    if (!list.length) return;
    const draw = async () => {
      const lines = [];
      let measure = "";
      for (const m of list) {
        const piece = await load(`e${number}/m${m}`);
        measure = (piece.measure ?? "").replaceAll("_", " ");
        const raw = piece.rows.find((row) => row[0] === match.position);
        if (!raw) continue;
        const row = items.row(raw);
        lines.push(
          el(
            "tr",
            null,
            el("th", { scope: "row" }, el("a", { href: address(match.item[0], m) }, data(index.models[m]))),
            el("td", null, items.badge(row.outcome)),
            el("td", null, data(items.answer(row.chosen, match.item, task.letters))),
            el("td", { class: "number" }, format.value(row.measured, "")),
          ),
        );
      }
      container.replaceChildren(
        el(
          "section",
          null,
          el("h2", null, "Other models on this item"),
          el(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": "Other models" },
            el(
              "table",
              null,
              el(
                "thead",
                null,
                el(
                  "tr",
                  null,
                  ["Model", "Outcome", "Output"].map((text) => el("th", { scope: "col" }, text)),
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
