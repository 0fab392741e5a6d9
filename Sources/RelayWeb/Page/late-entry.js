// Late entry to one burst: its beginning is fetched piece by piece, and what comes meanwhile is held. Pure.
import { sequenceAfter, sequenceDistance } from "./rtp.js";

export const lateTimes = { heldMax: 3000, packetsMax: 6000, answer: 2000, vainMax: 3, all: 20000, refusedMax: 5000 };
const tooMuch = 3;

export class LateEntry {
  state = "waiting";
  requestId = null;
  vain = 0;
  packets = 0;
  held = [];
  firstHeld = null;
  /** Some of it was not fetched: what comes next does not follow. */
  leavesOut = false;

  /** @param {number} [after] the last number that was heard of it before */
  constructor(after, now) {
    this.next = after === undefined ? undefined : sequenceAfter(after);
    this.at = now;
    this.end = now + lateTimes.all;
  }

  get isFetching() { return this.state !== "over"; }

  get nextDeadline() {
    if (this.state === "waiting") return Math.min(this.at, this.end);
    return this.state === "asked" ? Math.min(this.at + lateTimes.answer, this.end) : Infinity;
  }

  /** The piece to ask for now: { first }, or null. */
  piece(now) {
    if (this.state === "asked" && this.at + lateTimes.answer <= now) this.#failed(now);
    if (this.end <= now) this.#giveUp();
    if (this.state !== "waiting" || this.at > now) return null;
    this.state = "asking";
    return { first: this.next };
  }

  asked(requestId, now) {
    if (this.state !== "asking") return;
    this.state = "asked";
    this.requestId = requestId;
    this.at = now;
  }

  awaits(requestId) { return this.state === "asked" && this.requestId === requestId; }

  /** A packet of the answer was taken. */
  took(sequence, now) {
    if (this.state !== "asked") return;
    this.at = now;
    this.vain = 0;
    this.packets++;
    if (this.next === undefined || sequenceDistance(sequence, this.next) >= 0) this.next = sequenceAfter(sequence);
    // What follows has come already, as it was said.
    if (this.firstHeld !== null && sequenceDistance(this.firstHeld, sequence) <= 1) this.state = "over";
    else if (this.packets >= lateTimes.packetsMax) this.#giveUp();
  }

  answered(requestId, isWhole, now) {
    if (!this.awaits(requestId)) return;
    if (isWhole) this.state = "over";
    else this.#failed(now);
  }

  refused({ requestId, cause, retryAfterMs }, now) {
    if (!this.awaits(requestId)) return;
    if (cause === tooMuch) this.#failed(now + Math.min(Math.max(retryAfterMs, 100), lateTimes.refusedMax));
    else this.#giveUp();
  }

  hurry(deadline) { this.end = Math.min(this.end, deadline); }

  #failed(retryAt) {
    if (++this.vain >= lateTimes.vainMax) return this.#giveUp();
    this.state = "waiting";
    this.at = retryAt;
  }

  #giveUp() {
    if (this.isFetching) this.leavesOut = true;
    this.state = "over";
  }

  get hasRoom() { return this.held.length < lateTimes.heldMax; }

  hold(packet, sequence) {
    this.firstHeld ??= sequence;
    this.held.push(packet);
  }

  takeHeld() { return this.held.splice(0); }
}
