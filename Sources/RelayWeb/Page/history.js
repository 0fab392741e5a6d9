// What was heard in the last hour, to be heard again: the packets, not the sound, within bounds. Pure.
import { viewOf } from "./bytes.js";

export const historyLimits = { age: 3600000, entries: 200, bytes: 16 * 1024 * 1024, framesOfOne: 12000 };

export class History {
  #entries = [];
  #bytes = 0;

  /** What the messages take of the page's memory. */
  get bytes() { return this.#bytes; }

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
      milliseconds: 0, frames: new PackedFrames(), isLive: true, isKept: false,
    });
  }

  frame(channel, burst, header, payload, samples) {
    const entry = this.find(channel, burst);
    if (!entry || entry.frames.length >= historyLimits.framesOfOne) return;
    this.#change(entry, () => entry.frames.push({ header, payload }));
    entry.milliseconds += samples / 48;
    this.#shrink(entry);
  }

  #change(entry, change) {
    this.#bytes -= entry.frames.bytes;
    change();
    this.#bytes += entry.frames.bytes;
  }

  ended(channel, burst) {
    const entry = this.find(channel, burst);
    if (!entry) return;
    entry.isLive = false;
    this.#change(entry, () => entry.frames.trim());
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
        at: now - burst.ageMs, milliseconds: burst.durationMs, frames: new PackedFrames(), isLive: burst.isGoingOn, isKept: true,
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
    this.#bytes -= entry.frames.bytes;
  }
}

/** In front of each payload: sequence, timestamp, and its length. */
const headLength = 8;
const firstCapacity = 1024;

/** The frames of one message in one piece of memory: an object for each would take several times what was said. */
class PackedFrames {
  #memory = new Uint8Array(0);
  #used = 0;
  length = 0;

  /** What it takes of the page's memory. */
  get bytes() { return this.#memory.length; }

  push({ header: { sequence, timestamp }, payload }) {
    const end = this.#used + headLength + payload.length;
    if (end > this.#memory.length) this.#resize(Math.max(end, firstCapacity, this.#memory.length * 3 >> 1));
    const view = viewOf(this.#memory);
    view.setUint16(this.#used, sequence);
    view.setUint32(this.#used + 2, timestamp);
    view.setUint16(this.#used + 6, payload.length);
    this.#memory.set(payload, this.#used + headLength);
    this.#used = end;
    this.length++;
  }

  /** Nothing more comes: gives back what is not used. */
  trim() { if (this.#used < this.#memory.length) this.#resize(this.#used); }

  #resize(capacity) {
    const memory = new Uint8Array(capacity);
    memory.set(this.#memory.subarray(0, this.#used));
    this.#memory = memory;
  }

  *[Symbol.iterator]() {
    const view = viewOf(this.#memory);
    for (let at = 0; at < this.#used;) {
      const length = view.getUint16(at + 6), from = at + headLength;
      yield { header: { sequence: view.getUint16(at), timestamp: view.getUint32(at + 2) }, payload: this.#memory.subarray(from, from + length) };
      at = from + length;
    }
  }
}
