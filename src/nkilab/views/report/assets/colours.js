// Colours on light and dark ground. Each has one meaning, who works or what is waited for, which the legend tells.

const theme = {
  isDark: false,
  changed: signal(),
  set(isDark) {
    this.isDark = isDark;
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    const { style } = document.body;
    for (const name of ["ground", "raised", "ink", "faint", "rule", "mark", "link", "card"]) {
      style.outlineColor = `var(--${name})`;
      this[name] = getComputedStyle(document.body).outlineColor;
    }
    this.colours = P.meanings.map(([, light, dark]) => (isDark ? dark : light));
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

// The position of the colour of a piece of the critical path: of who works, or else of what happens.
const pathColour = (kind, engine) => P.colourOf[kind] ?? P.colourOf[engine];

// Per event the position of the colour of who works.
function workColours() {
  const byLane = T.lanes.map(([, engine]) => P.colourOf[engine]);
  return ofLanes((lane, event) => (T.isSpill[D.label[event]] ? P.colourOf.spill : byLane[lane]));
}

// Per event the position of the colour of what it waited for; a result is of who made it.
function reasonColours() {
  const work = workColours();
  const byReason = T.reasonNames.map((name) => P.colourOf[name]);
  return work.map(
    (own, i) => byReason[D.reason[i]] ?? (D.waited[i] < 0 ? own : work[D.nodeEvent[D.waited[i]]]),
  );
}

function ofLanes(tell) {
  const made = new Uint8Array(eventCount());
  for (let lane = 0; lane < T.lanes.length; lane++)
    for (let i = D.laneStart[lane]; i < D.laneStart[lane + 1]; i++) made[i] = tell(lane, i);
  return made;
}

// Per piece of the critical path the position of its colour, and what it is called in its lane; made once.
function pathLooks() {
  const engineOf = (event) => (event < 0 ? "" : T.lanes[laneOf(event)][1]);
  const kinds = T.pathKinds.map(([name]) => name);
  const nameOf = (kind, event) => (kind === "execute" ? T.engineNames[engineOf(event)] : kind);
  return (parts[focus].looks ??= {
    colours: Uint8Array.from(D.pathKind, (kind, i) => pathColour(kinds[kind], engineOf(D.pathEvent[i]))),
    names: Array.from(D.pathKind, (kind, i) => nameOf(kinds[kind], D.pathEvent[i])),
  });
}

// Colours of the theme on everything that names one by its number.
function paint() {
  for (const marked of document.querySelectorAll("[data-colour]")) {
    marked.style.background = theme.colours[Number(marked.dataset.colour)];
    marked.style.color = theme.inks[Number(marked.dataset.colour)];
  }
}

function drawLegend() {
  const keys = P.meanings.map(([name], i) => element("li", {}, swatch(i), name));
  $("legend").replaceChildren(...keys);
  paint();
}

const swatch = (colour) => element("span", { class: "swatch", "data-colour": colour });
