// The rules of listening: which packets are accepted, where bursts begin and end, what is asked for again. Pure.
import { HeardBurst, LateEntry } from "./heard-burst.js";
import { RequestBudget } from "./repair.js";
import { reportTimes, TalkerStatistics } from "./reports.js";
import { sequenceDistance } from "./rtp.js";

const downlinkTimes = {
  completion: 3000, superseding: 1000, earlyMax: 256, early: 2000, silentMax: 120000, interruption: 300000, interruptedMax: 16,
  talkersMax: 4, statisticsMax: 32,
};

/**
 * Actions: { do: "began" | "ended", talker, … }, { do: "frame", talker, header, payload, … }, { do: "ask", … } for packets,
 * { do: "fetch", … } for a beginning, { do: "retry", packets } to admit again, { do: "conclude", burst }, { do: "report", … }.
 */
export class Downlink {
  roundTrip = 100;
  offersLateEntry = false;
  firstReport = 2000;
  talkersMax = 1;
  bursts = [];
  dropped = 0;
  #early = [];
  #silent = [];
  #interrupted = [];
  #statistics = new Map();
  #budget = new RequestBudget();
  #lastRepair = 0;

  get nextDeadline() {
    let due = this.#early.length > 0 ? this.#early[0].receivedAt + downlinkTimes.early : Infinity;
    for (const burst of this.bursts) due = Math.min(due, burst.nextDeadline);
    for (const silent of this.#silent) due = Math.min(due, silent.nextReport, silent.until);
    return due;
  }

  #find(name) { return this.bursts.find(burst => burst.talker.burst === name); }

  // Packets. `place` is { burst, ssrc, sequence }, from the two headers.

  admit(place, isRepaired) {
    const burst = this.#find(place.burst);
    if (!burst) {
      if (!isRepaired && this.#silent.some(silent => silent.talker.burst === place.burst)) return "resume";
      if (!isRepaired && this.#early.length < downlinkTimes.earlyMax) return "hold";
      return this.drop();
    }
    if (burst.sequences.wasSeen(place.sequence)) return this.drop();
    if (burst.isFetching && !isRepaired) return burst.late.hasRoom ? "hold" : this.drop();
    return "open";
  }

  drop() {
    this.dropped++;
    return "drop";
  }

  hold(packet, place, receivedAt) {
    const burst = this.#find(place.burst);
    if (burst?.isFetching) burst.late.hold({ packet, receivedAt }, place.sequence);
    else this.#early.push({ packet, receivedAt });
  }

  opened(name, header, payload, receivedAt, isRepaired, now) {
    const burst = this.#find(name);
    if (!burst) return [];
    const [hadBegun, isLate] = [burst.hasBegun, burst.isFetching];
    if (!burst.take(header, isRepaired, now)) {
      this.drop();
      return [];
    }
    if (!isRepaired) this.#statisticsOf(header.ssrc).note(header, receivedAt);
    return [
      ...hadBegun ? [] : [{ do: "began", talker: burst.talker }],
      { do: "frame", talker: burst.talker, header, payload, receivedAt, isRepaired, isLate },
      ...this.#proceed(now), ...this.#endIfDone(now), ...this.#ask(now),
    ];
  }

  resume(name, now) {
    const silent = this.#silent.find(each => each.talker.burst === name);
    return silent ? this.taken(silent.talker, true, now) : [];
  }

  // The floor.

  taken(talker, isLate, now) {
    this.#forgetSilent(talker);
    if (this.bursts.some(burst => burst.talker.burst === talker.burst && !burst.isOver)) return [];
    const before = this.#predecessor(talker);
    if (!before) return this.#begin(talker, isLate, now);
    if (before.isOver && !before.next) {
      // What is missing of it is on its way: the new one can wait for so long.
      before.hurry(now + downlinkTimes.superseding);
      before.next = { talker, isLate };
      return [];
    }
    before.next = null;
    return [...this.#end(before, "superseded", now), ...this.#begin(talker, isLate, now)];
  }

  #predecessor(talker) {
    const own = this.bursts.find(burst => burst.talker.ssrc === talker.ssrc || burst.talker.id === talker.id);
    if (own || this.bursts.length < this.talkersMax) return own;
    return this.bursts.find(burst => burst.isOver && !burst.next) ?? this.bursts.find(burst => burst.isOver) ?? this.bursts[0];
  }

  #begin(talker, isLate, now) {
    const after = this.#interrupted.find(
      each => each.burst === talker.burst && now - each.at < downlinkTimes.interruption)?.last;
    const late = isLate && this.offersLateEntry ? new LateEntry(after, now) : null;
    this.bursts.push(new HeardBurst(talker, {
      after, late, wantsBeginning: !isLate, budget: this.#budget, roundTrip: this.roundTrip, firstReport: this.firstReport,
    }, now));
    const held = this.#early.splice(0);
    return [...held.length > 0 ? [{ do: "retry", packets: held }] : [], ...this.#proceed(now)];
  }

  idle(ssrc, last, now) {
    const waiting = this.bursts.find(burst => burst.next?.talker.ssrc === ssrc);
    if (waiting) return [...this.#end(waiting, "completed", now), ...this.idle(ssrc, last, now)];
    const burst = this.bursts.find(each => each.talker.ssrc === ssrc && !each.isOver);
    if (!burst) return this.#silentIdle(ssrc, last, now);
    if (burst.isFetching) {
      burst.heldEnding = { last };
      return [];
    }
    if (last === undefined) return this.#end(burst, "completed", now);
    burst.expect(last, now + downlinkTimes.completion, now);
    return [...this.#endIfDone(now), ...this.#ask(now)];
  }

  /** What was held of a burst has been taken, and the floor has been idle for a while. */
  conclude(name, now) {
    const burst = this.#find(name);
    if (!burst?.heldEnding) return [];
    const { last } = burst.heldEnding;
    if (last === undefined) return [...this.#end(burst, "completed", now), ...this.#ask(now)];
    burst.heldEnding = null;
    burst.expect(last, now + (burst.next ? downlinkTimes.superseding : downlinkTimes.completion), now);
    return [...this.#endIfDone(now), ...this.#ask(now)];
  }

  // Answers.

  answered(repairId, now) {
    for (const burst of this.bursts) burst.planner.answered(repairId, now);
    return [...this.#endIfDone(now), ...this.#ask(now)];
  }

  fetchAsked(requestId, name, now) { this.#find(name)?.late?.asked(requestId, now); }

  /** The burst whose beginning that request brings. */
  awaits(requestId) { return this.bursts.find(burst => burst.late?.awaits(requestId))?.talker ?? null; }

  fetched(requestId, isWhole, now) {
    for (const burst of this.bursts) burst.late?.answered(requestId, isWhole, now);
    return this.#proceed(now);
  }

  fetchRefused(refusal, now) {
    for (const burst of this.bursts) burst.late?.refused(refusal, now);
    return this.#proceed(now);
  }

  // Time and the link.

  linkLost(now) {
    for (const burst of this.bursts) this.#noteInterruption(burst, now);
    const actions = this.bursts.splice(0).filter(burst => burst.hasBegun)
      .map(burst => ({ do: "ended", talker: burst.talker, reason: "link", lost: burst.lost }));
    this.#early = [];
    this.#silent = [];
    this.#statistics.clear();
    this.#budget = new RequestBudget();
    this.#lastRepair = 0;
    return actions;
  }

  due(now) {
    while (this.#early.length > 0 && this.#early[0].receivedAt + downlinkTimes.early <= now) {
      this.#early.shift();
      this.drop();
    }
    const actions = [];
    let burst;
    while ((burst = this.bursts.find(each => each.overdue(now)))) {
      const reason = burst.overdue(now);
      if (reason === "silent") this.#setAside(burst, now);
      actions.push(...this.#end(burst, reason, now));
    }
    this.#silent = this.#silent.filter(silent => silent.until > now);
    for (const silent of this.#silent) {
      if (silent.nextReport > now) continue;
      silent.nextReport = now + reportTimes.lossInterval;
      actions.push(this.#report(silent.talker.ssrc, 0));
    }
    for (const each of this.bursts) {
      each.planner.giveUp(now);
      if (each.takeReport(now)) actions.push(this.#report(each.talker.ssrc, each.lostNow));
    }
    return [...actions, ...this.#proceed(now), ...this.#endIfDone(now), ...this.#ask(now)];
  }

  // Inside.

  #ask(now) {
    const actions = [];
    for (const burst of this.bursts) {
      const ranges = burst.planner.request(this.#lastRepair + 1, now);
      if (ranges.length === 0) continue;
      const { ssrc, keyId } = burst.talker;
      actions.push({ do: "ask", repairId: ++this.#lastRepair, ssrc, keyId, ranges });
    }
    return actions;
  }

  #proceed(now) {
    const actions = [];
    for (const burst of this.bursts) {
      if (!burst.late) continue;
      const piece = burst.late.piece(now);
      if (piece) {
        actions.push({ do: "fetch", burst: burst.talker.burst, ssrc: burst.talker.ssrc, keyId: burst.talker.keyId, first: piece.first });
      } else if (!burst.isFetching) {
        const held = burst.late.takeHeld();
        burst.endFetching(now);
        if (held.length > 0) actions.push({ do: "retry", packets: held });
        if (burst.heldEnding) actions.push({ do: "conclude", burst: burst.talker.burst });
      }
    }
    return actions;
  }

  #endIfDone(now) {
    const actions = [];
    let burst;
    while ((burst = this.bursts.find(each => each.isDone))) actions.push(...this.#end(burst, "completed", now));
    return actions;
  }

  #end(burst, reason, now) {
    this.bursts = this.bursts.filter(other => other !== burst);
    // Whoever announces it once more plays none of it twice.
    this.#noteInterruption(burst, now);
    this.#statisticsOf(burst.talker.ssrc).close(burst.lost + burst.repaired);
    const actions = burst.hasBegun
      ? [this.#report(burst.talker.ssrc, 0), { do: "ended", talker: burst.talker, reason, lost: burst.lost }] : [];
    return burst.next ? [...actions, ...this.#begin(burst.next.talker, burst.next.isLate, now)] : actions;
  }

  #report(ssrc, lostNow) { return { do: "report", ...this.#statisticsOf(ssrc).report(ssrc, lostNow) }; }

  #statisticsOf(ssrc) {
    let found = this.#statistics.get(ssrc);
    if (!found) {
      if (this.#statistics.size >= downlinkTimes.statisticsMax) this.#statistics.delete(this.#statistics.keys().next().value);
      this.#statistics.set(ssrc, found = new TalkerStatistics());
    }
    return found;
  }

  #noteInterruption(burst, now) {
    if (!burst.hasBegun) return;
    this.#interrupted = this.#interrupted.filter(each => each.burst !== burst.talker.burst);
    this.#interrupted.push({ burst: burst.talker.burst, last: burst.sequences.last, at: now });
    this.#interrupted.splice(0, this.#interrupted.length - downlinkTimes.interruptedMax);
  }

  /** It went silent while its talker may still have the floor: more of it may come. */
  #setAside(burst, now) {
    if (burst.isOver || burst.isConcluded) return;
    this.#forgetSilent(burst.talker);
    this.#silent.push({ talker: burst.talker, nextReport: now + reportTimes.lossInterval, until: now + downlinkTimes.silentMax });
    this.#silent.splice(0, this.#silent.length - downlinkTimes.talkersMax);
  }

  #silentIdle(ssrc, last, now) {
    const silent = this.#silent.find(each => each.talker.ssrc === ssrc);
    if (!silent) return [];
    const heard = this.#interrupted.find(each => each.burst === silent.talker.burst)?.last;
    this.#silent = this.#silent.filter(each => each !== silent);
    const hasMore = last !== undefined && (heard === undefined || sequenceDistance(last, heard) > 0);
    if (!this.offersLateEntry || !hasMore) return [];
    return [...this.taken(silent.talker, true, now), ...this.idle(ssrc, last, now)];
  }

  #forgetSilent(talker) {
    this.#silent = this.talkersMax === 1 ? []
      : this.#silent.filter(each => each.talker.ssrc !== talker.ssrc && each.talker.id !== talker.id);
  }
}
