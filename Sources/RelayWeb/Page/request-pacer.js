// A rate of requests for the floor that the relay takes, however often somebody presses. Pure.

const depth = 12, emergencyReserve = 4, interval = 1000 / 6, unansweredMax = 8;

export class RequestPacer {
  #tokens = depth;
  #tokensAt = 0;
  #unanswered = 0;
  /** When to try again. */
  retryAt = Infinity;

  /** Whether a request may go now; it is counted then. */
  allows(isEmergency, now) {
    this.retryAt = Infinity;
    this.#tokens = Math.min(depth, this.#tokens + (now - this.#tokensAt) / interval);
    this.#tokensAt = now;
    if (this.#tokens < 1 + (isEmergency ? 0 : emergencyReserve) || this.#unanswered >= unansweredMax) {
      this.retryAt = now + interval + 1;
      return false;
    }
    this.note();
    return true;
  }

  /** A request goes that cannot wait. */
  note() {
    this.#tokens -= 1;
    this.#unanswered += 1;
  }

  /** The relay has answered, so it reads requests; or the connection is another one. */
  answered() { this.#unanswered = 0; }

  relax() { this.retryAt = Infinity; }
}
