// The frames of one message in one piece of memory: an object for each would take several times what was said. Pure.
import { viewOf } from "./bytes.js";

/** In front of each payload: sequence, timestamp, and its length. */
const headLength = 8;
const firstCapacity = 1024;

export class PackedFrames {
  #memory = new Uint8Array(0);
  #used = 0;
  length = 0;

  /** What it takes of the page's memory. */
  get bytes() { return this.#memory.length; }

  push({ header: { sequence, timestamp }, payload }) {
    const end = this.#used + headLength + payload.length;
    if (end > this.#memory.length) this.#resize(Math.max(end, firstCapacity, this.#memory.length * 3 >> 1));
    const view = viewOf(this.#memory);
    view.setUint16(this.#used, sequence);
    view.setUint32(this.#used + 2, timestamp);
    view.setUint16(this.#used + 6, payload.length);
    this.#memory.set(payload, this.#used + headLength);
    this.#used = end;
    this.length++;
  }

  /** Nothing more comes: gives back what is not used. */
  trim() { if (this.#used < this.#memory.length) this.#resize(this.#used); }

  #resize(capacity) {
    const memory = new Uint8Array(capacity);
    memory.set(this.#memory.subarray(0, this.#used));
    this.#memory = memory;
  }

  *[Symbol.iterator]() {
    const view = viewOf(this.#memory);
    for (let at = 0; at < this.#used;) {
      const length = view.getUint16(at + 6), from = at + headLength;
      yield { header: { sequence: view.getUint16(at), timestamp: view.getUint32(at + 2) }, payload: this.#memory.subarray(from, from + length) };
      at = from + length;
    }
  }
}
