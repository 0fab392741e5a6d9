// The tones of a connection that is lost and back. A short loss is not told.

const toldAfter = 2000;

export class LinkTones {
  #channels = new Map();

  /** @param {(name) => void} tone */
  constructor(tone) { this.tone = tone; }

  /** What a channel's link has told. */
  state(channel, state) {
    const known = this.#channels.get(channel);
    if (state === "ready") {
      clearTimeout(known?.timer);
      if (known?.isTold) this.tone("linkBack");
      this.#channels.set(channel, { timer: null, isTold: false });
    } else if (known && state === "waiting" && !known.isTold) {
      known.timer ??= setTimeout(() => {
        known.isTold = true;
        this.tone("linkLost");
      }, toldAfter);
    }
  }

  left(channel) {
    clearTimeout(this.#channels.get(channel)?.timer);
    this.#channels.delete(channel);
  }
}
