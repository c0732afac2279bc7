// Search: words that must all be found in an event's opcode, instruction, line, tiles or attributes.

const search = {
  mask: null,
  count: 0,

  init() {
    const field = $("search");
    field.addEventListener("input", () => this.find(field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.step(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        this.ask("");
        timeline.canvas.focus();
      }
    });
  },

  // Search for a text as if it were typed.
  ask(text) {
    $("search").value = text;
    this.find(text);
  },

  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.mask = words.length ? this.maskOf(words) : null;
    this.count = this.mask ? this.mask.reduce((sum, lit) => sum + lit, 0) : 0;
    $("found").textContent = words.length ? `${counted(this.count)} found` : "";
    timeline.setMask(this.mask);
  },

  maskOf(words) {
    const mask = new Uint8Array(eventCount()).fill(1);
    for (const word of words) {
      const has = (text) => (text.toLowerCase().includes(word) ? 1 : 0);
      // a line is named as a whole: kernel.py:4 is not kernel.py:41
      const hasLine = (where) => (/:\d+$/.test(word) ? Number(where.toLowerCase() === word) : has(where));
      const labels = T.labels.map(has);
      const forms = T.forms.map(([name, , attributes]) => has(name) || has(attributes));
      const lines = T.lines.map((_, line) => hasLine(whereOf(line)));
      const names = T.names.map(has);
      for (let i = 0; i < mask.length; i++)
        if (mask[i]) mask[i] = this.isFound(i, labels, forms, lines, names);
    }
    return mask;
  },

  isFound(event, labels, forms, lines, names) {
    const row = rowOf(event);
    if (labels[D.label[event]] || lines[D.rowLine[row]]) return 1;
    const inserted = insertedOf(event);
    if (inserted >= 0) return names[D.insertedName[inserted]];
    if (forms[D.rowForm[row]]) return 1;
    for (let at = D.operandStart[row]; at < D.operandStart[row + 1]; at++)
      if (names[D.operandName[at]]) return 1;
    return 0;
  },

  // Select the next event that is found, in order of time.
  step(direction) {
    if (!this.count) return;
    const from = timeline.selected >= 0 ? D.start[timeline.selected] : direction > 0 ? -1 : Infinity;
    const isBetter = (i, best) => (direction > 0 ? D.start[i] < D.start[best] : D.start[i] > D.start[best]);
    let best = -1;
    let around = -1;
    for (let i = 0; i < this.mask.length; i++) {
      if (!this.mask[i]) continue;
      const isBeyond =
        direction > 0
          ? D.start[i] > from || (D.start[i] === from && i > timeline.selected)
          : D.start[i] < from || (D.start[i] === from && i < timeline.selected);
      if (isBeyond && (best < 0 || isBetter(i, best))) best = i;
      if (around < 0 || isBetter(i, around)) around = i;
    }
    timeline.select(best >= 0 ? best : around);
  },
};
