// Colours that differ on light and dark ground, and what they stand for.

const PALETTES = {
  light: [
    "#3b6fb6",
    "#d9822b",
    "#3f9a5f",
    "#b0499c",
    "#8a6d3b",
    "#2790a0",
    "#c9463d",
    "#7a68c7",
    "#7f9427",
    "#b7791f",
    "#5b7083",
    "#d0557f",
  ],
  dark: [
    "#6ea8fe",
    "#f2a65a",
    "#63c98a",
    "#e07fd0",
    "#c4a36b",
    "#5ccfdc",
    "#ff7b72",
    "#a99bf5",
    "#bcd35f",
    "#e3b341",
    "#93a9bd",
    "#ff9ebd",
  ],
};
const REASON_COLOURS = {
  none: 10,
  dma: 0,
  engine: 2,
  reuse: 3,
  spill: 6,
  order: 7,
  issue: 1,
  queue: 5,
  port: 4,
};
const PATH_COLOURS = {
  launch: 10,
  execute: 2,
  result: 10,
  weights: 9,
  table: 5,
  signal: 3,
  issue: 1,
  "first byte": 7,
  moving: 0,
  end: 10,
};
const STALL_COLOURS = {
  busy: 2,
  dma: 0,
  tensor: 7,
  vector: 5,
  scalar: 8,
  gpsimd: 4,
  sync: 11,
  buffer: 3,
  spill: 6,
  weights: 9,
  port: 9,
  issue: 1,
  "first byte": 4,
  start: 10,
  end: 10,
};
// An instruction on the critical path has the colour of its engine.
const ENGINE_COLOURS = { tensor: 2, vector: 5, scalar: 8, gpsimd: 4, sync: 11 };
const OTHERS = 10;

function pathColour(kind, engine) {
  return kind === "execute" ? ENGINE_COLOURS[engine] : PATH_COLOURS[kind];
}

const theme = {
  isDark: false,
  changed: signal(),
  set(isDark) {
    this.isDark = isDark;
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    Object.assign(this, {
      ground: read("--ground"),
      raised: read("--raised"),
      ink: read("--ink"),
      faint: read("--faint"),
      rule: read("--rule"),
      mark: read("--mark"),
    });
    this.colours = PALETTES[isDark ? "dark" : "light"];
    this.dimmed = this.colours.map((colour) => colour + "30");
    this.softer = this.colours.map((colour) => colour + "c8");
    this.tails = this.colours.map((colour) => colour + "55");
    this.inks = this.colours.map(inkOn);
    this.changed.send();
  },
};

// Text on a colour: black or white, whichever stands out more (WCAG 2.2, relative luminance).
function inkOn(colour) {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const [r, g, b] = parts.map((p) => (p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

// Per piece of the critical path the position of its colour.
function pathColours() {
  const engines = T.lanes.map(([, engine]) => engine);
  return Uint8Array.from(D.pathKind, (kind, i) => {
    const event = D.pathEvent[i];
    return pathColour(T.pathKinds[kind][0], event >= 0 ? engines[laneOf(event)] : "");
  });
}

// Per piece of the critical path what it is called in its lane: who executes, or what else happens.
function pathNames() {
  const engines = T.lanes.map(([, engine]) => T.engineNames[engine]);
  return Array.from(D.pathKind, (kind, i) => {
    const name = T.pathKinds[kind][0];
    return name === "execute" ? engines[laneOf(D.pathEvent[i])] : name;
  });
}

// Per event the position of its colour, and what the colours stand for: [position, name].
function colouring(mode) {
  const of = new Uint8Array(eventCount());
  const size = theme.colours.length;
  if (mode === "reason") {
    const byReason = T.reasonNames.map((name) => REASON_COLOURS[name]);
    for (let i = 0; i < of.length; i++) of[i] = byReason[D.reason[i]];
    return { of, legend: T.reasonNames.map((name, i) => [byReason[i], T.reasons[i], i]), column: "reason" };
  }
  if (mode === "line") {
    // the same line has the same colour on every core: by what it costs the slowest
    const { lines } = parts[P.focus].T.profile;
    const rank = new Map(lines.map((cost, place) => [`${cost.path}:${cost.line}`, place]));
    const byLine = T.lines.map(([file, line]) => {
      const place = rank.get(`${T.files[file][0]}:${line}`);
      return place === undefined || place >= size - 1 ? OTHERS : place < OTHERS ? place : place + 1;
    });
    for (let i = 0; i < of.length; i++) of[i] = byLine[lineOf(i)];
    const legend = lines
      .slice(0, size - 1)
      .map((cost, place) => [place < OTHERS ? place : place + 1, cost.where]);
    if (lines.length > size - 1) legend.push([OTHERS, "other lines"]);
    return { of, legend };
  }
  for (let i = 0; i < of.length; i++) of[i] = T.labelColours[D.label[i]];
  return { of, legend: T.labels.map((name, i) => [T.labelColours[i], name]) };
}
