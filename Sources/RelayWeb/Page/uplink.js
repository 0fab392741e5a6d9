// Outgoing bursts of one channel: asks for the floor, holds what was said until it is granted, sends it in order. Pure.
import { emergencyPriority } from "./messages.js";
import { RequestPacer } from "./request-pacer.js";
import { sequenceAfter } from "./rtp.js";

export const uplinkTimes = {
  answer: 2000, answerAfterLink: 1000, link: 2000, heldSamples: 48000, heldFactor: 3, heldFrames: 400,
  catchUpSamples: 1920, catchUp: 5, stale: 500, bursts: 4, warning: 5000, payloadMax: 1100,
};

/**
 * Actions: { do: "request", requestId, priority, mayQueue }, { do: "media", requestId, sequence, timestamp, marker, payload },
 * { do: "release", requestId, lastSequence }, { do: "tell", what, burst, … } where `what` is granted, queued, warning or ended.
 *
 * A burst ends with exactly one "ended", and each of its frames is sent, erased or dropped.
 */
export class Uplink {
  constructor(firstSequence, firstTimestamp) {
    this.sequence = firstSequence;
    this.timestamp = firstTimestamp;
    this.lastCaptured = null;
    this.link = "closed";
    this.bursts = [];
    this.requestId = 0;
    this.hasRoom = true;
    this.pacer = new RequestPacer();
    this.counts = { sent: 0, erased: 0, dropped: 0 };
  }

  get nextDeadline() {
    const burst = this.bursts[0];
    if (!burst) return Infinity;
    if (burst.phase === "pending") return Math.min(burst.waitingSince + uplinkTimes.link, this.pacer.retryAt);
    if (burst.phase === "asked") return burst.answerBy;
    if (burst.phase === "waiting") return Infinity;
    const catchUp = burst.held.length > 0 ? burst.windowAt + (this.hasRoom ? uplinkTimes.catchUp : 20) : Infinity;
    return Math.min(catchUp, burst.warnAt, burst.limitAt);
  }

  // The link.

  linkReady(now) {
    this.link = "ready";
    // Numbers of requests are those of a connection.
    this.requestId = 0;
    this.pacer.answered();
    this.hasRoom = true;
    return this.#askForNext(now);
  }

  linkComing() { if (this.link === "closed") this.link = "coming"; }

  linkLost(now) {
    this.link = "coming";
    this.pacer.answered();
    const first = this.bursts[0];
    if (!first) return [];
    for (const burst of this.bursts) burst.missedLink = true;
    if (first.phase === "granted") return this.#finish("link", now);
    if (first.phase === "waiting") first.waitingSince = now;
    first.phase = "pending";
    return [];
  }

