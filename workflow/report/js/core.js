"use strict";
// Data files, and the creation of all elements. Strings become text nodes, never HTML. Each script defines one
// constant, which the scripts after it use: a page that is opened from disk may not load modules.
const vernacular = (() => {
  const sent = new Map(); // name -> content of a script that has just been loaded
  const arrived = new Map(); // name -> value, in order of last use
  const KEPT = 300; // pieces held in memory; older ones are loaded again when needed

  // Called by the scripts under data/.
  function piece(name, value) {
    sent.set(name, value);
  }

  /** @returns {Promise<void>} */
  function script(address) {
    return new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = address;
      element.onload = () => {
        element.remove();
        resolve();
      };
      element.onerror = () => {
        element.remove();
        reject(new Error(`${address}: file not found in the report directory. Run the report command again.`));
      };
      document.head.append(element);
    });
  }

  /**
   * Return what `read` makes of the content of a data file; it is kept.
   * @template V
   * @param {string} name
   * @param {(content: any) => V} read
   * @returns {Promise<V>}
   */
  async function load(name, read) {
    if (!arrived.has(name)) await script(`data/${name}.js`);
    if (sent.has(name)) arrived.set(name, read(sent.get(name)));
    sent.delete(name);
    const value = arrived.get(name);
    arrived.delete(name);
    arrived.set(name, value); // mark as last used
    for (const old of arrived.keys()) {
      if (arrived.size <= KEPT) break;
      arrived.delete(old);
    }
    return value;
  }

  // el("a", {href: "#/x", class: "y", onclick: f}, "text", node, null, [more]): strings become text nodes.
  function el(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "vars") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(
      ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
    );
    return element;
  }

  // Text of a dataset or a model's name, isolated from the direction of the surrounding text.
  function data(text, properties) {
    return el("bdi", { dir: "auto", ...properties }, text);
  }

  // The view of an address that names nothing.
  function notFound(text) {
    const back = el("a", { href: "#/leaderboard" }, "Back to the leaderboard");
    return {
      title: "Not found",
      element: el("section", null, el("h1", null, "Not found"), el("p", null, text), el("p", null, back)),
    };
  }

  return {
    piece,
    load,
    script,
    el,
    data,
    notFound,
    /** @type {Map<string, (index: Index, route: Route) => any>} */ views: new Map(),
  };
})();
