"use strict";
// The index with lookups from names to numbers, and the addresses of views. Names are keys of a Map, never of an
// object.
const names = (() => {
  const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language" });
  let englishNames = new Map(); // names of the evaluated languages, of which browsers know some by their code only

  /** @param {Awaited<ReturnType<typeof pieces.index>>} index */
  function read(index) {
    englishNames = new Map(Object.entries(index.languages));
    const model = new Map(index.models.map((name, number) => [name, number]));
    const evaluation = new Map(index.names.map((name, number) => [name, number]));
    const tasks = new Map(index.tasks.map((task) => [task.name, task]));
    const symptoms = new Map(); // "evaluation model" -> rows, worst first
    for (const symptom of index.symptoms) {
      const key = `${symptom.evaluation} ${symptom.model}`;
      symptoms.set(key, [...(symptoms.get(key) ?? []), symptom]);
    }
    const noise = new Map(index.noise.map((row) => [`${row.evaluation} ${row.model}`, row.n]));
    const lookups = { modelNumber: model, evaluationNumber: evaluation, tasks, symptomsOf: symptoms, noiseOf: noise };
    return { ...index, ...lookups };
  }

  function language(code) {
    if (!code) return "";
    const [base] = code.split("-");
    const own = englishNames.get(base);
    try {
      const name = LANGUAGES.of(code);
      return own && name?.startsWith(base) ? name.replace(base, own) : name;
    } catch (error) {
      if (error instanceof RangeError) return own ? `${own} (${code})` : code; // not a language code
      throw error;
    }
  }

  // Protocol and other settings of an evaluation, without defaults: "options · 5-shot · seed 1".
  /** @param {Evaluation} evaluation */
  function manner(evaluation) {
    return [
      evaluation.protocol?.replaceAll("_", " "),
      evaluation.shots ? `${evaluation.shots}-shot` : null,
      evaluation.seed ? `seed ${evaluation.seed}` : null,
      evaluation.style && evaluation.style !== "default" ? evaluation.style : null,
      evaluation.prompt && evaluation.prompt !== "default"
        ? evaluation.prompt === "all"
          ? "mean over prompts"
          : `prompt ${evaluation.prompt}`
        : null,
    ]
      .filter(Boolean)
      .join(" · ");
  }

  // Title of the evaluation's task, or its name; and the remark for readers, if there is one.
  /** @param {Index} index @param {Evaluation} evaluation */
  function title(index, evaluation) {
    return `${index.tasks.get(evaluation.task)?.title ?? evaluation.task ?? evaluation.id}${samples(evaluation)}`;
  }

  const samples = (evaluation) => (evaluation.samples ? " (samples)" : "");

  // The title for narrow places.
  /** @param {Index} index @param {Evaluation} evaluation */
  function short(index, evaluation) {
    const { short } = index.tasks.get(evaluation.task) ?? {};
    return short ? `${short}${samples(evaluation)}` : title(index, evaluation);
  }

  /** @param {Index} index @param {Evaluation} evaluation */
  function remark(index, evaluation) {
    return index.tasks.get(evaluation.task)?.note ?? null;
  }

  // Short title, language and manner of an evaluation, by its number; the name of one that only external results have.
  /** @param {Index} index */
  function called(index, number) {
    const evaluation = index.evaluations[number];
    if (!evaluation) return index.names[number];
    return [short(index, evaluation), language(evaluation.language), manner(evaluation)].filter(Boolean).join(" · ");
  }

  // Titles of per-item values with their unit, which those of metrics lack.
  const MEASURES = {
    surprisal: "Surprisal, nats",
    surprisal_token: "Surprisal per token, nats",
    surprisal_char: "Surprisal per character, nats",
    surprisal_byte: "Surprisal per byte, nats",
    chrf: "chrF",
  };

  // Title of a per-item value: its own, or that of the metric with its name.
  /** @param {Index} index */
  function measure(index, name) {
    if (!name) return "";
    const title = MEASURES[name] ?? index.metrics.find((info) => info.name === name)?.title;
    return title ?? `${name.charAt(0).toUpperCase()}${name.slice(1).replaceAll("_", " ")}`;
  }

  // Some datasets number their categories.
  const category = (name) => (/^\d+$/u.test(name ?? "") ? `category ${name}` : name);

  // The address of an evaluation's view; that of a mean over prompts shows its prompts.
  /** @param {Evaluation} evaluation @param {string} [model] */
  function addressOf(evaluation, model) {
    return address(
      evaluation.runs
        ? ["prompts", evaluation.id]
        : ["task", evaluation.id, model].filter((part) => part !== undefined),
    );
  }

  function arrow(info) {
    return info.higher === null ? "" : info.higher ? "↑" : "↓";
  }

  // "#/items/a/b?find=c": parts and the values of `query` may be any text.
  function address(parts, query) {
    const path = parts.map((part) => encodeURIComponent(part)).join("/");
    const pairs = Object.entries(query ?? {}).filter(
      ([, value]) => value !== null && value !== undefined && value !== "",
    );
    const search = pairs.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
    return `#/${path}${search ? `?${search}` : ""}`;
  }

  // The names of baseline and candidate.
  /** @param {Index} index @param {Pair} pair */
  function sides(index, pair) {
    return [index.models[pair.baseline], index.models[pair.candidate]];
  }

  return {
    read,
    sides,
    language,
    manner,
    title,
    short,
    remark,
    called,
    measure,
    category,
    addressOf,
    arrow,
    address,
  };
})();
