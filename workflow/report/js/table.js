"use strict";
// Tables by DataTables: it sorts and pages. Cells are DOM nodes, and the search is implemented here, because
// DataTables parses the text it searches as HTML.
/**
 * @typedef {object} Column
 * @property {any} title node or text
 * @property {string} [name] text of the title for CSV
 * @property {(row: any) => any} [key] number, text or null, by which rows are sorted
 * @property {(row: any) => any} cell node or text
 * @property {(row: any) => any[][]} [csv] [[name, value], …] instead of the key
 * @property {boolean} [heading] whether a cell is the heading of its row
 * @property {string} [class]
 * @property {"asc" | "desc" | string} [first] direction in which the first click sorts
 * @property {boolean} [sortable]
 * @property {(element: HTMLElement, row: any) => void} [style]
 */

const table = (() => {
  const { el } = vernacular;

  // Missing values are last in both sort directions.
  function ordered(sign) {
    return (a, b) => {
      if (a === null || b === null) return Number(a === null) - Number(b === null);
      return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
    };
  }
  DataTable.ext.type.order["measure-pre"] = (value) => (value === "" || value === undefined ? null : value);
  DataTable.ext.type.order["measure-asc"] = ordered(1);
  DataTable.ext.type.order["measure-desc"] = ordered(-1);
  DataTable.ext.errMode = "throw";

  // options: {caption, page: rows per page (0: all), order: [[column, "asc"]], class, top: cells of a row that stays
  // above all others, groups: [title, number of columns] of headings above those of the columns, file: name of the CSV file}
  /** @param {Column[]} columns */
  function make(columns, rows, options = {}) {
    const head = columns.map((column) => el("th", { scope: "col", class: column.class }, column.title));
    const table = el(
      "table",
      { class: options.class },
      el("caption", null, el("span", { class: "visually-hidden" }, options.caption)),
      el("thead", null, el("tr", null, head)),
    );
    const holder = widgets.scrolled(options.label ?? "table", table);
    const wrapper = el("div", { class: "tablebox" }, holder);
    const paged = Boolean(options.page) && rows.length > options.page;
    const grid = new DataTable(table, {
      data: rows,
      columns: columns.map((column) => ({
        data: null,
        type: "measure",
        searchable: false,
        orderable: column.sortable !== false,
        orderSequence: column.first === "desc" ? ["desc", "asc"] : ["asc", "desc"],
        className: column.class ?? "",
        cellType: column.heading ? "th" : "td",
        render: (row, use) => {
          if (use === "display") return node(column.cell(row));
          return column.key ? (column.key(row) ?? null) : null;
        },
        createdCell: (cell, _, row) => {
          if (column.heading) cell.setAttribute("scope", "row");
          // shown next to the value on phones
          else cell.dataset.label = column.title instanceof Node ? column.title.textContent : column.title;
          column.style?.(cell, row);
        },
      })),
      order: options.order ?? [],
      paging: paged || Boolean(options.growing),
      pageLength: options.page || 100,
      autoWidth: false,
      deferRender: true,
      layout: {
        topStart: null,
        topEnd: null,
        bottomStart: null,
        bottomEnd: null,
        bottom: paged || options.growing ? ["info", "paging"] : null,
      },
      language: {
        emptyTable: options.empty ?? "No rows.",
        zeroRecords: "No matching rows.",
        entries: { _: "rows", 1: "row" },
      },
    });
    if (wrapper.firstChild !== holder || !holder.contains(table)) throw new Error("the table is not in its container");
    // after DataTables has read the headings
    if (options.top) table.tHead.append(el("tr", { class: "top" }, options.top));
    if (options.groups) {
      const cells = options.groups.map(([title, colspan]) =>
        el("th", { colspan, scope: title ? "colgroup" : null }, title ? el("bdi", { class: "model" }, title) : null),
      );
      table.tHead.prepend(el("tr", { class: "groups" }, cells));
    }
    wrapper.append(
      download.buttons(options.file ?? options.label, {
        CSV: () => download.csv(exported(columns, grid.rows({ search: "applied", order: "applied" }).data().toArray())),
      }),
    );
    return { element: wrapper, grid };
  }

  // The column that heads the rows: a text by which they are sorted, and what is shown instead of it.
  /** @returns {Column} */
  const name = (title, key, shown = key) => ({
    title,
    heading: true,
    class: "name",
    key,
    cell: (row) => vernacular.data(shown(row)),
  });

  // A column of numbers, the largest first; `key`: the name of a field, or a function of the row.
  /** @param {string | ((row: any) => any)} key @param {(value: any, row: any) => any} show @returns {Column} */
  const number = (title, key, show = (value) => format.count(value), more = {}) => {
    const of = typeof key === "string" ? (row) => row[key] : key;
    return { title, class: "number", first: "desc", key: of, cell: (row) => show(of(row), row), ...more };
  };

  // The rows as arrays for CSV, below the names of the columns.
  function exported(columns, rows) {
    const cells = (row) =>
      columns.flatMap((column) =>
        column.csv ? column.csv(row) : [[nameOf(column), column.key ? column.key(row) : null]],
      );
    const names = rows.length ? cells(rows[0]).map(([name]) => name) : columns.map(nameOf);
    return [names, ...rows.map((row) => cells(row).map(([, value]) => value))];
  }

  const nameOf = (column) =>
    column.name ?? (column.title instanceof Node ? column.title.textContent : String(column.title ?? "")).trim();

  // A text field that filters `grid` by `textOf(row)`, ignoring case and diacritics; every word must occur.
  function finder(grid, textOf, properties) {
    const cache = new Map();
    const text = (row) => {
      if (!cache.has(row)) cache.set(row, format.folded(textOf(row)));
      return cache.get(row);
    };
    const input = el("input", {
      type: "search",
      autocomplete: "off",
      spellcheck: "false",
      dir: "auto",
      ...properties,
      oninput: () => {
        const words = format.folded(input.value).split(/\s+/u).filter(Boolean);
        grid.search.fixed("find", words.length ? (_, row) => words.every((word) => text(row).includes(word)) : null);
        grid.draw();
      },
    });
    return input;
  }

  // Paper does not scroll: a table that is wider than a page is printed as several, each with its first column, and
  // smaller by a third at most.
  const PAGE = 960; // pixels across a landscape page
  const SMALLEST = 0.67;

  // The table with its first column and those from `start` to `end`; headings above several columns keep what remains.
  function part(whole, start, end) {
    const copy = /** @type {HTMLTableElement} */ (whole.cloneNode(true));
    for (const row of copy.rows) {
      let at = 0;
      for (const cell of [...row.cells]) {
        const [from, to] = [at, at + cell.colSpan];
        at = to;
        const kept = Number(from === 0) + Math.max(0, Math.min(to, end) - Math.max(from, start, 1));
        if (kept) cell.colSpan = kept;
        else cell.remove();
      }
    }
    copy.classList.add("printed");
    return copy;
  }

  addEventListener("beforeprint", () => {
    for (const box of document.querySelectorAll(".scroll")) {
      const whole = box.querySelector("table");
      const cells = [...(whole?.tBodies[0]?.rows[0]?.cells ?? [])];
      if (!whole || cells.length < 3) continue;
      whole.style.width = "1px"; // as narrow as its texts permit
      const [own, ...widths] = cells.map((cell) => cell.offsetWidth);
      const zoom = Math.max(SMALLEST, PAGE / whole.offsetWidth);
      whole.style.width = "";
      if (zoom >= 1) continue;
      let [start, used] = [1, own];
      for (const [i, width] of widths.entries()) {
        if (used + width > PAGE / zoom + cells.length && i + 1 > start) {
          box.append(part(whole, start, i + 1));
          [start, used] = [i + 1, own];
        }
        used += width;
      }
      box.append(part(whole, start, widths.length + 1));
      for (const copy of box.querySelectorAll(".printed")) /** @type {HTMLElement} */ (copy).style.zoom = String(zoom);
      box.classList.add("divided");
    }
  });
  addEventListener("afterprint", () => {
    for (const copy of document.querySelectorAll(".printed")) copy.remove();
    for (const box of document.querySelectorAll(".divided")) box.classList.remove("divided");
  });

  function node(content) {
    if (content instanceof Node) return content;
    return document.createTextNode(content === null || content === undefined ? "" : String(content));
  }

  return { make, name, number, finder };
})();
