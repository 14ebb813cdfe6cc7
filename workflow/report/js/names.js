"use strict";
// The index piece with its names looked up both ways, and the addresses of views. A Map, never an object, holds names.
vernacular.names = (() => {
  const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language" });

  function read(index) {
    const model = new Map(index.models.map((name, number) => [name, number]));
    const evaluation = new Map(index.names.map((name, number) => [name, number]));
    return { ...index, modelNumber: model, evaluationNumber: evaluation };
  }

  function language(code) {
    if (!code) return "";
    try {
      return LANGUAGES.of(code);
    } catch (error) {
      if (error instanceof RangeError) return code; // no language code
      throw error;
    }
  }

  // How an evaluation differs from the plain one of its task and language: "options · 5 shots · seed 1".
  function manner(evaluation) {
    return [
      evaluation.protocol?.replaceAll("_", " "),
      evaluation.shots ? `${evaluation.shots}-shot` : null,
      evaluation.seed ? `seed ${evaluation.seed}` : null,
      evaluation.style && evaluation.style !== "default" ? evaluation.style : null,
    ].filter(Boolean).join(" · ");
  }

  function metric(facts) {
    return facts.name.replaceAll("_", " ");
  }

  function arrow(facts) {
    return facts.higher === null ? "" : facts.higher ? "↑" : "↓";
  }

  // "#/items/a/b?find=c": parts and the values of `query` may be any text.
  function address(parts, query) {
    const path = parts.map((part) => encodeURIComponent(part)).join("/");
    const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const search = pairs.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
    return `#/${path}${search ? `?${search}` : ""}`;
  }

  return { read, language, manner, metric, arrow, address };
})();
