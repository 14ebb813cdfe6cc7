"use strict";
// Elements that several views share.
const widgets = (() => {
  const { el, data } = vernacular;

  // The form above a view: it changes what is shown, and sends nothing.
  function controls(...fields) {
    return el("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, fields);
  }

  // options: [[value, text], …]; change: function of the selected value, a text
  function select(id, label, options, current, change) {
    const choices = options.map(([value, text]) => el("option", { value, selected: value === current }, text));
    return el(
      "label",
      { for: id },
      label,
      el("select", { id, onchange: (event) => change(event.target.value) }, choices),
    );
  }

  // A value that links to nothing, and below it its interval or another text.
  function valued(value, interval, title = null) {
    const below = interval === null ? null : el("span", { class: "interval" }, interval);
    return el("span", { class: "static", title }, el("span", { class: "value" }, value), below);
  }

  // Where a view is: links to the views above it; null for a step that does not exist.
  function crumbs(...steps) {
    return el(
      "p",
      { class: "crumbs" },
      steps.filter(Boolean).flatMap((step, i) => (i ? [" › ", step] : [step])),
    );
  }

  // The title of an evaluation's task, its language and its manner; after the name of the view, if that has one.
  /** @param {Evaluation} setting */
  function heading(index, setting, { view = null, title = names.title(index, setting) } = {}) {
    const manner = `${names.language(setting.language)} · ${names.manner(setting)}`;
    if (view === null) return el("h1", null, data(title), el("small", null, ` ${manner}`));
    return el("h1", null, view, el("small", null, " ", data(title), ` · ${manner}`));
  }

  // A table or another wide element that scrolls in its own box, with a hint while a part on the right is hidden.
  function scrolled(label, content) {
    const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, content);
    const hint = () => box.classList.toggle("more", box.scrollWidth - box.scrollLeft > box.clientWidth + 2);
    const sizes = new ResizeObserver(hint);
    sizes.observe(box);
    sizes.observe(content);
    box.addEventListener("scroll", hint, { passive: true });
    return box;
  }

  // The first line of an item and its ID.
  /** @param {Item} item @param {Evaluation} setting */
  function itemHeading(item, setting) {
    const line = format.beginning(items.label(item).trim().split("\n")[0], 90);
    const id = el("small", null, " item ", data(format.beginning(item.id, 40)));
    return el("h1", { class: "excerpt" }, data(line, { lang: setting.language }), id);
  }

  // Links to the previous and the next item of a list, by mouse or keyboard (keys.js); null for an ID that does not
  // exist.
  /** @param {string[]} ids @param {string[]} texts */
  function around(label, ids, address, position, texts) {
    const link = (id, rel, keys, text) =>
      id === null ? null : el("a", { class: "button", rel, href: address(id), "aria-keyshortcuts": keys }, text);
    return el(
      "nav",
      { class: "around", "aria-label": label },
      link(ids[0], "prev", "ArrowLeft k", texts[0]),
      el("span", null, position),
      link(ids[1], "next", "ArrowRight j", texts[1]),
    );
  }

  return { controls, select, valued, crumbs, heading, scrolled, itemHeading, around };
})();
