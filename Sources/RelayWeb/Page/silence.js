// Whether the microphone gives sound: a room is never quite silent, so digital silence means muted or unplugged. Pure.

export const silenceBlocks = { goAhead: 30, warning: 100, end: 300, pause: 3, gatedPauses: 3 };

/** Blocks of 10 ms in. A microphone that is silent between words by itself is known by its pauses, and left alone. */
export class SilenceWatch {
  #pauses = 0;
  #silent = 0;
  #blocks = 0;
  #hasBegun = false;

  begin() {
    this.#silent = 0;
    this.#blocks = 0;
    this.#hasBegun = false;
  }

  /** @returns {"begun" | "warning" | "end" | null} begun: it delivers, or the person has waited long enough for the go-ahead */
  take(isSilent) {
    this.#blocks++;
    if (!isSilent) {
      // Not at the start: a track that is switched on gives silence first.
      if (this.#hasBegun && this.#silent >= silenceBlocks.pause) this.#pauses++;
      this.#silent = 0;
    } else this.#silent++;
    if (!this.#hasBegun && (!isSilent || this.#blocks >= silenceBlocks.goAhead)) {
      this.#hasBegun = true;
      return "begun";
    }
    if (this.#pauses >= silenceBlocks.gatedPauses && this.#silent < this.#blocks) return null;
    if (this.#silent === silenceBlocks.warning) return "warning";
    return this.#silent >= silenceBlocks.end ? "end" : null;
  }
}
