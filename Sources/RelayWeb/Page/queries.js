// Questions for bursts that the relay keeps: the list, and whole bursts in pieces (docs/relay-protocol.md, section 18).
import { parseRtp, sequenceAfter } from "./rtp.js";

const queryTimes = { answer: 5000, packetsMax: 12000, vainMax: 3, refusedMax: 5000, spacing: 300 };
const tooMuch = 3;

/** The rules of asking. Pure. Actions: { do: "list", requestId }, { do: "burst", requestId, ssrc, keyId, first }, { do: "done", token, packets | bursts | problem }. */
class Queries {
  #lastId = 0;
  #jobs = [];

  nextId() { return ++this.#lastId; }

  clear() {
    this.#lastId = 0;
    return this.#jobs.splice(0).map(job => ({ do: "done", token: job.token, problem: "lost" }));
  }

  get nextDeadline() { return Math.min(Infinity, ...this.#jobs.map(job => job.at)); }

  list(token, now) { return this.#start({ token, isList: true }, now); }
  fetch(token, ssrc, keyId, now) { return this.#start({ token, ssrc, keyId, packets: [], first: undefined }, now); }

  #start(job, now) {
    if (this.#jobs.length >= 4) return [{ do: "done", token: job.token, problem: "busy" }];
    this.#jobs.push(Object.assign(job, { vain: 0 }));
    return [this.#ask(job, now)];
  }

  #ask(job, now) {
    job.requestId = this.nextId();
    job.isWaiting = false;
    job.at = now + queryTimes.answer;
    if (job.isList) return { do: "list", requestId: job.requestId };
    return { do: "burst", requestId: job.requestId, ssrc: job.ssrc, keyId: job.keyId, first: job.first };
  }

  #of(requestId) { return this.#jobs.find(job => job.requestId === requestId && !job.isWaiting); }

  #done(job, result) {
    this.#jobs = this.#jobs.filter(other => other !== job);
    return [{ do: "done", token: job.token, ...result }];
  }

  listed({ requestId, bursts }) {
    const job = this.#of(requestId);
    return job?.isList ? this.#done(job, { bursts }) : [];
  }

  answered({ requestId, packets, isWhole }, now) {
    const job = this.#of(requestId);
    if (!job || job.isList) return [];
    job.packets.push(...packets.slice(0, queryTimes.packetsMax - job.packets.length));
    const last = packets.length > 0 ? parseRtp(packets.at(-1)) : null;
    if (isWhole || !last || job.packets.length >= queryTimes.packetsMax) return this.#done(job, { packets: job.packets });
    job.first = sequenceAfter(last.sequence);
    job.isWaiting = true;
    job.at = now + queryTimes.spacing;
    return [];
  }

  refused({ requestId, cause, retryAfterMs }, now) {
    const job = this.#of(requestId);
    if (!job) return [];
    if (cause !== tooMuch || ++job.vain >= queryTimes.vainMax) return this.#done(job, { problem: "refused", cause });
    job.isWaiting = true;
    job.at = now + Math.min(Math.max(retryAfterMs, 100), queryTimes.refusedMax);
    return [];
  }

  due(now) {
    const actions = [];
    for (const job of [...this.#jobs]) {
      if (job.at > now) continue;
      if (job.isWaiting) actions.push(this.#ask(job, now));
      else actions.push(...this.#done(job, { problem: "unanswered" }));
    }
    return actions;
  }
}

/** Questions as promises: carries them between whoever asks and the rules of asking. */
export class Questions {
  queries = new Queries();

  /** @param parts { send(kind, fields), clock() } */
  constructor(parts) { Object.assign(this, parts); }

  get nextDeadline() { return this.queries.nextDeadline; }

  list() { return this.#ask(token => this.queries.list(token, this.clock())); }
  fetch(ssrc, keyId) { return this.#ask(token => this.queries.fetch(token, ssrc, keyId, this.clock())); }

  listed(message) { this.#perform(this.queries.listed(message)); }
  answered(answer) { this.#perform(this.queries.answered(answer, this.clock())); }
  refused(message) { this.#perform(this.queries.refused(message, this.clock())); }
  due() { this.#perform(this.queries.due(this.clock())); }
  linkLost() { this.#perform(this.queries.clear()); }

  #ask(start) {
    return new Promise((resolve, reject) => {
      this.#perform(start({ resolve, reject }));
    });
  }

  #perform(actions) {
    for (const action of actions) {
      if (action.do === "list") this.send("burstListRequest", action);
      else if (action.do === "burst") this.send("burstRequest", action);
      else if (action.problem) action.token.reject(new Error(action.problem));
      else action.token.resolve(action);
    }
  }
}
