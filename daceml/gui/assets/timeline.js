"use strict";
// The page of a recorded run: lanes as measured, replayed and predicted, on one axis of time.

daceml.COLOURS = {
  other: "#9aa5b1", forward: "#5b9bd5", backward: "#d98b3a", optimizer: "#6aa84f", data: "#9b6fc0",
};
daceml.PATH = "#c0392b";

daceml.pages.trace = class {
  constructor(told) {
    this.told = told;
    const part = (name) => (this[name] = daceml.element("fieldset", { id: name })); // held back while something is done
    this.canvas = daceml.element("canvas", { id: "lanes", tabindex: 0, role: "img", "aria-label": "lanes of tasks over time" });
    this.tip = daceml.element("p", { class: "tip", id: "tip" }, "point at a task; the wheel scrolls, with Ctrl it zooms; drag to move");
    told.body.append(part("heading"), part("questions"), part("answers"), this.tools(), this.tip, this.canvas);
    this.canvas.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    this.canvas.addEventListener("pointermove", (event) => this.pointed(event));
    this.canvas.addEventListener("pointerdown", (event) => this.grabbed(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  show(view) {
    const first = !this.view;
    this.view = view;
    this.rows = [];
    for (const run of view.runs) {
      this.rows.push({ title: run.title + (run.left_out ? ` (the longest tasks; ${daceml.count(run.left_out)} short ones left out)` : "") });
      if (run.path.length)
        this.rows.push({ name: "critical path", tasks: run.path.map(([start, time, name]) => [start, time, name, 1, 0]), phases: run.phases, path: true });
      for (const lane of run.lanes) this.rows.push({ ...lane, phases: run.phases });
    }
    this.end = view.runs.reduce((most, run) => run.lanes.reduce((end, lane) => {
      const last = lane.tasks[lane.tasks.length - 1];
      return Math.max(end, last[0] + last[1]);
    }, most), 1);
    if (first) this.range = [0, this.end];
    this.showHeading();
    this.draw();
  }

  tools() {
    const button = (text, act) => daceml.element("button", { type: "button", onclick: act }, text);
    return daceml.element("div", { class: "tools" },
      button("+", () => this.zoom(1 / 1.5)), button("-", () => this.zoom(1.5)),
      button("all", () => { this.range = [0, this.end]; this.draw(); }),
      daceml.element("span", { class: "legend" }, Object.entries(daceml.COLOURS).concat([["critical path", daceml.PATH]]).map(([name, colour]) => {
        const swatch = daceml.element("i", {});
        swatch.style.background = colour;
        return daceml.element("span", {}, swatch, ` ${name} `);
      })));
  }

  showHeading() {
    const { view, told } = this;
    this.heading.replaceChildren(
      daceml.element("h1", {}, view.title), daceml.element("p", { id: "error" }, view.error),
      ...view.notes.map((note) => daceml.element("p", { class: "note" }, note)));
    const field = daceml.element("input", { id: "question", placeholder: "--amp  or  --cuda-graphs --fused-adam", size: 48, "aria-label": "a what-if question" });
    const ask = (event) => {
      event.preventDefault();
      told.act("ask", { question: field.value });
    };
    this.questions.replaceChildren(...(told.live
      ? [daceml.element("form", { onsubmit: ask }, "What if? ", field, daceml.element("button", { id: "ask" }, "predict"),
          view.answers.length ? daceml.element("button", { type: "button", onclick: () => told.act("forget") }, "forget") : null)]
      : []));
    this.answers.replaceChildren(...(view.answers.length
      ? [daceml.table(["what if", "step", "best .. worst", "speedup", "what it changes", "assumed"],
          view.answers.map((answer) => [answer.title, daceml.time(answer.step_us),
            `${daceml.time(answer.low_us)} .. ${daceml.time(answer.high_us)}`, answer.speedup === null ? "" : answer.speedup.toFixed(2), answer.changes, answer.assumptions.join("; ")]))]
      : []), ...view.refusals.map((text) => daceml.element("p", { class: "refused" }, text)));
  }

  zoom(factor, at = (this.range[0] + this.range[1]) / 2) {
    const [from, to] = this.range;
    const length = Math.min(Math.max((to - from) * factor, 0.05), this.end * 1.2);
    const begin = at - ((at - from) / (to - from)) * length;
    this.range = [begin, begin + length];
    this.draw();
  }

  wheeled(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 300), this.timeAt(event.offsetX));
    } else if (event.deltaX) {
      event.preventDefault();
      this.move(event.deltaX);
    }
  }

  move(pixels) {
    const [from, to] = this.range;
    const by = (pixels * (to - from)) / this.width();
    this.range = [from + by, to + by];
    this.draw();
  }

  grabbed(event) {
    let x = event.clientX;
    const moved = (now) => { this.move(x - now.clientX); x = now.clientX; };
    const ended = () => { removeEventListener("pointermove", moved); removeEventListener("pointerup", ended); };
    addEventListener("pointermove", moved);
    addEventListener("pointerup", ended);
  }

  width() {
    return Math.max(this.canvas.clientWidth - 180, 100);
  }

  timeAt(x) {
    const [from, to] = this.range;
    return from + ((x - 180) / this.width()) * (to - from);
  }

  pointed(event) {
    const row = this.rows[Math.floor((event.offsetY - 22) / 22)];
    if (!row || !row.tasks) return;
    const at = this.timeAt(event.offsetX);
    const slack = ((this.range[1] - this.range[0]) / this.width()) * 2;
    const found = row.tasks.find(([start, time]) => start - slack <= at && at <= start + time + slack);
    if (found)
      this.tip.textContent = `${this.view.names[found[2]]}: ${daceml.time(found[1])} from ${daceml.time(found[0])} on, ${row.name}` +
        (found[3] ? "; on the critical path" : "");
  }

  draw() {
    if (!this.view) return;
    const scale = window.devicePixelRatio || 1;
    const height = 22 + this.rows.length * 22;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = this.canvas.clientWidth * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(document.body);
    pen.scale(scale, scale);
    pen.font = "12px system-ui, sans-serif";
    const [from, to] = this.range;
    const width = this.width();
    const x = (time) => 180 + ((time - from) / (to - from)) * width;
    pen.fillStyle = style.color;
    for (let i = 0; i <= 8; i++) {
      const time = from + ((to - from) * i) / 8;
      pen.fillText(daceml.time(time), x(time) - (i === 8 ? 50 : 0), 14);
    }
    let drawn = 0;
    this.rows.forEach((row, i) => {
      const y = 22 + i * 22;
      pen.fillStyle = style.color;
      pen.font = row.title ? "bold 12px system-ui, sans-serif" : "12px system-ui, sans-serif";
      pen.fillText(daceml.short(row.title || row.name, row.title ? 100 : 26), 4, y + 15);
      if (!row.tasks) return;
      let last = -1; // tasks that share a pixel are one rectangle
      for (const [start, time, name, onPath, phase] of row.tasks) {
        if (start > to) break;
        if (start + time < from) continue;
        const [left, right] = [Math.max(x(start), 180), Math.min(x(start + time), 180 + width)];
        const wide = Math.max(right - left, 0.7);
        if (wide < 1 && Math.floor(left) === last && !onPath) continue;
        last = Math.floor(left);
        pen.fillStyle = row.path ? daceml.PATH : daceml.COLOURS[row.phases[phase]] || daceml.COLOURS.other;
        pen.fillRect(left, y + 2, wide, 17);
        if (onPath && !row.path) {
          pen.fillStyle = daceml.PATH;
          pen.fillRect(left, y + 16, wide, 3);
        }
        if (wide > 40) {
          pen.fillStyle = "#fff";
          pen.fillText(daceml.short(this.view.names[name], Math.floor(wide / 7)), left + 3, y + 14);
        }
        drawn += 1;
      }
    });
    this.canvas.dataset.drawn = String(drawn);
    this.canvas.dataset.rows = String(this.rows.length);
  }
};
