// The talk key: who holds it, and when that is a press. Pure.

/** Holders whose release may be lost when the page is not in front: they let go then. */
const needsFocus = holder => holder !== "media" && holder !== "bluetooth";

export class TalkKey {
  #holders = new Set();

  get isHeld() { return this.#holders.size > 0; }
  has(holder) { return this.#holders.has(holder); }

  /** @returns {"press" | null} a repeated key presses once */
  down(holder) {
    const wasHeld = this.isHeld;
    this.#holders.add(holder);
    return wasHeld ? null : "press";
  }

  /** @returns {"release" | null} */
  up(holder) { return this.#holders.delete(holder) && !this.isHeld ? "release" : null; }

  /** For what reports clicks only: a headset's key, or a click that a screen reader makes. */
  toggle(holder) { return this.has(holder) ? this.up(holder) : this.down(holder); }

  /** The page lost the focus or is hidden: no key-up will come. */
  lostFocus() {
    const wasHeld = this.isHeld;
    for (const holder of this.#holders) if (needsFocus(holder)) this.#holders.delete(holder);
    return wasHeld && !this.isHeld ? "release" : null;
  }

  /** Everything that is toggled ends with the burst; what is held has to be let go before it presses again. */
  burstEnded() {
    for (const holder of ["media", "click"]) this.#holders.delete(holder);
  }

  clear() {
    const wasHeld = this.isHeld;
    this.#holders.clear();
    return wasHeld ? "release" : null;
  }
}

const emergencyTimes = { hold: 1000, retryFor: 30000, retryEvery: 2000 };

/** The emergency button: held for a second, so that a touch does nothing; then like a held talk key. Whoever holds it first lets go. */
export class EmergencyKey {
  state = "idle";
  #holder = null;
  #since = 0;

  down(holder, now) {
    if (this.state !== "idle") return null;
    this.state = "holding";
    this.#holder = holder;
    this.#since = now;
    return "holding";
  }

  /** How much of the second has gone, 0…1. */
  progress(now) { return this.state === "idle" ? 0 : this.state === "active" ? 1 : Math.min(1, (now - this.#since) / emergencyTimes.hold); }

  due(now) {
    if (this.state !== "holding" || now - this.#since < emergencyTimes.hold) return null;
    this.state = "active";
    return "begin";
  }

  up(holder) { return holder === this.#holder ? this.clear() : null; }

  /** The page lost the focus or is hidden: no key-up will come. */
  lostFocus() { return needsFocus(this.#holder) ? this.clear() : null; }

  clear() {
    const was = this.state;
    this.state = "idle";
    this.#holder = null;
    return was === "active" ? "end" : was === "holding" ? "cancelled" : null;
  }
}

/** An emergency that was denied, because another one goes on: it is asked for again while its button is held. */
export class EmergencyRetry {
  #until = null;
  #nextAt = Infinity;

  get isWaiting() { return this.#nextAt !== Infinity; }

  /** @returns whether it is asked for again */
  denied(now) {
    this.#until ??= now + emergencyTimes.retryFor;
    if (now >= this.#until) {
      this.clear();
      return false;
    }
    this.#nextAt = now + emergencyTimes.retryEvery;
    return true;
  }

  /** The floor may be free. */
  floorIdle(now) { if (this.isWaiting) this.#nextAt = now; }

  /** @returns whether to ask now */
  due(now) {
    if (this.#nextAt > now) return false;
    this.#nextAt = Infinity;
    return true;
  }

  clear() {
    this.#until = null;
    this.#nextAt = Infinity;
  }
}
