"use strict";
// The data files by name. A row is an array on disk: here it becomes an object with the names of fields.js, so that no
// view knows a position.

/** @typedef {typeof fields} Fields */
/** @template {string} N @typedef {N extends `${infer S}?` ? S : N} Plain */
/**
 * @template {string} N
 * @template R
 * @typedef {{ [F in N]: F extends keyof R ? (R[F] extends (value: any) => infer V ? V : any) : any }} Read
 */
/** @template {keyof Fields["rows"]} K @template R @typedef {Read<Fields["rows"][K][number], R>} Row */
/** @template {keyof Fields["records"]} K @template R @typedef {Read<Plain<Fields["records"][K][number]>, R>} Entry */

/** @typedef {{ view: string, parts: string[], query: Map<string, string> }} Route */
/** @typedef {ReturnType<typeof names.read>} Index */
/** @typedef {Awaited<ReturnType<typeof pieces.index>>["evaluations"][number]} Evaluation */
/** @typedef {Awaited<ReturnType<typeof pieces.index>>["metrics"][number]} Metric */
/** @typedef {Awaited<ReturnType<typeof pieces.index>>["pairs"][number]} Pair */
/** @typedef {Awaited<ReturnType<typeof pieces.task>>} Task */
/** @typedef {Awaited<ReturnType<typeof pieces.items>>[number]} Item */
/** @typedef {Awaited<ReturnType<typeof pieces.results>>} Results */
/** @typedef {Awaited<ReturnType<typeof pieces.details>>} Details */
/** @typedef {Details["rows"][number]} Detail */
/** @typedef {Awaited<ReturnType<typeof pieces.differences>>} PairDifferences */
/** @typedef {PairDifferences["rows"][number]} Comparison */
/** @typedef {Awaited<ReturnType<typeof pieces.promptGroups>>["groups"][number]} PromptGroup */
/** @typedef {Awaited<ReturnType<typeof pieces.curves>>} Curves */
/** @typedef {Curves["curves"][number]} Curve */
/** @typedef {Awaited<ReturnType<typeof pieces.evaluationCurves>>} EvaluationCurves */

