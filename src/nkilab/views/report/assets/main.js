// Keys, buttons, theme, and the start of the page.

const KEYS = [
  ["← →  or  a d", "pan"],
  ["+ −  or  w s", "zoom"],
  ["0", "the whole run"],
  ["f", "zoom to the selected instruction"],
  [". ,", "next and previous instruction of the lane"],
  ["↑ ↓", "the instruction at the same time in the lane above or below"],
  ["p", "go to what the selected instruction waited for"],
  ["c", "next piece of the critical path"],
  ["/", "search; Enter and Shift+Enter step through what is found"],
  ["n  N", "next and previous of what is found"],
  ["Esc", "select nothing, end the search"],
  ["t", "light or dark"],
  ["wheel, drag, pinch", "zoom, pan, both"],
  ["double click", "zoom to an instruction"],
];

const ACTIONS = {
  ArrowLeft: () => timeline.pan(-0.2),
  a: () => timeline.pan(-0.2),
  ArrowRight: () => timeline.pan(0.2),
  d: () => timeline.pan(0.2),
  "+": () => timeline.zoom(0.6),
  "=": () => timeline.zoom(0.6),
  w: () => timeline.zoom(0.6),
  "-": () => timeline.zoom(1 / 0.6),
  s: () => timeline.zoom(1 / 0.6),
  0: () => timeline.setView(0, timeline.end),
  f: () => timeline.selected >= 0 && timeline.zoomTo(timeline.selected),
  ".": () => stepInLane(1),
  ",": () => stepInLane(-1),
  ArrowUp: () => stepLane(-1),
  ArrowDown: () => stepLane(1),
  p: () =>
    timeline.selected >= 0 &&
    D.waited[timeline.selected] >= 0 &&
    timeline.select(D.nodeEvent[D.waited[timeline.selected]]),
  c: () => stepOnPath(),
  n: () => search.step(1),
  N: () => search.step(-1),
  Escape: () => (search.ask(""), timeline.select(-1)),
};

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
    else if ("nNpcf".includes(event.key)) ACTIONS[event.key]();
    else if (event.target === document.body && !/^Arrow(Up|Down)$/.test(event.key)) ACTIONS[event.key]();
  });
}

function listenToButtons() {
  $("zoom-in").addEventListener("click", () => timeline.zoom(0.5));
  $("zoom-out").addEventListener("click", () => timeline.zoom(2));
  $("zoom-all").addEventListener("click", () => timeline.setView(0, timeline.end));
  $("zoom-selected").addEventListener("click", ACTIONS.f);
  $("colour").addEventListener("change", (event) => (timeline.setColours(event.target.value), drawLegend()));
  $("theme").addEventListener("click", () => theme.set(!theme.isDark));
  $("help").addEventListener("click", () => $("keys").showModal());
  $("key-list").replaceChildren(
    ...KEYS.map(([keys, what]) =>
      element("tr", {}, element("th", { scope: "row" }, keys), element("td", {}, what)),
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
    timeline.init();
    details.init();
    source.init();
    search.init();
    drawPanels();
    memory.init();
    timeline.focusChanged.listen(() => (drawPanels(), paint()));
    theme.changed.listen(paint);
    listenToKeys();
    listenToButtons();
    drawLegend();
    timeline.draw();
    timeline.drawn = 1;
    document.documentElement.dataset.state = "drawn";
    // what tests and measurements read
    window.nkilab = {
      timeline,
      search,
      theme,
      shortened,
      parts,
      get focus() {
        return focus;
      },
      get tables() {
        return T;
      },
      get columns() {
        return D;
      },
      firstDrawn: performance.now(),
    };
  } catch (error) {
    $("failure").hidden = false;
    $("failure").textContent =
      `This report cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
    document.documentElement.dataset.state = "failed";
    throw error;
  }
}

start();
