"use strict";
// One item and one model: the prompt as sent, the options with their scores, the output, the surprisal of tokens.
(() => {
  const { el, data, load, names, format, items, surprisal, views } = vernacular;

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
    if (at < 0) return vernacular.notFound(`Item “${route.parts[2] ?? ""}” not found in the results of ${index.models[model]} for ${setting.id}.`);
    const block = Math.floor(match.position / task.block);
    const details = await load(`e${number}/m${model}b${block}`);
    const detail = details.rows.find((row) => row[0] === match.position);
    const row = order[at];
    const around = [];
    for (const step of [-1, 1]) around.push(await idOf(number, task, order[at + step]));
    const address = (id, m = model) => names.address(["item", setting.id, index.models[m], id]);
    const element = el("section", { class: "item" },
      el("p", { class: "crumbs" }, el("a", { href: "#/leaderboard" }, "Leaderboard"), " › ", el("a", { href: names.address(["task", setting.id, index.models[model]]) }, data(setting.id)), " › ", el("a", { href: names.address(["items", setting.id, index.models[model]]) }, "Items of ", data(index.models[model]))),
      el("h1", null, "Item ", data(format.beginning(match.item[0], 80))),
      el("nav", { class: "around", "aria-label": "Other items, worst first" },
        around[0] === null ? null : el("a", { class: "button", rel: "prev", href: address(around[0]) }, "← worse"),
        el("span", null, `${at + 1} of ${order.length}`),
        around[1] === null ? null : el("a", { class: "button", rel: "next", href: address(around[1]) }, "better →")),
      el("p", { class: "verdict" }, items.badge(row.outcome), results.measure && row.measured !== null ? ` ${results.measure.replaceAll("_", " ")} ${results.measure === "margin" ? format.signed(row.measured, "") : format.value(row.measured, "")}` : "", match.item[1] ? [" · ", data(match.item[1])] : null, detail[3] ? [" · ", el("span", { class: "flag" }, "⚑ ", data(detail[3]))] : null),
      el("div", { class: "columns" },
        el("div", null, prompt(match, detail, details, await load(`e${number}/shots`), setting), generation(detail, row, setting)),
        el("div", null, options(match.item, detail, row, setting))),
      tokens(match.item, detail, setting),
      el("details", null, el("summary", null, "All per-item values"), el("dl", { class: "values" }, details.values.map((name, i) => (detail[2][i] === null ? null : el("div", null, el("dt", null, name.replaceAll("_", " ")), el("dd", null, format.value(detail[2][i], "")))))))
      , el("div", { class: "others" }));
    return { title: `${match.item[0]} · ${setting.id}`, section: "leaderboard", element, after: () => otherModels(index, task, number, match, model, address, element.querySelector(".others")) };
  });

  async function find(number, task, id) {
    for (let block = 0; block * task.block < task.items; block++) {
      const position = (await load(`e${number}/i${block}`)).findIndex((item) => item[0] === id);
      if (position >= 0) return { position: block * task.block + position, item: (await load(`e${number}/i${block}`))[position] };
    }
    return null;
  }

  async function idOf(number, task, row) {
    if (!row) return null;
    const block = Math.floor(row.position / task.block);
    return (await load(`e${number}/i${block}`))[row.position - block * task.block][0];
  }

  const sent = (text, setting, more) => el("div", { class: "sent", dir: "auto", lang: setting.language, tabindex: "0", ...more }, text);

  // As sent: the few-shot prefix, collapsed, then the item's text text; or both as rendered by a chat template.
  function prompt({ item }, detail, details, shots, setting) {
    const text = item[5] ?? item[2];
    const wrap = detail[7] === null || detail[7] === undefined ? null : details.wrappers[detail[7]];
    const count = (text) => format.counted(Array.from(text).length, "character");
    if (wrap && wrap[1] === null) return section("Prompt as sent, with chat template", sent(wrap[0], setting));
    if (wrap) {
      return section("Prompt as sent, with chat template",
        el("details", null, el("summary", null, `Before the item: template${setting.shots ? " and few-shot examples" : ""}, ${count(wrap[0])}`), sent(wrap[0], setting)),
        sent((item[7] ?? text).trim(), setting),
        wrap[1] ? el("details", null, el("summary", null, `After the item: ${count(wrap[1])}`), sent(wrap[1], setting)) : null);
    }
    const block = item[6] === null ? null : shots[item[6]];
    return section("Prompt as sent", block ? el("details", null, el("summary", null, `Few-shot prefix, ${count(block)}`), sent(block, setting)) : null, sent(text, setting));
  }

  const section = (title, ...content) => el("section", null, el("h2", null, title), content);

  function options(item, detail, row, setting) {
    if (!item[3].length) return null;
    const chosen = new Set(Array.isArray(row.chosen) ? row.chosen : []);
    const right = new Set(item[4]);
    const scores = detail[1] ?? [];
    const known = scores.filter((score) => score !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const similar = setting.protocol === "generation";
    const lines = item[3].map((text, i) => {
      const score = scores[i] ?? null;
      const part = score === null ? 0 : high > low ? 0.08 + 0.92 * ((score - low) / (high - low)) : 1;
      return el("tr", { class: right.has(i) ? "gold" : null },
        el("td", { class: "number" }, String(i + 1)),
        el("th", { scope: "row", lang: setting.language }, data(text)),
        el("td", null, right.has(i) ? el("span", { class: "badge correct" }, "✓ correct") : "", chosen.has(i) ? el("span", { class: "badge chosen" }, chosen.size > 1 ? "= tied" : "● selected") : ""),
        el("td", { class: "number score" }, format.value(score, ""), el("span", { class: "bar", "aria-hidden": "true", vars: { "--w": `${Math.round(100 * part)}%` } })));
    });
    return section(similar ? "Options with similarity to the output" : "Options with log-likelihood (nats)",
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Options" }, el("table", { class: "options" }, el("thead", null, el("tr", null, ["#", "Option", ""].map((text) => el("th", { scope: "col" }, text)), el("th", { scope: "col", class: "number" }, similar ? "similarity" : "ln p"))), el("tbody", null, lines))));
  }

  function generation(detail, row, setting) {
    const written = detail[5];
    if (!written) return null;
    const [answer, raw, reason, tokens] = written;
    return section("Generated output",
      sent(answer || "(empty)", setting, { class: answer ? "sent wrote" : "sent wrote empty" }),
      el("p", { class: "note" }, [format.counted(tokens, "token"), reason ? `ended by ${{ eos: "the end-of-text token", stop: "a stop string", length: "the length limit" }[reason] ?? reason}` : null].filter(Boolean).join(", ")),
      raw === null ? null : el("details", null, el("summary", null, "Complete output"), sent(raw, setting)));
  }

  function tokens(item, detail, setting) {
    if (!detail[6].length) return null;
    const spans = new Map(item[8]);
    const right = new Set(item[4]);
    const drawn = detail[6].map((entry) => {
      const [role] = entry;
      const choice = /:(\d+)$/.exec(role);
      const title = choice ? `Option ${Number(choice[1]) + 1}` : role.charAt(0).toUpperCase() + role.slice(1);
      return el("div", { class: "span" }, el("h3", null, title, choice && right.has(Number(choice[1])) ? el("span", { class: "badge correct" }, "✓ correct") : null), surprisal.draw(spans.get(role) ?? "", entry, setting.language));
    });
    return section("Surprisal of the scored text, nats", el("p", { class: "note" }, "One bar per token below its word; the number is the surprisal of the word. Hover over a bar to see the token."), el("div", { class: drawn.length > 1 ? "spans" : null }, drawn));
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
        lines.push(el("tr", null, el("th", { scope: "row" }, el("a", { href: address(match.item[0], m) }, data(index.models[m]))), el("td", null, items.badge(row.outcome)), el("td", null, data(items.answer(row.chosen, match.item))), el("td", { class: "number" }, format.value(row.measured, ""))));
      }
      container.replaceChildren(section("Other models on this item", el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Other models" }, el("table", null, el("thead", null, el("tr", null, ["Model", "Outcome", "Output"].map((text) => el("th", { scope: "col" }, text)), el("th", { scope: "col", class: "number" }, measure))), el("tbody", null, lines)))));
    };
    if (list.length <= 12) await draw();
    else container.append(el("button", { type: "button", onclick: draw }, `Show the ${list.length} other models on this item`));
  }
})();
