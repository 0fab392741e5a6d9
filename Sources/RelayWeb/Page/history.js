// What was heard in the last hour, to be heard again: the packets, not the sound, within bounds. Pure.

export const historyLimits = { age: 3600000, entries: 200, bytes: 16 * 1024 * 1024, framesOfOne: 12000 };

export class History {
  #entries = [];
  #bytes = 0;

  /** Newest first. */
  get entries() { return [...this.#entries].sort((a, b) => b.at - a.at); }

  find(channel, burst) { return this.#entries.find(entry => entry.channel === channel && entry.burst === burst); }

  began(channel, talker, at) {
    this.expire(at);
    const known = this.find(channel, talker.burst);
    // The relay's list may have it already: what is heard now counts.
    if (known && known.frames.length === 0) Object.assign(known, { milliseconds: 0, isLive: true });
    if (known) return;
    this.#add({
      channel, burst: talker.burst, ssrc: talker.ssrc, keyId: talker.keyId, name: talker.name, isEmergency: talker.isEmergency, at,
      milliseconds: 0, frames: [], isLive: true, isKept: false,
    });
  }

  frame(channel, burst, header, payload, samples) {
    const entry = this.find(channel, burst);
    if (!entry || entry.frames.length >= historyLimits.framesOfOne) return;
    entry.frames.push({ header, payload });
    entry.milliseconds += samples / 48;
    this.#bytes += payload.length + 64;
    this.#shrink(entry);
  }

  ended(channel, burst) {
    const entry = this.find(channel, burst);
    if (entry) entry.isLive = false;
  }

  /** What the relay keeps, beside what was heard here. */
  kept(channel, bursts, now) {
    for (const burst of bursts) {
      const known = this.find(channel, burst.burst);
      if (known) {
        known.isKept = true;
        continue;
      }
      if (burst.ageMs > historyLimits.age) continue;
      this.#add({
        channel, burst: burst.burst, ssrc: burst.ssrc, keyId: burst.keyId, name: burst.displayName, isEmergency: false,
        at: now - burst.ageMs, milliseconds: burst.durationMs, frames: [], isLive: burst.isGoingOn, isKept: true,
      });
    }
  }

  expire(now) {
    for (const entry of this.#entries) if (now - entry.at > historyLimits.age && !entry.isLive) this.#remove(entry);
  }

  clear(channel) { for (const entry of [...this.#entries]) if (entry.channel === channel) this.#remove(entry); }

  #add(entry) {
    this.#entries.push(entry);
    this.#shrink(entry);
  }

  #shrink(but) {
    while (this.#entries.length > historyLimits.entries || this.#bytes > historyLimits.bytes) {
      const oldest = this.#entries.filter(entry => entry !== but).sort((a, b) => a.at - b.at)[0];
      if (!oldest) return;
      this.#remove(oldest);
    }
  }

  #remove(entry) {
    this.#entries = this.#entries.filter(other => other !== entry);
    this.#bytes -= entry.frames.reduce((sum, { payload }) => sum + payload.length + 64, 0);
  }
}
