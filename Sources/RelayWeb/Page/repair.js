// Which packets of a burst are missing, when they are asked for, and when they are given up. Pure.
import { sequenceAfter, sequenceDistance } from "./rtp.js";

const repairTimes = {
  missingMax: 1024, ageMax: 10000, asksMax: 12, answerGrace: 40, backoffMax: 16, graceMin: 20, graceMax: 100,
  beginningMax: 1000, rangesMax: 64, packetsMax: 4096,
};

/** A rate of requests below the relay's limit of 16 at once and 20 a second. */
export class RequestBudget {
  #fullAt = 0;
  #lastAt = -Infinity;

  get nextAt() { return Math.max(this.#fullAt - 11 * 50, this.#lastAt + 20); }

  take(now) {
    this.#fullAt = Math.max(this.#fullAt, now) + 50;
    this.#lastAt = now;
  }
}

export class RepairPlanner {
  roundTrip = 100;
  #missing = new Map();
  #beginning = null;
  #isOver = false;

  constructor(budget) { this.budget = budget; }

  get isDone() { return this.#missing.size === 0 && !this.#beginning; }
  get lacksBeginning() { return this.#beginning !== null; }

  get nextDeadline() {
    let due = this.#beginning?.askAt ?? Infinity;
    for (const each of this.#missing.values()) due = Math.min(due, each.askAt);
    return due === Infinity ? due : Math.max(due, this.budget.nextAt);
  }

  get #grace() { return Math.min(repairTimes.graceMax, Math.max(repairTimes.graceMin, this.roundTrip / 2)); }

  /** The numbers from `first` to before `end` did not come. */
  miss(first, end, mayBeLate, now) {
    const count = sequenceDistance(end, first);
    if (count <= 0 || count >= repairTimes.missingMax) return;
    const askAt = now + (mayBeLate || count === 1 ? this.#grace : 0);
    for (let step = 0; step < count; step++) {
      const sequence = sequenceAfter(first, step);
      if (!this.#missing.has(sequence)) this.#missing.set(sequence, { since: now, askAt, asks: 0, request: null });
    }
    for (const sequence of this.#missing.keys()) {
      if (this.#missing.size <= repairTimes.missingMax) break;
      this.#missing.delete(sequence);
    }
  }

  /** The burst began before `first`, nobody knows where. */
  missBeginning(first, now) {
    this.#beginning = { sequence: first, since: now, askAt: now + this.#grace, asks: 0, request: null };
  }

  foundBeginning() { this.#beginning = null; }

  arrived(sequence, now) {
    const first = this.#beginning?.sequence;
    if (first !== undefined && sequenceDistance(first, sequence) > 0) {
      this.#beginning.sequence = sequence;
      this.miss(sequenceAfter(sequence), first, true, now);
      return;
    }
    this.#missing.delete(sequence);
  }

  /** The floor is idle: one more request, and its answer is final. */
  finish(now) {
    this.#isOver = true;
    for (const each of this.#all()) if (each.request === null) each.askAt = Math.min(each.askAt, now + this.#grace);
  }

  *#all() {
    if (this.#beginning) yield this.#beginning;
    yield* this.#missing.values();
  }

  /** What to ask for now under that number. */
  request(id, now) {
    if (this.nextDeadline > now) return [];
    this.giveUp(now);
    const ranges = [];
    let count = 0;
    if (this.#beginning && this.#beginning.askAt <= now) {
      const { sequence } = this.#beginning;
      ranges.push({ first: sequenceAfter(sequence, -repairTimes.beginningMax), last: sequenceAfter(sequence, -1) });
      count += repairTimes.beginningMax;
      this.#ask(this.#beginning, id, now);
    }
    for (const [sequence, each] of this.#missing) {
      if (each.askAt > now) continue;
      const last = ranges.at(-1);
      if (last && sequenceAfter(last.last) === sequence) last.last = sequence;
      else if (ranges.length === repairTimes.rangesMax) break;
      else ranges.push({ first: sequence, last: sequence });
      this.#ask(each, id, now);
      if (++count >= repairTimes.packetsMax) break;
    }
    if (ranges.length > 0) this.budget.take(now);
    return ranges;
  }

  /** The answer is complete; what came of it was taken. */
  answered(id, now) {
    for (const [sequence, each] of this.#missing) {
      if (each.request !== id) continue;
      if (each.isLastChance) this.#missing.delete(sequence);
      else this.#retry(each, now);
    }
    if (this.#beginning?.request !== id) return;
    if (this.#beginning.isLastChance) this.#beginning = null;
    else this.#retry(this.#beginning, now);
  }

  giveUp(now) {
    const isHopeless = each => now - each.since >= repairTimes.ageMax || each.asks >= repairTimes.asksMax && each.askAt <= now;
    for (const [sequence, each] of this.#missing) if (isHopeless(each)) this.#missing.delete(sequence);
    if (this.#beginning && isHopeless(this.#beginning)) this.#beginning = null;
  }

  #ask(each, id, now) {
    each.request = id;
    each.isLastChance = this.#isOver;
    const times = Math.min(2 ** Math.floor(each.asks / 2), repairTimes.backoffMax);
    each.askAt = now + (this.roundTrip + repairTimes.answerGrace) * times;
    each.asks++;
  }

  /** The relay did not have it, but still may. */
  #retry(each, now) {
    each.request = null;
    each.askAt = now + (this.#isOver ? 0 : 100 * 2 ** Math.min(each.asks - 1, 4));
  }
}