  linkClosed() {
    this.link = "closed";
    return this.bursts.splice(0).map(burst => this.#ended(burst, "link"));
  }

  // The person.

  begin(id, { priority = 0, mayQueue = false }, now) {
    const actions = this.end(now);
    const burst = {
      id, priority, mayQueue, phase: "pending", held: [], heldSamples: 0, hasEnded: false, hasWaited: false,
      waitingSince: now, answerBy: Infinity, windowAt: -Infinity, sentInWindow: 0, lastSequence: undefined,
      missedLink: this.link !== "ready", warnAt: Infinity, limitAt: Infinity, limit: 0, sent: 0,
    };
    if (this.link === "closed" || this.bursts.length >= uplinkTimes.bursts) return [...actions, this.#ended(burst, "link")];
    this.bursts.push(burst);
    return [...actions, ...this.#askForNext(now)];
  }

  /** The next frame of the burst begun last: one Opus packet of `samples`, captured at that sample of the microphone's clock. */
  frame(payload, samples, captured, now) {
    const burst = this.bursts.at(-1);
    if (!burst || burst.hasEnded || payload.length === 0 || payload.length > uplinkTimes.payloadMax) return [];
    // Until the grant, what is said is said to a floor that another has.
    if (burst.hasWaited && burst.phase !== "granted") {
      this.counts.erased++;
      return [];
    }
    burst.held.push({ payload, samples, captured, readyAt: burst.phase === "granted" ? now : null });
    burst.heldSamples += samples;
    const factor = burst.missedLink || burst.phase === "granted" ? uplinkTimes.heldFactor : 1;
    if (burst.heldSamples > uplinkTimes.heldSamples * factor || burst.held.length > uplinkTimes.heldFrames * factor) {
      return this.#overflow(burst, now);
    }
    return burst === this.bursts[0] ? this.#sendHeld(now) : [];
  }

  end(now) {
    const burst = this.bursts.at(-1);
    if (!burst || burst.hasEnded) return [];
    burst.hasEnded = true;
    if (burst !== this.bursts[0]) {
      if (burst.held.length > 0) return [];
      this.bursts.pop();
      return [this.#ended(burst, "completed")];
    }
    if (burst.phase === "waiting") return [this.#release(burst), ...this.#finish("completed", now)];
    if (burst.held.length > 0 || burst.phase === "granted") return this.#sendHeld(now);
    const release = burst.phase === "asked" ? [this.#release(burst)] : [];
    return [...release, ...this.#finish("completed", now)];
  }

  /** What is not sent is erased, and the floor given back at once. */
  abort(reason, now) {
    const burst = this.bursts.at(-1);
    if (!burst || burst.hasEnded && burst.held.length === 0) return [];
    if (burst !== this.bursts[0]) return [this.#ended(this.bursts.pop(), reason)];
    const release = burst.phase === "pending" ? [] : [this.#release(burst)];
    return [...release, ...this.#finish(reason, now)];
  }

  // The relay.

  granted({ requestId, durationMs, priority }, now) {
    this.pacer.answered();
    const burst = this.#current(requestId);
    if (!burst || burst.phase === "granted") return [];
    burst.phase = "granted";
    burst.limit = durationMs;
    for (const frame of burst.held) frame.readyAt = now;
    return [{ do: "tell", what: "granted", burst: burst.id, limit: durationMs, priority }, ...this.#sendHeld(now)];
  }

  queued({ requestId, position }, now) {
    this.pacer.answered();
    const burst = this.#current(requestId);
    if (!burst || burst.phase === "granted") return [];
    // Whoever let go has said all of it, and is not there for the grant.
    if (burst.hasEnded) return [this.#release(burst), ...this.#finish("taken", now)];
    burst.phase = "waiting";
    burst.hasWaited = true;
    this.counts.erased += burst.held.length;
    burst.held = [];
    burst.heldSamples = 0;
    return [{ do: "tell", what: "queued", burst: burst.id, position }];
  }

  denied({ requestId, cause, phrase, retryAfterMs }, now) {
    this.pacer.answered();
    const burst = this.#current(requestId);
    if (!burst || burst.phase === "granted") return [];
    return this.#finish("denied", now, { cause, phrase, retryAfterMs });
  }

  revoked({ requestId, cause, phrase }, now) {
    const burst = this.#current(requestId);
    if (!burst || burst.phase !== "granted") return [];
    return [this.#release(burst), ...this.#finish("revoked", now, { cause, phrase })];
  }

  /** The relay renewed the key: a request that may wait for minutes is made again under it. */
  keyRenewed(now) {
    const burst = this.bursts[0];
    if (!burst || burst.phase !== "waiting") return [];
    this.pacer.note();
    burst.requestId = ++this.requestId;
    return [this.#request(burst)];
  }

  /** Whether the connection takes more; what waits for that too long is dropped. */
  room(hasRoom, now) {
    this.hasRoom = hasRoom;
    return hasRoom ? this.#sendHeld(now) : this.#dropStale(now);
  }

  due(now) {
    const burst = this.bursts[0];
    if (!burst || this.nextDeadline > now) return [];
    if (burst.phase === "pending") {
      if (burst.waitingSince + uplinkTimes.link > now) return this.#askForNext(now);
      return this.#finish(this.link === "ready" ? "unanswered" : "link", now);
    }
    // No answer: the relay may be gone, which the next ping shows.
    if (burst.phase === "asked") return [this.#release(burst), { do: "probe" }, ...this.#finish("unanswered", now)];
    if (burst.limitAt <= now) return [this.#release(burst), ...this.#finish("revoked", now, { cause: 2, phrase: "" })];
    const actions = this.#sendHeld(now);
    if (burst.warnAt > now) return actions;
    burst.warnAt = Infinity;
    return [...actions, { do: "tell", what: "warning", burst: burst.id }];
  }

  // Inside.

  #current(requestId) {
    const burst = this.bursts[0];
    return burst && burst.phase !== "pending" && burst.requestId === requestId ? burst : null;
  }

  #askForNext(now) {
    const burst = this.bursts[0];
    if (!burst || burst.phase !== "pending" || this.link !== "ready") return [];
    if (!this.pacer.allows(burst.priority === emergencyPriority, now)) return [];
    burst.requestId = ++this.requestId;
    burst.phase = "asked";
    burst.answerBy = burst.missedLink
      ? Math.max(burst.waitingSince + uplinkTimes.answer, now + uplinkTimes.answerAfterLink) : now + uplinkTimes.answer;
    return [this.#request(burst)];
  }

  #request({ requestId, priority, mayQueue }) { return { do: "request", requestId, priority, mayQueue }; }

  #overflow(burst, now) {
    const reason = this.link !== "ready" ? "link" : burst.phase === "granted" ? "stalled" : "unanswered";
    return this.abort(reason, now);
  }

  #dropStale(now) {
    const burst = this.bursts[0];
    if (!burst || burst.phase !== "granted") return [];
    while (burst.held.length > 0 && now - burst.held[0].readyAt > uplinkTimes.stale) {
      burst.heldSamples -= burst.held.shift().samples;
      this.counts.dropped++;
    }
    burst.windowAt = now;
    return this.#releaseIfDone(burst, now);
  }

  #sendHeld(now) {
    const burst = this.bursts[0];
    if (!burst || burst.phase !== "granted") return [];
    if (!this.hasRoom) return this.#dropStale(now);
    const actions = [];
    if (now - burst.windowAt >= uplinkTimes.catchUp) {
      burst.windowAt = now;
      burst.sentInWindow = 0;
    }
    while (burst.held.length > 0 && burst.sentInWindow < uplinkTimes.catchUpSamples) {
      const frame = burst.held.shift();
      burst.heldSamples -= frame.samples;
      burst.sentInWindow += frame.samples;
      actions.push(this.#place(burst, frame, now));
    }
    return [...actions, ...this.#releaseIfDone(burst, now)];
  }

  #releaseIfDone(burst, now) {
    if (!burst.hasEnded || burst.held.length > 0) return [];
    return [this.#release(burst), ...this.#finish("completed", now)];
  }

  #place(burst, { payload, samples, captured }, now) {
    const marker = burst.lastSequence === undefined;
    // Across pauses the time stamp follows the microphone's clock; a new clock begins where the old one ended.
    const pause = this.lastCaptured === null ? 0 : captured - this.lastCaptured;
    if (pause > 0) this.timestamp = this.timestamp + pause >>> 0;
    this.lastCaptured = captured + samples;
    const media = { do: "media", requestId: burst.requestId, sequence: this.sequence, timestamp: this.timestamp, marker, payload };
    burst.lastSequence = this.sequence;
    if (marker && burst.limit > 0) {
      burst.limitAt = now + burst.limit;
      if (burst.limit > 2 * uplinkTimes.warning) burst.warnAt = burst.limitAt - uplinkTimes.warning;
    }
    this.sequence = sequenceAfter(this.sequence);
    this.timestamp = this.timestamp + samples >>> 0;
    burst.sent++;
    this.counts.sent++;
    return media;
  }

  #release(burst) { return { do: "release", requestId: burst.requestId, lastSequence: burst.lastSequence }; }

  #finish(reason, now, detail = {}) {
    const burst = this.bursts.shift();
    this.pacer.relax();
    return [this.#ended(burst, reason, detail), ...this.#askForNext(now)];
  }

  #ended(burst, reason, detail = {}) {
    this.counts.erased += burst.held.length;
    burst.held = [];
    return { do: "tell", what: "ended", burst: burst.id, reason, sent: burst.sent, ...detail };
  }
}
