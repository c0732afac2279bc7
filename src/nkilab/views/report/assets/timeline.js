// The timeline: lanes, series, zoom and pan, selection, arrows.

const timeline = {
  view: { t0: 0, t1: 1 }, // ticks
  end: 1,
  selected: -1,
  hovered: -1,
  mask: null, // per event 1 if it is lit, or null for all
  lanes: [],
  series: [],
  colours: null,
  isDirty: false,
  drawn: 0,
  drawTimes: [],
  viewChanged: signal(),
  selectionChanged: signal(),

  init() {
    this.canvas = $("timeline");
    this.end = T.latency / T.tick;
    this.view = { t0: 0, t1: this.end };
    this.makeLanes();
    this.setColours("label");
    new ResizeObserver(() => this.refresh()).observe($("timeline-frame"));
    theme.changed.listen(() => this.refresh());
    listenToPointer(this);
  },

  makeLanes() {
    const pathText = (i) => T.pathKinds[D.pathKind[i]][0];
    const colours = pathColours();
    this.lanes = [
      {
        name: "Critical path",
        height: 18,
        isPath: true,
        first: 0,
        last: D.pathStart.length,
        start: D.pathStart,
        busy: D.pathLength,
        length: D.pathLength,
        colourOf: (i) => colours[i],
        textOf: pathText,
      },
    ];
    T.lanes.forEach(([name, engine], lane) =>
      this.lanes.push({
        name,
        engine,
        height: engine === "dma" ? 20 : name === "Tensor" ? 14 : 26,
        first: D.laneStart[lane],
        last: D.laneStart[lane + 1],
        start: D.start,
        busy: D.busy,
        length: D.length,
        colourOf: (i) => this.colours.of[i],
        textOf: (i) => T.labels[D.label[i]],
      }),
    );
    const bandwidth = T.profile.roofline.bytes_per_second.DMA / 1e9;
    this.series = [
      {
        name: "DMA GB/s",
        most: Math.max(bandwidth, 1) * T.tick,
        time: D.rateTime,
        value: scaled(D.rate, T.tick),
        colour: 0,
        textOf: (v) => `${digits(v / T.tick, 3)} of ${digits(bandwidth, 3)} GB/s`,
      },
      {
        name: "SBUF kB",
        most: T.sbufBytes,
        time: D.sbufTime,
        value: D.sbufUsed,
        usesMost: true,
        colour: 2,
        textOf: (v) => `${bytes(v)} of ${bytes(T.sbufBytes)} a partition`,
      },
      {
        name: "PSUM banks",
        most: T.psumBanks * T.psumBankBytes,
        time: D.psumTime,
        value: D.psumUsed,
        usesMost: true,
        colour: 3,
        textOf: (v) => `${digits(v / T.psumBankBytes)} of ${T.psumBanks} banks`,
      },
    ];
  },

  setColours(mode) {
    this.colours = colouring(mode);
    this.refresh();
  },

  setMask(mask) {
    this.mask = mask;
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

  setView(t0, t1) {
    const least = Math.max(10, this.end * 1e-9);
    const span = Math.min(Math.max(t1 - t0, least), this.end * 1.02);
    let from = t0 + (t1 - t0 - span) / 2;
    from = Math.min(Math.max(from, -0.01 * this.end), this.end * 1.01 - span);
    if (span >= this.end) from = -(span - this.end) / 2;
    this.view = { t0: from, t1: from + span };
    this.refresh();
    this.viewChanged.send();
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

  // Select an event; -1 for none.
  select(event, isShown = true) {
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
    const gap = isNarrow ? 15 : 5;
    let y = this.box.y + 4;
    for (const lane of this.lanes) {
      lane.y = y + (isNarrow ? 11 : 0);
      y += lane.height + gap;
    }
    for (const series of this.series) {
      series.y = y + (isNarrow ? 11 : 2);
      series.height = 34;
      y += series.height + gap + 2;
    }
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
    for (const lane of this.lanes) this.drawLane(lane, lane.y, lane.height);
    for (const series of this.series) {
      drawSeries(ink, series, { ...this.box, y: series.y, height: series.height }, this.view);
      ink.strokeStyle = theme.rule;
      ink.strokeRect(this.box.x - 0.5, series.y - 0.5, this.box.width + 1, series.height + 1);
      this.drawName(series.name, series.y, series.height);
    }
    this.drawMarks();
  },

  drawLane(lane, y, height) {
    const box = { ...this.box, y, height };
    this.ink.fillStyle = theme.raised;
    this.ink.fillRect(box.x, y, box.width, height);
    lane.mask = lane.isPath ? null : this.mask;
    drawEvents(this.ink, lane, box, this.view);
    this.drawName(lane.name, y, height);
  },

  drawName(name, y, height) {
    this.ink.font = "12px system-ui, sans-serif";
    this.ink.fillStyle = theme.ink;
    this.ink.textBaseline = "middle";
    if (this.isNarrow) this.ink.fillText(name, 2, y - 7);
    else this.ink.fillText(name, 6, y + height / 2);
  },

  laneOfEvent(event) {
    return this.lanes[1 + laneOf(event)];
  },

  place(event) {
    const lane = this.laneOfEvent(event);
    const scale = this.box.width / (this.view.t1 - this.view.t0);
    const left = this.box.x + (D.start[event] - this.view.t0) * scale;
    return {
      left,
      right: left + Math.max(D.length[event] * scale, 1.5),
      top: lane.y,
      height: lane.height,
      middle: lane.y + lane.height / 2,
    };
  },

  drawMarks() {
    const ink = this.ink;
    ink.save();
    ink.beginPath();
    ink.rect(this.box.x, 0, this.box.width, this.box.y + this.box.height);
    ink.clip();
    if (this.selected >= 0) this.drawArrows(this.selected);
    for (const [event, width] of [
      [this.hovered, 1.5],
      [this.selected, 2.5],
    ]) {
      if (event < 0) continue;
      const at = this.place(event);
      ink.strokeStyle = width > 2 ? theme.mark : theme.ink;
      ink.lineWidth = width;
      ink.strokeRect(at.left - 1, at.top - 1, at.right - at.left + 2, at.height + 2);
    }
    ink.restore();
    ink.lineWidth = 1;
  },

  // What the event waited for, the one that decided with a thick line; and what waits for it.
  drawArrows(event) {
    const node = nodeOf(event);
    const decided = D.waited[event];
    for (let at = D.waitStart[node]; at < D.waitStart[node + 1]; at++) {
      if (D.waitNode[at] !== decided) this.drawArrow(D.nodeEvent[D.waitNode[at]], event, 1);
    }
    const after = waitingFor(node);
    for (let i = 0; i < Math.min(after.length, 40); i++) this.drawArrow(event, D.nodeEvent[after[i]], 1);
    if (decided >= 0) this.drawArrow(D.nodeEvent[decided], event, 2.5);
  },

  drawArrow(from, to, width) {
    const a = this.place(from);
    const b = this.place(to);
    const ink = this.ink;
    const x1 = Math.min(a.right, Math.max(b.left, a.left));
    const bend = Math.max(14, Math.min(60, Math.abs(b.left - x1) / 2));
    ink.strokeStyle = ink.fillStyle = width > 2 ? theme.mark : theme.ink;
    ink.globalAlpha = width > 2 ? 1 : 0.55;
    ink.lineWidth = width;
    ink.beginPath();
    ink.moveTo(x1, a.middle);
    ink.bezierCurveTo(x1 + bend, a.middle, b.left - bend, b.middle, b.left, b.middle);
    ink.stroke();
    ink.beginPath();
    ink.moveTo(b.left, b.middle);
    ink.lineTo(b.left - 7, b.middle - 4);
    ink.lineTo(b.left - 7, b.middle + 4);
    ink.fill();
    ink.globalAlpha = 1;
  },

  ticksAt(x) {
    return this.view.t0 + ((x - this.box.x) / this.box.width) * (this.view.t1 - this.view.t0);
  },

  // What lies at a point: { event, piece, series, at }.
  hit(x, y) {
    const at = this.ticksAt(x);
    const reach = (4 / this.box.width) * (this.view.t1 - this.view.t0);
    for (const lane of this.lanes) {
      if (y < lane.y - 2 || y > lane.y + lane.height + 2) continue;
      const found = nearest(lane, at, reach);
      if (lane.isPath) return { piece: found, event: found >= 0 ? D.pathEvent[found] : -1, at };
      return { event: found, piece: -1, at };
    }
    const series = this.series.find((one) => y >= one.y && y <= one.y + one.height);
    return { event: -1, piece: -1, series, at };
  },
};

function scaled(values, factor) {
  return values.map((value) => value * factor);
}

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

// Wheel, drag, pinch, click and hover.
function listenToPointer(owner) {
  const { canvas } = owner;
  const fingers = new Map();
  let last = null;
  let moved = 0;
  const local = (event) => {
    const frame = canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };
  const shareAt = (x) => Math.min(1, Math.max(0, (x - owner.box.x) / owner.box.width));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (isSideways) owner.pan((event.deltaX || event.deltaY) / owner.box.width);
      else owner.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), shareAt(local(event).x));
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, local(event));
    last = local(event);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = local(event);
    if (!fingers.has(event.pointerId)) return hover(owner, here);
    const before = [...fingers.values()];
    fingers.set(event.pointerId, here);
    if (fingers.size === 2) return pinch(owner, before, [...fingers.values()], shareAt);
    moved += Math.abs(here.x - last.x) + Math.abs(here.y - last.y);
    if (moved > 4) owner.pan((last.x - here.x) / owner.box.width);
    last = here;
  });
  const lift = (event) => {
    const wasClick = fingers.size === 1 && moved <= 4 && event.type === "pointerup";
    fingers.delete(event.pointerId);
    moved = fingers.size ? 10 : moved;
    last = [...fingers.values()][0] || last;
    if (wasClick) owner.select(owner.hit(local(event).x, local(event).y).event, false);
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => hover(owner, null));
  canvas.addEventListener("dblclick", (event) => {
    const found = owner.hit(local(event).x, local(event).y).event;
    if (found >= 0) owner.zoomTo(found);
  });
}

function pinch(owner, before, after, shareAt) {
  const apart = (pair) => Math.max(12, Math.abs(pair[0].x - pair[1].x));
  const middle = (pair) => (pair[0].x + pair[1].x) / 2;
  owner.zoom(apart(before) / apart(after), shareAt(middle(after)));
  owner.pan((middle(before) - middle(after)) / owner.box.width);
}
