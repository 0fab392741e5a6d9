// Small pieces that the views are made of, and when they are drawn. Texts from others go through textContent only.

const paths = {
  mic: "M12 3a3 3 0 0 0-3 3v6a3 3 0 0 0 6 0V6a3 3 0 0 0-3-3ZM6 11a6 6 0 0 0 12 0M12 17v4",
  speaker: "M4 9.5v5h3.5L12 18.5v-13L7.5 9.5ZM15.5 9a4 4 0 0 1 0 6M18 6.5a8 8 0 0 1 0 11",
  muted: "M4 9.5v5h3.5L12 18.5v-13L7.5 9.5ZM16 9.5l5 5M21 9.5l-5 5",
  cross: "M6 6l12 12M18 6 6 18",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM12 7v5l3.5 2",
  offline: "M4 4l16 16M5 11.5a10 10 0 0 1 4-2.4M2.5 8.5A14 14 0 0 1 6.5 6M12 5.5a14 14 0 0 1 9.5 3M15 9.3a10 10 0 0 1 4 2.2M8.5 15a5 5 0 0 1 5.5-.8M12 19h.01",
  warning: "M12 3.5 22 20H2ZM12 10v4.5M12 17.3h.01",
  ear: "M7 9a5 5 0 0 1 10 0c0 3.5-3 4-3 7a3 3 0 0 1-5.5 1.7M10 9.5a2 2 0 0 1 4 0",
  people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM2.5 20a6.5 6.5 0 0 1 13 0M16 4.3a3.5 3.5 0 0 1 0 6.4M18 14a6.5 6.5 0 0 1 3.5 6",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM9 19.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  play: "M8 5.5v13l10.5-6.5Z",
  stop: "M7 7h10v10H7Z",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", paths[name]);
  svg.append(path);
  return svg;
}

export function setIcon(holder, name) {
  if (holder.dataset.icon === name) return;
  holder.dataset.icon = name;
  holder.replaceChildren(icon(name));
}

/** An element: attributes, `text`, listeners as `onclick`, then its children. */
export function h(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) made.textContent = text;
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

/** Only what changes is touched: a live region that is set again is read again. */
export function setText(element, text) { if (element.textContent !== text) element.textContent = text; }
export function setAttribute(element, name, value) { if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value); }
export function setHidden(element, isHidden) { if (element.hidden !== isHidden) element.hidden = isHidden; }
export function setData(element, name, value) { if (element.dataset[name] !== String(value)) element.dataset[name] = value; }

let ids = 0;
export const newId = () => `part-${++ids}`;

/** Keeps one element for each item, in the order of the items; those that stay keep their focus. */
export function keyed(parent, items, keyOf, make) {
  const made = parent.keyedParts ??= new Map();
  const wanted = new Set(items.map(keyOf));
  for (const [key, part] of made) {
    if (wanted.has(key)) continue;
    part.element.remove();
    made.delete(key);
  }
  items.forEach((item, index) => {
    const key = keyOf(item);
    let part = made.get(key);
    if (!part) made.set(key, part = make(item));
    if (parent.children[index] !== part.element) parent.insertBefore(part.element, parent.children[index] ?? null);
    part.draw?.(item);
  });
}

/** A meter of loudness, 0…1, on the scale of the ear. */
export function loudness(peak) { return peak <= 0.001 ? 0 : Math.min(1, Math.max(0, 1 + Math.log10(peak) / 2.5)); }

export function setLevel(element, peak) {
  const level = loudness(peak).toFixed(2);
  if (element.dataset.level === level) return;
  element.dataset.level = level;
  element.style.setProperty("--level", level);
}

const hiddenEvery = 250, meterEvery = 80;

/** However many things change, the page is drawn anew once in a frame. */
export class Drawing {
  #draws = new Set();
  #isDue = false;
  #meterTimer = null;

  add(draw) { this.#draws.add(draw); }

  changed() {
    if (this.#isDue) return;
    this.#isDue = true;
    const draw = () => {
      if (!this.#isDue) return;
      this.#isDue = false;
      for (const each of this.#draws) each();
    };
    requestAnimationFrame(draw);
    // A hidden page has no frames, but its title and its media keys go on.
    setTimeout(draw, hiddenEvery);
  }

  /** A meter moved: seen in a moment is soon enough, and spares a telephone's battery. */
  metered() {
    this.#meterTimer ??= setTimeout(() => {
      this.#meterTimer = null;
      this.changed();
    }, meterEvery);
  }
}
