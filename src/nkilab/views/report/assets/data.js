// The data of the page: tables as JSON, columns as typed arrays.

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array };
let P = null; // what all cores share
let parts = []; // per core that is shown its tables and columns
let focus = 0; // the core that the panels tell of
let T = null; // its tables
let D = null; // its columns by name

async function readData() {
  P = JSON.parse($("tables").textContent);
  const text = $("columns").textContent;
  const packed = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  parts = P.parts.map((tables) => ({
    T: tables,
    D: columnsOf(buffer, tables.columns, tables.offset),
    followers: null,
    spent: null,
  }));
  lookAt(P.focus);
  $("columns").remove();
}

function lookAt(core) {
  focus = core;
  ({ T, D } = parts[core]);
}

// What a function says of another core.
function inPart(core, tell) {
  const before = focus;
  lookAt(core);
  try {
    return tell();
  } finally {
    lookAt(before);
  }
}

function columnsOf(buffer, directory, offset) {
  const columns = {};
  let at = offset;
  for (const [name, kind, length, isDelta] of directory) {
    const made = new ARRAYS[kind](buffer, at, length);
    // a typed array wraps as the sender did
    if (isDelta) for (let i = 1; i < length; i++) made[i] += made[i - 1];
    columns[name] = made;
    at += Math.ceil(made.byteLength / 4) * 4;
  }
  // tiles of one line have one name
  for (const own of ["operand", "inserted", "sbuf", "psum"])
    columns[`${own}Name`] = columns[`${own}Storage`].map((storage) => columns.storageName[storage]);
  return columns;
}

const ns = (ticks) => ticks * P.tick;
const eventCount = () => D.start.length;
const firstTransfer = () => eventCount() - D.dmaBytes.length;
const nodeOf = (event) => D.node[event];
const rowOf = (event) => D.nodeRow[D.node[event]];
// Nodes beyond the rows up to the number of inserted transfers are those; further ones are shares of rows.
const insertedOf = (event) => {
  const number = D.node[event] - T.rows;
  return number >= 0 && number < D.insertedName.length ? number : -1;
};
const lineOf = (event) => D.rowLine[rowOf(event)];
const flopsOf = (event) => (event < firstTransfer() ? formOf(event)[3] : 0);
const formOf = (event) => T.forms[D.rowForm[rowOf(event)]];

function whereOf(line) {
  const [file, number] = T.lines[line];
  return `${T.files[file][1]}:${number}`;
}

function laneOf(event) {
  let lane = 0;
  while (D.laneStart[lane + 1] <= event) lane++;
  return lane;
}

// Operands of an event: name, tile, layout, whether it is written, storage.
function operandsOf(event) {
  const inserted = insertedOf(event);
  if (inserted >= 0) {
    const storage = D.insertedStorage[inserted];
    return [["tile", T.names[D.storageName[storage]], "", false, storage]];
  }
  const row = rowOf(event);
  return formOf(event)[1].map(([name, layout, isWritten], place) => {
    const storage = D.operandStorage[D.operandStart[row] + place];
    return [name, T.names[D.storageName[storage]], layout, isWritten, storage];
  });
}

// Values of the loops around an event, the outermost first.
function loopsOf(event) {
  const values = [];
  for (let at = D.rowPosition[rowOf(event)]; at >= 0 && D.loopOuter[at] >= 0; at = D.loopOuter[at]) {
    values.unshift(D.loopValue[at]);
  }
  return values;
}

function titleOf(event) {
  const [instruction] = formOf(event);
  const label = T.labels[D.label[event]];
  return insertedOf(event) >= 0 ? label : `${label} · ${instruction}`;
}

// Nodes that wait for a node, as a compressed list; made when first asked for.
function waitingFor(node) {
  const part = parts[focus];
  if (!part.followers) {
    const count = D.waitStart.length - 1;
    const start = new Uint32Array(count + 2);
    for (const waited of D.waitNode) start[waited + 2]++;
    for (let i = 2; i < start.length; i++) start[i] += start[i - 1];
    const list = new Uint32Array(D.waitNode.length);
    for (let later = 0; later < count; later++)
      for (let at = D.waitStart[later]; at < D.waitStart[later + 1]; at++)
        list[start[D.waitNode[at] + 1]++] = later;
    part.followers = { start, list };
  }
  const { start, list } = part.followers;
  return list.subarray(start[node], start[node + 1]);
}

// Time that an event spends on the critical path, in ticks; made when first asked for.
function onPath(event) {
  const part = parts[focus];
  if (!part.spent) {
    const spent = (part.spent = new Map());
    D.pathEvent.forEach((e, i) => spent.set(e, (spent.get(e) || 0) + D.pathLength[i]));
  }
  return part.spent.get(event) || 0;
}
