"use strict";
// Draws a placed graph: boxes as long as they can be read, else one shape of each colour; only what is in sight.

daceml.Graph = class {
  // shown: { nodes, edges }; told: { colour(box), lines(box), marked(box), chosen(box), pick(box), edge(edge) }
  constructor(told) {
    this.told = told;
    this.view = { x: -20, y: -20, scale: 1 };
    this.layer = daceml.drawn("g");
    this.svg = daceml.drawn("svg", { class: "graph", role: "img", "aria-label": "steps and the arrays between them" }, this.layer);
    this.svg.addEventListener("wheel", (event) => this.zoomed(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.grabbed(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  show(nodes, edges, open, { fit = false } = {}) {
    this.placed = daceml.placed(daceml.folded(nodes, edges, open));
    if (fit) this.fit();
    this.draw();
  }

  fit() {
    const { width, height } = this.size();
    const scale = Math.min(1, width / (this.placed.width + 40));
    this.view = { scale, x: -(width / scale - this.placed.width) / 2, y: -20 };
    if (this.placed.height * scale < height) this.view.y = -(height / scale - this.placed.height) / 2;
  }

  size() {
    const { clientWidth, clientHeight } = this.svg;
    return { width: clientWidth || 800, height: clientHeight || 520 };
  }

  // Move so that a box stands in the middle.
  centre(box) {
    const { width, height } = this.size();
    this.view.x = box.x + daceml.BOX.width / 2 - width / 2 / this.view.scale;
    this.view.y = box.y - height / 2 / this.view.scale;
    this.draw();
  }

  zoomed(event) {
    event.preventDefault();
    if (!event.ctrlKey && !event.metaKey) {
      this.view.x += event.deltaX / this.view.scale;
      this.view.y += event.deltaY / this.view.scale;
    } else this.zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    this.later();
  }

  zoom(factor, x = this.size().width / 2, y = this.size().height / 2) {
    const scale = Math.min(Math.max(this.view.scale * factor, 0.01), 3);
    this.view.x += x / this.view.scale - x / scale;
    this.view.y += y / this.view.scale - y / scale;
    this.view.scale = scale;
    this.later();
  }

  grabbed(event) {
    let [x, y] = [event.clientX, event.clientY];
    let dragging = false;
    const moved = (now) => {
      // a hand that clicks is not quite still
      dragging = dragging || Math.hypot(now.clientX - x, now.clientY - y) > 4;
      if (!dragging) return;
      this.view.x -= (now.clientX - x) / this.view.scale;
      this.view.y -= (now.clientY - y) / this.view.scale;
      [x, y] = [now.clientX, now.clientY];
      this.shift();
    };
    const ended = () => {
      removeEventListener("pointermove", moved);
      removeEventListener("pointerup", ended);
      if (dragging) this.draw();
    };
    addEventListener("pointermove", moved);
    addEventListener("pointerup", ended);
  }

  // Move what is drawn; what comes into sight is drawn at the end.
  shift() {
    const { x, y, scale } = this.view;
    this.layer.setAttribute("transform", `scale(${scale}) translate(${-x} ${-y})`);
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    if (!this.placed) return;
    const { x, y, scale } = this.view;
    const { width, height } = this.size();
    const [right, below] = [x + width / scale, y + height / scale];
    const box = daceml.BOX;
    const inSight = (one) => one.x < right && one.x + box.width > x && one.y < below && one.y + box.height > y;
    const seen = this.placed.boxes.filter(inSight);
    this.shift();
    const readable = scale > 0.35 && seen.length <= 1200;
    const most = this.placed.edges.reduce((found, edge) => Math.max(found, edge.bytes), 1);
    const edges = this.placed.edges.filter((edge) => {
      const [a, b] = [this.placed.boxes[edge.source], this.placed.boxes[edge.target]];
      return Math.min(a.y, b.y) < below && Math.max(a.y, b.y) + box.height > y &&
        Math.min(a.x, b.x) < right && Math.max(a.x, b.x) + box.width > x;
    });
    const parts = readable
      ? [...edges.map((edge) => this.line(edge, most)), ...seen.map((one) => this.box(one))]
      : [...this.overview(seen)];
    this.layer.replaceChildren(...parts);
    this.svg.dataset.boxes = String(this.placed.boxes.length);
    this.svg.dataset.drawn = String(seen.length);
  }

  overview(seen) {
    const shapes = new Map();
    for (const one of seen) {
      const colour = this.told.marked(one) ? "var(--mark)" : this.told.colour(one);
      shapes.set(colour, `${shapes.get(colour) || ""}M${one.x} ${one.y}h${daceml.BOX.width}v${daceml.BOX.height}h${-daceml.BOX.width}z`);
    }
    return [...shapes].map(([colour, path]) => daceml.drawn("path", { d: path, fill: colour }));
  }

  line(edge, most) {
    const [a, b] = [this.placed.boxes[edge.source], this.placed.boxes[edge.target]];
    const { width, height } = daceml.BOX;
    const [x1, y1, x2, y2] = [a.x + width / 2, a.y + height, b.x + width / 2, b.y];
    const bend = y2 > y1 ? Math.min((y2 - y1) / 2, 60) : 60;
    // a long line goes beside the boxes between its ends
    const aside = y2 - y1 > 3 * (height + daceml.BOX.down) ? width * 0.62 : 0;
    const path = aside
      ? `M${x1} ${y1}C${x1} ${y1 + bend} ${x1 + aside} ${y1} ${x1 + aside} ${y1 + bend + 20}L${x2 + aside} ${y2 - bend - 20}C${x2 + aside} ${y2} ${x2} ${y2 - bend} ${x2} ${y2}`
      : `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    const thick = 1 + 7 * Math.sqrt(edge.bytes / most);
    const title = `${edge.arrays.slice(0, 12).join(", ")}${edge.arrays.length > 12 ? ", …" : ""}: ${daceml.bytes(edge.bytes)}`;
    const line = daceml.drawn(
      "path",
      {
        d: path, class: `edge${this.told.markedEdge(edge) ? " marked" : ""}`, "stroke-width": thick.toFixed(1),
        "data-arrays": edge.arrays.join(" "), onclick: () => this.told.edge(edge),
      },
      daceml.drawn("title", {}, title),
    );
    return line;
  }

  box(one) {
    const { width, height } = daceml.BOX;
    const classes = ["box", one.group ? "group" : "", this.told.marked(one) ? "marked" : "", this.told.chosen(one) ? "chosen" : ""];
    const [first, second] = this.told.lines(one);
    const shape = (offset) =>
      daceml.drawn("rect", { x: one.x + offset, y: one.y + offset, width, height, rx: 5, fill: this.told.colour(one) });
    return daceml.drawn(
      "g",
      {
        class: classes.filter(Boolean).join(" "), tabindex: 0, role: "button", "data-box": one.name,
        onclick: () => this.told.pick(one),
        onkeydown: (event) => event.key === "Enter" && this.told.pick(one),
      },
      one.group ? shape(4) : null,
      shape(0),
      daceml.drawn("text", { x: one.x + 8, y: one.y + 16, class: "name" }, daceml.short(first, 26)),
      daceml.drawn("text", { x: one.x + 8, y: one.y + 32 }, daceml.short(second, 30)),
      daceml.drawn("title", {}, `${first}\n${second}`),
    );
  }
};

daceml.short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
