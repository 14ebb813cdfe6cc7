"use strict";
// Surprisal below the words of a text: words are not split (so that Arabic letters stay joined); below each are a bar
// per token and the word's surprisal in nats.
const surprisal = (() => {
  const { el } = vernacular;
  const UNSCORED = -1;
  const TALLEST = 12; // nats; maximum height of a bar

  // Split at whitespace, and long runs without whitespace (Chinese, Thai) at word boundaries: [[start, end], …].
  function words(characters, language) {
    const spans = [];
    let start = 0;
    for (let i = 1; i <= characters.length; i++) {
      const ends = i === characters.length || (/\s/u.test(characters[i]) && !/\s/u.test(characters[i - 1]));
      if (ends) {
        spans.push([start, i]);
        start = i;
      }
    }
    return spans.flatMap(([from, to]) => (to - from > 24 ? cut(characters, from, to, language) : [[from, to]]));
  }

  function cut(characters, from, to, language) {
    if (!Intl.Segmenter || to - from > 4000) return [[from, to]];
    const pieces = [];
    let at = from;
    for (const part of new Intl.Segmenter(language || "und", { granularity: "word" }).segment(
      characters.slice(from, to).join(""),
    )) {
      const length = Array.from(part.segment).length;
      pieces.push([at, at + length]);
      at += length;
    }
    return pieces;
  }

  // Tokens as {from, to, nats, tokens}; a token that shares a character with the preceding one is merged with it.
  function tokens(skip, lengths, hundredths) {
    const pieces = [];
    let at = skip;
    lengths.forEach((length, i) => {
      const nats = hundredths[i] === UNSCORED ? null : hundredths[i] / 100;
      const last = pieces.at(-1);
      if (length === 0 && last) {
        last.nats = last.nats === null || nats === null ? null : last.nats + nats;
        last.tokens += 1;
      } else {
        pieces.push({ from: at, to: at + length, nats, tokens: 1 });
        at += length;
      }
    });
    return pieces;
  }

  // skip: a number of characters, or the text itself
  function draw(span, { skip, lengths, hundredths }, language) {
    const isText = typeof skip === "string";
    const characters = Array.from(isText ? skip : span);
    const all = tokens(isText ? 0 : skip, lengths, hundredths);
    let next = 0;
    const parts = words(characters, language).map(([from, to]) => {
      const inside = [];
      while (next < all.length && all[next].from < to) inside.push(all[next++]);
      return word(characters, from, to, inside);
    });
    const known = all.filter((token) => token.nats !== null);
    const total = known.reduce((sum, token) => sum + token.nats, 0);
    const sum = `${total.toFixed(1)} nats over ${hundredths.length} token${hundredths.length === 1 ? "" : "s"}`;
    const details = el("p", { class: "sum tokens", role: "status" }, sum);
    const text = el(
      "p",
      { class: "words", dir: "auto", lang: language, role: "listbox", "aria-label": "Words with their surprisal" },
      parts.map((part) => part.element),
    );
    selectable(text, parts, (part) => details.replaceChildren(...(part ? described(part) : [sum])));
    return el("div", { class: "surprisal" }, text, details);
  }

  // Tokens of a word with their surprisal, as text.
  function described({ inside }) {
    const piece = (token) => [
      el("bdi", { class: "token", dir: "auto" }, token.text || "\u00a0"),
      token.nats === null ? " not scored" : ` ${token.nats.toFixed(2)} nats`,
      token.tokens > 1 ? ` (${token.tokens} tokens)` : "",
    ];
    return inside.length ? inside.flatMap((token, i) => [i ? " · " : "", ...piece(token)]) : ["no token"];
  }

  // One stop of the Tab key for all words; the arrow keys, Home and End move between them, in reading direction.
  function selectable(container, parts, show) {
    const select = (next, focus) => {
      parts.forEach((part, i) => {
        part.element.tabIndex = i === next ? 0 : -1;
        part.element.setAttribute("aria-selected", String(i === next && focus));
      });
      if (focus) {
        parts[next].element.focus();
        show(parts[next]);
      }
    };
    if (!parts.length) return;
    select(0, false);
    const at = (target) => parts.findIndex((part) => part.element.contains(target));
    container.addEventListener("click", (event) => {
      if (at(event.target) >= 0) select(at(event.target), true);
    });
    container.addEventListener("focusin", (event) => {
      if (at(event.target) >= 0) select(at(event.target), true);
    });
    container.addEventListener("keydown", (event) => {
      const forward = getComputedStyle(container).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
      const steps = {
        [forward]: 1,
        [forward === "ArrowRight" ? "ArrowLeft" : "ArrowRight"]: -1,
        Home: -parts.length,
        End: parts.length,
      };
      if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      select(Math.max(0, Math.min(parts.length - 1, at(event.target) + steps[event.key])), true);
    });
  }

  function word(characters, from, to, inside) {
    const text = characters.slice(from, to).join("");
    const bars = inside.map((token) => {
      token.text = characters.slice(token.from, token.to).join("");
      const height = token.nats === null ? 0 : Math.min(token.nats / TALLEST, 1);
      return el("i", {
        vars: { "--h": height.toFixed(3) },
        title: `${token.text} — ${token.nats === null ? "not scored" : `${token.nats.toFixed(2)} nats`}`,
      });
    });
    const scored = inside.filter((token) => token.nats !== null);
    const sum = scored.length ? scored.reduce((total, token) => total + token.nats, 0).toFixed(1) : "";
    const element = el(
      "span",
      { class: "word", role: "option" },
      el("span", { class: "text" }, text.trim() || "\u00a0"),
      el("span", { class: "bars", "aria-hidden": "true" }, bars),
      el("span", { class: "nats" }, sum),
    );
    return { element, inside };
  }

  return { draw, words, tokens };
})();
