// Makes an element one that is held: by finger, mouse, key, or the clicks of a screen reader. Whatever loses the release, lets go.

const holdKeys = new Set([" ", "Enter"]);

/** @param {{down(holder), up(holder), toggle(holder)?}} key */
export function makeHold(element, key, name) {
  const pointer = `${name}-pointer`, keyboard = `${name}-key`;
  let pointerId = null;
  let lastHandled = 0;
  const end = event => {
    if (event.pointerId !== pointerId) return;
    pointerId = null;
    lastHandled = event.timeStamp;
    key.up(pointer);
  };
  element.addEventListener("pointerdown", event => {
    if (event.button !== 0 || pointerId !== null || element.disabled) return;
    pointerId = event.pointerId;
    try {
      element.setPointerCapture(event.pointerId);
    } catch {
      // It is up already.
    }
    element.focus({ preventScroll: true });
    key.down(pointer);
  });
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"]) element.addEventListener(type, end);
  element.addEventListener("contextmenu", event => event.preventDefault());
  const onHoldKey = (type, act) => element.addEventListener(type, event => {
    if (!holdKeys.has(event.key)) return;
    event.preventDefault();
    act(event);
  });
  onHoldKey("keydown", event => {
    // It presses this element only.
    event.stopPropagation();
    // A key that is held repeats.
    if (!event.repeat) key.down(keyboard);
  });
  // Goes on to the window: a space bar that was pressed elsewhere lets go there.
  onHoldKey("keyup", () => key.up(keyboard));
  element.addEventListener("blur", () => key.up(keyboard));
  element.addEventListener("click", event => {
    // A screen reader clicks without a finger or key: it cannot hold.
    if (event.detail === 0 && event.timeStamp - lastHandled > 500) key.toggle?.("click");
  });
}

const isWriting = target => target instanceof Element
  && target.closest("input, textarea, select, button, summary, a, [role=slider], dialog") !== null;

/** The space bar talks wherever it has no other meaning. */
export function holdSpaceBar(key) {
  window.addEventListener("keydown", event => {
    if (event.key !== " " || event.repeat || event.ctrlKey || event.altKey || event.metaKey || isWriting(event.target)) {
      if (event.key === " " && event.repeat && !isWriting(event.target)) event.preventDefault();
      return;
    }
    event.preventDefault();
    key.down("space");
  });
  window.addEventListener("keyup", event => {
    if (event.key === " ") key.up("space");
  });
}
