// What everything uses: elements, numbers with units, the view.

const $ = (id) => document.getElementById(id);

// An element with properties and children. Text becomes a text node, never markup.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  fill(made, properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function fill(made, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value);
  }
}

// A button that reads as a link.
const link = (text, onclick, properties = {}) =>
  element("button", { type: "button", class: "link", onclick, ...properties }, text);

// A table: a row of headings, and rows of cells, whose first one names the row. A cell is text, an element or several.
function table(headings, rows, classOf = () => "") {
  const heads = headings.map((heading) => element("th", { scope: "col" }, heading));
  const cell = (content, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, ...[content].flat());
  const body = rows.map((cells, i) => element("tr", { class: classOf(i) }, ...cells.map(cell)));
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...body),
  );
}

// A bar as long as a share of its place.
const bar = (share, properties) =>
  element("span", { class: "bar", style: { width: `${Math.max(0.5, 100 * share)}%` }, ...properties });

function digits(value, count = 4) {
  if (value === 0) return "0";
  const text = Number(value).toPrecision(count);
  return text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function duration(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return digits(ns / 1e9) + " s";
  if (size >= 1e6) return digits(ns / 1e6) + " ms";
  if (size >= 1e3) return digits(ns / 1e3) + " µs";
  return digits(ns) + " ns";
}

function bytes(count) {
  if (count >= 1e9) return digits(count / 1e9) + " GB";
  if (count >= 1e6) return digits(count / 1e6) + " MB";
  if (count >= 1e3) return digits(count / 1e3) + " kB";
  return digits(count) + " B";
}

// A moment, to the nanosecond.
function moment(ns) {
  const digits = { minimumFractionDigits: 3, maximumFractionDigits: 3 };
  return (ns / 1000).toLocaleString("en-US", digits) + " µs";
}

// Text of the program, which writes "us", with the sign of the unit.
const micro = (text) => text.replace(/(\d) us\b/g, "$1 µs");
const percent = (share, places = 1) => (100 * share).toFixed(places) + " %";
const counted = (number) => number.toLocaleString("en-US");

// The first position in values[first..last) whose value is at least `wanted`; the values ascend.
function lowerBound(values, first, last, wanted) {
  while (first < last) {
    const middle = (first + last) >> 1;
    if (values[middle] < wanted) first = middle + 1;
    else last = middle;
  }
  return first;
}

// Steps of 1, 2 or 5 times a power of ten that divide a span into at most `most` parts.
function niceStep(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return power * [1, 2, 5, 10].find((factor) => span / (power * factor) <= most);
}

// Bytes of a memory on chip, in the powers of two that it is made of.
const binary = (count) => (count >= 1024 ? `${digits(count / 1024)} KiB` : `${digits(count)} B`);

// A name of several words in no more than `room` pixels: its last words tell it from its neighbours.
function shortened(ink, name, room) {
  if (ink.measureText(name).width <= room) return name;
  for (let at = name.search(/[ _]/); at >= 0;) {
    const rest = `…${name.slice(at + 1)}`;
    if (ink.measureText(rest).width <= room) return rest;
    const next = name.slice(at + 1).search(/[ _]/);
    at = next < 0 ? -1 : at + 1 + next;
  }
  return fitted(ink, name, room);
}

// As much of a text as is no wider than `room` pixels; "" where a few letters are too wide.
function fitted(ink, text, room) {
  const wide = ink.measureText(text).width;
  if (wide <= room) return text;
  const fits = Math.floor((text.length * room) / wide) - 1;
  return fits < 3 ? "" : text.slice(0, fits) + "…";
}

// Who listens to a change is called with what changed.
function signal() {
  const listeners = [];
  return { listen: (f) => listeners.push(f), send: (...given) => listeners.forEach((f) => f(...given)) };
}
