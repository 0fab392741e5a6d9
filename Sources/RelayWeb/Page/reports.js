// Reception reports (docs/relay-protocol.md, section 10): when they are due, and their numbers. Pure.
import { sequenceDistance } from "./rtp.js";

export const reportTimes = { interval: 4000, lossInterval: 2000 };

/** Where a listener's first report falls in its second, by the ssrc that the relay has drawn. */
export const firstReport = ssrc => 1000 + ssrc % 1000;

export class ReportSchedule {
  #lost = 0;
  #wasLossy = false;

  constructor(first, now) {
    this.regular = now + first;
    this.early = now + first;
    this.second = first * 3 - 2000;
  }

  next(lost) { return lost !== this.#lost || this.#wasLossy ? Math.min(this.regular, this.early) : this.regular; }

  reported(lost, now) {
    // One clean report follows the last loss soon, too.
    this.#wasLossy = lost !== this.#lost;
    this.#lost = lost;
    this.early = now + reportTimes.lossInterval;
    this.regular = now + (this.second ?? reportTimes.interval);
    this.second = null;
  }
}

/** What was received of one talker since the join (RFC 3550, section 6.4.1). */
export class TalkerStatistics {
  received = 0;
  lost = 0;
  highest = 0;
  jitter = 0;
  #lastTransit = null;
  #hasBegun = false;

  note({ sequence, timestamp, marker }, at) {
    this.received++;
    if (!this.#hasBegun) this.highest = sequence;
    else this.highest += Math.max(0, sequenceDistance(sequence, this.highest & 0xffff));
    this.#hasBegun = true;
    const transit = at * 48 - timestamp;
    if (this.#lastTransit !== null && !marker) {
      const difference = Math.abs(transit - this.#lastTransit);
      // A wrapped time stamp or a pause is no jitter.
      if (difference < 48000) this.jitter += (difference - this.jitter) / 16;
    }
    this.#lastTransit = transit;
  }

  close(lost) {
    this.lost += lost;
    this.#lastTransit = null;
  }

  report(ssrc, lostNow) {
    return {
      ssrc, received: this.received >>> 0, lost: this.lost + lostNow >>> 0, highestSequence: this.highest >>> 0,
      jitter: Math.floor(this.jitter) >>> 0,
    };
  }
}
