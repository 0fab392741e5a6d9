// When a link connects, joins, gives up and tries again. Pure rules; times are in milliseconds and passed in.

export const linkTimes = {
  backoff: [250, 500, 1000, 2000, 4000, 8000, 15000, 30000],
  connect: 10000, join: 5000, ping: 15000, answer: 5000, replaced: 30000, retryAfterMax: 600000,
};

/** Why a join is refused (docs/relay-protocol.md, section 6): for good, or for a while. */
const finalCauses = { 1: "version", 2: "not-invited", 3: "revoked" }, passingCauses = { 4: "full", 5: "busy" };

/** Codes of the WebSocket's close are these and 4000. */
export const closeCodes = {
  done: 0, violation: 1, refused: 2, replaced: 3, stopping: 4, removed: 5, internal: 6, deleted: 7,
};

/**
 * States: stopped, connecting, joining, ready, waiting (to try again), halted (the relay's last word).
 *
 * Actions: { do: "connect" | "join" | "ping" | "lost" }, { do: "close", code }, { do: "state", state, problem, retryAt }.
 */
export class LinkRules {
  state = "stopped";
  problem = null;
  failures = 0;
  deadline = Infinity;
  pingAt = Infinity;
  answerBy = Infinity;

  get nextDeadline() { return Math.min(this.deadline, this.pingAt, this.answerBy); }

  start(now) {
    if (this.state !== "stopped" && this.state !== "halted") return [];
    this.failures = 0;
    return this.#connect(now);
  }

  stop() {
    return this.#leave("stopped", Infinity, this.problem, this.#isOpen ? closeCodes.done : null);
  }

  /** The handshake is complete: the relay is the one of the link. */
  connected(now) {
    if (this.state !== "connecting") return [];
    this.#enter("joining", now + linkTimes.join);
    return [{ do: "join" }, this.#told()];
  }

  welcomed(now) {
    if (this.state !== "joining") return this.violation("a second Welcome", now);
    this.failures = 0;
    this.problem = null;
    this.#enter("ready");
    this.pingAt = now + linkTimes.ping;
    return [this.#told()];
  }

  refused({ cause, retryAfterMs }, now) {
    if (this.state !== "joining") return this.violation("a refusal at the wrong time", now);
    const final = finalCauses[cause];
    if (final) return this.#halt(final, closeCodes.refused);
    const wait = Math.min(retryAfterMs, linkTimes.retryAfterMax);
    return this.#lose(passingCauses[cause] ?? "refused", closeCodes.refused, wait, now);
  }

  /** The connection is gone; `code` is that of the relay, or null. */
  closed(code, now) {
    if (!this.#isOpen) return [];
    switch (code) {
      case closeCodes.removed: return this.#halt("removed", null);
      case closeCodes.deleted: return this.#halt("deleted", null);
      case closeCodes.replaced: return this.#lose("replaced", null, linkTimes.replaced, now, true);
      case closeCodes.stopping: return this.#lose("stopping", null, 0, now);
      case closeCodes.violation: return this.#lose("violation", null, 0, now);
      default: return this.#lose(this.state === "ready" ? "lost" : "unreachable", null, 0, now);
    }
  }

  violation(what, now) {
    if (!this.#isOpen) return [];
    return this.#lose("violation", closeCodes.violation, 0, now, false, what);
  }

  /** Another key than the link's: to try at once would only help whoever is between. */
  wrongRelay(now) {
    if (!this.#isOpen) return [];
    return this.#lose("wrong-relay", closeCodes.violation, linkTimes.replaced, now, true);
  }

  /** This end gives the connection up, because nobody seems to be there. */
  doubt(now) { return this.#isOpen ? this.#lose("lost", closeCodes.internal, 0, now) : []; }

  /** Is the relay there? */
  probe(now) {
    if (this.state !== "ready" || this.answerBy !== Infinity) return [];
    this.pingAt = now + linkTimes.ping;
    this.answerBy = now + linkTimes.answer;
    return [{ do: "ping" }];
  }

  pong() { this.answerBy = Infinity; }

  /** The network has changed, or somebody wants to talk: what failed before may work now. */
  hurry(now) {
    if (this.state !== "waiting" || this.isFirm) return [];
    this.failures = 0;
    this.deadline = Math.min(this.deadline, now + linkTimes.backoff[0]);
    return [];
  }

  due(now) {
    if (this.state === "waiting" && this.deadline <= now) return this.#connect(now);
    if (this.state === "connecting" && this.deadline <= now) return this.#lose("unreachable", closeCodes.done, 0, now);
    if (this.state === "joining" && this.deadline <= now) return this.#lose("lost", closeCodes.done, 0, now);
    if (this.answerBy <= now) return this.doubt(now);
    return this.pingAt <= now ? this.probe(now) : [];
  }

  get #isOpen() { return ["connecting", "joining", "ready"].includes(this.state); }

  #enter(state, deadline = Infinity) {
    this.state = state;
    this.deadline = deadline;
    this.pingAt = Infinity;
    this.answerBy = Infinity;
  }

  #told() { return { do: "state", state: this.state, problem: this.problem, retryAt: this.deadline }; }

  #connect(now) {
    this.isFirm = false;
    this.#enter("connecting", now + linkTimes.connect);
    return [{ do: "connect" }, this.#told()];
  }

  #halt(problem, code) { return this.#leave("halted", Infinity, problem, code); }

  #lose(problem, code, minimum, now, isFirm = false, what = "") {
    const longest = linkTimes.backoff.length - 1;
    if (isFirm) this.failures = longest;
    const wait = Math.max(minimum, linkTimes.backoff[Math.min(this.failures, longest)]);
    this.failures = Math.min(this.failures + 1, longest);
    this.isFirm = isFirm;
    return this.#leave("waiting", now + wait, problem, code, what);
  }

  #leave(state, deadline, problem, code, what = "") {
    const lost = this.state === "ready" ? [{ do: "lost" }] : [];
    this.problem = problem;
    this.#enter(state, deadline);
    return [...lost, ...code === null ? [] : [{ do: "close", code, what }], this.#told()];
  }
}

const hearingTimes = { answer: 4000, conclusion: 6000, lateness: 1500 };

/**
 * Whether the relay still hears the talker, so that nobody talks into a dead link.
 *
 * While media are sent the relay acknowledges them many times a second, and it reports the end of each burst. Nothing
 * else that it sends proves that it hears.
 */
export class HearingWatch {
  unansweredSince = null;
  releasedAt = null;
  isExcused = false;

  get nextDeadline() {
    return Math.min(
      this.unansweredSince === null ? Infinity : this.unansweredSince + hearingTimes.answer,
      this.releasedAt === null ? Infinity : this.releasedAt + hearingTimes.conclusion);
  }

  sent(now) { this.unansweredSince ??= now; }

  answered() {
    this.unansweredSince = null;
    this.isExcused = false;
  }

  /** The floor was given back, after something was said. */
  released(now) { this.releasedAt ??= now; }

  /** The relay has reported the end of the burst, or the link is gone. */
  concluded() {
    this.answered();
    this.releasedAt = null;
  }

  isGone(now) {
    const due = this.nextDeadline;
    if (now < due) return false;
    // A page that was held up finds its deadline passed and the answers unread: that is excused once.
    if (now - due > hearingTimes.lateness && !this.isExcused) {
      this.isExcused = true;
      if (this.unansweredSince !== null) this.unansweredSince = now;
      if (this.releasedAt !== null) this.releasedAt = now;
      return false;
    }
    this.concluded();
    return true;
  }
}
