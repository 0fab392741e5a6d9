// When the page is drawn anew: however many things change, once in a frame.

const hiddenEvery = 250, meterEvery = 80;

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
