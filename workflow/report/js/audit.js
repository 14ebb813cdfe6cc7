"use strict";
// Items to read: the lists of an audit, and one item of a list at a time, with keys for the decisions. Decisions stay in
// this browser; the sheet that is downloaded is what `verdicts:` of the config reads.
(() => {
  const { el, data, notFound, views } = vernacular;
  const DECISIONS = [
    "ok",
    "wrong gold",
    "several correct",
    "none correct",
    "unclear question",
    "unclear options",
    "translation",
  ];
  const memory = new Map(); // where a browser stores nothing for pages on a disk

  function stored(key) {
    try {
      return localStorage.getItem(key) ?? memory.get(key) ?? null;
    } catch {
      return memory.get(key) ?? null;
    }
  }

  function store(key, value) {
    memory.set(key, value);
    try {
      localStorage.setItem(key, value);
    } catch {} // private windows: kept until the page is closed
  }

  // A decision is on one version of an item, whatever the list.
  const keyOf = (row) => `vernacular ${JSON.stringify([row.task, row.language, row.item_id, row.content])}`;
  const decisionOf = (row) => JSON.parse(stored(keyOf(row)) ?? "null");

  function decide(row, decision) {
    const annotator = stored("vernacular annotator") ?? "";
    store(keyOf(row), JSON.stringify({ decision, annotator, date: new Date().toISOString().slice(0, 10) }));
  }

  views.set("audit", async (index, route) => {
    const lists = await pieces.auditLists();
    const [name, number] = route.parts;
    if (name === undefined) return { title: "Items to read", element: overview(index, lists) };
    const at = lists.findIndex((each) => each.evaluation === name);
    if (at < 0 || !lists[at].listed) return notFound(`List “${name}” not found.`);
    const rows = await pieces.itemsToRead(at);
    const ordered = route.query.get("by") === "drop" ? byDrop(rows) : rows;
    const title = `Items to read: ${name}`;
    if (number === undefined) return { title, element: list(index, lists[at], ordered, route) };
    const position = Number(number) - 1;
    if (!ordered[position]) return notFound(`Item ${number} of ${ordered.length} not found.`);
    return { title, element: reading(index, lists[at], ordered, position, route) };
  });

  const byDrop = (rows) => rows.filter((row) => row.drop_rank !== null).sort((a, b) => a.drop_rank - b.drop_rank);
  const percent = (value) => (value === null ? format.NONE : `${format.value(value, "share")} %`);
  const called = (index, name) => names.called(index, index.evaluationNumber.get(name)) ?? name;

  /** @param {Index} index */
  function overview(index, lists) {
    const columns = [
      {
        title: "Evaluation",
        heading: true,
        class: "name",
        key: (row) => row.evaluation,
        cell: (row) =>
          row.listed
            ? el("a", { href: names.address(["audit", row.evaluation]) }, data(called(index, row.evaluation)))
            : data(called(index, row.evaluation)),
      },
      table.number("Items", "items"),
      table.number("Listed", "listed"),
      table.number("Families", "families"),
      table.number("Models", "models"),
      table.number("Reach at most", "reach_any", percent),
      {
        title: "No list, because",
        key: (row) => row.reason,
        cell: (row) => (row.reason ? [row.reason, ...row.sentences].join(" ") : ""),
      },
    ];
    return el(
      "section",
      null,
      el("h1", null, "Items to read"),
      el(
        "p",
        { class: "lead" },
        "Items that a speaker should read first, by what all models make of their options. Reach: the share of all " +
          "wrong golds that a list would contain at most.",
      ),
      table.make(columns, lists, {
        class: "plain",
        label: "Lists",
        file: "audit_lists",
        caption: "Audit lists",
        order: [],
      }).element,
    );
  }

  const about = (listing) =>
    el(
      "ul",
      { class: "verdicts" },
      listing.sentences.map((text) => el("li", null, data(text))),
    );

  /** @param {Index} index @param {Route} route */
  function list(index, listing, rows, route) {
    const query = { by: route.query.get("by") };
    const columns = [
      { title: "No.", class: "number", key: (row) => rows.indexOf(row), cell: (row) => String(rows.indexOf(row) + 1) },
      {
        title: "Item",
        heading: true,
        class: "prompt",
        key: (row) => row.prompt,
        cell: (row) =>
          el(
            "a",
            { href: names.address(["audit", listing.evaluation, rows.indexOf(row) + 1], query) },
            data(format.beginning(row.prompt || row.choices.join(" / "), 160), { lang: row.language }),
          ),
      },
      { title: "Why", key: (row) => row.score, first: "desc", cell: (row) => data(row.reason) },
      { title: "Checks", key: (row) => row.checks || null, cell: (row) => data(row.checks) },
      {
        title: "Decision",
        key: (row) => decisionOf(row)?.decision ?? null,
        cell: (row) => decisionOf(row)?.decision ?? format.NONE,
      },
    ];
    const drops = rows.some((row) => row.drop_rank !== null);
    const other = query.by
      ? el("a", { href: names.address(["audit", listing.evaluation]) }, "by score")
      : el(
          "a",
          { href: names.address(["audit", listing.evaluation], { by: "drop" }) },
          "by drop against other languages",
        );
    return el(
      "section",
      { class: "items" },
      widgets.crumbs(el("a", { href: "#/audit" }, "Items to read")),
      el("h1", null, "Items to read ", el("small", null, data(called(index, listing.evaluation)))),
      about(listing),
      drops ? el("p", null, "Order ", other, ".") : null,
      el(
        "p",
        null,
        el("a", { class: "button", href: names.address(["audit", listing.evaluation, 1], query) }, "Read item by item"),
        " ",
        sheet(listing, rows),
      ),
      table.make(columns, rows, {
        class: "items",
        label: "Items",
        file: `audit ${listing.evaluation}`,
        caption: "Items",
        order: [],
      }).element,
    );
  }

  // The sheet of decisions, in the columns that `verdicts:` reads.
  function sheet(listing, rows) {
    const content = () => {
      const decided = rows.map((row) => ({ row, found: decisionOf(row) })).filter(({ found }) => found !== null);
      return download.csv([
        ["task", "language", "item_id", "content", "decision", "annotator", "date"],
        ...decided.map(({ row, found }) => [
          row.task,
          row.language,
          row.item_id,
          row.content,
          found.decision,
          stored("vernacular annotator") || found.annotator,
          found.date,
        ]),
      ]);
    };
    return el(
      "span",
      null,
      "Decisions for verdicts: ",
      download.buttons(`verdicts ${listing.evaluation}`, { CSV: content }),
    );
  }

  /** @param {Index} index @param {Route} route */
  function reading(index, listing, rows, position, route) {
    const row = rows[position];
    const query = { by: route.query.get("by") };
    const address = (at) => names.address(["audit", listing.evaluation, at], query);
    const ids = [position > 0 ? String(position) : null, position + 1 < rows.length ? String(position + 2) : null];
    const gold = new Set(row.gold);
    const options = row.choices.map((text, i) =>
      el(
        "tr",
        { class: gold.has(i) ? "gold" : null },
        el("td", { class: "number" }, items.letter(i)),
        el("th", { scope: "row" }, data(text, { lang: row.language })),
        el(
          "td",
          null,
          gold.has(i) ? el("span", { class: "badge correct" }, "gold") : null,
          text === row.favorite && !gold.has(i) ? el("span", { class: "badge chosen" }, "models' favorite") : null,
        ),
      ),
    );
    return el(
      "section",
      { class: "item audit" },
      widgets.crumbs(
        el("a", { href: "#/audit" }, "Items to read"),
        el("a", { href: names.address(["audit", listing.evaluation], query) }, data(called(index, listing.evaluation))),
      ),
      el("h1", null, `Item ${position + 1} of ${rows.length} `, el("small", null, data(row.item_id))),
      widgets.around("Items", ids, address, `${decided(rows)} decided`, ["← previous", "next →"]),
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          null,
          el("h2", null, names.language(row.language)),
          row.prompt ? el("div", { class: "sent", dir: "auto", lang: row.language, tabindex: "0" }, row.prompt) : null,
          el("div", { class: "tablebox" }, el("table", { class: "options" }, el("tbody", null, options))),
        ),
        row.reference
          ? el(
              "div",
              null,
              el("h2", null, names.language(row.reference_language)),
              el("div", { class: "sent", dir: "auto", lang: row.reference_language, tabindex: "0" }, row.reference),
            )
          : null,
      ),
      el("p", null, data(row.reason), ". ", row.checks ? [el("strong", null, "Checks: "), data(row.checks)] : null),
      decisions(row, ids[1] === null ? null : address(ids[1])),
      el("details", null, el("summary", null, "What the list shows, and what it does not"), about(listing)),
      sheet(listing, rows),
    );
  }

  const decided = (rows) => rows.filter((row) => decisionOf(row) !== null).length;

  // Buttons with the keys 1 to 7; a decision opens the next item.
  function decisions(row, next) {
    const current = decisionOf(row)?.decision;
    const button = (decision, i) =>
      el(
        "button",
        {
          type: "button",
          "data-key": String(i + 1),
          "aria-keyshortcuts": String(i + 1),
          "aria-pressed": String(decision === current),
          onclick: () => {
            decide(row, decision);
            if (next) location.hash = next;
            else dispatchEvent(new HashChangeEvent("hashchange"));
          },
        },
        el("kbd", null, String(i + 1)),
        ` ${decision}`,
      );
    const annotator = el("input", {
      id: "annotator",
      value: stored("vernacular annotator") ?? "",
      autocomplete: "name",
      maxlength: "100",
      onchange: (event) => store("vernacular annotator", event.target.value.trim()),
    });
    return el(
      "div",
      { class: "decisions", role: "group", "aria-label": "Decision" },
      DECISIONS.map(button),
      widgets.controls(el("label", { for: "annotator" }, "Annotator", annotator)),
      el("p", { class: "note" }, "Keys: 1 to 7 decide and open the next item, ← or k and → or j move."),
    );
  }
})();
