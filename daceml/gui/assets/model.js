"use strict";
// The page of a model: its graph, what each pass would bring, what was done, and the recipe that says so.

daceml.pages.model = class {
  constructor(told) {
    this.told = told;
    this.open = null;
    this.node = null; // place of the chosen step
    this.arrays = []; // those of the chosen line
    this.hovered = new Set(); // arrays that a move is about
    this.unfoldedMoves = new Set();
    this.unfoldedLists = new Set();
    this.texts = new Map();
    this.moveElements = new Map();
    this.graph = new daceml.Graph({
      colour: (box) => this.colour(box),
      lines: (box) => this.lines(box),
      marked: (box) => box.nodes.some((place) => this.view.nodes[place].arrays.some((array) => this.hovered.has(array))),
      markedEdge: (edge) => edge.arrays.some((array) => this.hovered.has(array) || this.arrays.includes(array)),
      chosen: (box) => this.node !== null && box.nodes.includes(this.node),
      pick: (box) => this.picked(box),
      edge: (edge) => this.pickedEdge(edge),
    });
    // what is in a fieldset can be held back while something is done
    const part = (name) => (this[name] = daceml.element("fieldset", { id: name }));
    told.body.append(
      part("heading"),
      part("totals"),
      daceml.element(
        "div",
        { class: "columns" },
        daceml.element("div", { class: "canvas" }, this.tools(), this.graph.svg),
        daceml.element("aside", {}, part("selection"), part("moves"), part("history"), part("recipe")),
      ),
    );
  }

  show(view) {
    const first = !this.view;
    const another = !first && view.hash !== this.view.hash;
    if (another && this.node !== null) this.node = null;
    // a graph that is the same is not sent again
    this.view = view.nodes ? view : { ...view, nodes: this.view.nodes, edges: this.view.edges };
    view = this.view;
    this.known = view.graph;
    daceml.cutRuns(view.nodes);
    this.slowest = view.nodes.reduce((most, node) => Math.max(most, daceml.stepTime(node)), 1e-9);
    if (first) this.open = daceml.opened(view.nodes, 300);
    this.hovered = new Set();
    // what stays as it was keeps its elements: a click that has begun ends on the same button
    if (this.differs("program", [view.totals, view.start, view.graph, view.hash, view.inputs, view.place, view.history])) {
      this.showHeading();
      this.showTotals();
      this.showHistory();
      this.showRecipe();
      this.draw(first);
    }
    this.showSelection();
    this.showMoves();
    if (this.told.live && view.looking) this.told.later(700);
  }

  // Whether something is not what it was when this was asked last.
  differs(name, data) {
    const text = JSON.stringify(data);
    if (this.texts.get(name) === text) return false;
    this.texts.set(name, text);
    return true;
  }

  draw(fit = false) {
    this.graph.show(this.view.nodes, this.view.edges, this.open, { fit });
  }

  button(text, act, attributes = {}) {
    return daceml.element("button", { type: "button", onclick: act, ...attributes }, text);
  }

  tools() {
    return daceml.element(
      "div",
      { class: "tools" },
      this.button("+", () => this.graph.zoom(1.3), { title: "larger; or Ctrl and the wheel" }),
      this.button("-", () => this.graph.zoom(1 / 1.3), { title: "smaller" }),
      this.button("fit", () => { this.graph.fit(); this.graph.draw(); }),
      this.button("fold", () => { this.open = new Set(); this.draw(true); }, { id: "fold", title: "close all modules" }),
      this.button("unfold", () => { this.unfoldAll(); }, { id: "unfold", title: "open all modules" }),
      daceml.element("span", { class: "legend" }, "a step's share of the slowest one's time: ",
        [0, 0.25, 0.5, 0.75, 1].map((share) => {
          const swatch = daceml.element("i", {});
          swatch.style.background = daceml.heat(share);
          return swatch;
        }),
        " width of a line: bytes"),
    );
  }

  unfoldAll() {
    for (const node of this.view.nodes) for (const group of daceml.groupsOf(node)) this.open.add(group);
    this.draw(true);
  }

  colour(box) {
    const time = box.nodes.reduce((sum, place) => sum + daceml.stepTime(this.view.nodes[place]), 0);
    return daceml.heat(Math.sqrt(time / (box.group ? this.whole() : this.slowest)));
  }

  whole() {
    return this.view.nodes.reduce((sum, node) => sum + daceml.stepTime(node), 1e-9);
  }

  lines(box) {
    const nodes = box.nodes.map((place) => this.view.nodes[place]);
    const sum = (of) => nodes.reduce((total, node) => total + of(node), 0);
    const amounts = `${daceml.time(sum(daceml.stepTime))}, ${daceml.bytes(sum((node) => node.bytes))}`;
    if (box.group) {
      const label = box.group.includes(".") ? box.group.slice(box.group.indexOf(".") + 1) : box.group;
      return [`${label} (${nodes.length} steps)`, amounts];
    }
    return [daceml.stepName(nodes[0]), amounts];
  }

  picked(box) {
    this.arrays = [];
    if (box.group) {
      this.open.add(box.group);
      this.draw();
      const inside = this.graph.placed.boxes.find((one) => box.nodes.includes(one.nodes[0]));
      if (inside) this.graph.centre(inside);
      return;
    }
    this.node = box.nodes[0];
    this.showSelection();
    this.graph.draw();
  }

  pickedEdge(edge) {
    this.arrays = [...new Set(edge.arrays)];
    this.node = null;
    this.showSelection();
    this.graph.draw();
  }

  showHeading() {
    const { view, told } = this;
    const inputs = view.inputs.map((input) => {
      const field = daceml.element("input", {
        value: input.shape.join(" x "), size: Math.max(6, input.shape.join(" x ").length), "data-input": input.name,
        "aria-label": `sizes of ${input.name}`, disabled: !told.live,
        onchange: async () => {
          const shape = field.value.split(/[\s,x]+/).filter(Boolean).map(Number);
          if (!(await told.act("sizes", { shapes: { [input.name]: shape } }))) field.value = input.shape.join(" x ");
        },
      });
      return daceml.element("label", {}, `${input.name} `, field, ` ${input.dtype} `);
    });
    this.heading.replaceChildren(
      daceml.element("h1", {}, view.title),
      daceml.element("p", {}, `${view.call}; `, inputs, " program ", daceml.element("code", { id: "hash", title: view.hash }, view.hash.slice(0, 12))),
    );
  }

  showTotals() {
    const { totals } = this.view;
    const before = this.view.start || {};
    const figure = (id, title, text, change) =>
      daceml.element("div", { class: "figure", id }, daceml.element("span", {}, title), daceml.element("b", {}, text), daceml.element("small", {}, change));
    const interval = `nine of ten: ${daceml.time(totals.low_us)} to ${daceml.time(totals.high_us)}`;
    this.totals.replaceChildren(
      figure("predicted", "predicted", daceml.time(totals.predicted_us), daceml.joined(interval, daceml.change(totals.predicted_us, before.predicted_us))),
      totals.measured_us === null
        ? daceml.element("div", { class: "figure", id: "measured" }, daceml.element("span", {}, "measured"),
            this.told.live ? this.button("measure", () => this.told.act("measure"), { id: "measure" }) : daceml.element("b", {}, "not"),
            daceml.element("small", {}, "compiles and runs it"))
        : figure("measured", "measured", daceml.time(totals.measured_us), totals.as_predicted ? "least of several calls"
            : `outside the predicted interval, ${daceml.time(totals.first_low_us)} to ${daceml.time(totals.first_high_us)} for all steps`),
      figure("moved", "bytes moved", daceml.bytes(totals.moved_bytes), daceml.change(totals.moved_bytes, before.moved_bytes)),
      figure("steps", "steps", daceml.count(totals.steps), daceml.joined(`${totals.kernels} different kernels`, daceml.change(totals.steps, before.steps))),
      this.view.no_start ? daceml.element("p", { class: "note" }, `no changes are shown; ${this.view.no_start}`) : "",
      figure("memory", "memory at the peak", daceml.bytes(totals.memory_bytes), daceml.change(totals.memory_bytes, before.memory_bytes)),
    );
  }

  showSelection() {
    const { view } = this;
    const arrays = this.node !== null ? view.nodes[this.node].arrays : this.arrays;
    const known = view.moves.map((move) => [move.applied, move.at, this.about(move, new Set(arrays)).length]);
    if (!this.differs("selection", [this.node, this.arrays, view.hash, view.totals.measured_us, known])) return;
    const parts = [];
    if (this.node !== null) {
      const node = view.nodes[this.node];
      const facts = [
        ["step", `${this.node + 1} of ${view.nodes.length}, ${node.half}, ${node.kind}`],
        ["module", node.path || "(the model itself)"],
        ["line", node.source],
        ["operators", node.operators.join(", ")],
        ["runs as", node.implementation],
        ["predicted", `${daceml.time(node.predicted_us)} (a factor of ${Math.exp(1.645 * node.sigma).toFixed(2)} either way)`],
        ["measured", node.measured_us === null ? "" : daceml.time(node.measured_us)],
        ["bytes moved", daceml.bytes(node.bytes)],
        ["operations", daceml.count(node.flops)],
        ["weights", node.weights.join(", ")],
        ["ranked higher", node.refusals.join("; ")],
      ].filter(([, value]) => value);
      parts.push(daceml.element("h2", {}, daceml.stepName(node)), daceml.table([], facts, { class: "facts" }));
      const groups = daceml.groupsOf(node);
      parts.push(daceml.element("p", {}, "fold ", groups.map((group) =>
        this.button(group, () => { this.open.delete(group); this.node = null; this.showSelection(); this.draw(); }, { class: "plain" }))));
      parts.push(...this.aboutArrays(node.arrays));
    } else if (arrays.length) {
      const edges = new Map(view.edges.map((edge) => [edge[2], edge]));
      const rows = arrays.map((array) => [array, ...(edges.has(array) ? [edges.get(array)[4], daceml.bytes(edges.get(array)[3])] : [])]);
      parts.push(daceml.element("h2", {}, arrays.length === 1 ? arrays[0] : `${daceml.count(arrays.length)} arrays`));
      parts.push(...this.list(`arrays ${arrays}`, ["array", "type", "bytes"], rows, (row) => row));
      parts.push(...this.aboutArrays(arrays));
    }
    this.selection.replaceChildren(...parts);
  }

  // What passes would do, or refuse, at some arrays.
  aboutArrays(arrays) {
    const wanted = new Set(arrays);
    const rows = this.view.moves.flatMap((move) => this.about(move, wanted).map(([place, reason]) =>
      [move.pass, place, reason ? daceml.element("span", { class: "refused" }, reason) : this.placeButton(move, place)]));
    // the largest ones were sent
    const rest = this.view.moves.filter((move) => move.effect && move.effect.refused.length < move.effect.refusals)
      .map((move) => daceml.element("p", { class: "note" }, `${move.pass} refuses more, which are not here yet `, this.told.live ? this.button("all", () => this.everything(move)) : null));
    if (!rows.length) return [daceml.element("p", {}, "no pass is about its arrays, of those that are known yet"), ...rest];
    return [...this.list(`about ${arrays}`, ["pass", "array", ""], rows, (row) => row, { class: "places" }), ...rest];
  }

  // All that a pass refuses, however much that is.
  everything(move) {
    return this.told.act("effect", { pass: move.pass });
  }

  // A table that may be long; once it was unfolded it stays so.
  list(name, headers, items, row, attributes = {}, { count = items.length, ask = null } = {}) {
    const holder = daceml.element("div", {});
    const fill = () => holder.replaceChildren(
      ...daceml.longTable(headers, items, { row, count, open: this.unfoldedLists.has(name), more }, attributes));
    const more = () => {
      this.unfoldedLists.add(name);
      if (ask && items.length < count) ask();
      else fill();
    };
    fill();
    return [holder];
  }

  // [array, why a pass refuses it; nothing where it applies]
  about(move, wanted) {
    if (!move.effect) return [];
    const applies = move.effect.places.filter((place) => wanted.has(place)).map((place) => [place, ""]);
    return applies.concat(move.effect.refused.filter(([subject]) => wanted.has(subject)));
  }

  placeButton(move, place) {
    if (move.applied === "everywhere" || move.at.includes(place)) return "applied";
    if (!this.told.live) return "would apply";
    return this.button("apply here", () => this.told.act("apply", { pass: move.pass, place }), {
      "data-apply": move.pass, "data-place": place, onpointerenter: () => this.hover([place]), onpointerleave: () => this.hover([]),
    });
  }

  hover(places) {
    this.hovered = new Set(places);
    this.graph.later();
  }

  showMoves() {
    const known = this.moveElements.size > 0;
    for (const move of this.view.moves) {
      if (!this.differs(`move ${move.pass}`, move)) continue;
      const made = this.move(move);
      if (known) this.moveElements.get(move.pass).replaceWith(made);
      this.moveElements.set(move.pass, made);
    }
    if (!this.differs("idle moves", this.view.moves.map(daceml.isIdle))) return;
    const levels = new Map();
    for (const move of this.view.moves) {
      if (!levels.has(move.level)) levels.set(move.level, []);
      levels.get(move.level).push(move);
    }
    const parts = [daceml.element("h2", {}, "Transformations")];
    for (const [level, moves] of levels) {
      parts.push(daceml.element("h3", {}, daceml.LEVELS[level] || level));
      const element = (move) => this.moveElements.get(move.pass);
      parts.push(...moves.filter((move) => !daceml.isIdle(move)).map(element));
      const idle = moves.filter(daceml.isIdle);
      if (idle.length) parts.push(this.folded(level, idle.map(element)));
    }
    this.moves.replaceChildren(...parts);
  }

  // Passes that change nothing and refuse nothing, in one line.
  folded(level, elements) {
    const name = `idle ${level}`;
    return daceml.element(
      "details",
      {
        class: "idle-moves", open: this.unfoldedMoves.has(name),
        ontoggle: (event) => this.unfoldedMoves[event.target.open ? "add" : "delete"](name),
      },
      daceml.element("summary", {}, `${elements.length} ${elements.length === 1 ? "pass changes" : "passes change"} nothing here`),
      elements,
    );
  }

  move(move) {
    const effect = move.effect;
    const places = effect ? effect.places : [];
    const applied = move.applied !== "no";
    const buttons = [];
    if (this.told.live) {
      if (move.applied !== "everywhere" && !(effect && effect.why))
        buttons.push(this.button("apply", () => this.told.act("apply", { pass: move.pass }), { "data-apply": move.pass }));
      if (applied) buttons.push(this.button("leave out", () => this.told.act("leave_out", { pass: move.pass }), { "data-leave": move.pass }));
    }
    const details = [daceml.element("p", {}, move.summary)];
    if (places.length)
      details.push(...this.list(`places ${move.pass}`, [move.applied === "everywhere" ? "applied at" : "applies at", ""],
        places, (place) => [place, this.placeButton(move, place)], { class: "places" }));
    if (effect && effect.refused.length)
      details.push(...this.list(`refusals ${move.pass}`, [`refused: ${effect.refusals}`, "why"], effect.refused,
        ([subject, reason, bytes, where]) => [`${subject}${bytes ? ` (${daceml.bytes(bytes)})` : ""}${where ? `, ${where}` : ""}`, reason],
        { class: "refusals" }, { count: effect.refusals, ask: this.told.live ? () => this.everything(move) : null }));
    const state = applied ? (move.applied === "everywhere" ? "applied" : `at ${move.at.length}`) : "";
    const made = daceml.element(
      "details",
      {
        class: `move${applied ? " applied" : ""}${effect && !effect.changes ? " idle" : ""}`, "data-move": move.pass,
        open: this.unfoldedMoves.has(move.pass),
        onpointerenter: () => this.hover([...places]), onpointerleave: () => this.hover([]),
        ontoggle: (event) => this.unfoldedMoves[event.target.open ? "add" : "delete"](move.pass),
      },
      daceml.element("summary", {},
        daceml.element("b", {}, move.pass), " ", daceml.element("i", {}, state), " ",
        daceml.element("span", { class: "worth" }, daceml.worth(effect)), buttons),
      details,
    );
    return made;
  }

  showHistory() {
    const { view, told } = this;
    this.history.replaceChildren(
      daceml.element("h2", {}, "History"),
      told.live
        ? daceml.element("p", {},
            this.button("undo", () => told.act("undo"), { id: "undo", disabled: view.place === 0 }),
            this.button("redo", () => told.act("redo"), { id: "redo", disabled: view.place === view.history.length - 1 }))
        : null,
      daceml.element("ol", {}, view.history.map((title, i) =>
        daceml.element("li", { class: i === view.place ? "now" : i > view.place ? "undone" : "" }, title))),
    );
  }

  showRecipe() {
    const { view } = this;
    const link = daceml.element("a", {
      id: "export", class: "button", download: `${view.title.toLowerCase()}_recipe.py`,
      href: URL.createObjectURL(new Blob([view.script], { type: "text/x-python" })),
    }, "export as a Python recipe");
    if (this.link) URL.revokeObjectURL(this.link.href);
    this.link = link;
    this.recipe.replaceChildren(
      daceml.element("h2", {}, "Recipe"), daceml.element("p", {}, link),
      daceml.element("details", {}, daceml.element("summary", {}, "look at it"), daceml.element("pre", { id: "script" }, view.script)),
    );
  }
};

