"use strict";
// The only global object: data files, and the creation of all elements. Strings become text nodes, never HTML.
const vernacular = (() => {
  const arrived = new Map(); // name -> value, in order of last use
  const KEPT = 300; // pieces held in memory; older ones are loaded again when needed

  // Called by the scripts under data/.
  function piece(name, value) {
    arrived.set(name, value);
  }

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

  async function load(name) {
    if (!arrived.has(name)) await script(`data/${name}.js`);
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

  return { piece, load, script, el, data, views: new Map() };
})();
