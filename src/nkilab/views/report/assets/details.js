// The tooltip, and the panel that tells everything about the selected instruction.

const MOST_LISTED = 6;

// Show lines of text beside the pointer; null hides them.
function showTip(event, lines) {
  const tip = $("tip");
  tip.hidden = !event;
  if (!event) return;
  tip.replaceChildren(...lines.filter(Boolean).map((line, i) => element(i ? "div" : "strong", {}, line)));
  const room = document.documentElement.clientWidth;
  const left = Math.min(event.clientX + 14, room - tip.offsetWidth - 6);
  const below = event.clientY + 18;
  const isLow = below + tip.offsetHeight > window.innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${isLow ? event.clientY - tip.offsetHeight - 12 : below}px`;
}

function hover(owner, point) {
  const found = point ? owner.hit(point.x, point.y) : { core: 0, event: -1, piece: -1 };
  if (found.event !== owner.hovered.event || found.core !== owner.hovered.core) {
    owner.hovered = { core: found.core, event: found.event };
    owner.refresh();
  }
  const frame = owner.canvas.getBoundingClientRect();
  const at = point && { clientX: point.x + frame.left, clientY: point.y + frame.top };
  if (!point) return showTip(null);
  const lines = inPart(found.core, () => linesOf(found));
  if (!lines) return showTip(null);
  return showTip(at, parts.length > 1 ? [...lines, parts[found.core].T.core] : lines);
}

function linesOf(found) {
  if (found.title) return ["Show this core in the panels below"];
  if (found.piece >= 0) return pieceLines(found.piece);
  if (found.event >= 0) return eventLines(found.event);
  return found.series ? seriesLines(found.series, found.at) : null;
}

function pieceLines(piece) {
  const [name, text] = T.pathKinds[D.pathKind[piece]];
  const event = D.pathEvent[piece];
  return [
    `${name}: ${duration(ns(D.pathLength[piece]))}`,
    text,
    event >= 0 ? `${titleOf(event)} at ${whereOf(lineOf(event))}` : "",
  ];
}

function seriesLines(series, at) {
  const i = lowerBound(series.time, 0, series.time.length, at + 1) - 1;
  return [series.name, series.textOf(i >= 0 ? series.value[i] : 0), `at ${moment(ns(at))}`];
}

function eventLines(event) {
  const inserted = insertedOf(event) >= 0;
  return [
    titleOf(event),
    `${whereOf(lineOf(event))}${inserted ? " (inserted before it)" : ""}`,
    `${duration(ns(D.length[event]))}, from ${moment(ns(D.start[event]))}`,
    event >= firstTransfer() ? `${bytes(D.dmaBytes[event - firstTransfer()])}, ${rateText(event)}` : "",
    operandsOf(event)
      .map(([name, tile]) => `${name} = ${tile}`)
      .join(", "),
    `started then: ${whyText(event)}`,
  ];
}

function rateText(event) {
  return `${digits(D.dmaBytes[event - firstTransfer()] / Math.max(ns(D.length[event]), 1e-9), 4)} GB/s`;
}

function whyText(event) {
  return T.reasons[D.reason[event]];
}

const details = {
  init() {
    timeline.selectionChanged.listen((event) => this.show(event));
    this.show(-1);
  },

  show(event) {
    const panel = $("detail");
    $("details").classList.toggle("empty", event < 0);
    $("unselect").hidden = event < 0;
    $("said").textContent = event < 0 ? "" : eventLines(event).filter(Boolean).join("; ");
    if (event < 0) {
      const hint =
        "Select an instruction: click it, or press → in the timeline. Arrows then show what it waited for.";
      return panel.replaceChildren(note(hint));
    }
    const list = element("dl");
    for (const [field, name, ...content] of this.fields(event)) {
      list.append(element("dt", {}, name), element("dd", { "data-field": field }, ...content));
    }
    panel.replaceChildren(element("p", { class: "opcode", "data-field": "title" }, titleOf(event)), list);
  },

  fields(event) {
    const lane = T.lanes[laneOf(event)];
    const start = ns(D.start[event]);
    const length = ns(D.length[event]);
    const fields = [
      ["line", "Line", lineLink(lineOf(event))],
      ["duration", "Duration", duration(length)],
      ["start", "Start", moment(start)],
      ["end", "End", moment(start + length)],
      ["lane", "Lane", lane[0]],
      ...(parts.length > 1 ? [["core", "Core", T.core]] : []),
    ];
    const busy = ns(D.busy[event]);
    if (lane[1] !== "dma" && lane[0] !== "Tensor" && busy < length - 1e-6) {
      const travel = `${duration(busy)}, then the result travels ${duration(length - busy)}`;
      fields.push(["busy", "Keeps its engine busy", travel]);
    }
    const loading = ns(D.loading[event]);
    if (loading > 0) fields.push(["loading", "Its weights load before", duration(loading)]);
    if (event >= firstTransfer()) fields.push(...this.transferFields(event));
    fields.push(["operands", "Operands", ...operandsOf(event).map((one) => this.operand(one, event))]);
    const loops = loopsOf(event);
    if (loops.length) fields.push(["loops", "Iteration of the loops", loops.join(" › ")]);
    const attributes = insertedOf(event) < 0 ? formOf(event)[2] : "";
    if (attributes) fields.push(["attributes", "Attributes", attributes]);
    fields.push(["why", "Started then because of", whyText(event)]);
    const waited = D.waited[event];
    fields.push(["predecessor", "Predecessor", waited >= 0 ? this.eventButton(D.nodeEvent[waited]) : "none"]);
    if (D.stall[event] > 0)
      fields.push(["stall", "Its engine stood still before", duration(ns(D.stall[event]))]);
    const path = onPath(event);
    fields.push(["path", "On the critical path", path ? duration(ns(path)) : "no"]);
    return [...fields, ...this.dependences(event)];
  },

  transferFields(event) {
    const i = event - firstTransfer();
    return [
      ["bytes", "Moves", `${bytes(D.dmaBytes[i])} at ${rateText(event)}`],
      ["descriptors", "Descriptors", `${counted(D.dmaDescriptors[i])} of ${bytes(D.dmaSize[i])}`],
      ["ready", "Ready", moment(ns(D.dmaReady[i]))],
      [
        "issued",
        "Issued",
        `${moment(ns(D.dmaIssued[i]))}, after ${duration(ns(D.dmaIssued[i] - D.dmaReady[i]))}`,
      ],
      ["queued", "First byte", `${duration(ns(D.start[event] - D.dmaIssued[i]))} after its issue`],
    ];
  },

  // A tile, and where it lies meanwhile.
  operand([name, tile, layout, isWritten, storage], event) {
    const text = `${isWritten ? "→ " : ""}${name} = ${tile}${layout ? `: ${layout}` : ""}`;
    const stay = memory.stayText(storage, D.start[event], D.start[event] + D.length[event]);
    return element("div", { class: "operand" }, text, stay && element("div", { class: "note" }, stay));
  },

  dependences(event) {
    const node = nodeOf(event);
    const before = [];
    for (let at = D.waitStart[node]; at < D.waitStart[node + 1]; at++) {
      before.push([D.nodeEvent[D.waitNode[at]], T.waitKinds[D.waitKind[at]]]);
    }
    const after = Array.from(waitingFor(node), (other) => [D.nodeEvent[other], ""]);
    after.sort((one, other) => D.start[one[0]] - D.start[other[0]]);
    return [
      ["waits", `Waits for ${before.length}`, ...this.list(before)],
      ["waited", `Waited for by ${after.length}`, ...this.list(after)],
    ];
  },

  list(found) {
    const shown = found.slice(0, MOST_LISTED).map(([event, kind]) => this.eventButton(event, kind));
    return found.length > MOST_LISTED
      ? [...shown, element("span", {}, `and ${found.length - MOST_LISTED} more`)]
      : shown;
  },

  eventButton(event, kind = "") {
    const text = `${T.labels[D.label[event]]} at ${whereOf(lineOf(event))}, ends ${moment(ns(D.start[event] + D.length[event]))}`;
    return link(kind ? `${kind}: ${text}` : text, () => timeline.select(event));
  },
};
