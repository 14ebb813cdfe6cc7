"use strict";
// Views by URL fragment, so that links can be shared and the back button works:
// "#/task/<evaluation>/<model>?key=value".
(() => {
  const { el, notFound, views } = vernacular;
  const ABOUT_SAMPLES =
    "(samples): a few demonstration items of the package, which show how a task runs and measure nothing.";
  const main = document.getElementById("main");
  /** @type {Index | null} */
  let index = null;
  let navigations = 0; // counts navigations, so that a slow view does not replace a later one
  let before = null;

  function parse(hash) {
    const [path, search] = hash.replace(/^#\/?/, "").split("?");
    try {
      const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
      const query = new Map(
        (search ?? "")
          .split("&")
          .filter(Boolean)
          .map((pair) => {
            const at = pair.indexOf("=");
            return at < 0 ? [pair, ""] : [pair.slice(0, at), decodeURIComponent(pair.slice(at + 1))];
          }),
      );
      return { view: parts[0] ?? "overview", parts: parts.slice(1), query };
    } catch (error) {
      if (error instanceof URIError) return { view: "", parts: [], query: new Map() };
      throw error;
    }
  }

  async function show() {
    const turn = ++navigations;
    const route = parse(location.hash);
    const view = views.get(route.view);
    document.body.dataset.ready = "no";
    try {
      index ??= names.read(await pieces.index());
      /** @type {NodeListOf<HTMLAnchorElement>} */
      const links = document.querySelectorAll("nav a");
      for (const link of links) {
        if (link.hash === "#/curves") link.hidden = !index.curves?.length;
        if (link.hash === "#/languages") link.hidden = !index.between_languages;
        if (link.hash === "#/audit") link.hidden = !index.n_audit_lists;
      }
      const drawn = view ? await view(index, route) : notFound(`View “${route.view}” not found.`);
      if (turn !== navigations) return;
      const hasSamples = index.evaluations.some((evaluation) => evaluation.samples);
      main.replaceChildren(...(hasSamples ? [el("p", { class: "banner" }, ABOUT_SAMPLES)] : []), drawn.element);
      document.title = `${drawn.title} · ${index.title}`;
      for (const link of links) {
        if (link.hash === `#/${drawn.section ?? route.view}`) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      await drawn.after?.();
      if (turn !== navigations) return;
      const page = `${route.view}/${route.parts.join("/")}`;
      if (before !== null && before !== page) {
        main.focus({ preventScroll: true });
        scrollTo(0, 0);
      }
      before = page;
      document.getElementById("status").textContent = drawn.title;
    } catch (error) {
      if (turn !== navigations) return;
      main.replaceChildren(notFound(error.message).element);
      console.error(error);
    }
    document.body.dataset.ready = "yes";
  }

  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", show);
  theme.onchange(show);
  show();
})();
