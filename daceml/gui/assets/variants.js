"use strict";
// The page of an exploration: every variant a point, time across and memory up; below, a table.

daceml.pages.variants = class {
  constructor(told) {
    const part = (name) => (this[name] = daceml.element("section", { id: name }));
    told.body.append(part("heading"), part("plot"), part("details"), part("rows"));
    this.chosen = null;
  }

  show(view) {
    this.view = view;
    if (this.chosen === null) this.chosen = view.winner;
    const error = view.mean_error === null ? "" : `; predictions of measured ones were off ${(view.mean_error * 100).toFixed(1)} % on the average`;
    this.heading.replaceChildren(
      daceml.element("h1", {}, `Variants of ${view.title}`),
      daceml.element("p", {}, `${view.call}, ${view.inputs}, ${view.machine}: ${view.rows.length} variants, ${view.compiled} compiled and measured in ${Math.round(view.spent_s)} s${error}.` +
        (view.complete ? "" : " The search ended before the rest was known to be worse.")));
    this.draw();
  }

  draw() {
    const shown = this.view.rows.map((row, i) => ({ row, i, ms: row.measured_ms ?? row.predicted_ms })).filter((one) => one.ms !== null && one.row.memory_bytes !== null);
    this.plot.replaceChildren(shown.length ? this.scatter(shown) : "");
    this.details.replaceChildren(...this.about(this.view.rows[this.chosen]));
    const ms = (value) => (value === null || value === undefined ? "" : daceml.time(value * 1e3));
    this.rows.replaceChildren(daceml.table(
      ["variant", "device", "outcome", "predicted", "measured", "error", "memory", "moved"],
      this.view.rows.map((row, i) => daceml.element(
        "tr", { class: i === this.chosen ? "chosen" : "", "data-row": i, onclick: () => this.pick(i) },
        [row.title, row.device, row.outcome, ms(row.predicted_ms), ms(row.measured_ms),
          row.error === null ? "" : daceml.signed(row.error * 100, (value) => `${value.toFixed(1)} %`) + (row.disagrees ? ", outside the interval" : ""),
          row.memory_bytes === null ? "" : daceml.bytes(row.memory_bytes), row.moved_bytes === null ? "" : daceml.bytes(row.moved_bytes)]
          .map((cell) => daceml.element("td", {}, cell)))),
      { class: "variants" }));
  }

  pick(i) {
    this.chosen = i;
    this.draw();
  }

  scatter(shown) {
    const [width, height, left, below] = [760, 380, 70, 40];
    const range = (values) => {
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      const gap = (high - low) * 0.06 || high * 0.1 || 1;
      return [Math.max(low - gap, 0), high + gap];
    };
    const [x0, x1] = range(shown.flatMap(({ row, ms }) => [ms, ...(row.measured_ms === null ? [row.low_ms ?? ms, row.high_ms ?? ms] : [])]));
    const [y0, y1] = range(shown.map(({ row }) => row.memory_bytes));
    const x = (ms) => left + ((ms - x0) / (x1 - x0)) * (width - left - 10);
    const y = (bytes) => height - below - ((bytes - y0) / (y1 - y0)) * (height - below - 10);
    const axes = [];
    for (let i = 0; i <= 4; i++) {
      const [ms, bytes] = [x0 + ((x1 - x0) * i) / 4, y0 + ((y1 - y0) * i) / 4];
      axes.push(daceml.drawn("text", { x: x(ms), y: height - below + 18, "text-anchor": "middle" }, daceml.time(ms * 1e3)));
      axes.push(daceml.drawn("text", { x: left - 6, y: y(bytes) + 4, "text-anchor": "end" }, daceml.bytes(bytes)));
      axes.push(daceml.drawn("path", { d: `M${left} ${y(bytes)}H${width}`, class: "grid" }));
    }
    axes.push(daceml.drawn("text", { x: width - 10, y: height - 6, "text-anchor": "end" }, "time of a step: filled as measured, hollow as predicted, with the range of nine of ten"));
    axes.push(daceml.drawn("text", { x: 4, y: 12 }, "memory"));
    const points = shown.map(({ row, i, ms }) => {
      const classes = ["point", row.measured_ms === null ? "hollow" : "", i === this.view.winner ? "winner" : "", i === this.chosen ? "chosen" : ""];
      return daceml.drawn("g", { class: classes.filter(Boolean).join(" "), "data-point": i, tabindex: 0, role: "button",
          onclick: () => this.pick(i), onkeydown: (event) => event.key === "Enter" && this.pick(i) },
        row.measured_ms === null && row.low_ms !== null
          ? daceml.drawn("path", { d: `M${x(row.low_ms)} ${y(row.memory_bytes)}H${x(row.high_ms)}`, class: "interval" }) : null,
        daceml.drawn("circle", { cx: x(ms), cy: y(row.memory_bytes), r: i === this.view.winner ? 7 : 5 }),
        daceml.drawn("title", {}, `${row.title}: ${daceml.time(ms * 1e3)}, ${daceml.bytes(row.memory_bytes)}`));
    });
    return daceml.drawn("svg", { class: "scatter", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "variants by time and memory" }, axes, points);
  }

  about(row) {
    const between = (low, high) => (low === null || high === null ? "" : ` (${daceml.time(low * 1e3)} to ${daceml.time(high * 1e3)})`);
    const facts = [
      ["outcome", row.outcome + (row.why ? `: ${row.why}` : "")],
      ["predicted", row.predicted_ms === null ? "" : daceml.time(row.predicted_ms * 1e3) + between(row.low_ms, row.high_ms)],
      ["measured", row.measured_ms === null ? "" : daceml.time(row.measured_ms * 1e3) + between(row.measured_low_ms, row.measured_high_ms)],
      ["memory", row.memory_bytes === null ? "" : daceml.bytes(row.memory_bytes)],
      ["has to be accepted", row.promises.join("; ")],
      ["a million steps", row.usd_per_million === null ? "" : `${row.usd_per_million.toFixed(2)} USD`],
    ].filter(([, value]) => value);
    return [daceml.element("h2", {}, row.title), daceml.table([], facts, { class: "facts" })];
  }
};
