"use strict";
// Tokenizers: what each model's tokenizer makes of each language, and of a language in relation to English.
(() => {
  const { el, data, views } = vernacular;

  views.set("tokenizers", async (index, route) => {
    const rows = await pieces.tokenizers();
    const byTask = route.query.get("by") === "task";
    const parallel = rows.filter((row) => row.premium !== null || row.prompt_premium !== null);
    const shown = rows.filter((row) => byTask === (row.task !== ""));
    const element = el(
      "section",
      null,
      el("h1", null, "Tokenizers"),
      el(
        "p",
        { class: "lead" },
        "Into how many tokens each model divides the evaluated texts. More tokens for the same content " +
          "cost more time, and fewer few-shot examples fit the context.",
      ),
      rows.length ? null : el("p", { class: "note" }, "No tokens of scored texts are stored."),
      parallel.length ? relative(parallel, index) : missing(rows),
      shown.length ? absolute(shown, index, byTask) : null,
    );
    return { title: "Tokenizers", element };
  });

  /** @param {Index} index */
  function relative(rows, index) {
    const columns = [
      ...labels(index, true),
      ratio("Tokens", "premium", "Tokens of the scored texts / those of the same items in English"),
      ratio(
        "Tokens of prompts",
        "prompt_premium",
        "Tokens of the prompts, with passages and questions / those of the same items in English",
      ),
      number("Bytes", "byte_premium", "UTF-8 bytes / those of the same items in English; the same for all models"),
      number(
        "Characters",
        "character_premium",
        "Characters / those of the same items in English; the same for all models",
      ),
      ratio(
        "Bits",
        "bits_ratio",
        "Bits of the correct texts / those of the same items in English: how much less the model expects " +
          "the same content",
      ),
      number("Bits per item", "parallel_bits", "Bits of the correct text, mean over the common items"),
      number(
        "Bits per item in English",
        "parallel_bits_en",
        "Bits of the correct text in English, mean over the same items",
      ),
      counted("Items", "parallel_items", "Items in both languages"),
    ];
    return el(
      "section",
      null,
      el("h2", null, "In relation to English"),
      el(
        "p",
        null,
        "Ratios over the items that exist in both languages: 2 means twice as many as in English. 95 % " +
          "intervals by a bootstrap of the items.",
      ),
      make(columns, rows, "tokenizers in relation to English"),
    );
  }

  function missing(rows) {
    if (!rows.length) return null;
    return el(
      "p",
      { class: "note" },
      "No relation to English: no evaluated task has items in English and their translations with the same IDs.",
    );
  }

  /** @param {Index} index */
  function absolute(rows, index, byTask) {
    const columns = [
      ...labels(index, byTask),
      number("Tokens per word", "tokens_per_word", "Words are separated by whitespace; none in scripts without spaces"),
      share(
        "Words split",
        "split_share",
        "Share of words with two or more tokens; punctuation around a word does not count",
      ),
      number("Tokens per character", "tokens_per_character", "Unicode code points"),
      number("Tokens per byte", "tokens_per_byte", "UTF-8"),
      share("Byte tokens", "byte_share", "Share of tokens that are a part of a character"),
      share("Unknown tokens", "unknown_share", "Share of tokens that stand for text outside the vocabulary"),
      byTask
        ? number("Prompt tokens", "prompt_tokens", "Mean per item, few-shot examples and special tokens included")
        : null,
      counted("Words", "words"),
      counted("Tokens", "tokens"),
      counted("Texts", "texts", "Scored texts: all options of an item, both sentences of a pair"),
    ].filter(Boolean);
    const other = el(
      "a",
      { href: byTask ? "#/tokenizers" : "#/tokenizers?by=task" },
      byTask ? "by language" : "by task",
    );
    return el(
      "section",
      null,
      el("h2", null, byTask ? "By task" : "By language"),
      el("p", null, "Counts of the scored texts, each once. Show ", other, "."),
      make(columns, rows, byTask ? "tokenizers by task" : "tokenizers by language"),
    );
  }

  // Columns that no row has a value for, such as those of prompts where there are none, are omitted.
  function make(columns, rows, label) {
    const used = columns.filter((column) => rows.some((row) => column.key(row) !== null));
    return table.make(used, rows, {
      class: "numbers plain",
      page: 50,
      label,
      file: label.replaceAll(" ", "_"),
      caption: label,
    }).element;
  }

  /** @param {Index} index */
  function labels(index, withTask) {
    const title = (task) => index.tasks.get(task)?.title ?? task;
    return [
      table.name("Model", (row) => row.model),
      { title: "Language", key: (row) => names.language(row.language), cell: (row) => names.language(row.language) },
      withTask ? { title: "Task", key: (row) => title(row.task), cell: (row) => data(title(row.task)) } : null,
      {
        title: "Tokenizer",
        key: (row) => row.tokenizer,
        cell: (row) =>
          row.tokenizer === null ? format.NONE : el("code", { title: row.tokenizer }, row.tokenizer.slice(0, 8)),
      },
    ].filter(Boolean);
  }

  const header = (title, about) => (about ? el("span", { title: about }, title) : title);
  const number = (title, key, about, show = (value) => format.value(value)) =>
    table.number(header(title, about), key, show, { name: title });
  const share = (title, key, about) => number(`${title}, %`, key, about, (value) => format.value(value, "share"));
  const counted = (title, key, about) => number(title, key, about, (value) => format.count(value));
  const ratio = (title, key, about) => ({
    ...number(title, key, about),
    cell: (row) =>
      el(
        "span",
        null,
        format.value(row[key]),
        el("br"),
        el("small", null, format.interval(row[`${key}_low`], row[`${key}_high`])),
      ),
    csv: (row) => [
      [title, row[key]],
      [`${title} low`, row[`${key}_low`]],
      [`${title} high`, row[`${key}_high`]],
    ],
  });
})();
