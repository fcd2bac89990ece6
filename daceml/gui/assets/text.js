"use strict";
// Elements and amounts as text; everything of the page hangs on the one name `daceml`.
const daceml = { pages: {} };

daceml.SVG = "http://www.w3.org/2000/svg";

// element("button", { class: "plain", onclick: f }, "text", child): texts are never parsed as HTML
daceml.element = (name, attributes = {}, ...children) =>
  daceml.filled(document.createElement(name), attributes, children);

daceml.drawn = (name, attributes = {}, ...children) =>
  daceml.filled(document.createElementNS(daceml.SVG, name), attributes, children);

daceml.filled = (made, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
};

// Three digits in the largest unit of which there is one, after rounding: 999.7 us are 1.00 ms
daceml.scaled = (value, units) => {
  const size = Math.abs(value);
  const [unit, name] = units.find(([unit]) => size >= 0.9995 * unit) || units[units.length - 1];
  const number = value / unit;
  return `${Math.abs(number) >= 999.5 ? Math.round(number).toLocaleString("en") : number.toPrecision(3)} ${name}`;
};

daceml.bytes = (count) =>
  Math.abs(count) < 999.5 ? `${Math.round(count)} B` : daceml.scaled(count, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]);

daceml.time = (us) => (us === 0 ? "0 us" : daceml.scaled(us, [[1e6, "s"], [1e3, "ms"], [1, "us"]]));

daceml.count = (number) => number.toLocaleString("en");

daceml.signed = (value, text) => (value > 0 ? "+" : value < 0 ? "-" : "") + text(Math.abs(value));

// Nothing where a figure is what it was.
daceml.change = (now, before) => (before && now !== before ? `${now > before ? "+" : ""}${((now / before - 1) * 100).toFixed(1)} %` : "");

daceml.joined = (...texts) => texts.filter(Boolean).join("; ");

// Of shares from 0 to 1: pale to dark red, the same for light and dark backgrounds, whose text is black
daceml.heat = (share) => {
  const stops = [[247, 243, 226], [253, 212, 158], [252, 141, 89], [215, 68, 48]];
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const mixed = stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (at - low)));
  return `rgb(${mixed.join(",")})`;
};

daceml.table = (headers, rows, attributes = {}) =>
  daceml.element(
    "table",
    attributes,
    daceml.element("thead", {}, daceml.element("tr", {}, headers.map((text) => daceml.element("th", {}, text)))),
    daceml.element("tbody", {}, rows.map((row) =>
      Array.isArray(row) ? daceml.element("tr", {}, row.map((cell) => daceml.element("td", {}, cell))) : row)),
  );

// A table of many items: the first ones, and a button that says how many more there are and asks for them.
//   told: { row(item), open, count: of all where items are not all, more(): when it is pressed }
daceml.longTable = (headers, items, { row, open, count = items.length, more }, attributes = {}) => {
  const shown = open ? items : items.slice(0, daceml.MOST_ROWS);
  const table = daceml.table(headers, shown.map(row), attributes);
  if (shown.length === count) return [table];
  const button = daceml.element("button", { type: "button", class: "more", onclick: () => more() }, `and ${daceml.count(count - shown.length)} more`);
  return [table, button];
};
daceml.MOST_ROWS = 60;
