"use strict";
// The items of one evaluation with one model's outcomes, worst first; data files are loaded one after another.
const items = (() => {
  const { el, data, notFound, views } = vernacular;
  const SHOWN = { "": "all", incorrect: "incorrect", correct: "correct", tie: "tie", flagged: "flagged" };

  // Option i as text; in front of it, its letter if the model chose between letters.
  /** @param {Item} item */
  function option(item, i, letters) {
    const text = item.options[i] ?? `option ${i + 1}`;
    return letters ? `${letter(i)} · ${text}` : text;
  }
  const letter = (i) => String.fromCharCode(65 + i);

  // A model's selected options or generated text, as text.
  /** @param {Item} item */
  function answer(chosen, item, letters) {
    if (!Array.isArray(chosen)) return chosen;
    return chosen.map((i) => option(item, i, letters)).join(" = ");
  }

  const gold = (item, letters) => item.gold.map((i) => option(item, i, letters)).join(" / ");

  // "B" as "B · text of that option"; a tie is "A | B".
  /** @param {Item} item */
  function withTexts(prediction, item) {
    return prediction
      ?.split(" | ")
      .map((name) =>
        /^[A-Z]$/u.test(name) && item.options[name.charCodeAt(0) - 65] !== undefined
          ? option(item, name.charCodeAt(0) - 65, true)
          : name,
      )
      .join(" = ");
  }

  // What an item is called in lists: its prompt; if it has none, its two texts with what differs in brackets (minimal
  // pairs), its correct text, or its ID.
  /** @param {Item} item */
  function label(item) {
    const pair = item.options.length === 2 ? contrast(item.options) : "";
    return [item.prompt, pair, gold(item, false), item.options[0], item.id].find((text) => text?.trim());
  }

  // The number of words at the beginning and at the end that all texts share; words include the space before them.
  const split = (text) => text.match(/\s*\S+/gu) ?? [];
  function shared(texts) {
    const all = texts.map(split);
    const fewest = Math.min(...all.map((words) => words.length));
    const common = (limit, at) => {
      let n = 0;
      while (n < limit && all.every((words) => words.at(at(n)).trim() === all[0].at(at(n)).trim())) n += 1;
      return n;
    };
    const before = common(fewest, (n) => n);
    return { before, after: common(fewest - before, (n) => -1 - n) };
  }

  // A function of a prompt: what is its own, without the lines and the first and last words that all prompts share.
  const LEAST = 8; // characters of shared words from which on they are omitted
  function ownPart(prompts) {
    const counts = new Map(); // line -> number of prompts that have it
    for (const prompt of prompts)
      for (const line of new Set(prompt.split("\n"))) counts.set(line, (counts.get(line) ?? 0) + 1);
    const rest = (prompt) =>
      prompt
        .split("\n")
        .filter((line) => counts.get(line) !== prompts.length)
        .join("\n");
    const { before, after } = shared(prompts.map(rest));
    const first = split(rest(prompts[0]));
    const omitted = (part) => (part.join("").length < LEAST ? 0 : part.length);
    const start = omitted(first.slice(0, before));
    const end = omitted(first.slice(first.length - after));
    return (prompt) => {
      const words = split(rest(prompt));
      const own = words
        .slice(start, words.length - end)
        .join("")
        .trim();
      return own ? `${start ? "… " : ""}${own}${end ? " …" : ""}` : prompt;
    };
  }

  // [[text, whether it differs], …] of each of some texts: the words between those that all share.
  function differing(texts) {
    const { before, after } = shared(texts);
    return texts.map((text) => {
      const words = split(text);
      const end = words.length - after;
      const [common, own, rest] = [words.slice(0, before), words.slice(before, end), words.slice(end)].map((part) =>
        part.join(""),
      );
      const parts = [common + own.slice(0, own.length - own.trimStart().length), own.trimStart(), rest];
      return parts.map((part, i) => /** @type {[string, boolean]} */ ([part, i === 1])).filter(([part]) => part);
    });
  }

  // Two texts as one: "The keys [are | is] here."
  function contrast(texts) {
    const { before, after } = shared(texts);
    if (!before && !after) return "";
    const words = texts.map(split);
    const inside = words.map((each) =>
      each
        .slice(before, each.length - after)
        .join("")
        .trim(),
    );
    const rest = after ? words[0].slice(-after).join("") : "";
    return `${words[0].slice(0, before).join("")} [${inside.join(" | ")}]${rest}`;
  }

  function badge(outcome) {
    const name = format.OUTCOMES[outcome];
    const sign = { incorrect: "✗", correct: "✓", tie: "=" }[name] ?? "·";
    return el(
      "span",
      { class: `badge ${name.replaceAll(" ", "-")}` },
      el("span", { "aria-hidden": "true" }, `${sign} `),
      name,
    );
  }

  // Worst first: by severity, missing values last; also the order of the links "worse" and "better".
  function worstFirst(rows) {
    return [...rows].sort(
      (a, b) =>
        Number(a.severity === null) - Number(b.severity === null) || b.severity - a.severity || a.position - b.position,
    );
  }

  views.set("items", async (index, route) => {
    const number = index.evaluationNumber.get(route.parts[0]);
    const setting = index.evaluations[number];
    const model = index.modelNumber.get(route.parts[1]);
    if (!setting || model === undefined) return notFound(`Items of “${route.parts.join("”, model “")}” not found.`);
    const task = await pieces.task(number);
    if (!task.models.includes(model))
      return notFound(
        `${index.models[model]} has no outputs for ${setting.id}; the provenance view states the reason.`,
      );
    const results = await pieces.results(number, model);
    // `item` is set when the data file of its block has been loaded
    const rows = worstFirst(results.rows.map((row) => ({ ...row, item: null })));
    const state = { own: (prompt) => prompt };
    const built = list(index, task, setting, model, results, state);
    const progress = el("p", { class: "progress", role: "status" });
    const element = el(
      "section",
      null,
      widgets.crumbs(
        el("a", { href: "#/leaderboard" }, "Leaderboard"),
        el("a", { href: names.address(["task", setting.id, index.models[model]]) }, data(names.called(index, number))),
      ),
      widgets.heading(index, setting, { view: "Items" }),
      el(
        "p",
        { class: "note" },
        "Worst first. / searches; in an item, ← and → (or j and k) open the previous and the next one.",
      ),
      filters(index, task, setting, model, built, route),
      progress,
      built.element,
    );
    return {
      title: `Items of ${setting.id}`,
      section: "leaderboard",
      element,
      after: () => fill(number, task, rows, built.grid, progress, state),
    };
  });

  // A sentence that is judged acceptable or not has its label; no model's outcome is known for it alone.
  const outcomeTitle = (rows) =>
    rows.some((row) => ["acceptable", "unacceptable"].includes(format.OUTCOMES[row.outcome]))
      ? "Gold label"
      : "Outcome";

  /** @param {Index} index @param {Task} task @param {Evaluation} setting @param {Results} results */
  function list(index, task, setting, model, results, state) {
    const measure = names.measure(index, results.measure);
    // without the words that all prompts share, which would fill the list
    const called = (item) => (item.prompt?.trim() ? state.own(item.prompt) : label(item));
    const address = (r) => names.address(["item", setting.id, index.models[model], r.item.id]);
    const columns = [
      {
        title: outcomeTitle(results.rows),
        class: "outcome",
        key: (r) => format.OUTCOMES[r.outcome],
        cell: (r) =>
          el("span", null, badge(r.outcome), r.flagged ? el("span", { class: "flag", title: "flagged" }, " ⚑") : null),
      },
      {
        title: "Item",
        heading: true,
        class: "prompt",
        key: (r) => label(r.item),
        csv: (r) => [
          ["item", r.item.id],
          ["prompt", r.item.prompt],
        ],
        cell: (r) =>
          el("a", { href: address(r), dir: "auto", lang: setting.language }, format.beginning(called(r.item), 220)),
      },
      {
        title: "Correct",
        class: "answer",
        key: (r) => gold(r.item, task.letters),
        cell: (r) => data(format.beginning(gold(r.item, task.letters), 120), { lang: setting.language }),
      },
      {
        title: "Output",
        class: "answer",
        key: (r) => answer(r.prediction, r.item, task.letters),
        cell: (r) =>
          data(format.beginning(answer(r.prediction, r.item, task.letters), 120), { lang: setting.language }),
      },
      {
        title: measure || "Measure",
        class: "number",
        first: results.higher ? "asc" : "desc",
        key: (r) => r.value,
        cell: (r) => format.value(r.value, ""),
      },
      {
        title: "Category",
        class: "category",
        key: (r) => r.item.category,
        cell: (r) => data(names.category(r.item.category)),
      },
    ].filter(
      (column) =>
        (column.class !== "category" || task.categories.names.length) &&
        (column.class !== "number" || results.measure) &&
        (column.class !== "answer" || results.rows.some((r) => r.prediction.length)),
    );
    return table.make(columns, [], {
      class: "items",
      page: 50,
      growing: true,
      label: "Items",
      file: `${setting.id} ${index.models[model]} items`,
      caption: "Items, worst first",
      empty: "Loading items…",
    });
  }

  /** @param {Index} index @param {Task} task @param {Evaluation} setting @param {Route} route */
  function filters(index, task, setting, model, built, route) {
    const text = (r) =>
      `${r.item.id} ${r.item.category} ${r.item.prompt} ${r.item.options.join(" ")} ` +
      `${answer(r.prediction, r.item, task.letters)}`;
    const find = table.finder(built.grid, text, {
      id: "find",
      value: route.query.get("find") ?? "",
      placeholder: "words of prompt, options or output",
    });
    const state = { show: route.query.get("show") ?? "", find: find.value };
    const keep = () => history.replaceState(null, "", names.address(["items", setting.id, index.models[model]], state));
    const sift = () => {
      built.grid.search.fixed(
        "show",
        state.show
          ? (_, r) => (state.show === "flagged" ? Boolean(r.flagged) : format.OUTCOMES[r.outcome] === state.show)
          : null,
      );
      built.grid.draw();
    };
    find.addEventListener("input", () => {
      state.find = find.value;
      keep();
    });
    const models = task.models.map((m) => [m, index.models[m]]);
    const element = widgets.controls(
      widgets.select("model", "Model", models, model, (m) => {
        location.hash = names.address(["items", setting.id, index.models[m]], state);
      }),
      widgets.select("show", "Show", Object.entries(SHOWN), state.show, (show) => {
        state.show = show;
        keep();
        sift();
      }),
      el("label", { for: "find" }, "Find", find),
    );
    if (state.show) sift();
    if (state.find) find.dispatchEvent(new Event("input"));
    return element;
  }

  // Items are loaded block by block; after row, the table shows all loaded items, worst first.
  /** @param {Task} task */
  async function fill(number, task, rows, grid, progress, state) {
    const blocks = new Map();
    for (const row of rows) {
      const block = Math.floor(row.position / task.block);
      if (!blocks.has(block)) blocks.set(block, []);
      blocks.get(block).push(row);
    }
    let loaded = [];
    let done = 0;
    let next = 1; // draw after 1, 2, 4, 8, … blocks: early, and without a thousand redraws for a large dataset
    for (const [block, members] of [...blocks].sort(([a], [b]) => a - b)) {
      const items = await pieces.items(number, block);
      for (const row of members) row.item = items[row.position - block * task.block];
      loaded.push(...members);
      done += 1;
      if (!grid.table().node().isConnected) return; // another view has been opened
      const all = done === blocks.size;
      progress.textContent = all
        ? `${format.counted(rows.length, "item")}, worst first`
        : `${format.count(loaded.length)} of ${format.counted(rows.length, "item")} loaded …`;
      if (done < next && !all) continue;
      next = 2 * done;
      loaded = worstFirst(loaded);
      const prompts = [...new Set(loaded.map((row) => row.item.prompt ?? ""))];
      if (prompts.length > 1) state.own = ownPart(prompts);
      grid.clear().rows.add(loaded).draw(false);
    }
  }

  return { outcomeTitle, option, letter, answer, gold, withTexts, label, differing, badge, worstFirst };
})();
