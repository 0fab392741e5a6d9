// How long packets have to wait, from how their delays vary, and in what order they are decoded. Pure.
import { sequenceDistance, timestampDistance } from "./rtp.js";

const jitterTimes = { initial: 40, min: 20, max: 400, bin: 5, quantile: 0.97, memory: 4000, window: 2000, pickUp: 10 };
const binCount = jitterTimes.max / jitterTimes.bin + 1;

/** The wait rises at once and falls slowly. One for each channel: what was learned is kept from burst to burst. */
export class DelayEstimator {
  #shares = new Float64Array(binCount);
  #wait = jitterTimes.initial;

  constructor() { this.#shares[Math.floor((jitterTimes.initial - jitterTimes.pickUp - 1) / jitterTimes.bin)] = 0.015; }

  get target() { return this.#wait; }

  /** Another burst: another clock. */
  begin() {
    this.#quickest = null;
    this.#inWindow = null;
    this.#windowEnd = 0;
  }

  #quickest = null;
  #inWindow = null;
  #windowEnd = 0;

  received(timestamp, samples, at) {
    const span = samples / 48;
    const transit = at - timestamp / 48;
    if (at >= this.#windowEnd) {
      this.#quickest = this.#inWindow ?? this.#quickest;
      this.#inWindow = transit;
      this.#windowEnd = at + jitterTimes.window;
    }
    this.#inWindow = Math.min(this.#inWindow, transit);
    const base = Math.min(this.#quickest ?? transit, this.#inWindow);
    const late = Math.max(0, transit - base);
    // No wait helps against a stall of twice the longest.
    if (late <= 2 * jitterTimes.max) this.#add(Math.min(binCount - 1, Math.floor(late / jitterTimes.bin)), span / jitterTimes.memory);
    this.#settle(span);
  }

  #add(bin, share) {
    for (let index = 0; index < binCount; index++) this.#shares[index] *= 1 - share;
    this.#shares[bin] += share;
  }

  #settle(span) {
    const all = this.#shares.reduce((sum, share) => sum + share, 0);
    let sum = 0, bin = 0;
    while (bin < binCount - 1 && (sum += this.#shares[bin]) < all * jitterTimes.quantile) bin++;
    const wanted = Math.min(jitterTimes.max, Math.max(jitterTimes.min, (bin + 1) * jitterTimes.bin + jitterTimes.pickUp));
    const excess = Math.max(0, this.#wait - wanted);
    this.#wait = Math.max(wanted, this.#wait - span / 1000 * (30 + 0.1 * excess));
  }
}

const heldMax = 512;

/**
 * Gives the packets of a burst in order. A gap is waited for, because what is missing may be asked for and come; then it is passed over.
 *
 * What comes out: { packet } or { lost: samples }.
 */
export class Order {
  #held = [];
  #next = null;
  #timestamp = null;
  #gapSince = null;

  /** @param {{sequence, timestamp, samples}} packet */
  insert(packet, wait, now) {
    if (this.#next !== null && sequenceDistance(packet.sequence, this.#next) < 0) return [];
    let at = this.#held.length;
    while (at > 0 && sequenceDistance(this.#held[at - 1].sequence, packet.sequence) > 0) at--;
    if (at > 0 && this.#held[at - 1].sequence === packet.sequence) return [];
    this.#held.splice(at, 0, packet);
    return this.take(wait, now);
  }

  /** When `take` is to be called again, if nothing comes. */
  deadline(wait) { return this.#gapSince === null ? Infinity : this.#gapSince + wait; }

  take(wait, now) {
    const out = [];
    while (this.#held.length > 0) {
      const packet = this.#held[0];
      if (this.#next !== null && packet.sequence !== this.#next) {
        this.#gapSince ??= now;
        if (now - this.#gapSince < wait && this.#held.length < heldMax) break;
      }
      this.#gapSince = null;
      const lost = this.#timestamp === null ? 0 : timestampDistance(packet.timestamp, this.#timestamp);
      if (this.#next !== null && packet.sequence !== this.#next && lost > 0) out.push({ lost });
      out.push({ packet: this.#held.shift() });
      this.#next = packet.sequence + 1 & 0xffff;
      this.#timestamp = packet.timestamp + packet.samples >>> 0;
    }
    return out;
  }

  /** Nothing more comes: what is there. */
  finish() { return this.take(-1, 0); }
}
