// One received burst: what has come of it, what is missing, and how long that is waited for. Pure.
import { RepairPlanner } from "./repair.js";
import { ReportSchedule } from "./reports.js";
import { sequenceAfter, sequenceDistance, Sequences } from "./rtp.js";

const burstTimes = { silence: 6000 };

export class HeardBurst {
  reports = null;
  ending = null;
  heldEnding = null;
  next = null;
  repaired = 0;
  leavesOut = false;
  isConcluded = false;

  constructor(talker, { after, late, wantsBeginning, budget, roundTrip, firstReport }, now) {
    Object.assign(this, { talker, late: late ?? null, wantsBeginning, firstReport });
    this.sequences = new Sequences(after);
    this.planner = new RepairPlanner(budget);
    this.planner.roundTrip = roundTrip;
    this.lastPacketAt = now;
  }

  get hasBegun() { return this.reports !== null; }
  get isFetching() { return this.late?.isFetching ?? false; }
  get isOver() { return this.ending !== null || this.heldEnding !== null; }
  get isDone() { return this.ending !== null && this.planner.isDone; }
  get lostNow() { return this.sequences.lost + this.repaired; }

  get nextDeadline() {
    return Math.min(
      this.isFetching ? Infinity : this.lastPacketAt + burstTimes.silence, this.ending?.deadline ?? Infinity,
      this.reports?.next(this.lostNow) ?? Infinity, this.planner.nextDeadline, this.late?.nextDeadline ?? Infinity);
  }

  /** Why it is over though not all of it has come; null: it is not. */
  overdue(now) {
    if (this.ending && this.ending.deadline <= now) return "completed";
    return !this.isFetching && this.lastPacketAt + burstTimes.silence <= now ? "silent" : null;
  }

  /** A packet was opened; false: it had come before. */
  take(header, isRepaired, now) {
    if (this.leavesOut && !isRepaired) {
      this.leavesOut = false;
      this.sequences.skipTo(header.sequence);
    }
    const highest = this.sequences.last;
    if (!this.sequences.insert(header.sequence)) return false;
    this.reports ??= new ReportSchedule(this.firstReport, now);
    this.lastPacketAt = now;
    if (this.isFetching) this.late.took(header.sequence, now);
    else if (isRepaired) this.repaired++;
    this.#notice(header, highest, now);
    return true;
  }

  #notice({ sequence, marker }, highest, now) {
    this.planner.arrived(sequence, now);
    if (highest !== null) {
      if (sequenceDistance(sequence, highest) > 1) this.planner.miss(sequenceAfter(highest), sequence, false, now);
    } else if (!marker && this.wantsBeginning && !this.planner.lacksBeginning) {
      this.planner.missBeginning(sequence, now);
    }
    if (marker) this.planner.foundBeginning();
  }

  /** The floor is idle, so its last number is known. */
  expect(last, deadline, now) {
    this.isConcluded = true;
    this.ending = { last, deadline };
    const highest = this.sequences.last;
    if (this.leavesOut) {
      // The live words behind what is left out may still come; nothing is asked for.
      this.ending.deadline = Math.min(deadline, now + 500);
    } else if (highest !== null) {
      if (sequenceDistance(last, highest) > 0) this.planner.miss(sequenceAfter(highest), sequenceAfter(last), true, now);
    } else if (this.wantsBeginning) {
      this.planner.missBeginning(sequenceAfter(last), now);
    }
    this.planner.finish(now);
  }

  /** Its beginning is there, or will not come. */
  endFetching(now) {
    this.leavesOut = this.late.leavesOut;
    this.late = null;
    this.lastPacketAt = now;
  }

  hurry(deadline) {
    if (this.ending) this.ending.deadline = Math.min(this.ending.deadline, deadline);
    this.late?.hurry(deadline);
  }

  takeReport(now) {
    const lost = this.lostNow;
    if (!this.reports || this.reports.next(lost) > now) return false;
    this.reports.reported(lost, now);
    return true;
  }

  /** What never came of it. */
  get lost() {
    const behind = this.ending && this.sequences.last !== null ? sequenceDistance(this.ending.last, this.sequences.last) : 0;
    return this.sequences.lost + Math.max(0, behind);
  }
}

const lateTimes = { heldMax: 3000, packetsMax: 6000, answer: 2000, vainMax: 3, all: 20000, refusedMax: 5000 };
const tooMuch = 3;

/** Late entry to one burst: its beginning is fetched piece by piece, and what comes meanwhile is held. */
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
