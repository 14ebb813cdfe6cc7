"use strict";
// Downloads made in the browser: a table or a plot's data as CSV, a plot as SVG or PNG. Nothing leaves the page.
const download = (() => {
  const { el } = vernacular;

  // Text that a spreadsheet would run as a formula is preceded by an apostrophe; numbers are unchanged.
  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/u.test(String(value)) ? `'${value}` : String(value);
    return /[",\n\r]/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // rows: arrays, the first with the names of the columns
  function csv(rows) {
    return rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
  }

  // Rows of objects as arrays: the columns are all keys, in order of first use.
  function ofObjects(objects) {
    const keys = [...new Set(objects.flatMap((row) => Object.keys(row)))];
    return [keys, ...objects.map((row) => keys.map((key) => row[key]))];
  }

  function fileName(name, ending) {
    return `${
      name
        .normalize("NFKC")
        .replace(/[^\p{L}\p{N}.]+/gu, "-")
        .replace(/^[-.]+|[-.]+$/gu, "")
        .slice(0, 120) || "download"
    }.${ending}`;
  }

  function save(blob, name) {
    const address = URL.createObjectURL(blob);
    el("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  const saveText = (text, type, name) => save(new Blob([text], { type: `${type};charset=utf-8` }), name);

  // make: format -> function that returns or resolves to a Blob or text; one small button each
  function buttons(name, makers) {
    const types = { CSV: "text/csv", SVG: "image/svg+xml", PNG: "image/png" };
    const one = ([format, make]) =>
      el(
        "button",
        {
          type: "button",
          class: "small",
          "aria-label": `Download ${name} as ${format}`,
          onclick: async () => {
            const content = await make();
            if (content instanceof Blob) save(content, fileName(name, format.toLowerCase()));
            else saveText(content, types[format], fileName(name, format.toLowerCase()));
          },
        },
        format,
      );
    return el("span", { class: "downloads" }, Object.entries(makers).map(one));
  }

  return { csv, ofObjects, buttons, fileName };
})();
