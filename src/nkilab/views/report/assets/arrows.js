// Dependences of the selected event as arrows, which cross no text where they lead a long way.

const MOST_ARROWS = 40;

// What the event waited for, the one that decided with a thick line; and what waits for it.
function drawArrows(owner, event) {
  const node = nodeOf(event);
  const decided = D.waited[event];
  for (let at = D.waitStart[node]; at < D.waitStart[node + 1]; at++) {
    if (D.waitNode[at] !== decided) drawArrow(owner, D.nodeEvent[D.waitNode[at]], event, 1);
  }
  for (const later of waitingFor(node).subarray(0, MOST_ARROWS))
    drawArrow(owner, event, D.nodeEvent[later], 1);
  if (decided >= 0) drawArrow(owner, D.nodeEvent[decided], event, 2.5);
}

function drawArrow(owner, from, to, width) {
  const a = owner.place(from);
  const b = owner.place(to);
  const { ink } = owner;
  ink.strokeStyle = ink.fillStyle = width > 2 ? theme.mark : theme.ink;
  ink.globalAlpha = width > 2 ? 1 : 0.55;
  ink.lineWidth = width;
  ink.beginPath();
  // where names stand between lanes, lines keep to the lanes
  const tip = a.top === b.top ? drawArc(ink, a, b) : drawCurve(ink, a, b, owner.isNarrow ? 0 : 2.5);
  ink.stroke();
  ink.beginPath();
  tip.forEach(([x, y]) => ink.lineTo(x, y));
  ink.fill();
  ink.globalAlpha = 1;
}

// From lane to lane; returns the corners of the tip.
function drawCurve(ink, a, b, gap) {
  const x = Math.min(a.right, Math.max(b.left, a.left));
  const bend = Math.max(14, Math.min(60, Math.abs(b.left - x) / 2));
  ink.moveTo(x, a.middle);
  if (b.left - x > 120) {
    // a long way leads between lanes
    const edge = b.top > a.top ? a.top + a.height + gap : a.top - gap;
    ink.quadraticCurveTo(x + 4, edge, x + 12, edge);
    ink.lineTo(b.left - 44, edge);
    ink.bezierCurveTo(b.left - 14, edge, b.left - 30, b.middle, b.left, b.middle);
  } else {
    ink.bezierCurveTo(x + bend, a.middle, b.left - bend, b.middle, b.left, b.middle);
  }
  return [
    [b.left, b.middle],
    [b.left - 7, b.middle - 4],
    [b.left - 7, b.middle + 4],
  ];
}

// Within a lane, below it; returns the corners of the tip.
function drawArc(ink, a, b) {
  const bottom = a.top + a.height;
  const to = Math.max(b.left, a.left + 8);
  const from = Math.min((a.left + a.right) / 2, to - 8);
  ink.moveTo(from, bottom);
  ink.bezierCurveTo(from, bottom + 14, to, bottom + 14, to, bottom + 4);
  return [
    [to, bottom - 2],
    [to - 4, bottom + 5],
    [to + 4, bottom + 5],
  ];
}
