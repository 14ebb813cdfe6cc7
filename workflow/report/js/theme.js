"use strict";
// Light or dark theme: the system setting until the button is used.
const theme = (() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = (() => {
    try {
      return localStorage.getItem("vernacular-theme");
    } catch (error) {
      if (error instanceof DOMException) return null; // browsers may deny storage to pages opened from disk
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
    button.setAttribute("aria-label", `${other} colors`);
  }

  function choose(name) {
    document.documentElement.dataset.theme = name;
    try {
      localStorage.setItem("vernacular-theme", name);
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
    }
    label();
    for (const notify of changed) notify();
  }

  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
  dark.addEventListener("change", () => {
    label();
    for (const notify of changed) notify();
  });
  document.addEventListener("DOMContentLoaded", () => {
    label();
    document.getElementById("theme").addEventListener("click", () => choose(current() === "dark" ? "light" : "dark"));
  });
  return { current, onchange: (notify) => changed.push(notify) };
})();
