// Panels that do not change: cards, advice, verdict, comparison, tables, bars, roofline.

function drawPanels() {
  const { profile } = T;
  const { comparison } = P;
  const metric = new Map(T.metrics.map(([name, text]) => [name, micro(text)]));
  const [low, high] = profile.interval_us;
  $("title").textContent = $("title").title = comparison ? comparison.title : profile.kernel;
  $("subtitle").textContent =
    `on ${profile.target}, predicted from shapes by timing model ${profile.model_version}` +
    (parts.length > 1 ? `; cards and panels tell of ${T.core}` : "");
  const busiest = profile.engines
    .filter((one) => one.engine !== "dma")
    .sort((a, b) => b.busy_us - a.busy_us)[0];
  const busyCard = (one, note) => [
    `${T.engineNames[one.engine]} busy`,
    percent(one.busy_us / profile.latency_us),
    note,
  ];
  const dma = profile.engines.find((one) => one.engine === "dma");
  const cards = [
    ["Latency", duration(profile.latency_us * 1000), `${duration(low * 1000)} to ${duration(high * 1000)}`],
    ["Bound by", profile.summary.bound, ""],
    busiest && busyCard(busiest, `${duration(busiest.busy_us * 1000)} of the latency`),
    dma && busyCard(dma, `${metric.get("dma_transfer_total_bytes")} moved`),
    ["MFU", metric.get("mfu_estimated_percent"), metric.get("model_flops")],
    ["HBM bandwidth", metric.get("mbu_estimated_percent"), "of one stack (MBU)"],
    ["Instructions", metric.get("instruction_count"), `${counted(eventCount())} events`],
    ["Spills", metric.get("spill_save_bytes"), `${metric.get("spill_reload_bytes")} reloaded`],
  ];
  $("cards").replaceChildren(...cards.filter(Boolean).map(card));
  // the last sentence is what the card beside says
  $("sentences").replaceChildren(...profile.verdict.slice(0, -1).map(sentence));
  drawGuidance(profile);
  drawComparison();
  drawCores();
  drawPath(profile);
  drawStalls(profile);
  drawSizes(profile);
  drawRoofline(profile);
  const time = (us) => duration(us * 1000);
  const lines = profile.lines.map((cost) => [
    ...[linked(cost.where), time(cost.critical_path_us), time(cost.busy_us), time(cost.stalled_us)],
    ...[counted(cost.count), cost.dma_bytes ? bytes(cost.dma_bytes) : "", cost.opcodes.join(", ")],
  ]);
  const heads = ["Line", "Critical path", "Busy", "Stalled before", "Calls", "Moved", "Instructions"];
  $("lines").replaceChildren(table(heads, lines));
  const metrics = T.metrics.map(([name, text, meaning]) => [name, micro(text), meaning]);
  $("metrics").replaceChildren(table(["Metric", "Value", "Meaning"], metrics));
  const findings = profile.summary.findings.map(
    (one) => `${one.where}: ${one.rule}: ${one.message}${one.fix ? ` — ${one.fix}` : ""}`,
  );
  const notes = [...profile.notes, ...findings];
  $("sbuf-note").textContent = `SBUF has ${counted(T.sbufBytes)} bytes a partition${T.sbufNote}.`;
  $("notes").hidden = !notes.length;
  $("note-list").replaceChildren(...notes.map(sentence));
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const sentence = (text) => element("li", {}, ...linked(micro(text)));
const note = (text) => element("p", { class: "note" }, text);

function card([name, value, remark]) {
  const parts = [element("dt", {}, name), element("dd", { class: "value" }, value)];
  return element("div", { class: "card" }, ...parts, element("dd", { class: "note" }, remark));
}

const nameOf = ({ id, also_called: also, combined_with: others }) =>
  [[id, ...also].join(" or "), ...others].join(" + ");

// What pays, the most first, and how far the limits are.
function drawGuidance({ advice, distances, latency_us: latency, verdict }) {
  const us = (value) => duration(value * 1000);
  const rows = advice.map((one) =>
    element(
      "li",
      { "data-advice": one.id },
      link(capital(one.fix), () => lightAll(one.where)),
      element("div", {}, `saves ${us(one.gain_us)} (${one.interval_us.map(us).join(" to ")}); ${one.where}`),
      element("div", { class: "note" }, [one.edit, nameOf(one), one.source].join(" · ")),
    ),
  );
  // the first three are in view, further ones unfold
  const more = rows.splice(3);
  const unfold = element("summary", {}, `${more.length} more`);
  const rest = more.length ? [element("details", {}, unfold, element("ol", { start: 4 }, ...more))] : [];
  $("advice").replaceChildren(rows.length ? element("ol", {}, ...rows) : verdict.at(-1), ...rest);
  const own = { limit: "this kernel", time_us: latency, separates: "" };
  const cells = [own, ...distances].map(({ limit, time_us: time, separates }) => [
    limit,
    us(time),
    bar(time / latency, { class: "bar own" }),
    micro(separates),
  ]);
  const limits = distances.length ? [table(["Limit", "Time", "Of this kernel", "What separates it"], cells)] : [];
  $("distances").replaceChildren(...limits);
}

// Light the instructions of every "file.py:41" of a text, and show the first in the source.
function lightAll(text) {
  const wheres = text.match(/\S+:\d+/g) || [];
  const line = T.lines.findIndex((_, i) => whereOf(i) === wheres[0]);
  search.light(wheres, "", text);
  source.mark(line);
}

// Two runs: what is better and worse, line by line.
function drawComparison() {
  const { comparison } = P;
  $("comparison").hidden = $("changed").hidden = $("own-scales").hidden = !comparison;
  if (!comparison) return;
  $("headline").textContent = capital(micro(comparison.headline));
  const [lines] = comparison.tables[0].slice(2);
  const changed = (gain) => lines.filter((row) => row.gain === gain).flatMap((row) => row.lines);
  const words = { 1: "▲ better", "-1": "▼ worse", 0: "" };
  const lights = [1, -1].map((gain) => {
    const light = () => search.light(changed(gain), "", words[gain]);
    return element("button", { type: "button", onclick: light }, `Highlight what is ${words[gain]}`);
  });
  $("changes").replaceChildren(capital(comparison.bounds), ". ", ...lights);
  const drawn = comparison.tables.map(([title, heads, rows]) => {
    const places = (row) => [...new Set(row.lines)].filter(Boolean).join(" ");
    const name = (row) =>
      places(row) ? [link(row.name, () => lightAll(places(row))), " ", note(places(row))] : row.name;
    const cells = rows.map((row) => [name(row), ...row.cells.map(micro), words[row.gain]]);
    const list = table([...heads, "Verdict"], cells, (i) => ["worse", "", "better"][rows[i].gain + 1]);
    return element("div", { class: "scroll" }, element("h3", {}, title), list);
  });
  $("change-tables").replaceChildren(...drawn);
}

// What each core does; a click on one shows it in the panels.
function drawCores() {
  const { together } = P;
  $("cores").hidden = !together;
  if (!together) return;
  const name = (place, text) =>
    place < 0 ? text : link(text, () => timeline.lookAt(place), { "aria-pressed": String(place === focus) });
  const rows = together.rows.map(([place, text, ...cells]) => [
    name(place, micro(text)),
    ...cells.map(micro),
  ]);
  const isShown = (i) => (together.rows[i][0] === focus ? "shown" : "");
  $("core-table").replaceChildren(table(together.headings.map(capital), rows, isShown));
  const hidden = together.hidden ? `${together.hidden} faster cores are not drawn.` : "";
  $("core-note").textContent = micro([together.told, hidden].filter(Boolean).join("; "));
}

// Text with its "file.py:41" as links to the source.
function linked(text) {
  const lines = new Map(T.lines.map((_, line) => [whereOf(line), line]));
  return text.split(/(\S+:\d+)/).map((part) => (lines.has(part) ? lineLink(lines.get(part)) : part));
}

const lineLink = (line) => link(whereOf(line), () => source.showLine(line));

function drawPath(profile) {
  const rows = profile.critical_path.map((piece) => {
    const lines = piece.lines.slice(0, 2).flatMap((line) => linked(` ${line.where} `));
    const colour = pathColour(piece.kind, piece.engine);
    return [
      piece.what,
      percent(piece.share, 2),
      duration(piece.time_us * 1000),
      [...lines, bar(piece.share, { "data-colour": colour })],
    ];
  });
  $("path").replaceChildren(table(["What", "Share", "Time", "Where"], rows));
}

// Per engine what it is busy with or waits for; the shares are of the latency.
function drawStalls(profile) {
  const rows = profile.engines.map((one) => {
    const parts = [
      ["busy", one.busy_us, P.colourOf[one.engine]],
      ...one.stalls.map((s) => [s.reason, s.time_us, P.colourOf[s.reason], s]),
    ];
    const share = (time) => time / (profile.latency_us || 1);
    const stack = parts.map(([, time, colour], i) =>
      element("span", {
        "data-colour": colour,
        class: i ? "waits" : "",
        style: { width: `${100 * share(time)}%` },
      }),
    );
    const keys = parts
      .filter(([, time]) => share(time) >= 0.001)
      .map(([reason, time, colour, stall]) => {
        const longest =
          stall && stall.longest_at
            ? linked(` (longest ${duration(stall.longest_us * 1000)} at ${stall.longest_at})`)
            : [];
        return element("li", {}, swatch(colour), `${reasonName(reason)} ${percent(share(time))}`, ...longest);
      });
    const cell = [
      element("div", { class: "stack", "aria-hidden": "true" }, ...stack),
      element("ul", { class: "keys" }, ...keys),
    ];
    return [T.engineNames[one.engine], percent(share(one.busy_us)), cell];
  });
  $("stalls").replaceChildren(table(["Engine", "Busy", "Busy, or waiting for"], rows));
}

function reasonName(reason) {
  const names = { start: "launch", end: "nothing more to do", buffer: "a buffer", spill: "spills" };
  return names[reason] || T.engineNames[reason] || reason;
}

function drawSizes(profile) {
  const sizes = profile.dma.descriptor_sizes;
  const most = Math.max(1, ...sizes.map((size) => size.bytes));
  const rows = sizes.map((size) => [
    `${binary(size.at_least_bytes)} to ${binary(2 * size.at_least_bytes)}`,
    counted(size.descriptors),
    [bytes(size.bytes), bar(size.bytes / most, { "data-colour": P.colourOf.dma })],
  ]);
  const hint = "A descriptor moves a run of contiguous bytes; short ones take nearly as long as long ones.";
  const drawn = sizes.length
    ? [note(hint), table(["Bytes", "Descriptors", "Moved"], rows)]
    : [note("No transfer.")];
  $("sizes").replaceChildren(...drawn);
}

function drawRoofline({ roofline }) {
  const peaks = Object.entries(roofline.peak_flops_per_second);
  const slope = roofline.bytes_per_second.DMA;
  const peak = Math.max(...peaks.map(([, value]) => value));
  const point = [roofline.flops_per_byte, roofline.flops_per_second];
  if (!(point[0] > 0)) {
    $("roofline").replaceChildren(note("The kernel multiplies nothing on TensorE."));
    return;
  }
  const x = [Math.min(1, point[0] / 2), Math.max(1000, point[0] * 2)].map(Math.log10);
  const y = [Math.min(x[0] + Math.log10(slope), Math.log10(point[1]) - 0.3), Math.log10(peak) + 0.3];
  const [width, height, left, bottom] = [440, 250, 58, 34];
  const px = (value) => left + ((Math.log10(value) - x[0]) / (x[1] - x[0])) * (width - left - 12);
  const py = (value) =>
    height - bottom - ((Math.log10(value) - y[0]) / (y[1] - y[0])) * (height - bottom - 12);
  const label = (px_, py_, text, anchor = "start") =>
    drawing("text", { x: px_, y: py_, "text-anchor": anchor }, text);
  const rule = (x1, x2, y1, y2) => drawing("line", { x1, x2, y1, y2, class: "grid" });
  const parts = [];
  for (let power = Math.ceil(x[0]); power <= x[1]; power++) {
    const at = px(10 ** power);
    const text = label(at, height - bottom + 14, String(10 ** power), at > width - 24 ? "end" : "middle");
    parts.push(rule(at, at, 12, height - bottom), text);
  }
  for (let power = Math.ceil(y[0]); power <= y[1]; power++) {
    const at = py(10 ** power);
    parts.push(rule(left, width - 12, at, at), label(left - 5, at + 4, digits(10 ** (power - 12)), "end"));
  }
  for (const [name, value] of peaks) {
    const knee = value / slope;
    const corners = [
      [10 ** x[0], slope * 10 ** x[0]],
      [knee, value],
      [10 ** x[1], value],
    ];
    const points = corners.map(([own, rate]) => `${px(own)},${py(rate)}`).join(" ");
    parts.push(drawing("polyline", { points, class: "roof" }), label(width - 14, py(value) - 5, name, "end"));
  }
  parts.push(drawing("circle", { cx: px(point[0]), cy: py(point[1]), r: 6, class: "point" }));
  parts.push(label((left + width) / 2, height - 4, "FLOP per byte to and from HBM", "middle"));
  parts.push(label(4, 11, "TFLOP/s"));
  const knee = Math.min(...peaks.map(([, value]) => value)) / slope;
  const halfway = 10 ** ((x[0] + Math.log10(knee)) / 2);
  parts.push(label(px(halfway) + 8, py(slope * halfway) + 12, `${digits(slope / 1e9, 3)} GB/s`));
  const roof = ([name, value]) => `${digits(Math.min(value, point[0] * slope) / 1e12, 3)} in ${name}`;
  const told =
    `${digits(point[1] / 1e12, 3)} TFLOP/s at ${digits(point[0], 3)} FLOP per byte; ` +
    `the roofs there are ${peaks.map(roof).join(" and ")} (${digits(slope / 1e9, 3)} GB/s).`;
  const frame = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Roofline: ${told}` };
  $("roofline").replaceChildren(note(told), drawing("svg", frame, ...parts));
}
