"use strict";
// The sections of the item view: the prompt, the options, the generated output, and the surprisal of the scored texts.
const parts = (() => {
  const { el, data } = vernacular;

  const sent = (text, setting, more) =>
    el("div", { class: "sent", dir: "auto", lang: setting.language, tabindex: "0", ...more }, text);
  const section = (title, ...content) => el("section", null, el("h2", null, title), content);
  const note = (text) => el("p", { class: "note" }, text);
  const count = (text) => format.counted(Array.from(text).length, "character");

  // As sent: the few-shot prefix, collapsed, then the text of the item; or both as rendered by a chat template.
  /**
   * @param {Item} item @param {Detail} detail @param {Details} details
   * @param {Evaluation} setting @param {Task} task
   */
  function prompt(item, detail, details, shots, setting, task) {
    const text = item.sent || item.prompt;
    const wrap = detail.wrapper === null ? null : details.wrappers[detail.wrapper];
    const next = note(follows(item, task));
    if (wrap && wrap.after === null)
      return section("Prompt as sent, with chat template", sent(wrap.before, setting), next);
    if (wrap) {
      return section(
        "Prompt as sent, with chat template",
        el(
          "details",
          null,
          el(
            "summary",
            null,
            `Before the item: template${setting.shots ? " and few-shot examples" : ""}, ${count(wrap.before)}`,
          ),
          sent(wrap.before, setting),
        ),
        sent((item.message ?? text).trim(), setting),
        wrap.after
          ? el("details", null, el("summary", null, `After the item: ${count(wrap.after)}`), sent(wrap.after, setting))
          : null,
        next,
      );
    }
    const block = item.prefix === null ? null : shots[item.prefix];
    const prefix = block
      ? el("details", null, el("summary", null, `Few-shot prefix, ${count(block)}`), sent(block, setting))
      : null;
    const several = item.spans.length > 1;
    if (!text.trim())
      return section(
        "No prompt",
        prefix,
        note(
          `Nothing precedes the ${several ? "texts" : "text"} below: the model scores ` +
            `${several ? "each of them" : "it"} from its first token ` +
            `on${block ? ", after the few-shot prefix" : ""}, and the probabilities are compared without a ` +
            "context.",
        ),
      );
    if (item.sent === "" && item.spans.some((span) => span.text.trim() === text.trim()))
      return section(
        "Text as sent",
        prefix,
        sent(text, setting),
        note(
          "There is no prompt: this text is all that the model " +
            `receives${block ? " after the few-shot prefix" : ""}, and its own probability is scored, from ` +
            "its first token on.",
        ),
      );
    if (item.sent === "" && item.spans.length)
      return section(
        "Item",
        prefix,
        sent(text, setting),
        note(
          `The model does not receive this text: it receives the complete ${several ? "texts" : "text"} ` +
            `below, ${several ? "each " : ""}without a prompt.`,
        ),
      );
    return section("Prompt as sent", prefix, sent(text, setting), next);
  }

  // What the protocol does after the prompt, in one sentence.
  /** @param {Item} item @param {Task} task */
  function follows(item, task) {
    if (task.generates) return "The model continues this text; its output is below.";
    if (task.letters) return "Scored: the probability of each letter after this text.";
    if (item.options.length) return "Scored: the probability of each option as the continuation of this text.";
    return "Scored: the probability of what follows this text; see the surprisal below.";
  }

  // Bars start at zero: the probability of an option among all options. Similarities are often close to each other: they
  // are points on an axis from the lowest to the highest. In two texts, the words that differ are marked.
  /** @param {Item} item @param {Detail} detail @param {Evaluation} setting @param {Task} task */
  function options(item, detail, row, setting, task) {
    if (!item.options.length) return null;
    const chosen = new Set(Array.isArray(row.prediction) ? row.prediction : []);
    const right = new Set(item.gold);
    const scores = detail.scores ?? [];
    const shares = task.generates ? scores : softmax(scores);
    const isScored = !task.generates || scores.length > 0; // a letter that is read from a response has no score
    const known = scores.filter((score) => score !== null);
    const axis = [Math.min(...known), Math.max(...known)];
    const parts =
      item.options.length === 2 ? items.differing(item.options) : item.options.map((text) => [[text, false]]);
    const isPair = parts.some((part) => part.some(([, differs]) => !differs)) && item.options.length === 2;
    const lines = item.options.map((text, i) => {
      const share = shares[i] ?? null;
      const place = axis[1] > axis[0] ? (share - axis[0]) / (axis[1] - axis[0]) : 0.5;
      const point = el("i", { class: "point", vars: { "--at": `${(100 * place).toFixed(1)}%` } });
      const bar = task.generates
        ? el("span", { class: "range", "aria-hidden": "true" }, share === null ? null : point)
        : el("span", {
            class: "bar",
            "aria-hidden": "true",
            vars: { "--w": `${Math.round(1000 * Math.max(0, Math.min(1, share ?? 0))) / 10}%` },
          });
      return el(
        "tr",
        { class: right.has(i) ? "gold" : null },
        el("td", { class: "number" }, task.letters ? items.letter(i) : String(i + 1)),
        el(
          "th",
          { scope: "row", lang: setting.language },
          data(isPair ? parts[i].map(([part, differs]) => (differs ? el("mark", null, part) : part)) : text),
        ),
        el(
          "td",
          null,
          right.has(i) ? el("span", { class: "badge correct" }, "✓ correct") : "",
          chosen.has(i) ? el("span", { class: "badge chosen" }, chosen.size > 1 ? "= tied" : "● selected") : "",
        ),
        task.generates ? null : el("td", { class: "number" }, format.value(scores[i] ?? null, "")),
        isScored
          ? el("td", { class: "number score" }, task.generates ? format.value(share, "") : format.percent(share), bar)
          : null,
      );
    });
    const columns = [
      ["#"],
      [task.letters ? "Letter and option" : "Option"],
      [""],
      ...(task.generates
        ? [
            [
              known.length ? `similarity, ${format.value(axis[0], "")} to ${format.value(axis[1], "")}` : "similarity",
              "number",
            ],
          ].slice(0, Number(isScored))
        : [
            ["ln p, nats", "number"],
            ["share, 0 to 100 %", "number"],
          ]),
    ];
    return section(
      !isScored
        ? task.generates && lines.length === 1
          ? "Correct text"
          : "Options"
        : task.generates
          ? "Options with similarity to the output"
          : "Options with log-likelihood",
      widgets.scrolled(
        "Options",
        el(
          "table",
          { class: "options" },
          el(
            "thead",
            null,
            el(
              "tr",
              null,
              columns.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)),
            ),
          ),
          el("tbody", null, lines),
        ),
      ),
      task.generates ? null : note("Share: the option's probability divided by that of all options."),
    );
  }

  // Probabilities among the options, from log-likelihoods; null where an option has none.
  function softmax(scores) {
    const known = scores.filter((score) => score !== null);
    const highest = Math.max(...known);
    const total = known.reduce((sum, score) => sum + Math.exp(score - highest), 0);
    return scores.map((score) => (score === null ? null : Math.exp(score - highest) / total));
  }

  /** @param {Detail} detail @param {Evaluation} setting */
  function generation(detail, setting) {
    if (!detail.output) return null;
    const { text, complete, reason, n_tokens, reasoning, state, n_reasoning, others } = detail.output;
    const length = n_reasoning === null ? "" : `, ${format.counted(n_reasoning, "token")}`;
    return section(
      "Generated output",
      reasoning === null
        ? null
        : el("details", null, el("summary", null, `Reasoning before the answer${length}`), sent(reasoning, setting)),
      state === "unclosed" ? note("The reasoning does not end: there is no answer, which counts as incorrect.") : null,
      sent(text || "(empty)", setting, { class: text ? "sent wrote" : "sent wrote empty" }),
      note(
        [
          n_tokens === null ? null : format.counted(n_tokens, "token"),
          reason
            ? "ended by " +
              `${{ eos: "the end-of-text token", stop: "a stop string", length: "the length limit" }[reason] ?? reason}`
            : null,
        ]
          .filter(Boolean)
          .join(", "),
      ),
      complete === null ? null : el("details", null, el("summary", null, "Complete output"), sent(complete, setting)),
      others.length
        ? el(
            "details",
            null,
            el("summary", null, `${format.counted(others.length, "other sample")}; the values are means`),
            others.map((other) => sent(other || "(empty)", setting)),
          )
        : null,
    );
  }

  /** @param {Item} item @param {Detail} detail @param {Evaluation} setting @param {Task} task */
  function tokens(item, detail, setting, task) {
    if (!detail.tokens.length) return null;
    const spans = new Map(item.spans.map((span) => [span.role, span.text]));
    const right = new Set(item.gold);
    const drawn = detail.tokens.map((entry) => {
      const { role } = entry;
      const span = spans.get(role) ?? "";
      const choice = /:(\d+)$/.exec(role);
      // options of letters are numbered as in the prompt, their requests as in the dataset
      const letter = task.letters && /^\s*[A-Z]\s*$/u.test(span) ? span.trim().charCodeAt(0) - 65 : null;
      const i = letter ?? (choice ? Number(choice[1]) : null);
      const title =
        letter !== null
          ? data(items.option(item, i, true))
          : choice
            ? `Option ${i + 1}`
            : role.charAt(0).toUpperCase() + role.slice(1);
      return el(
        "div",
        { class: "span" },
        el("h3", null, title, i !== null && right.has(i) ? el("span", { class: "badge correct" }, "✓ correct") : null),
        surprisal.draw(span, entry, setting.language),
      );
    });
    return section(
      "Surprisal of the scored text, nats",
      note(
        "One bar per token below its word; the number is the surprisal of the word. Click a word, or " +
          "move to it with the arrow keys, for its tokens.",
      ),
      el("div", { class: drawn.length > 1 ? "spans" : null }, drawn),
    );
  }

  return { prompt, options, generation, tokens };
})();
