// One received burst: what has come of it, what is missing, and how long that is waited for. Pure.
import { RepairPlanner } from "./repair.js";
import { ReportSchedule } from "./reports.js";
import { sequenceAfter, sequenceDistance } from "./rtp.js";
import { Sequences } from "./sequences.js";

export const burstTimes = { silence: 6000 };

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
