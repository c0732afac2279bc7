// The timeline: lanes, series, zoom and pan, selection, arrows.

const MOST_OPEN = 2;

const timeline = {
  shared: { t0: 0, t1: 1 }, // what is seen, in ticks of the longest run
  end: 1,
  hasOwnScales: false, // whether each run is as wide as the page
  range: null, // the time that is measured, in ticks of the core in focus
  isMeasuring: false, // whether a drag measures
  selected: -1, // an event of the core in focus
  hovered: { core: 0, event: -1 },
  masks: null, // per core and event 1 if it is lit, or null for all
  lanes: [],
  series: [],
  colours: null,
  isDirty: false,
  drawn: 0,
  drawTimes: [],
  viewChanged: signal(),
  selectionChanged: signal(),
  focusChanged: signal(),
  rangeChanged: signal(),

  init() {
    this.canvas = $("timeline");
    this.end = Math.max(...parts.map((part) => part.T.latency)) / P.tick;
    this.shared = { t0: 0, t1: this.end };
    this.makeLanes();
    this.setColours(workColours);
    new ResizeObserver(() => this.refresh()).observe($("timeline-frame"));
    theme.changed.listen(() => this.refresh());
    listenToPointer(this);
  },

  // Lanes and series of all cores, one core after the other.
  makeLanes() {
    this.lanes = [];
    this.series = [];
    parts.forEach((_, core) =>
      inPart(core, () => {
        this.lanes.push(...this.lanesOf(core));
        this.series.push(...this.seriesOf(core));
      }),
    );
  },

  lanesOf(core) {
    const tables = T;
    const columns = D;
    const { colours, names } = pathLooks();
    const path = {
      core,
      number: -1,
      name: "Critical path",
      height: 18,
      isPath: true,
      first: 0,
      last: columns.pathStart.length,
      start: columns.pathStart,
      busy: columns.pathLength,
      length: columns.pathLength,
      colourOf: (i) => colours[i],
      textOf: (i) => names[i],
    };
    return [
      path,
      ...tables.lanes.map(([name, engine], number) => ({
        core,
        number,
        name,
        engine,
        height: engine === "dma" ? 20 : name === "Tensor" ? 14 : 26,
        first: columns.laneStart[number],
        last: columns.laneStart[number + 1],
        start: columns.start,
        busy: columns.busy,
        length: columns.length,
        colourOf: (i) => this.colours[core][i],
        textOf: (i) => tables.labels[columns.label[i]],
      })),
    ];
  },

  seriesOf(core) {
    const { psumBanks, psumBankBytes, sbufBytes } = T;
    const bandwidth = T.profile.roofline.bytes_per_second.DMA / 1e9;
    const rate = `of ${digits(bandwidth, 3)} GB/s`;
    const room = `of ${binary(sbufBytes)}`;
    const banks = `of ${psumBanks} banks`;
    const inBanks = (used) => digits(used / psumBankBytes);
    return [
      ["DMA", rate, Math.max(bandwidth, 1), D.rateTime, D.rate, (v) => `${digits(v, 3)} ${rate}`],
      ["SBUF", room, sbufBytes, D.sbufTime, D.sbufUsed, (v) => `${binary(v)} ${room} a partition`],
      ["PSUM", banks, psumBanks * psumBankBytes, D.psumTime, D.psumUsed, (v) => `${inBanks(v)} ${banks}`],
    ].map(([name, top, most, time, value, textOf]) => {
      return { core, name, top, most, time, value, textOf, usesMost: value !== D.rate };
    });
  },

  // A core that is open has lanes of full height and series; if there are many, only the one in focus is.
  isOpen(core) {
    return parts.length <= MOST_OPEN || core === focus;
  },

  // The core that panels, source and memory tell of.
  lookAt(core) {
    if (core === focus) return;
    this.setRange(null);
    lookAt(core);
    this.selected = -1;
    this.refresh();
    this.selectionChanged.send(-1);
    this.focusChanged.send();
  },

  setColours(tell) {
    this.colours = parts.map((_, core) => inPart(core, tell));
    this.refresh();
  },

  setMasks(masks) {
    this.masks = masks;
    this.refresh();
  },

  // Draw again before the next frame.
  refresh() {
    if (this.isDirty) return;
    this.isDirty = true;
    requestAnimationFrame(() => {
      this.isDirty = false;
      const began = performance.now();
      this.draw();
      this.drawTimes.push(performance.now() - began);
      this.drawn++;
    });
  },

  // How long a core's own scale is against that of the longest run.
  factorOf(core) {
    return this.hasOwnScales ? parts[core].T.span / P.tick / this.end : 1;
  },

  viewOf(core) {
    const factor = this.factorOf(core);
    return { t0: this.shared.t0 * factor, t1: this.shared.t1 * factor };
  },

  get view() {
    return this.viewOf(focus);
  },

  setView(t0, t1) {
    const factor = this.factorOf(focus);
    const end = this.end * factor;
    const least = Math.max(10, end * 1e-9);
    const span = Math.min(Math.max(t1 - t0, least), end * 1.02);
    let from = t0 + (t1 - t0 - span) / 2;
    from = Math.min(Math.max(from, -0.01 * end), end * 1.01 - span);
    if (span >= end) from = -(span - end) / 2;
    this.shared = { t0: from / factor, t1: (from + span) / factor };
    this.refresh();
    this.viewChanged.send();
  },

  showAll() {
    this.setView(0, this.end * this.factorOf(focus));
  },

  // Measure from one moment to another; null for no range.
  setRange(range, isDone = true) {
    if (!range && !this.range) return;
    this.range = range && { t0: Math.max(0, Math.min(...range)), t1: Math.min(this.end, Math.max(...range)) };
    this.refresh();
    if (isDone) this.rangeChanged.send();
  },

  setMeasuring(isMeasuring) {
    this.isMeasuring = isMeasuring;
    $("measure").setAttribute("aria-pressed", String(isMeasuring));
  },

  zoom(factor, share = 0.5) {
    const { t0, t1 } = this.view;
    const at = t0 + (t1 - t0) * share;
    this.setView(at - (at - t0) * factor, at + (t1 - at) * factor);
  },

  pan(share) {
    const span = this.view.t1 - this.view.t0;
    this.setView(this.view.t0 + share * span, this.view.t1 + share * span);
  },

  // Select an event of a core; -1 for none.
  select(event, isShown = true, core = focus) {
    this.lookAt(core);
    this.selected = event;
    if (event >= 0 && isShown) this.show(event);
    this.refresh();
    this.selectionChanged.send(event);
  },

  // Pan so that an event can be seen, and zoom if it is a speck or larger than the view.
  show(event) {
    const start = D.start[event];
    const length = Math.max(D.length[event], 1);
    const span = this.view.t1 - this.view.t0;
    const width = (length / span) * this.box.width;
    if (width < 6 || length > span) {
      this.setView(start - length * 12, start + length * 13);
    } else if (start < this.view.t0 || start + length > this.view.t1) {
      this.setView(start + length / 2 - span / 2, start + length / 2 + span / 2);
    }
  },

  zoomTo(event) {
    const length = Math.max(D.length[event], 1);
    this.setView(D.start[event] - length, D.start[event] + 2 * length);
  },

  layout(width) {
    const isNarrow = width < 560;
    this.box = { x: isNarrow ? 0 : 118, y: 24, width: width - (isNarrow ? 0 : 118) - 8, height: 0 };
    const gap = isNarrow ? 17 : 5;
    let y = this.box.y + 4;
    this.titles = [];
    parts.forEach((part, core) => {
      const isOpen = this.isOpen(core);
      if (parts.length > 1) {
        this.titles.push({ core, name: `${part.T.core} · ${duration(part.T.latency)}`, y, height: 18 });
        y += isNarrow ? 24 : 20;
      }
      for (const lane of this.lanes) {
        if (lane.core !== core) continue;
        lane.shown = isOpen ? lane.height : 6;
        lane.y = y + (isNarrow && isOpen ? 12 : 0);
        y += lane.shown + (isOpen ? gap : 1);
      }
      for (const series of this.series) {
        if (series.core !== core) continue;
        series.y = y + (isNarrow ? 12 : 2);
        series.height = isOpen ? 34 : 0;
        y += isOpen ? series.height + gap + 2 : 0;
      }
      if (parts.length > 1) y += 6;
    });
    this.box.height = y - this.box.y;
    this.isNarrow = isNarrow;
    return y + 4;
  },

  draw() {
    const width = $("timeline-frame").clientWidth;
    const height = this.layout(width);
    const ink = prepared(this.canvas, width, height);
    this.ink = ink;
    drawRuler(ink, { x: this.box.x, y: 0, width: this.box.width, height: 22 }, this.view, height - 4);
    this.titles.forEach((title) => this.drawTitle(title, width));
    for (const lane of this.lanes) this.drawLane(lane, lane.y, lane.shown);
    for (const series of this.series) {
      if (!series.height) continue;
      drawSeries(ink, series, { ...this.box, y: series.y, height: series.height }, this.viewOf(series.core));
      ink.strokeStyle = theme.rule;
      ink.strokeRect(this.box.x - 0.5, series.y - 0.5, this.box.width + 1, series.height + 1);
      this.drawName(series.name, series.y, series.height, series.top);
    }
    this.drawMarks();
  },

  drawLane(lane, y, height) {
    const box = { ...this.box, y, height };
    this.ink.fillStyle = theme.raised;
    this.ink.fillRect(box.x, y, box.width, height);
    lane.mask = lane.isPath || !this.masks ? null : this.masks[lane.core];
    drawEvents(this.ink, lane, box, this.viewOf(lane.core));
    if (this.isOpen(lane.core)) this.drawName(lane.name, y, height);
  },

  // What a core is called, above its lanes.
  drawTitle({ core, name, y, height }, width) {
    const { ink } = this;
    ink.fillStyle = theme.rule;
    ink.fillRect(0, y, width, height);
    ink.font = `${core === focus ? "600 " : ""}12px system-ui, sans-serif`;
    ink.fillStyle = core === focus ? theme.mark : theme.ink;
    ink.textBaseline = "middle";
    ink.fillText(`${core === focus ? "▾" : "▸"} ${name}`, 6, y + height / 2 + 0.5);
  },

  // The name of a lane; below it, or beside it where there is little room, what fills a series.
  drawName(name, y, height, top = "") {
    const { ink } = this;
    ink.font = "12px system-ui, sans-serif";
    ink.fillStyle = theme.ink;
    ink.textBaseline = "middle";
    const [x, at] = this.isNarrow ? [2, y - 7] : [6, y + height / 2 - (top ? 7 : 0)];
    ink.fillText(name, x, at);
    if (!top) return;
    const beside = ink.measureText(`${name} `).width;
    ink.font = "11px system-ui, sans-serif";
    ink.fillStyle = theme.faint;
    if (this.isNarrow) ink.fillText(top, x + beside, at);
    else ink.fillText(top, x, at + 14);
  },

  laneOfEvent(event) {
    return this.lanes.find((lane) => lane.core === focus && lane.number === laneOf(event));
  },

  // Where an event of the core in focus is drawn.
  place(event) {
    const lane = this.laneOfEvent(event);
    const scale = this.box.width / (this.view.t1 - this.view.t0);
    const left = this.box.x + (D.start[event] - this.view.t0) * scale;
    return {
      left,
      right: left + Math.max(D.length[event] * scale, 1.5),
      top: lane.y,
      height: lane.shown,
      middle: lane.y + lane.shown / 2,
    };
  },

  drawMarks() {
    const ink = this.ink;
    ink.save();
    ink.beginPath();
    ink.rect(this.box.x, 0, this.box.width, this.box.y + this.box.height);
    ink.clip();
    if (this.range) drawRange(ink, this);
    if (this.selected >= 0) drawArrows(this, this.selected);
    for (const [core, event, width] of [
      [this.hovered.core, this.hovered.event, 1.5],
      [focus, this.selected, 2.5],
    ]) {
      if (event < 0) continue;
      const at = inPart(core, () => this.place(event));
      ink.strokeStyle = width > 2 ? theme.mark : theme.ink;
      ink.lineWidth = width;
      ink.strokeRect(at.left - 1, at.top - 1, at.right - at.left + 2, at.height + 2);
    }
    ink.restore();
    ink.lineWidth = 1;
  },

  ticksAt(x, core = focus) {
    const { t0, t1 } = this.viewOf(core);
    return t0 + ((x - this.box.x) / this.box.width) * (t1 - t0);
  },

  // What lies at a point: { core, event, piece, series, at }.
  hit(x, y) {
    const title = this.titles.find((one) => y >= one.y && y <= one.y + one.height);
    if (title) return { core: title.core, event: -1, piece: -1, title };
    for (const lane of this.lanes) {
      const margin = this.isOpen(lane.core) ? 2 : 0.5;
      if (y < lane.y - margin || y > lane.y + lane.shown + margin) continue;
      const { core } = lane;
      const own = this.ticksAt(x, core);
      const found = nearest(lane, own, this.ticksAt(x + 4, core) - own);
      if (!lane.isPath) return { core, event: found, piece: -1, at: own };
      return { core, piece: found, event: found >= 0 ? parts[core].D.pathEvent[found] : -1, at: own };
    }
    const series = this.series.find((one) => y >= one.y && y < one.y + one.height);
    const core = series ? series.core : focus;
    return { core, event: -1, piece: -1, series, at: this.ticksAt(x, core) };
  },
};

// The event of a lane at a moment, or the nearest one within reach; -1 if there is none.
function nearest(lane, at, reach) {
  const next = lowerBound(lane.start, lane.first, lane.last, at);
  let best = -1;
  let least = reach;
  for (let i = Math.max(lane.first, next - 3); i < Math.min(lane.last, next + 2); i++) {
    const away = Math.max(lane.start[i] - at, at - lane.start[i] - Math.max(lane.busy[i], 1), 0);
    if (away === 0 || away < least) {
      best = i;
      least = away;
    }
  }
  return best;
}
