// Source files with the time of their lines, linked both ways with the timeline.

const MOST_LINES = 4000;
const AROUND = 60;

const source = {
  file: -1,
  marked: -1, // number of a line of T.lines

  init() {
    this.remake();
    timeline.selectionChanged.listen((event) => event >= 0 && this.mark(lineOf(event)));
    timeline.focusChanged.listen(() => this.remake());
  },

  // The files of the core in focus.
  remake() {
    this.marked = -1;
    this.costs = new Map(T.profile.lines.map((cost) => [`${cost.path}:${cost.line}`, cost]));
    this.most = Math.max(1e-9, ...T.profile.lines.map((cost) => cost.critical_path_us));
    const used = [...new Set(T.profile.lines.map((cost) => cost.path))];
    this.order = T.files.map((_, i) => i).filter((i) => used.includes(T.files[i][0]));
    $("files").replaceChildren(
      ...this.order.map((i) =>
        element(
          "button",
          { type: "button", role: "tab", "data-file": i, title: T.files[i][0], onclick: () => this.open(i) },
          T.files[i][1],
        ),
      ),
    );
    const [first] = T.profile.lines;
    if (first) {
      this.open(this.fileOf(first.path));
      this.reveal(first.line);
    }
  },

  fileOf(path) {
    return T.files.findIndex((file) => file[0] === path);
  },

  open(file) {
    this.file = file;
    for (const tab of $("files").children)
      tab.setAttribute("aria-selected", String(Number(tab.dataset.file) === file));
    const [path, , lines] = T.files[file];
    const used = T.profile.lines.filter((cost) => cost.path === path).map((cost) => cost.line);
    const isLong = lines.length > MOST_LINES;
    const first = isLong ? Math.max(1, Math.min(...used) - AROUND) : 1;
    const last = isLong
      ? Math.min(lines.length, Math.max(...used) + AROUND, first + MOST_LINES)
      : lines.length;
    const rows = [];
    if (!lines.length)
      used
        .sort((a, b) => a - b)
        .forEach((line) => rows.push(this.row(path, line, "(the source is not here)")));
    for (let line = first; line <= last; line++) rows.push(this.row(path, line, lines[line - 1]));
    $("code").replaceChildren(...rows);
  },

  row(path, line, text) {
    const cost = this.costs.get(`${path}:${line}`);
    const properties = { class: cost ? "line used" : "line", "data-line": line };
    const time = element("span", { class: "spent" });
    if (cost) {
      properties.title = this.tell(cost);
      properties.tabindex = "0";
      properties.role = "button";
      properties.onclick = () => this.filter(path, line);
      properties.onkeydown = (event) =>
        (event.key === "Enter" || event.key === " ") && (event.preventDefault(), this.filter(path, line));
      time.append(duration(cost.critical_path_us * 1000));
      time.style.setProperty("--share", String(cost.critical_path_us / this.most));
    }
    return element(
      "div",
      properties,
      element("span", { class: "number" }, String(line)),
      time,
      element("code", {}, text || " "),
    );
  },

  tell(cost) {
    return (
      `${duration(cost.critical_path_us * 1000)} on the critical path, ${duration(cost.busy_us * 1000)} busy, ` +
      `${duration(cost.stalled_us * 1000)} stalled before it, ${counted(cost.count)} calls` +
      (cost.dma_bytes ? `, ${bytes(cost.dma_bytes)} moved` : "")
    );
  },

  // Light the instructions of a line in the timeline.
  filter(path, line) {
    const isOn = this.marked >= 0 && whereKey(this.marked) === `${path}:${line}` && $("search").value;
    search.ask(isOn ? "" : `${path.replace(/.*[/\\]/, "")}:${line}`);
    this.mark(
      T.lines.findIndex(([file, number]) => T.files[file][0] === path && number === line),
      false,
    );
  },

  // Show a line of T.lines and light its instructions.
  showLine(line) {
    this.mark(line);
    search.ask(whereOf(line));
  },

  mark(line, isScrolled = true) {
    if (line < 0) return;
    this.marked = line;
    const [file, number] = T.lines[line];
    if (file !== this.file) this.open(file);
    for (const row of $("code").querySelectorAll(".marked")) row.classList.remove("marked");
    const row = $("code").querySelector(`[data-line="${number}"]`);
    if (!row) return;
    row.classList.add("marked");
    if (isScrolled) this.reveal(number);
  },

  // Scroll the source to a line of the open file.
  reveal(number) {
    const row = $("code").querySelector(`[data-line="${number}"]`);
    if (row) $("code").scrollTop = row.offsetTop - $("code").clientHeight / 2;
  },
};

const whereKey = (line) => `${T.files[T.lines[line][0]][0]}:${T.lines[line][1]}`;
