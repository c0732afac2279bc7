// Time by source: loops, their lines and the instructions of each line, as wide as the time that they take.

// What takes a smaller share of the whole is left out.
const NARROWEST = 0.003;

const flame = {
  init() {
    $("flame-time").addEventListener("change", () => this.remake());
    timeline.focusChanged.listen(() => this.remake());
    timeline.selectionChanged.listen((event) => this.mark(event));
    this.remake();
  },

  remake() {
    const root = node(T.profile.kernel);
    const loops = T.lines.map((_, line) => loopsAround(...T.lines[line]));
    for (const [time, line, label, colour] of $("flame-time").value === "path" ? pathTimes() : busyTimes()) {
      const names = line < 0 ? [] : [...loops[line], whereOf(line)];
      let at = root;
      for (const name of [null, ...names, label]) {
        if (name !== null) at = at.kids.get(name) || at.kids.set(name, node(name)).get(name);
        at.time += time;
        if (line >= 0) at.lines.add(line);
      }
      Object.assign(at, { colour, label: line < 0 ? "" : label });
    }
    $("flame").replaceChildren(this.item(root, root.time || 1));
    this.mark(timeline.selected);
    paint();
  },

  // A node over what is inside it, as wide as its time.
  item(own, total) {
    const kids = [...own.kids.values()].filter((kid) => kid.time > NARROWEST * total);
    const rest = own.time - kids.reduce((sum, kid) => sum + kid.time, 0);
    const text = `${own.name}: ${duration(ns(own.time))}, ${percent(own.time / total)}`;
    const where = [...own.lines].map(whereOf);
    const properties = { title: text, "aria-label": text, class: "ice" };
    if (own.colour !== undefined) properties["data-colour"] = own.colour;
    if (own.label) properties["data-key"] = `${where} ${own.label}`;
    const light = () => {
      search.light(where, own.label || "", own.name);
      if (own.lines.size) source.mark(Math.min(...own.lines));
    };
    const grow = (time) => ({ flexGrow: (1e4 * time) / total });
    const inner = kids.map((kid) => this.item(kid, total));
    if (rest > 0 && kids.length) inner.push(element("li", { style: grow(rest), "aria-hidden": "true" }));
    const list = kids.length ? element("ul", {}, ...inner) : null;
    return element("li", { style: grow(own.time) }, link(own.name, light, properties), list);
  },

  // Mark the instructions of the selected event.
  mark(event) {
    const key = event < 0 ? "" : `${whereOf(lineOf(event))} ${T.labels[D.label[event]]}`;
    for (const one of $("flame").querySelectorAll(".ice"))
      one.classList.toggle("marked", one.dataset.key === key);
  },
};

const node = (name) => ({ name, time: 0, kids: new Map(), lines: new Set() });

// The loops around a line of a file, by how far lines are indented; the outermost first.
function loopsAround(file, number) {
  const lines = T.files[file][2];
  const indent = (text) => text.search(/\S/);
  const names = [];
  let least = indent(lines[number - 1] || "");
  for (let at = number - 2; at >= 0 && least > 0; at--) {
    const own = indent(lines[at]);
    if (own < 0 || own >= least) continue;
    const [, head] = lines[at].match(/^\s*((?:for|while|def) .*?):?\s*$/) || [];
    if (head && !head.startsWith(`def ${T.profile.kernel}(`)) names.unshift(head);
    if (head || !/^\s*[)\]}]/.test(lines[at])) least = own;
    if (head && head.startsWith("def ")) break;
  }
  return names;
}

// Per piece of the critical path its time, line, what it is called and its colour.
function pathTimes() {
  const { colours } = pathLooks();
  return Array.from(D.pathLength, (time, i) => {
    const event = D.pathEvent[i];
    const kind = T.pathKinds[D.pathKind[i]][0];
    if (event < 0) return [time, -1, kind, colours[i]];
    return [
      time,
      lineOf(event),
      kind === "execute" || kind === "moving" ? T.labels[D.label[event]] : kind,
      colours[i],
    ];
  });
}

// The same per event, of the time that it keeps its engine busy, or that its bytes move.
function busyTimes() {
  const colours = workColours();
  const time = (i) => (i < firstTransfer() ? D.busy[i] + D.loading[i] : D.length[i]);
  const shown = [...D.start.keys()].filter((i) => T.lanes[laneOf(i)][0] !== "Tensor");
  return shown.map((i) => [time(i), lineOf(i), T.labels[D.label[i]], colours[i]]);
}
