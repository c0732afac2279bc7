// Wheel, drag, pinch, click and hover.
function listenToPointer(owner) {
  const { canvas } = owner;
  const fingers = new Map();
  let last = null;
  let moved = 0;
  let since = null; // where a range that is measured begins
  const local = (event) => {
    const frame = canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };
  const shareAt = (x) => Math.min(1, Math.max(0, (x - owner.box.x) / owner.box.width));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (isSideways) owner.pan((event.deltaX || event.deltaY) / owner.box.width);
      else owner.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), shareAt(local(event).x));
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, local(event));
    last = local(event);
    moved = 0;
    since = event.shiftKey || owner.isMeasuring ? owner.ticksAt(last.x) : null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = local(event);
    if (!fingers.has(event.pointerId)) return hover(owner, here);
    const before = [...fingers.values()];
    fingers.set(event.pointerId, here);
    if (fingers.size === 2) return pinch(owner, before, [...fingers.values()], shareAt);
    moved += Math.abs(here.x - last.x) + Math.abs(here.y - last.y);
    if (moved > 4 && since !== null) owner.setRange([since, owner.ticksAt(here.x)], false);
    else if (moved > 4) owner.pan((last.x - here.x) / owner.box.width);
    last = here;
  });
  const lift = (event) => {
    const wasClick = fingers.size === 1 && moved <= 4 && event.type === "pointerup";
    fingers.delete(event.pointerId);
    moved = fingers.size ? 10 : moved;
    last = [...fingers.values()][0] || last;
    if (since !== null && !wasClick) owner.rangeChanged.send();
    if (!wasClick) return;
    const found = owner.hit(local(event).x, local(event).y);
    owner.select(found.event, false, found.event >= 0 || found.title ? found.core : focus);
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => hover(owner, null));
  canvas.addEventListener("dblclick", (event) => {
    const found = owner.hit(local(event).x, local(event).y);
    if (found.event >= 0 && found.core === focus) owner.zoomTo(found.event);
  });
}

function pinch(owner, before, after, shareAt) {
  const apart = (pair) => Math.max(12, Math.abs(pair[0].x - pair[1].x));
  const middle = (pair) => (pair[0].x + pair[1].x) / 2;
  owner.zoom(apart(before) / apart(after), shareAt(middle(after)));
  owner.pan((middle(before) - middle(after)) / owner.box.width);
}
