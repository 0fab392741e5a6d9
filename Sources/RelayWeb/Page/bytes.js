// Byte strings: joining, comparing, and the text forms that links and tests use.

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const utf8 = text => encoder.encode(text);

/** Throws where the bytes are not UTF-8. */
export const textOf = bytes => decoder.decode(bytes);

export function concat(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export function equal(a, b) {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let index = 0; index < a.length; index++) difference |= a[index] ^ b[index];
  return difference === 0;
}

export const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");

export const unhex = text => Uint8Array.from(text.match(/../g) ?? [], pair => parseInt(pair, 16));

export const viewOf = bytes => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** The bytes of base64url without padding (RFC 4648, section 5); null where it is not that. */
export function fromBase64url(text) {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return null;
  const bytes = new Uint8Array(Math.floor(text.length * 3 / 4));
  let bits = 0, count = 0, at = 0;
  for (const letter of text) {
    bits = (bits << 6 | alphabet.indexOf(letter)) & 0xffff;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes[at++] = bits >> count & 0xff;
    }
  }
  // Bits that are left over and not 0 would give two texts for one secret.
  return bits & (1 << count) - 1 ? null : bytes;
}
