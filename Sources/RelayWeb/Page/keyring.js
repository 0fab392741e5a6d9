// The media keys of a channel, newest last: what is sealed now, and what was sealed before (docs/relay-protocol.md, section 9).
const epochsMax = 8;
const grace = 20000;
const earlierMax = 4;

export class Keyring {
  #keys = [];

  /** @param {Uint8Array | null} linkKey that of an end-to-end channel, which the relay never gives */
  constructor(linkKey) {
    this.isEndToEnd = linkKey !== null;
    if (linkKey) this.#keys.push({ epoch: 0, baseKey: linkKey, replacedAt: null });
  }

  get current() { return this.#keys.at(-1) ?? null; }

  /** @returns {boolean} false: a relay gives a key for a channel that it must not be able to read */
  add({ epoch, baseKey }, now) {
    if (this.isEndToEnd) return false;
    if (this.current && this.current.epoch !== epoch) this.current.replacedAt = now;
    this.#keys = this.#keys.filter(key => key.epoch !== epoch);
    this.#keys.push({ epoch, baseKey, replacedAt: null });
    this.#keys.splice(0, this.#keys.length - epochsMax);
    return true;
  }

  /** The base key of a burst that is heard now; null: its epoch is not, or no longer, valid. */
  live(keyId, isAnnounced, now) {
    const at = this.#keys.findIndex(key => key.epoch === Number(keyId >> 48n));
    if (at < 0 || this.#keys.length - 1 - at > earlierMax) return null;
    const key = this.#keys[at];
    return key.replacedAt === null || isAnnounced || now - key.replacedAt < grace ? key.baseKey : null;
  }

  /** The base key of a burst that was kept. */
  kept(keyId) { return this.#keys.findLast(key => key.epoch === Number(keyId >> 48n))?.baseKey ?? null; }
}

/** A new key id for a request: the epoch and 48 random bits. */
export function freshKeyId(epoch, random = bytes => crypto.getRandomValues(bytes)) {
  let id = BigInt(epoch);
  for (const byte of random(new Uint8Array(6))) id = id << 8n | BigInt(byte);
  return id;
}
