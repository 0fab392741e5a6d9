// Which packets of a burst have come, by their sequence numbers. Pure.
import { sequenceDistance } from "./rtp.js";

const window = 1024;

export class Sequences {
  #seen = new Set();

  /** @param {number} [after] what comes of the burst follows this number; nothing up to it is heard again */
  constructor(after) {
    this.highest = after === undefined ? null : after;
    this.first = after === undefined ? null : after + 1;
    this.heardUpTo = after ?? null;
    this.received = 0;
    this.skipped = 0;
  }

  /** Numbers here do not wrap: they count on from the first. */
  #extended(sequence) { return this.highest + sequenceDistance(sequence, this.highest & 0xffff); }

  wasSeen(sequence) {
    if (this.highest === null) return false;
    const number = this.#extended(sequence);
    return number <= this.highest - window || this.heardUpTo !== null && number <= this.heardUpTo || this.#seen.has(number);
  }

  /** @returns whether it is new */
  insert(sequence) {
    if (this.wasSeen(sequence)) return false;
    const number = this.highest === null ? sequence : this.#extended(sequence);
    this.first = this.first === null ? number : Math.min(this.first, number);
    if (this.highest === null || number > this.highest) {
      for (let old = (this.highest ?? number) - window; old <= number - window && old > number - 3 * window; old++) this.#seen.delete(old);
      if (this.highest !== null && number - this.highest > window) this.#seen.clear();
      this.highest = number;
    }
    this.#seen.add(number);
    this.received++;
    return true;
  }

  /** What was never wanted is not lost. */
  skipTo(sequence) {
    if (this.highest === null) return;
    const steps = sequenceDistance(sequence, this.highest & 0xffff) - 1;
    if (steps > 0) this.skipped += steps;
  }

  get last() { return this.highest === null ? null : this.highest & 0xffff; }

  get lost() {
    return this.highest === null ? 0 : Math.max(0, this.highest - this.first + 1 - this.received - this.skipped);
  }
}
