// Keys, buttons, theme, and the start of the page.

// What is pressed, what the list of keys calls it and says of it, what it does.
const KEYS = [
  [[".", "ArrowRight"], "→  or  .", "next instruction of the lane", () => stepInLane(1)],
  [[",", "ArrowLeft"], "←  or  ,", "previous instruction of the lane", () => stepInLane(-1)],
  [["ArrowUp"], "↑", "the instruction at the same time in the lane above", () => stepLane(-1)],
  [["ArrowDown"], "↓", "the one in the lane below", () => stepLane(1)],
  [["+", "=", "w"], "+  or  w", "zoom in", () => timeline.zoom(0.6)],
  [["-", "s"], "−  or  s", "zoom out", () => timeline.zoom(1 / 0.6)],
  [["a"], "a", "pan to the left", () => timeline.pan(-0.2)],
  [["d"], "d", "pan to the right", () => timeline.pan(0.2)],
  [["0"], "0", "the whole run", () => timeline.showAll()],
  [["f"], "f", "zoom to the selected instruction", () => hasSelected() && timeline.zoomTo(timeline.selected)],
  [["m"], "m", "measure: a drag selects a range of time", () => timeline.setMeasuring(!timeline.isMeasuring)],
  [["v"], "v", "measure what is in view", () => timeline.setRange([timeline.view.t0, timeline.view.t1])],
  [["p"], "p", "go to what the selected instruction waited for", () => stepToWaited()],
  [["c"], "c", "next piece of the critical path", () => stepOnPath()],
  [["n"], "n", "next of what is found", () => search.step(1)],
  [["N"], "N", "previous of what is found", () => search.step(-1)],
  [["Escape"], "Esc", "select nothing, end search and range", () => clear()],
  [[], "/", "search; Enter and Shift+Enter step through what is found"],
  [[], "t", "light or dark"],
  [[], "wheel, drag, pinch", "zoom, pan, both"],
  [[], "Shift+drag", "measure a range of time"],
  [[], "double click", "zoom to an instruction"],
];
const ACTIONS = Object.fromEntries(KEYS.flatMap(([keys, , , act]) => keys.map((key) => [key, act])));

const hasSelected = () => timeline.selected >= 0;

function clear() {
  search.ask("");
  timeline.setRange(null);
  timeline.select(-1);
}

function stepToWaited() {
  if (hasSelected() && D.waited[timeline.selected] >= 0)
    timeline.select(D.nodeEvent[D.waited[timeline.selected]]);
}

function stepInLane(direction) {
  if (!eventCount()) return;
  if (timeline.selected < 0) {
    const middle = (timeline.view.t0 + timeline.view.t1) / 2;
    const own = timeline.lanes.filter((one) => one.core === focus && !one.isPath);
    const lane = own.find((one) => one.name === "TensorMatrix") || own[0];
    return timeline.select(Math.min(lane.last - 1, lowerBound(lane.start, lane.first, lane.last, middle)));
  }
  const lane = timeline.laneOfEvent(timeline.selected);
  const next = timeline.selected + direction;
  if (next >= lane.first && next < lane.last) timeline.select(next);
}

function stepLane(direction) {
  if (timeline.selected < 0) return stepInLane(1);
  const lanes = timeline.lanes.filter((one) => !one.isPath);
  const lane = lanes[lanes.indexOf(timeline.laneOfEvent(timeline.selected)) + direction];
  if (!lane) return;
  const at = lowerBound(lane.start, lane.first, lane.last, D.start[timeline.selected]);
  timeline.select(Math.min(Math.max(at, lane.first), lane.last - 1), true, lane.core);
}

function stepOnPath() {
  const from =
    timeline.selected >= 0 ? D.start[timeline.selected] + D.length[timeline.selected] : timeline.view.t0;
  let i = lowerBound(D.pathStart, 0, D.pathStart.length, from);
  while (i < D.pathStart.length && (D.pathEvent[i] < 0 || D.pathEvent[i] === timeline.selected)) i++;
  if (i < D.pathStart.length) timeline.select(D.pathEvent[i]);
}

function listenToKeys() {
  timeline.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in ACTIONS)) return;
    event.preventDefault();
    ACTIONS[event.key]();
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      $("search").focus();
      $("search").select();
    } else if (event.key === "?") $("keys").showModal();
    else if (event.key === "t") theme.set(!theme.isDark);
    else if (event.target === timeline.canvas || !(event.key in ACTIONS)) return;
    // where nothing has the focus all keys mean the timeline, but those that scroll the page
    else if ("nNpcfmv".includes(event.key)) ACTIONS[event.key]();
    else if (event.target === document.body && !event.key.startsWith("Arrow")) ACTIONS[event.key]();
  });
}

function listenToButtons() {
  const clicks = {
    "zoom-in": "+",
    "zoom-out": "-",
    "zoom-all": "0",
    "zoom-selected": "f",
    unselect: "Escape",
    measure: "m",
  };
  for (const [id, key] of Object.entries(clicks)) $(id).addEventListener("click", ACTIONS[key]);
  $("colour").addEventListener("change", (event) =>
    timeline.setColours(event.target.value === "reason" ? reasonColours : workColours),
  );
  $("own-scales").addEventListener("click", () => {
    timeline.hasOwnScales = !timeline.hasOwnScales;
    $("own-scales").setAttribute("aria-pressed", String(timeline.hasOwnScales));
    timeline.showAll();
  });
  $("theme").addEventListener("click", () => theme.set(!theme.isDark));
  $("help").addEventListener("click", () => $("keys").showModal());
  $("key-list").replaceChildren(
    table(
      ["Key", "What it does"],
      KEYS.map(([, keys, what]) => [keys, what]),
    ),
  );
}

async function start() {
  try {
    await readData();
    const asked = new URLSearchParams(location.search).get("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    theme.set(asked ? asked === "dark" : system.matches);
    system.addEventListener("change", (event) => theme.set(event.matches));
    drawPanels();
    drawLegend();
    timeline.init();
    timeline.draw();
    timeline.drawn = 1;
    const firstDrawn = performance.now();
    // the timeline is seen before the rest is made
    await new Promise((done) => setTimeout(done));
    for (const panel of [details, source, search, ruler, memory, flame]) panel.init();
    timeline.focusChanged.listen(() => (drawPanels(), paint()));
    theme.changed.listen(paint);
    listenToKeys();
    listenToButtons();
    document.documentElement.dataset.state = "drawn";
    // what tests and measurements read
    window.nkilab = {
      timeline,
      search,
      theme,
      shortened,
      sumsOf,
      parts,
      tick: P.tick,
      get focus() {
        return focus;
      },
      get tables() {
        return T;
      },
      get columns() {
        return D;
      },
      firstDrawn,
    };
  } catch (error) {
    $("failure").hidden = false;
    $("failure").textContent =
      `This report cannot be shown: ${error.message}. It needs a browser of 2024 or later.`;
    document.documentElement.dataset.state = "failed";
    throw error;
  }
}

start();
