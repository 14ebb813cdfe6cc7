"use strict";
// One item over training: a slider selects the checkpoint whose answer is shown.
(() => {
  const { el, data, notFound, views } = vernacular;

  views.set("curve-item", async (index, route) => {
    const number = index.evaluationNumber.get(route.parts[0]);
    const setting = index.evaluations[number];
    if (!setting || !index.curves?.includes(number)) return notFound(`Curves of “${route.parts[0] ?? ""}” not found.`);
    const overview = await pieces.curves();
    const curve = overview.curves.find((each) => each.name === route.parts[1]) ?? overview.curves[0];
    const task = await pieces.task(number);
    const path = await outcomes(number, task, curve);
    if (!path.length) return notFound(`No checkpoint of ${curve.name} has outputs for ${setting.id}.`);
    const order = byChange(path, task.items);
    const position = (await pieces.positionOf(number, task, route.parts[2])) ?? order[0];
    const item = await pieces.item(number, task, position);
    const steps = path
      .map((checkpoint) => ({ ...checkpoint, row: checkpoint.rows.get(position) }))
      .filter((checkpoint) => checkpoint.row);
    if (!steps.length) return notFound(`Item “${route.parts[2]}” has no results in ${curve.name}.`);
    const start = Math.max(
      0,
      steps.findIndex((step) => String(step.x) === route.query.get("at")),
    );
    const shown = el("div", null);
    const figure = el("div", null);
    const at = order.indexOf(position);
    const around = await Promise.all(
      [-1, 1].map(async (step) =>
        order[at + step] === undefined ? null : (await pieces.item(number, task, order[at + step])).id,
      ),
    );
    const address = (id, name = curve.name) => names.address(["curve-item", setting.id, name, id]);
    const curves = overview.curves.map((each) => [each.name, each.name]);
    const slider = control(steps, start, async (k) => draw(number, task, setting, item, position, steps[k], shown));
    const element = el(
      "section",
      { class: "item" },
      widgets.crumbs(
        el("a", { href: names.address(["curves", setting.id]) }, "Curves"),
        data(names.called(index, number)),
      ),
      widgets.itemHeading(item, setting),
      widgets.around("Other items", around, address, `${at + 1} of ${order.length}`, [
        "← more changes",
        "fewer changes →",
      ]),
      overview.curves.length < 2
        ? null
        : widgets.controls(
            widgets.select("curve", "Curve", curves, curve.name, (name) => {
              location.hash = address(item.id, name);
            }),
          ),
      slider.element,
      figure,
      shown,
    );
    const after = async () => {
      await slider.show(start);
      const drawn = measured(index, setting, curve, item, steps, slider);
      if (!drawn) return;
      figure.append(drawn.element);
      await drawn.draw();
    };
    return { title: `${item.id} over training · ${setting.id}`, section: "curves", element, after };
  });

  // Each checkpoint with outputs: its position, and its rows by position of the item.
  /** @param {Task} task @param {Curve} curve */
  async function outcomes(number, task, curve) {
    const xs = curveRows.positions(curve, curve.axis);
    const path = [];
    for (const [k, model] of curve.models.entries()) {
      if (!task.models.includes(model)) continue;
      const content = await pieces.results(number, model);
      const rows = new Map(content.rows.map((row) => [row.position, row]));
      path.push({
        model,
        x: xs[k],
        name: curve.checkpoints[k],
        axis: curveRows.AXES[curve.axis],
        measure: content.measure,
        rows,
      });
    }
    return path;
  }

  // Items whose outcome changes most often first, then those that are learned last.
  function byChange(path, count) {
    const changes = (position) =>
      path.reduce(
        (sum, step, k) =>
          sum + (k > 0 && step.rows.get(position)?.outcome !== path[k - 1].rows.get(position)?.outcome ? 1 : 0),
        0,
      );
    const known = Array.from({ length: count }, (_, position) => position).filter((position) =>
      path.some((step) => step.rows.has(position)),
    );
    const counted = new Map(known.map((position) => [position, changes(position)]));
    return known.sort((a, b) => counted.get(b) - counted.get(a) || a - b);
  }

  // The slider with its label; `show` draws checkpoint k, the last call wins.
  function control(steps, start, drawn) {
    const label = el("output", { for: "checkpoint" });
    const input = el("input", {
      id: "checkpoint",
      type: "range",
      min: 0,
      max: steps.length - 1,
      step: 1,
      value: start,
      "aria-label": "Checkpoint",
      disabled: steps.length < 2,
      oninput: () => show(Number(input.value)),
    });
    async function show(k) {
      const step = steps[k];
      input.value = k;
      input.setAttribute("aria-valuetext", `${step.name}, ${format.OUTCOMES[step.row.outcome]}`);
      label.replaceChildren(`${step.name} · ${format.count(step.x)} ${step.axis} `, items.badge(step.row.outcome));
      await drawn(k);
    }
    return {
      element: el("div", { class: "training" }, el("label", { for: "checkpoint" }, "Checkpoint"), input, label),
      show,
    };
  }

  let turn = 0;
  /** @param {Task} task @param {Evaluation} setting @param {Item} item */
  async function draw(number, task, setting, item, position, step, container) {
    const own = ++turn;
    const block = Math.floor(position / task.block);
    const details = await pieces.details(number, step.model, block);
    const shots = await pieces.shots(number);
    if (own !== turn) return; // the slider has moved on
    const detail = details.rows.find((row) => row.position === position);
    container.replaceChildren(
      el(
        "div",
        { class: "columns" },
        el("div", null, parts.prompt(item, detail, details, shots, setting, task), parts.generation(detail, setting)),
        el("div", null, parts.options(item, detail, step.row, setting, task)),
      ),
    );
  }

  // The measure of the item (margin, surprisal, …) over training; a click selects the checkpoint.
  /** @param {Index} index @param {Evaluation} setting @param {Curve} curve @param {Item} item */
  function measured(index, setting, curve, item, steps, slider) {
    const rows = steps
      .map((step, k) => ({
        curve: curve.name,
        part: "1",
        x: step.x,
        value: step.row.value,
        low: null,
        high: null,
        place: step.name,
        label: format.value(step.row.value, ""),
        range: format.OUTCOMES[step.row.outcome],
        k,
      }))
      .filter((row) => row.value !== null);
    if (rows.length < 2) return null;
    const measure = steps[0].measure ?? "value";
    const title = names.measure(index, measure);
    const line = measure === "margin" ? [{ value: 0, name: "correct above" }] : [];
    return plot.figure(
      `${title}: this item over training`,
      measure === "margin"
        ? "Score of the best correct option minus that of the best incorrect option: above 0 is correct."
        : null,
      "curves",
      {
        rows,
        line,
        axis: { title: steps[0].axis, log: false },
        title: null,
        pairs: plot.series([curve.name]),
        by: "curve",
      },
      {
        file: `${setting.id} ${curve.name} ${item.id}`,
        height: 160,
        description: `${title}: this item at each checkpoint.`,
        onclick: (row) => slider.show(row.k),
      },
    );
  }
})();
