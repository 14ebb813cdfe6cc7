"use strict";
// Light or dark: as the system has it, until the button says otherwise.
vernacular.theme = (() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = (() => {
    try {
      return localStorage.getItem("vernacular-theme");
    } catch (error) {
      if (error instanceof DOMException) return null; // a browser may keep nothing for pages from a disk
      throw error;
    }
  })();
  const changed = [];

  function current() {
    return document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  }

  function label() {
    const button = document.getElementById("theme");
    if (!button) return;
    const other = current() === "dark" ? "Light" : "Dark";
    button.textContent = other;
    button.setAttribute("aria-label", `${other} colours`);
  }

  function choose(name) {
    document.documentElement.dataset.theme = name;
    try {
      localStorage.setItem("vernacular-theme", name);
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
    }
    label();
    changed.forEach((notify) => notify());
  }

  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
  dark.addEventListener("change", () => { label(); changed.forEach((notify) => notify()); });
  document.addEventListener("DOMContentLoaded", () => {
    label();
    document.getElementById("theme").addEventListener("click", () => choose(current() === "dark" ? "light" : "dark"));
  });
  return { current, onchange: (notify) => changed.push(notify) };
})();
