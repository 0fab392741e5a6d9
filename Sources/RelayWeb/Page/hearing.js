// Whether the relay still hears the talker, so that nobody talks into a dead link. Pure.

export const hearingTimes = { answer: 4000, conclusion: 6000, lateness: 1500 };

/**
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
