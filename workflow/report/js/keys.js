"use strict";
// Keyboard: ← or k and → or j open the previous and the next item, / moves to the search field; 1 to 7 decide on an item
// to read.
(() => {
  const STEPS = new Map([
    ["ArrowLeft", "prev"],
    ["k", "prev"],
    ["ArrowRight", "next"],
    ["j", "next"],
  ]);

  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const at = /** @type {Element} */ (event.target);
    if (at.closest?.("input, select, textarea, [contenteditable]")) return;
    const arrow = event.key.startsWith("Arrow");
    if (arrow && at.closest?.(".scroll, .words, .sent")) return; // arrow keys scroll there, or move between words
    if (event.key === "/") {
      const field = document.getElementById("find");
      if (field) {
        event.preventDefault();
        field.focus();
      }
      return;
    }
    const selector = STEPS.has(event.key)
      ? `main a[rel="${STEPS.get(event.key)}"]`
      : /^[1-9]$/u.test(event.key)
        ? `main button[data-key="${event.key}"]`
        : null;
    /** @type {HTMLElement | null} */
    const link = selector === null ? null : document.querySelector(selector);
    if (link) {
      event.preventDefault();
      link.click();
    }
  });
})();
