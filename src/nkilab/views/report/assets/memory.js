// Tiles in SBUF and PSUM by address, over the time of the timeline's view.

const STAY_COLUMNS = ["Start", "Length", "Address", "Size", "Name", "Storage", "Line"];

const memory = {
  hovered: null,

  init() {
    this.remake();
    ["sbuf", "psum"].forEach((name, place) => {
      const canvas = $(name);
      canvas.addEventListener("pointermove", (event) => this.hover(this.maps[place], event));
      canvas.addEventListener("pointerleave", () => showTip(null));
      canvas.addEventListener("click", (event) => this.click(this.maps[place], event));
    });
    timeline.focusChanged.listen(() => this.remake());
    timeline.viewChanged.listen(() => this.refresh());
    timeline.selectionChanged.listen(() => this.refresh());
    theme.changed.listen(() => this.refresh());
    new ResizeObserver(() => this.refresh()).observe($("sbuf").parentElement);
  },

  // What lies in the memories of the core in focus.
  remake() {
    this.colours = writerColours();
    this.maps = ["sbuf", "psum"].map((name) => this.made(name));
    this.refresh();
  },

  made(name) {
    const [start, length, address, size, tile, storage, line] = STAY_COLUMNS.map(
      (column) => D[name + column],
    );
    const longest = length.reduce((most, value) => Math.max(most, value), 0);
    const [whole, height] = name === "sbuf" ? [T.sbufBytes, 170] : [T.psumBanks * T.psumBankBytes, 100];
    const canvas = $(name);
    const most = D[`${name}Used`].reduce((most, value) => Math.max(most, value), 0);
    canvas.ariaLabel = `Tiles in ${name.toUpperCase()}: at most ${binary(most)} of ${binary(whole)} a partition`;
    return { name, canvas, start, length, address, size, tile, storage, line, longest, whole, height };
  },

  refresh() {
    if (this.isDirty) return;
    this.isDirty = true;
    requestAnimationFrame(() => {
      this.isDirty = false;
      this.maps.forEach((map) => this.draw(map));
    });
  },

  draw(map) {
    const width = map.canvas.parentElement.clientWidth;
    const ink = prepared(map.canvas, width, map.height);
    const box = { ...timeline.box, y: 2, width: width - timeline.box.x - 8, height: map.height - 6 };
    map.box = box;
    ink.fillStyle = theme.raised;
    ink.fillRect(box.x, box.y, box.width, box.height);
    this.drawStays(ink, map, box);
    this.drawScale(ink, map, box);
  },

  drawStays(ink, map, box) {
    const { t0, t1 } = timeline.view;
    const scale = box.width / (t1 - t0);
    const names = new Set(this.namesOfSelected());
    // stays ascend by their start; one that began earlier than the longest lasts is over
    let i = lowerBound(map.start, 0, map.start.length, t0 - map.longest);
    // columns and rows of pixels that a stay narrower than a pixel has taken
    const rows = Math.ceil(box.height);
    const filled = new Uint8Array(Math.ceil(box.width + 1) * rows);
    for (; i < map.start.length && map.start[i] < t1; i++) {
      const left = Math.max(0, (map.start[i] - t0) * scale);
      const right = Math.min(box.width, (map.start[i] + map.length[i] - t0) * scale);
      if (right < 0) continue;
      if (right - left < 1) {
        // of those that share a pixel the first is drawn
        const pixel = Math.floor(left) * rows + Math.floor((map.address[i] / map.whole) * box.height);
        if (filled[pixel]) continue;
        filled[pixel] = 1;
      }
      const isLit = !names.size || names.has(map.tile[i]);
      // neighbours of one line differ a little
      const shades = isLit ? (i % 2 ? theme.colours : theme.softer) : theme.dimmed;
      ink.fillStyle = shades[this.colours[map.storage[i]]];
      const top = box.y + (map.address[i] / map.whole) * box.height;
      const height = Math.max(1, (map.size[i] / map.whole) * box.height);
      ink.fillRect(
        box.x + left,
        top,
        Math.max(1, right - left - (right - left > 3 ? 1 : 0)),
        height - (height > 3 ? 1 : 0),
      );
      if (right - left > 50 && height > 12)
        this.name(ink, map, i, box.x + left + 4, top + height / 2, right - left - 8, isLit);
    }
  },

  namesOfSelected() {
    const event = timeline.selected;
    if (event < 0) return [];
    const row = rowOf(event);
    return Array.from(D.operandName.subarray(D.operandStart[row], D.operandStart[row + 1]));
  },

  name(ink, map, i, x, y, room, isLit) {
    const text = T.names[map.tile[i]];
    ink.font = "11px system-ui, sans-serif";
    ink.textBaseline = "middle";
    ink.fillStyle = isLit ? theme.inks[this.colours[map.storage[i]]] : theme.faint;
    ink.fillText(fitted(ink, text, room), x, y);
  },

  drawScale(ink, map, box) {
    ink.strokeStyle = theme.rule;
    ink.strokeRect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
    if (timeline.isNarrow) return;
    ink.font = "11px system-ui, sans-serif";
    ink.fillStyle = theme.faint;
    ink.textBaseline = "top";
    ink.fillText("0", 6, box.y);
    ink.textBaseline = "bottom";
    ink.fillText(map.name === "sbuf" ? binary(map.whole) : `${T.psumBanks} banks`, 6, box.y + box.height);
  },

  stayAt(map, event) {
    const frame = map.canvas.getBoundingClientRect();
    const { box } = map;
    const at =
      timeline.view.t0 +
      ((event.clientX - frame.left - box.x) / box.width) * (timeline.view.t1 - timeline.view.t0);
    const address = ((event.clientY - frame.top - box.y) / box.height) * map.whole;
    let i = lowerBound(map.start, 0, map.start.length, at + 1) - 1;
    const stop = at - map.longest;
    for (; i >= 0 && map.start[i] >= stop; i--) {
      const isInside =
        map.start[i] + map.length[i] >= at &&
        map.address[i] <= address &&
        address < map.address[i] + map.size[i];
      if (isInside) return i;
    }
    return -1;
  },

  // Where a tile lies while an event goes on; null if it is in HBM.
  stayText(storage, from, to) {
    for (const map of this.maps) {
      let i = lowerBound(map.start, 0, map.start.length, to + 1) - 1;
      for (; i >= 0 && map.start[i] >= from - map.longest; i--) {
        if (map.storage[i] !== storage || map.start[i] + map.length[i] < from) continue;
        const [start, end] = [map.start[i], map.start[i] + map.length[i]].map((at) => moment(ns(at)));
        return `${this.placeText(map, i)}, from ${start} to ${end}`;
      }
    }
    return null;
  },

  placeText(map, i) {
    if (map.name === "psum") return `PSUM bank ${Math.floor(map.address[i] / T.psumBankBytes)}`;
    return `${binary(map.size[i])} of SBUF at ${map.address[i]}`;
  },

  hover(map, event) {
    const i = this.stayAt(map, event);
    if (i < 0) return showTip(null);
    showTip(event, [
      T.names[map.tile[i]],
      `${binary(map.size[i])} a partition at ${map.address[i]}`,
      `${duration(ns(map.start[i]))} to ${duration(ns(map.start[i] + map.length[i]))}: ${duration(ns(map.length[i]))}`,
      `made at ${whereOf(map.line[i])}`,
    ]);
  },

  click(map, event) {
    const i = this.stayAt(map, event);
    if (i >= 0) source.showLine(map.line[i]);
  },
};

// Per tile the position of the colour of who writes it first.
function writerColours() {
  const work = workColours();
  const first = new Float64Array(D.storageName.length).fill(Infinity);
  const made = new Uint8Array(first.length).fill(P.colourOf.none);
  for (let i = 0; i < work.length; i++) {
    if (insertedOf(i) >= 0) continue;
    const row = rowOf(i);
    const operands = T.forms[D.rowForm[row]][1];
    for (let place = 0; place < operands.length; place++) {
      const storage = D.operandStorage[D.operandStart[row] + place];
      if (!operands[place][2] || D.start[i] >= first[storage]) continue;
      first[storage] = D.start[i];
      made[storage] = work[i];
    }
  }
  return made;
}