const pieces = (() => {
  const { load } = vernacular;

  /**
   * Return a reader of rows of one kind; `inside` are readers of fields that consist of rows themselves.
   * @template {keyof Fields["rows"]} K
   * @template {{ [F in Fields["rows"][K][number]]?: (value: any) => any }} [R={}]
   * @param {K} kind
   * @param {R} [inside]
   * @returns {(values: any[]) => Row<K, R>}
   */
  function row(kind, inside) {
    const names = fields.rows[kind];
    return (values) => {
      const named = {};
      for (let i = 0; i < names.length; i++)
        named[names[i]] = inside?.[names[i]] ? inside[names[i]](values[i]) : values[i];
      return /** @type {any} */ (named);
    };
  }

  /**
   * The same for a record.
   * @template {keyof Fields["records"]} K
   * @template {{ [F in Plain<Fields["records"][K][number]>]?: (value: any) => any }} [R={}]
   * @param {K} _kind
   * @param {R} [inside]
   * @returns {(values: object) => Entry<K, R>}
   */
  function record(_kind, inside) {
    return (values) => {
      const named = { ...values };
      for (const [name, read] of Object.entries(inside ?? {})) named[name] = read(values[name]);
      return /** @type {any} */ (named);
    };
  }

  /** @template V @param {(value: any) => V} read @returns {(values: any[]) => V[]} */
  const each = (read) => (values) => values.map((value) => read(value));

  /** @template V @param {(value: any) => V} read @returns {(value: any) => V | null} */
  const maybe = (read) => (value) => (value === null || value === undefined ? null : read(value));

  const readIndex = record("Index", {
    evaluations: each(record("Evaluation")),
    metrics: each(record("Metric")),
    tasks: each(row("TaskTitle")),
    cells: each(row("IndexCell")),
    missing: each(row("Missing")),
    symptoms: each(row("Symptom")),
    noise: each(row("Noise")),
    spoken: each(row("Spoken", { answered: each(row("LanguageCount")), gold: each(row("LanguageCount")) })),
    rankings: each(row("Mark")),
    overall: each(row("Overall")),
    pairs: each(row("Pair", { summary: record("Summary") })),
  });
  const readTask = record("Task", {
    cells: each(row("Cell")),
    categories: record("Categories", { rows: each(row("CategoryValue")) }),
    outcomes: each(row("Outcomes")),
    distributions: each(row("Histogram", { counts: each(row("OutcomeBins")) })),
    calibration: each(row("Calibration", { bins: each(row("ConfidenceBin")) })),
    surprisal: record("Surprisal", {
      position: each(row("Profile", { points: each(row("WordMean")) })),
      length: each(row("Profile", { points: each(row("LengthMean")) })),
    }),
    dataset: maybe(record("Dataset")),
    diagnoses: each(row("Diagnosis", { examples: each(row("Example")) })),
    answers: each(row("Answers", { labels: each(row("Label")), tokens: each(row("TopToken")) })),
    estimates: maybe(each(record("Estimate"))),
  });
  const readItem = row("Item", { spans: each(row("Span")) });
  const readResults = record("Results", { rows: each(row("Result")) });
  const readDetails = record("Details", {
    wrappers: each(row("Wrapper")),
    rows: each(row("Detail", { output: maybe(row("Output")), tokens: each(row("Tokens")) })),
  });
  const readDifferences = record("PairDifferences", {
    rows: each(record("Comparison")),
    changes: each(row("ChangeCounts")),
  });
  const readPromptGroups = record("Prompts", {
    groups: each(record("PromptGroup", { prompts: each(record("Prompt")), rows: each(record("PromptMean")) })),
  });
  const readCurves = record("Curves", {
    curves: each(record("Curve", { positions: each(row("Axis")) })),
    trust: each(record("Trust")),
    areas: each(row("Area")),
  });
  const difference = maybe(row("Difference"));
  const readPoint = maybe(row("CurvePoint", { previous: difference, best: difference, last: difference }));
  const readEvaluationCurves = record("EvaluationCurves", {
    rows: each(row("CurveValues", { statistics: record("Statistics"), points: each(readPoint) })),
    chance: each(row("Chance")),
    pairs: each(row("CurvePair", { points: each(row("PairPoint")) })),
  });
  const readProvenance = record("Provenance", {
    models: each(record("ModelSource")),
    datasets: each(record("Dataset")),
    runs: each(record("Run", { flags: maybe(each(row("FlagCount"))) })),
    notes: each(record("Note")),
    jobs: each(record("Job")),
  });

  const index = () => load("index", readIndex);
  const task = (evaluation) => load(`e${evaluation}/task`, readTask);
  /** @returns {Promise<string[]>} */
  const shots = (evaluation) => load(`e${evaluation}/shots`, (texts) => texts);
  const items = (evaluation, block) => load(`e${evaluation}/i${block}`, each(readItem));
  const results = (evaluation, model) => load(`e${evaluation}/m${model}`, readResults);
  const details = (evaluation, model, block) => load(`e${evaluation}/m${model}b${block}`, readDetails);
  const differences = (pair) => load(`p${pair}`, readDifferences);
  const categories = (pair) => load(`p${pair}/categories`, each(record("Comparison")));
  const changes = (pair, evaluation) => load(`p${pair}/e${evaluation}`, each(row("Change", { item: maybe(readItem) })));
  const promptGroups = () => load("prompts", readPromptGroups);
  const curves = () => load("curves", readCurves);
  const evaluationCurves = (evaluation) => load(`e${evaluation}/curves`, readEvaluationCurves);
  const tokenizers = () => load("tokenizers", each(record("Tokenizer")));
  const auditLists = () => load("audit", each(record("AuditList")));
  const itemsToRead = (list) => load(`a${list}`, each(record("ItemToRead")));
  const readLanguages = record("Languages", { rows: each(record("BetweenLanguages")) });
  const languages = () => load("languages", readLanguages);
  const readBeside = record("Beside", { deciding: each(record("Deciding")), unpaired: each(record("Unpaired")) });
  const beside = () => load("beside", readBeside);
  const languageItems = (evaluation) => load(`e${evaluation}/languages`, each(record("LanguageItem")));
  const provenance = () => load("provenance", readProvenance);

  /** The item at a position of an evaluation, whose files have `task.block` items each. */
  async function item(evaluation, /** @type {Task} */ task, position) {
    return (await items(evaluation, Math.floor(position / task.block)))[position % task.block];
  }

  /** The position of the item with an ID; null if there is none. */
  async function positionOf(evaluation, /** @type {Task} */ task, id) {
    for (let block = 0; id !== undefined && block * task.block < task.items; block++) {
      const at = (await items(evaluation, block)).findIndex((each) => each.id === id);
      if (at >= 0) return block * task.block + at;
    }
    return null;
  }

  return {
    index,
    task,
    shots,
    items,
    item,
    positionOf,
    results,
    details,
    differences,
    categories,
    changes,
    promptGroups,
    curves,
    evaluationCurves,
    tokenizers,
    auditLists,
    itemsToRead,
    languages,
    beside,
    languageItems,
    provenance,
  };
})();