daceml.LEVELS = {
  coarse: "operators, before differentiation", operators: "operators", local: "loops: fusion",
  layout: "loops: layout", hardware: "loops: hardware",
};

daceml.isIdle = (move) => Boolean(move.effect && !move.effect.why && !move.effect.changes && !move.effect.refusals);

daceml.stepTime = (node) => (node.measured_us === null ? node.predicted_us : node.measured_us);

daceml.stepName = (node) => (node.operators.length ? [...new Set(node.operators)].join(" + ") : node.label);

// What a pass would bring, or has brought: less is better.
daceml.worth = (effect) => {
  if (effect === null) return "…";
  if (effect.why) return `cannot: ${effect.why}`;
  if (!effect.changes) return effect.refusals ? `changes nothing; ${effect.refusals} refused` : "changes nothing";
  const parts = [
    `${daceml.signed(effect.time_us, daceml.time)} predicted`,
    effect.moved_bytes ? `${daceml.signed(effect.moved_bytes, daceml.bytes)} moved` : "",
    effect.steps ? `${daceml.signed(effect.steps, daceml.count)} steps` : "",
    effect.memory_bytes ? `${daceml.signed(effect.memory_bytes, daceml.bytes)} memory` : "",
  ];
  return parts.filter(Boolean).join(", ");
};
