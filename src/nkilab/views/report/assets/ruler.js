// The ruler: a range of time, and sums of what lies inside it.

const MOST_SUMMED = 6;

const ruler = {
  init() {
    timeline.rangeChanged.listen(() => this.show());
    $("range-copy").addEventListener("click", () => this.copy());
    $("range-zoom").addEventListener("click", () => timeline.setView(timeline.range.t0, timeline.range.t1));
    $("range-clear").addEventListener("click", () => timeline.setRange(null));
  },

  show() {
    $("range").hidden = !timeline.range;
    if (!timeline.range) return;
    const sums = sumsOf(timeline.range.t0, timeline.range.t1);
    const flops = `${counted(Math.round(sums.flops))} FLOP`;
    const edges = { from: moment(sums.from), to: moment(sums.to), length: duration(sums.length) };
    const work = { "moved by DMA": bytes(sums.moved), multiplied: flops };
    const busy = sums.engines.map(([name, time]) => [name, duration(time), percent(time / sums.length)]);
    const lines = sums.lines.slice(0, MOST_SUMMED).map(([line, time]) => [lineLink(line), duration(time)]);
    $("range-sums").replaceChildren(
      table(["Range", "Time"], Object.entries(edges)),
      table(["Engine", "Busy", "Share"], busy),
      table(["Work", "Amount"], Object.entries(work)),
      table(["Source line", "Busy"], lines),
    );
    $("said").textContent = `${edges.length} measured`;
  },

  // The tables as text, with tabs between cells, for a spreadsheet.
  async copy() {
    const row = ({ cells }) => [...cells].map((cell) => cell.textContent).join("\t");
    const tables = [...$("range-sums").children].map(({ rows }) => [...rows].map(row).join("\n"));
    await navigator.clipboard.writeText(tables.join("\n\n"));
    $("said").textContent = "copied";
  },
};

// Sums from one moment to another: nanoseconds that engines and lines are busy, bytes, FLOP of multiplications.
function sumsOf(t0, t1) {
  const spans = new Map();
  const lines = new Map();
  let [moved, flops] = [0, 0];
  T.lanes.forEach(([name, engine], lane) => {
    const own = spans.get(engine) || [];
    spans.set(engine, own);
    const isDma = engine === "dma";
    for (let i = D.laneStart[lane]; i < D.laneStart[lane + 1] && D.start[i] - D.loading[i] < t1; i++) {
      // weights that load behind a multiplication take no time of TensorE, others stand before theirs
      if (name === "Tensor") continue;
      const [start, end] = [D.start[i], D.start[i] + (isDma ? D.length[i] : D.busy[i])];
      const inside = Math.min(end, t1) - Math.max(start - D.loading[i], t0);
      if (inside < 0) continue;
      own.push([Math.max(start - D.loading[i], t0), Math.min(end, t1)]);
      lines.set(lineOf(i), (lines.get(lineOf(i)) || 0) + inside);
      const share = end > start ? Math.max(0, Math.min(end, t1) - Math.max(start, t0)) / (end - start) : 1;
      if (isDma) moved += share * D.dmaBytes[i - firstTransfer()];
      else flops += share * flopsOf(i);
    }
  });
  return {
    from: ns(t0),
    to: ns(t1),
    length: ns(t1 - t0),
    engines: [...spans].map(([engine, own]) => [T.engineNames[engine], ns(covered(own))]),
    moved,
    flops,
    lines: [...lines].map(([line, time]) => [line, ns(time)]).sort((a, b) => b[1] - a[1]),
  };
}

// The length of the union of intervals.
function covered(intervals) {
  let [sum, reached] = [0, -Infinity];
  for (const [from, to] of intervals.sort((a, b) => a[0] - b[0])) {
    sum += Math.max(0, to - Math.max(from, reached));
    reached = Math.max(reached, to);
  }
  return sum;
}

// The range over the lanes, with its length.
function drawRange(ink, owner) {
  const { box, view, range } = owner;
  const [left, right] = [range.t0, range.t1].map(
    (at) => box.x + ((at - view.t0) / (view.t1 - view.t0)) * box.width,
  );
  // over the lanes edges alone: a shade would change what colours mean
  ink.fillStyle = theme.mark;
  ink.fillRect(left, 0, right - left, 22);
  for (const x of [left, right]) ink.fillRect(x - 0.75, 0, 1.5, box.y + box.height);
  ink.font = "600 12px system-ui, sans-serif";
  ink.fillStyle = theme.card;
  ink.fillText(
    fitted(ink, duration(ns(range.t1 - range.t0)), right - left - 6),
    Math.max(left, box.x) + 4,
    11.5,
  );
}
