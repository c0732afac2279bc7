// Drawing lanes of events and series of numbers into a box of a canvas.

// Below this width an event shares columns of pixels with its neighbours.
const NARROW = 1.5;

// Draw events first..last of columns that ascend by start.
//   lane: { first, last, start, busy, length, colourOf, mask, textOf }
//   box: { x, y, width, height }; view: { t0, t1 } in ticks
function drawEvents(ink, lane, box, view) {
  const { start, busy, length, last } = lane;
  const scale = box.width / (view.t1 - view.t0);
  let i = Math.max(lane.first, lowerBound(start, lane.first, last, view.t0) - 1);
  while (i > lane.first && start[i - 1] + length[i - 1] > view.t0) i--;
  const bucket = { column: -1, isLit: false, spent: new Float64Array(theme.colours.length) };
  // an event may begin in one column of pixels and end in the next
  const pour = (left, width, colour, isLit) => {
    const end = left + width;
    let from = Math.max(left, bucket.column, 0);
    do {
      const column = Math.floor(from);
      if (column !== bucket.column) flush(ink, bucket, box, column);
      // what is searched for shows through whatever shares its column
      if (isLit && !bucket.isLit) {
        bucket.spent.fill(0);
        bucket.isLit = true;
      }
      const to = Math.min(end, column + 1);
      if (isLit === bucket.isLit) bucket.spent[colour] += Math.max(to - from, 1e-9);
      from = column + 1;
    } while (from < end);
  };
  const wide = [];
  for (; i < last && start[i] < view.t1; i++) {
    const left = (start[i] - view.t0) * scale;
    const width = busy[i] * scale;
    const isLit = !lane.mask || lane.mask[i] === 1;
    if (width < NARROW) {
      if (left + width >= 0) pour(left, width, lane.colourOf(i), isLit);
      continue;
    }
    if (left + length[i] * scale < 0) continue;
    wide.push(i);
    const from = Math.max(left, 0);
    const to = Math.min(left + width, box.width);
    const colour = lane.colourOf(i);
    const tail = Math.min(left + length[i] * scale, box.width) - Math.max(to, 0);
    if (tail > 1 && isLit) {
      ink.fillStyle = theme.tails[colour];
      ink.fillRect(box.x + Math.max(to, 0), box.y + box.height * 0.35, tail, box.height * 0.3);
    }
    if (to <= from) continue;
    ink.fillStyle = isLit ? theme.colours[colour] : theme.dimmed[colour];
    ink.fillRect(box.x + from, box.y, Math.max(1, to - from - (to - from > 3 ? 1 : 0)), box.height);
  }
  flush(ink, bucket, box, -1);
  if (lane.textOf) drawTexts(ink, lane, wide, box, view, scale);
}

// Draw what shares a column of pixels: as high as the share of the column that it fills, in the colour of most.
function flush(ink, bucket, box, next) {
  const { spent } = bucket;
  if (bucket.column >= 0 && bucket.column < box.width) {
    let share = 0;
    let most = 0;
    for (let i = 0; i < spent.length; i++) {
      share += spent[i];
      most = Math.max(most, spent[i]);
    }
    // of about equal ones always the first, so that neighbouring columns agree
    const colour = spent.findIndex((one) => one >= 0.8 * most);
    const height = box.height * Math.max(0.2, Math.min(1, share));
    ink.fillStyle = (bucket.isLit ? theme.colours : theme.dimmed)[colour];
    ink.fillRect(box.x + bucket.column, box.y + box.height - height, 1, height);
  }
  spent.fill(0);
  bucket.column = next;
  bucket.isLit = false;
}

function drawTexts(ink, lane, wide, box, view, scale) {
  if (wide.length > 400 || box.height < 12) return;
  ink.font = "11px system-ui, sans-serif";
  ink.textBaseline = "middle";
  for (const i of wide) {
    const from = Math.max((lane.start[i] - view.t0) * scale, 0);
    const room = Math.min((lane.start[i] + lane.busy[i] - view.t0) * scale, box.width) - from - 8;
    if (room < 18) continue;
    ink.fillStyle = lane.mask && lane.mask[i] !== 1 ? theme.faint : theme.inks[lane.colourOf(i)];
    ink.fillText(shortened(ink, lane.textOf(i), room), box.x + from + 4, box.y + box.height / 2 + 0.5);
  }
}

// Draw a number that changes at moments: its mean, or its most, in every column of pixels.
//   series: { time, value, most, usesMost }
function drawSeries(ink, series, box, view) {
  const { time, value } = series;
  const columns = Math.max(1, Math.floor(box.width));
  const step = (view.t1 - view.t0) / columns;
  let i = lowerBound(time, 0, time.length, view.t0);
  let level = i > 0 ? value[i - 1] : 0;
  ink.fillStyle = theme.faint;
  ink.globalAlpha = 0.6;
  for (let column = 0; column < columns; column++) {
    let at = view.t0 + column * step;
    const end = at + step;
    let area = 0;
    let most = level;
    while (i < time.length && time[i] < end) {
      area += level * (time[i] - at);
      at = Math.max(at, time[i]);
      level = value[i];
      most = Math.max(most, level);
      i++;
    }
    area += level * (end - at);
    const shown = Math.min(1, (series.usesMost ? most : area / step) / series.most);
    if (shown > 0)
      ink.fillRect(box.x + column, box.y + box.height * (1 - shown), 1, Math.max(1, box.height * shown));
  }
  ink.globalAlpha = 1;
}

// A ruler with times.
function drawRuler(ink, box, view, bottom) {
  const span = ns(view.t1 - view.t0);
  const step = niceStep(span, Math.max(2, box.width / 110));
  const first = Math.ceil(ns(view.t0) / step) * step;
  ink.font = "11px system-ui, sans-serif";
  ink.textBaseline = "middle";
  for (let at = first; at <= ns(view.t1); at += step) {
    const x = Math.round(box.x + ((at - ns(view.t0)) / span) * box.width) + 0.5;
    ink.strokeStyle = theme.rule;
    ink.beginPath();
    ink.moveTo(x, box.y + box.height - 5);
    ink.lineTo(x, bottom);
    ink.stroke();
    const text = tickText(at, step);
    ink.fillStyle = theme.faint;
    if (x + 6 * text.length < box.x + box.width) ink.fillText(text, x + 3, box.y + box.height / 2 - 1);
  }
}

// A moment with as many digits as its neighbours need.
function tickText(at, step) {
  const [size, unit] =
    at >= 1e6 || step >= 1e6 ? [1e6, "ms"] : at >= 1e3 || step >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${(at / size).toFixed(places)} ${unit}`;
}

// A canvas as sharp as the screen; returns what to draw with, in units of the page.
function prepared(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const ink = canvas.getContext("2d");
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.clearRect(0, 0, width, height);
  return ink;
}
