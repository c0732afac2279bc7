// Search: words that must all be found in an event's opcode, instruction, line, tiles or attributes.

const search = {
  masks: null, // per core
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
    this.show(words.length ? () => this.maskOf(words) : null);
  },

  // Light the instructions of lines, "file.py:41" each, of one opcode where one is named.
  light(wheres, opcode, text) {
    $("search").value = "";
    this.show(() => {
      const isOwn = T.lines.map((_, line) => wheres.includes(whereOf(line)));
      const isOpcode = T.labels.map((label) => !opcode || label === opcode);
      const hasOpcode = isOpcode.includes(true);
      return Uint8Array.from(D.label, (label, i) => isOwn[lineOf(i)] && (!hasOpcode || isOpcode[label]));
    }, ` of ${text}`);
  },

  show(maskOf, suffix = "") {
    this.masks = maskOf && parts.map((_, core) => inPart(core, maskOf));
    this.count = (this.masks || []).reduce((sum, mask) => mask.reduce((lit, one) => lit + one, sum), 0);
    $("found").textContent = maskOf ? `${counted(this.count)} found${suffix}` : "";
    timeline.setMasks(this.masks);
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

  // Select the next event that is found, in order of time, then of cores.
  step(direction) {
    if (!this.count) return;
    const place = (core, i) => [parts[core].D.start[i], core, i];
    const isBefore = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
    const from = timeline.selected >= 0 ? place(focus, timeline.selected) : null;
    let best = null;
    let around = null;
    this.masks.forEach((mask, core) => {
      for (let i = 0; i < mask.length; i++) {
        if (!mask[i]) continue;
        const here = place(core, i);
        const isBeyond = !from || direction * isBefore(here, from) > 0;
        if (isBeyond && (!best || direction * isBefore(here, best) < 0)) best = here;
        if (!around || direction * isBefore(here, around) < 0) around = here;
      }
    });
    const [, core, event] = best || around;
    timeline.select(event, true, core);
  },
};
