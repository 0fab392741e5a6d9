// SFrame (RFC 9605) with cipher suite 4, AES_128_GCM_SHA256_128, as docs/relay-protocol.md, section 8.2, uses it.
import { concat, utf8, viewOf } from "./bytes.js";

const { subtle } = globalThis.crypto;
const suite = Uint8Array.of(0, 4);
const tagLength = 16;
const empty = new Uint8Array(0);

function bytesOf(value) {
  const bytes = new Uint8Array(8);
  viewOf(bytes).setBigUint64(0, value);
  return bytes;
}

function field(value) {
  if (value < 8n) return { nibble: Number(value), bytes: empty };
  const all = bytesOf(value);
  const bytes = all.subarray(all.findIndex(byte => byte !== 0));
  return { nibble: 8 | bytes.length - 1, bytes };
}

export function sframeHeader(keyId, counter) {
  const kid = field(keyId), ctr = field(BigInt(counter));
  return concat([kid.nibble << 4 | ctr.nibble], kid.bytes, ctr.bytes);
}

function number(bytes) {
  let value = 0n;
  for (const byte of bytes) value = value << 8n | BigInt(byte);
  return value;
}

/** The header at the start of a ciphertext; null where it is cut off or not in its shortest form. */
export function parseSframe(bytes) {
  if (bytes.length === 0) return null;
  let at = 1;
  const values = [];
  for (const nibble of [bytes[0] >> 4, bytes[0] & 15]) {
    if (nibble < 8) {
      values.push(BigInt(nibble));
      continue;
    }
    const length = (nibble & 7) + 1;
    if (at + length > bytes.length) return null;
    const value = number(bytes.subarray(at, at + length));
    if (bytes[at] === 0 || value < 8n) return null;
    values.push(value);
    at += length;
  }
  return { keyId: values[0], counter: values[1], length: at };
}

async function expand(base, info, length) {
  return new Uint8Array(await subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt: empty, info }, base, length * 8));
}

/** The labels of a key id, in the order of key and salt. */
export const labels = keyId => ["key ", "salt "].map(
  what => concat(utf8(`SFrame 1.0 Secret ${what}`), bytesOf(keyId), suite));

/** The key of one burst, made of the channel's base key and the burst's key id. */
export async function sframeKey(baseKey, keyId) {
  const base = await subtle.importKey("raw", baseKey, "HKDF", false, ["deriveBits"]);
  const [keyLabel, saltLabel] = labels(keyId);
  const [key, salt] = await Promise.all([expand(base, keyLabel, 16), expand(base, saltLabel, 12)]);
  const imported = await subtle.importKey("raw", key, "AES-GCM", false, ["encrypt", "decrypt"]);
  return { keyId, salt, key: imported };
}

function nonce(salt, counter) {
  const bytes = Uint8Array.from(salt);
  const value = bytesOf(counter);
  for (let index = 0; index < 8; index++) bytes[4 + index] ^= value[index];
  return bytes;
}

/** A packet: the RTP header, which is also authenticated, and the sealed frame. */
export async function sealFrame(key, counter, header, frame) {
  const sframe = sframeHeader(key.keyId, counter);
  const sealed = await subtle.encrypt(
    { name: "AES-GCM", iv: nonce(key.salt, BigInt(counter)), additionalData: concat(sframe, header), tagLength: 128 },
    key.key, frame);
  return concat(header, sframe, new Uint8Array(sealed));
}

/** The frame of a ciphertext behind `header`; null where it is not what was sealed. */
export async function openFrame(key, parsed, header, ciphertext) {
  if (ciphertext.length <= parsed.length + tagLength) return null;
  const additionalData = concat(ciphertext.subarray(0, parsed.length), header);
  try {
    return new Uint8Array(await subtle.decrypt(
      { name: "AES-GCM", iv: nonce(key.salt, parsed.counter), additionalData, tagLength: 128 },
      key.key, ciphertext.subarray(parsed.length)));
  } catch {
    return null;
  }
}

const epochsMax = 8;
const grace = 20000;
const earlierMax = 4;

/** The media keys of a channel, newest last: what is sealed now, and what was sealed before (docs/relay-protocol.md, section 9). */
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
export function freshKeyId(epoch) {
  let id = BigInt(epoch);
  for (const byte of globalThis.crypto.getRandomValues(new Uint8Array(6))) id = id << 8n | BigInt(byte);
  return id;
}
