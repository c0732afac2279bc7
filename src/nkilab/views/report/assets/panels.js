// Panels that do not change: cards, verdict, tables, bars, roofline.

function drawPanels() {
  const { profile } = T;
  const metric = new Map(T.metrics.map(([name, text]) => [name, micro(text)]));
  const [low, high] = profile.interval_us;
  $("title").textContent = $("title").title = profile.kernel;
  $("subtitle").textContent =
    `on ${profile.target}, predicted from shapes by timing model ${profile.model_version}` +
    (P.together ? `; cards and panels tell of ${T.core}` : "");
  const card = (name, value, note = "", isMain = false) =>
    element(
      "div",
      { class: isMain ? "card main" : "card" },
      element("span", { class: "name" }, name),
      element("span", { class: "value" }, value),
      element("span", { class: "note" }, note),
    );
  const busy = [...profile.engines]
    .filter((one) => one.engine !== "dma")
    .sort((a, b) => b.busy_us - a.busy_us)[0];
  const span = Math.max(
    1e-9,
    ...profile.engines.map((one) => one.busy_us + one.stalls.reduce((sum, s) => sum + s.time_us, 0)),
  );
  $("cards").replaceChildren(
    card(
      "Latency",
      duration(profile.latency_us * 1000),
      `${duration(low * 1000)} to ${duration(high * 1000)}`,
      true,
    ),
    card("Bound by", profile.summary.bound, "see below"),
    busy
      ? card(
          `${T.engineNames[busy.engine]} active`,
          metric.get(`${busy.engine}_engine_active_time_percent`) || percent(busy.busy_us / span),
          `busy ${percent(busy.busy_us / span)} after the launch`,
        )
      : null,
    card(
      "DMA active",
      metric.get("dma_active_time_percent"),
      `${metric.get("dma_transfer_total_bytes")} moved`,
    ),
    card("MFU", metric.get("mfu_estimated_percent"), metric.get("model_flops")),
    card("HBM bandwidth", metric.get("mbu_estimated_percent"), "of one stack (MBU)"),
    card("Instructions", metric.get("instruction_count"), `${counted(eventCount())} events`),
    card("Spills", metric.get("spill_save_bytes"), `${metric.get("spill_reload_bytes")} reloaded`),
  );
  $("sentences").replaceChildren(
    ...profile.verdict.map((sentence) => element("li", {}, ...linked(micro(sentence)))),
  );
  drawCores();
  drawPath(profile);
  drawStalls(profile);
  drawSizes(profile);
  drawRoofline(profile);
  drawTable(
    "lines",
    ["Line", "Critical path", "Busy", "Stalled before", "Calls", "Moved", "Instructions"],
    profile.lines.map((cost) => [
      whereLink(cost.where),
      duration(cost.critical_path_us * 1000),
      duration(cost.busy_us * 1000),
      duration(cost.stalled_us * 1000),
      counted(cost.count),
      cost.dma_bytes ? bytes(cost.dma_bytes) : "",
      cost.opcodes.join(", "),
    ]),
  );
  drawTable(
    "metrics",
    ["Metric", "Value", "Meaning"],
    T.metrics.map(([name, text, meaning]) => [name, micro(text), meaning]),
  );
  drawNotes(profile);
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// What each core does; a click on one shows it in the panels.
function drawCores() {
  const { together } = P;
  $("cores").hidden = !together;
  if (!together) return;
  const cell = (place, text, i) => {
    if (i || place < 0) return element("td", {}, micro(text));
    const isShown = { "aria-pressed": String(place === focus) };
    const show = { type: "button", class: "link", onclick: () => timeline.lookAt(place), ...isShown };
    return element("td", {}, element("button", show, text));
  };
  const rows = together.rows.map(([place, ...texts]) =>
    element("tr", { class: place === focus ? "shown" : "" }, ...texts.map((text, i) => cell(place, text, i))),
  );
  $("core-table").replaceChildren(table(together.headings.map(capital), rows));
  const hidden = together.hidden ? `${together.hidden} faster cores are not drawn.` : "";
  $("core-note").textContent = micro([together.told, hidden].filter(Boolean).join("; "));
}

// Text with its "file.py:41" as links to the source.
function linked(text) {
  const known = new Set(T.lines.map((_, line) => whereOf(line)));
  return text.split(/(\S+:\d+)/).map((part) => (known.has(part) ? whereLink(part) : part));
}

function whereLink(where) {
  const line = T.lines.findIndex((_, i) => whereOf(i) === where);
  return element("button", { type: "button", class: "link", onclick: () => source.showLine(line) }, where);
}

// A table with a row of headings over rows that are made already.
function table(headings, rows) {
  const names = headings.map((heading) => element("th", { scope: "col" }, heading));
  return element("table", {}, element("thead", {}, element("tr", {}, ...names)), element("tbody", {}, ...rows));
}

function drawTable(id, headings, rows) {
  const row = (cells) => element("tr", {}, ...cells.map((content) => element("td", {}, content)));
  $(id).replaceChildren(table(headings, rows.map(row)));
}

function swatch(colour) {
  return element("span", { class: "swatch", "data-colour": colour });
}

function drawPath(profile) {
  const rows = profile.critical_path.map((piece) => {
    const bar = element("span", {
      class: "bar",
      "data-colour": pathColour(piece.kind, piece.engine),
      width: `${Math.max(0.5, 100 * piece.share)}%`,
    });
    const lines = piece.lines.slice(0, 2).map((line) => whereLink(line.where));
    return element(
      "tr",
      {},
      element("td", {}, percent(piece.share, 2)),
      element("td", {}, duration(piece.time_us * 1000)),
      element(
        "td",
        { class: "barred" },
        element("div", {}, piece.what, " ", ...lines.flatMap((link) => [link, " "])),
        bar,
      ),
    );
  });
  $("path").replaceChildren(table(["Share", "Time", "What"], rows));
}

function drawStalls(profile) {
  const made = profile.engines.map((one) => {
    const span = one.busy_us + one.stalls.reduce((sum, stall) => sum + stall.time_us, 0) || 1;
    const parts = [
      ["busy", one.busy_us, ""],
      ...one.stalls.map((s) => [s.reason, s.time_us, s.longest_at, s]),
    ];
    const bar = element(
      "div",
      { class: "stack" },
      ...parts.map(([reason, time]) =>
        element("span", {
          "data-colour": STALL_COLOURS[reason],
          class: reason === "start" || reason === "end" ? "idle" : "",
          width: `${(100 * time) / span}%`,
          title: `${reasonName(reason)}: ${percent(time / span)}`,
        }),
      ),
    );
    const list = element(
      "ul",
      { class: "keys" },
      ...parts
        .filter(([, time]) => time / span >= 0.001)
        .map(([reason, time, where, stall]) =>
          element(
            "li",
            {},
            swatch(STALL_COLOURS[reason]),
            `${reasonName(reason)} ${percent(time / span)}`,
            ...(where ? [` (longest ${duration(stall.longest_us * 1000)} at `, whereLink(where), ")"] : []),
          ),
        ),
    );
    return element("div", { class: "engine" }, element("h3", {}, T.engineNames[one.engine]), bar, list);
  });
  $("stalls").replaceChildren(...made);
}

function reasonName(reason) {
  const names = {
    busy: "busy",
    start: "launch",
    end: "nothing more to do",
    buffer: "a buffer",
    spill: "spills",
    issue: "issue",
  };
  return names[reason] || T.engineNames[reason] || reason;
}

function drawSizes(profile) {
  const sizes = profile.dma.descriptor_sizes;
  const most = Math.max(1, ...sizes.map((size) => size.bytes));
  const row = (size) =>
    element(
      "tr",
      {},
      element("td", {}, `${bytesOfTwo(size.at_least_bytes)} to ${bytesOfTwo(2 * size.at_least_bytes)}`),
      element("td", {}, counted(size.descriptors)),
      element(
        "td",
        { class: "barred" },
        bytes(size.bytes),
        element("span", {
          class: "bar",
          "data-colour": 0,
          width: `${Math.max(0.5, (100 * size.bytes) / most)}%`,
        }),
      ),
    );
  const hint =
    "A descriptor moves a run of contiguous bytes; short ones cost nearly as much time as long ones.";
  const note = element("p", { class: "note" }, sizes.length ? hint : "No transfer.");
  const drawn = sizes.length ? [table(["Bytes", "Descriptors", "Moved"], sizes.map(row))] : [];
  $("sizes").replaceChildren(note, ...drawn);
}

const bytesOfTwo = (count) => (count >= 1024 ? `${count / 1024} KiB` : `${count} B`);

function drawRoofline({ roofline }) {
  const peaks = Object.entries(roofline.peak_flops_per_second);
  const slope = roofline.bytes_per_second.DMA;
  const peak = Math.max(...peaks.map(([, value]) => value));
  const point = [roofline.flops_per_byte, roofline.flops_per_second];
  if (!(point[0] > 0)) {
    $("roofline").replaceChildren(
      element("p", { class: "note" }, "The kernel multiplies nothing on TensorE."),
    );
    return;
  }
  const x = [Math.min(1, point[0] / 2), Math.max(1000, point[0] * 2)].map(Math.log10);
  const y = [Math.min(x[0] + Math.log10(slope), Math.log10(point[1]) - 0.3), Math.log10(peak) + 0.3];
  const [width, height, left, bottom] = [440, 250, 58, 34];
  const px = (value) => left + ((Math.log10(value) - x[0]) / (x[1] - x[0])) * (width - left - 12);
  const py = (value) =>
    height - bottom - ((Math.log10(value) - y[0]) / (y[1] - y[0])) * (height - bottom - 12);
  const label = (px_, py_, text, anchor = "start", kind = "") =>
    drawing("text", { x: px_, y: py_, "text-anchor": anchor, class: kind }, text);
  const parts = [];
  for (let power = Math.ceil(x[0]); power <= x[1]; power++) {
    parts.push(
      drawing("line", {
        x1: px(10 ** power),
        x2: px(10 ** power),
        y1: 12,
        y2: height - bottom,
        class: "grid",
      }),
    );
    const isLast = px(10 ** power) > width - 24;
    parts.push(label(px(10 ** power), height - bottom + 14, String(10 ** power), isLast ? "end" : "middle"));
  }
  for (let power = Math.ceil(y[0]); power <= y[1]; power++) {
    parts.push(
      drawing("line", { x1: left, x2: width - 12, y1: py(10 ** power), y2: py(10 ** power), class: "grid" }),
    );
    parts.push(label(left - 5, py(10 ** power) + 4, digits(10 ** (power - 12)), "end"));
  }
  for (const [name, value] of peaks) {
    const knee = value / slope;
    parts.push(
      drawing("polyline", {
        points: `${px(10 ** x[0])},${py(slope * 10 ** x[0])} ${px(knee)},${py(value)} ${px(10 ** x[1])},${py(value)}`,
        class: "roof",
      }),
    );
    parts.push(label(width - 14, py(value) - 5, name, "end"));
  }
  parts.push(drawing("circle", { cx: px(point[0]), cy: py(point[1]), r: 6, class: "point" }));
  parts.push(label((left + width) / 2, height - 4, "FLOP per byte to and from HBM", "middle"));
  parts.push(label(4, 11, "TFLOP/s"));
  const knee = Math.min(...peaks.map(([, value]) => value)) / slope;
  const halfway = 10 ** ((x[0] + Math.log10(knee)) / 2);
  parts.push(label(px(halfway) + 8, py(slope * halfway) + 12, `${digits(slope / 1e9, 3)} GB/s`));
  const picture = drawing(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Roofline" },
    ...parts,
  );
  const roof = ([name, value]) => `${digits(Math.min(value, point[0] * slope) / 1e12, 3)} in ${name}`;
  const told =
    `${digits(point[1] / 1e12, 3)} TFLOP/s at ${digits(point[0], 3)} FLOP per byte; ` +
    `the roofs there are ${peaks.map(roof).join(" and ")} (${digits(slope / 1e9, 3)} GB/s).`;
  $("roofline").replaceChildren(element("p", { class: "note" }, told), picture);
}

function drawNotes(profile) {
  const findings = profile.summary.findings.map(
    (one) => `${one.where}: ${one.rule}: ${one.message}${one.fix ? ` — ${one.fix}` : ""}`,
  );
  const notes = [...profile.notes, ...findings];
  $("notes").hidden = !notes.length;
  $("note-list").replaceChildren(...notes.map((note) => element("li", {}, ...linked(micro(note)))));
}

// Colours of the theme on everything that names one by its number.
function paint() {
  for (const marked of document.querySelectorAll("[data-colour]"))
    marked.style.background = theme.colours[Number(marked.dataset.colour)];
}

function drawLegend() {
  const names = new Map(timeline.colours.flatMap((own) => own.legend.map(([colour, name]) => [name, colour])));
  $("legend").replaceChildren(
    ...[...names].map(([name, colour]) => element("span", { class: "key" }, swatch(colour), name)),
  );
  paint();
}
