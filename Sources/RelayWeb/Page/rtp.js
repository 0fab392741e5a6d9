// RTP headers in the one form that the protocol permits (docs/relay-protocol.md, section 8.1), and sequence numbers. Pure.
import { viewOf } from "./bytes.js";

export const rtpLength = 12;
const packetMax = 1160;

export function rtpHeader({ sequence, timestamp, ssrc, marker }) {
  const header = new Uint8Array(rtpLength);
  const view = viewOf(header);
  header[0] = 0x80;
  header[1] = (marker ? 0x80 : 0) | 111;
  view.setUint16(2, sequence);
  view.setUint32(4, timestamp);
  view.setUint32(8, ssrc);
  return header;
}

/** The header of a packet; null where it has another form, or no room for speech behind it. */
export function parseRtp(packet) {
  if (packet.length <= rtpLength || packet.length > packetMax) return null;
  if (packet[0] !== 0x80 || (packet[1] & 127) !== 111) return null;
  const view = viewOf(packet);
  return { marker: packet[1] > 127, sequence: view.getUint16(2), timestamp: view.getUint32(4), ssrc: view.getUint32(8) };
}

/** How far `a` is behind `b` in the order of numbers that wrap; below 0: before it. */
export const sequenceDistance = (a, b) => (a - b << 16) >> 16;
export const timestampDistance = (a, b) => a - b | 0;
export const sequenceAfter = (sequence, steps = 1) => sequence + steps & 0xffff;

export const burstName = (ssrc, keyId) => `${ssrc}:${keyId}`;

/** The samples in an Opus packet at 48 kHz (RFC 6716, section 3.1); 0 where it is none. */
export function opusSamples(packet) {
  if (packet.length === 0) return 0;
  const configuration = packet[0] >> 3, code = packet[0] & 3;
  const frame = configuration < 12 ? [480, 960, 1920, 2880][configuration & 3]
    : configuration < 16 ? [480, 960][configuration & 1] : [120, 240, 480, 960][configuration & 3];
  const frames = code === 0 ? 1 : code < 3 ? 2 : packet.length > 1 ? packet[1] & 63 : 0;
  const samples = frame * frames;
  return samples <= 5760 ? samples : 0;
}

const window = 1024;

/** Which packets of a burst have come, by their sequence numbers. */
export class Sequences {
  #seen = new Set();

  /** @param {number} [after] what comes of the burst follows this number; nothing up to it is heard again */
  constructor(after) {
    this.highest = after === undefined ? null : after;
    this.first = after === undefined ? null : after + 1;
    this.heardUpTo = after ?? null;
    this.received = 0;
    this.skipped = 0;
  }

  /** Numbers here do not wrap: they count on from the first. */
  #extended(sequence) { return this.highest + sequenceDistance(sequence, this.highest & 0xffff); }

  wasSeen(sequence) {
    if (this.highest === null) return false;
    const number = this.#extended(sequence);
    return number <= this.highest - window || this.heardUpTo !== null && number <= this.heardUpTo || this.#seen.has(number);
  }

  /** @returns whether it is new */
  insert(sequence) {
    if (this.wasSeen(sequence)) return false;
    const number = this.highest === null ? sequence : this.#extended(sequence);
    this.first = this.first === null ? number : Math.min(this.first, number);
    if (this.highest === null || number > this.highest) {
      for (let old = (this.highest ?? number) - window; old <= number - window && old > number - 3 * window; old++) this.#seen.delete(old);
      if (this.highest !== null && number - this.highest > window) this.#seen.clear();
      this.highest = number;
    }
    this.#seen.add(number);
    this.received++;
    return true;
  }

  /** What was never wanted is not lost. */
  skipTo(sequence) {
    if (this.highest === null) return;
    const steps = sequenceDistance(sequence, this.highest & 0xffff) - 1;
    if (steps > 0) this.skipped += steps;
  }

  get last() { return this.highest === null ? null : this.highest & 0xffff; }

  get lost() {
    return this.highest === null ? 0 : Math.max(0, this.highest - this.first + 1 - this.received - this.skipped);
  }
}
