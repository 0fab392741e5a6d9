// One press to its end: microphone, encoder and the channels that are talked to. The parts are passed in, so a test has its own.

const tailBlocks = 20;
const tailTimeout = 400;
const openTimeout = 1500;
/** They need no word: it was heard, or what follows says more. */
const quietEnds = new Set(["completed", "emergency", "hidden"]);

/**
 * Tells { is: "talking", burst } when the microphone delivers, { is: "over", burst, reason, isFollowed } once, { is: "silent" } and
 * { is: "level", peak }. isFollowed: the burst of another press begins at once.
 */
export class Talker {
  #count = 0;
  #current = null;
  #next = null;
  #silence = new SilenceWatch();

  /** @param parts { microphone, makeEncoder(onframe, onerror), tone(name), tell(event), clock() } */
  constructor(parts) {
    Object.assign(this, parts);
    this.microphone.onblock = block => this.block(block);
  }

  get isBusy() { return this.#current !== null; }
  get burst() { return this.#current?.id ?? null; }
  /** The name of the burst that the next press makes. */
  get nextBurst() { return `burst ${this.#count + 1}`; }

  /** @param options { priority, waits }; waits: somebody talks, so the go-ahead comes with the grant */
  press(sessions, options) {
    if (sessions.length === 0) return;
    const next = { id: this.nextBurst, sessions, ...options };
    this.#count++;
    if (!this.#current) return this.#begin(next);
    this.#next = next;
    // What waits in the channel for its grant is all said. Otherwise the tail of the last burst is cut.
    if (this.#current.hasEnded) this.#over("completed");
    else this.#finish();
  }

  #begin({ id, sessions, priority = 0, waits = false }) {
    const current = {
      id, sessions: new Set(sessions), waiting: new Set(), priority, waits, blocks: 0, tail: Infinity, isReleased: false, isFinishing: false,
      hasEnded: false, hasGoneAhead: false, isGranted: false, delivers: false, reasons: [], sent: 0,
    };
    this.#current = current;
    this.#silence.begin();
    this.microphone.want(true);
    try {
      current.encoder = this.makeEncoder(frame => {
        if (this.#current === current) for (const session of current.sessions) session.frame(frame.payload, frame.samples, frame.captured);
      }, () => this.#current === current && this.stop("encoder"));
    } catch {
      return this.#over("encoder");
    }
    current.timer = setTimeout(() => {
      if (current.blocks === 0 && !current.isReleased && !this.#isQueued(current)) this.stop("microphone");
    }, openTimeout);
    for (const session of sessions) session.begin(id, { priority, mayQueue: session.floor.hasQueue });
  }

  /** 10 ms of the microphone. */
  block(block) {
    let peak = 0;
    for (const sample of block.samples) peak = Math.max(peak, Math.abs(sample));
    this.tell({ is: "level", peak });
    const current = this.#current;
    if (!current || current.isFinishing) return;
    current.blocks++;
    current.encoder.encode(block);
    const heard = this.#silence.take(peak === 0);
    if (heard === "begun") current.delivers = true;
    this.#goAhead();
    if (heard === "warning") {
      this.tone("warning");
      this.tell({ is: "silent" });
    }
    if (heard === "end") return this.stop("microphone");
    if (--current.tail <= 0) this.#finish();
  }

  #isQueued(current) { return current.waiting.size > 0 && current.waiting.size === current.sessions.size; }

  /** Never before the microphone delivers. */
  #goAhead() {
    const current = this.#current;
    if (current.hasGoneAhead || current.isReleased || !current.delivers || current.waits && !current.isGranted) return;
    current.hasGoneAhead = true;
    this.tone("goAhead");
    this.tell({ is: "talking", burst: current.id });
  }

  /** A press was let go before its burst began. */
  #dropNext(reason) {
    const next = this.#next;
    if (!next) return;
    this.#next = null;
    this.microphone.want(false);
    this.tell({ is: "over", burst: next.id, reason, sent: 0, priority: next.priority, wasHeld: false, isFollowed: false });
  }

  release() {
    const current = this.#current;
    this.#dropNext("completed");
    if (!current || current.isReleased) return;
    current.isReleased = true;
    if (current.blocks === 0 || this.#isQueued(current)) return this.#finish();
    // The last word is often still being said.
    current.tail = tailBlocks;
    setTimeout(() => this.#current === current && this.#finish(), tailTimeout);
  }

  /** Ends at once, and what is not sent is erased. */
  stop(reason) {
    const current = this.#current;
    this.#dropNext(reason);
    if (!current) return;
    for (const session of [...current.sessions]) session.abort(reason);
    if (this.#current === current) this.#over(reason);
  }

  /** What a channel tells of the burst. */
  uplink(session, event) {
    const current = this.#current;
    if (!current || event.burst !== current.id) return;
    switch (event.what) {
      case "granted":
        current.isGranted = true;
        current.waiting.delete(session);
        this.microphone.want(true);
        if (current.waits) this.#goAhead();
        break;
      case "queued":
        if (!current.waiting.has(session)) this.tone("wait");
        current.waiting.add(session);
        current.waits = true;
        // Nothing is recorded for a floor that another has.
        if (this.#isQueued(current)) {
          Object.assign(current, { blocks: 0, delivers: false, hasGoneAhead: false });
          this.#silence.begin();
          this.microphone.want(false);
        }
        break;
      case "warning": this.tone("warning"); break;
      case "ended":
        current.sessions.delete(session);
        current.waiting.delete(session);
        current.reasons.push(event);
        current.sent += event.sent;
        if (current.sessions.size === 0) this.#over(this.#reason(current));
    }
  }

  #reason(current) {
    // On several channels it was carried when one of them carried it.
    const carried = current.reasons.find(event => event.reason === "completed");
    return (carried ?? current.reasons.at(-1)).reason;
  }

  async #finish() {
    const current = this.#current;
    if (!current || current.isFinishing) return;
    current.isFinishing = true;
    if (!this.#next) this.microphone.want(false);
    await current.encoder?.finish();
    if (this.#current !== current) return;
    current.isReleased = true;
    current.hasEnded = true;
    for (const session of [...current.sessions]) session.end();
    // What is held waits in the channel for its grant; the next press need not.
    if (this.#current === current && this.#next) this.#over("completed");
  }

  #over(reason) {
    const current = this.#current;
    this.#current = null;
    clearTimeout(current.timer);
    current.encoder?.finish();
    const next = this.#next;
    this.#next = null;
    if (!next) this.microphone.want(false);
    if (reason === "microphone" || reason === "encoder") this.tone("fault");
    else if (!quietEnds.has(reason)) this.tone(reason === "unheard" ? "linkLost" : "deny");
    else if (reason === "completed" && current.hasGoneAhead && !next) this.tone("end");
    this.tell({
      is: "over", burst: current.id, reason, cause: current.reasons.at(-1)?.cause, sent: current.sent, priority: current.priority,
      wasHeld: !current.isReleased, isFollowed: next !== null,
    });
    if (next) this.#begin(next);
  }
}

const silenceBlocks = { goAhead: 30, warning: 100, end: 300, pause: 3, gatedPauses: 3 };

/**
 * Whether the microphone gives sound: a room is never quite silent, so digital silence means muted or unplugged. Pure.
 *
 * Blocks of 10 ms in. A microphone that is silent between words by itself is known by its pauses, and left alone.
 */
export class SilenceWatch {
  #pauses = 0;
  #silent = 0;
  #blocks = 0;
  #hasBegun = false;

  begin() {
    this.#silent = 0;
    this.#blocks = 0;
    this.#hasBegun = false;
  }

  /** @returns {"begun" | "warning" | "end" | null} begun: it delivers, or the person has waited long enough for the go-ahead */
  take(isSilent) {
    this.#blocks++;
    if (!isSilent) {
      // Not at the start: a track that is switched on gives silence first.
      if (this.#hasBegun && this.#silent >= silenceBlocks.pause) this.#pauses++;
      this.#silent = 0;
    } else this.#silent++;
    if (!this.#hasBegun && (!isSilent || this.#blocks >= silenceBlocks.goAhead)) {
      this.#hasBegun = true;
      return "begun";
    }
    if (this.#pauses >= silenceBlocks.gatedPauses && this.#silent < this.#blocks) return null;
    if (this.#silent === silenceBlocks.warning) return "warning";
    return this.#silent >= silenceBlocks.end ? "end" : null;
  }
}
