"use strict";
// What a comparison of two models found, as sentences: significant differences, and the items that changed.
const verdict = (() => {
  const { el, data } = vernacular;
  // the words of statistics/significance.py
  const FAMILIES =
    "Holm correction over all headline metrics of a pair of models and, against the best of all models, over all models";

  const name = (text) => el("strong", null, data(text));
  const metrics = (count) => format.counted(count, "metric");

  // pair: a row of the index
  /** @param {Index} index @param {Pair} pair */
  function sentences(index, pair) {
    const [baseline, candidate] = names.sides(index, pair);
    return [difference(baseline, candidate, pair.summary), " ", items(pair.summary)];
  }

  function difference(baseline, candidate, { tests, candidate: better, baseline: worse, identical }) {
    if (!tests) return [name(candidate), " and ", name(baseline), " have no headline metric that can be tested."];
    if (identical === tests)
      return [
        name(candidate),
        " and ",
        name(baseline),
        ` have the same value in ${tests === 1 ? "the only headline metric" : `all ${tests} headline metrics`}.`,
      ];
    const rest = tests - better - worse;
    if (!better && !worse)
      return [
        name(candidate),
        " does not differ significantly from ",
        name(baseline),
        ` in any of ${format.counted(tests, "headline metric")}.`,
      ];
    const outcome =
      better >= worse
        ? [
            name(candidate),
            " is significantly better than ",
            name(baseline),
            ` in ${better} of ${format.counted(tests, "headline metric")}`,
            worse ? ` and worse in ${worse}` : " and worse in none",
          ]
        : [
            name(candidate),
            " is significantly worse than ",
            name(baseline),
            ` in ${worse} of ${format.counted(tests, "headline metric")}`,
            better ? ` and better in ${better}` : " and better in none",
          ];
    return [outcome, rest ? `; ${metrics(rest)} ${rest === 1 ? "does" : "do"} not differ significantly.` : "."];
  }

  // An item has a result in each evaluation and under each prompt.
  function items({ items: compared, improved, regressed, repeated }) {
    const noun = repeated ? "result" : "item";
    if (!compared && !improved && !regressed) return `No ${noun} is judged correct or incorrect.`;
    const changed = improved + regressed;
    if (!changed) return `None of ${format.counted(compared, noun)} changed between correct and incorrect.`;
    return (
      `${compared ? `${format.count(changed)} of ${format.counted(compared, noun)}` : format.counted(changed, noun)} ` +
      `changed${repeated ? " (of each item, one per evaluation)" : ""}: ${format.count(improved)} improved, ` +
      `${format.count(regressed)} regressed.`
    );
  }

  /** @param {Index} index @param {Pair} pair */
  function link(index, pair) {
    return names.address(["comparison", ...names.sides(index, pair)]);
  }

  return { sentences, link, FAMILIES };
})();
