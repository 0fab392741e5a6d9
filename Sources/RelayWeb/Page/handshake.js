// The handshake of a link over TLS and the sealing behind it (docs/relay-protocol.md, section 21.2).
import { concat, equal, utf8, viewOf } from "./bytes.js";
import { ProtocolError } from "./protobuf.js";

export const kinds = { clientHello: 1, relayHello: 2, clientProof: 3, sealed: 16, media: 128 };
export const content = { control: 1, acknowledgement: 2, ping: 3, pong: 4, answer: 5, media: 6 };

/** The relay has another key than the link says: somebody is between, or the relay was set up anew. */
export class WrongRelay extends Error {}

const { subtle } = globalThis.crypto;
const curve = { name: "ECDSA", namedCurve: "P-256" };
const signing = { name: "ECDSA", hash: "SHA-256" };
const signatureLength = 64;
const publicKeyMax = 512;

const sha256 = async bytes => new Uint8Array(await subtle.digest("SHA-256", bytes));

/** One direction: messages are sealed or opened in their order, under a counter that is not sent. */
class Direction {
  #counter = 0;

  constructor(key, iv) { Object.assign(this, { key, iv }); }

  #next() {
    if (this.#counter >= 2 ** 32 - 1) throw new ProtocolError("too many messages under one key");
    const iv = Uint8Array.from(this.iv);
    const view = viewOf(iv);
    view.setUint32(8, view.getUint32(8) ^ this.#counter++);
    return { name: "AES-GCM", iv, tagLength: 128 };
  }

  /** The counter is taken at the call: calls may overlap. */
  seal(plaintext) {
    return subtle.encrypt(this.#next(), this.key, plaintext).then(sealed => new Uint8Array(sealed));
  }

  open(sealed) {
    return subtle.decrypt(this.#next(), this.key, sealed).then(
      plain => new Uint8Array(plain), () => { throw new ProtocolError("a message does not decrypt"); });
  }
}

/** What relay and client sign: who they are, on this connection. */
const signed = (who, ...parts) => concat(utf8(`pttd web 1 ${who}`), [0], ...parts);

/** The proof of an identity { publicKey (SPKI), privateKey }, before it is sealed. */
async function proof(identity, message) {
  const signature = new Uint8Array(await subtle.sign(signing, identity.privateKey, message));
  const length = Uint8Array.of(identity.publicKey.length >> 8, identity.publicKey.length & 255);
  return concat(length, identity.publicKey, signature);
}

export function parseProof(plaintext) {
  const length = plaintext.length < 2 ? 0 : plaintext[0] << 8 | plaintext[1];
  if (length < 1 || length > publicKeyMax || plaintext.length !== 2 + length + signatureLength) {
    throw new ProtocolError("a proof of a wrong length");
  }
  return { publicKey: plaintext.subarray(2, 2 + length), signature: plaintext.subarray(2 + length) };
}

export class Handshake {
  static async begin(identity, relayPin) {
    const made = new Handshake();
    Object.assign(made, { identity, relayPin });
    made.own = await subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
    made.ownPublic = new Uint8Array(await subtle.exportKey("raw", made.own.publicKey));
    return made;
  }

  get hello() { return concat([kinds.clientHello], this.ownPublic); }

  /**
   * Takes the relay's hello with its proof.
   * @returns {{up: Direction, down: Direction, proof: Uint8Array}} the message that proves this end, and what seals the rest
   */
  async finish(message) {
    if (message[0] !== kinds.relayHello || message.length < 33) throw new ProtocolError("the relay does not greet");
    const theirs = message.subarray(1, 33);
    const th = await sha256(concat(utf8("pttd web 1"), this.ownPublic, theirs));
    const { up, down } = await this.#directions(theirs, th);
    const { publicKey, signature } = parseProof(await down.open(message.subarray(33)));
    const pin = await sha256(publicKey);
    if (!equal(pin, this.relayPin)) throw new WrongRelay("the relay has another key than the link");
    await this.#verify(publicKey, signature, signed("relay", th, pin));
    const ownPin = await sha256(this.identity.publicKey);
    const own = await proof(this.identity, signed("client", th, ownPin, pin));
    return { up, down, proof: concat([kinds.clientProof], await up.seal(own)) };
  }

  async #directions(theirs, th) {
    let secret;
    try {
      const key = await subtle.importKey("raw", theirs, { name: "X25519" }, false, []);
      secret = new Uint8Array(
        await subtle.deriveBits({ name: "X25519", public: key }, this.own.privateKey, 256));
    } catch {
      throw new ProtocolError("the relay's key is no key");
    }
    if (secret.every(byte => byte === 0)) throw new ProtocolError("the relay's key is no key");
    const base = await subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
    const keys = new Uint8Array(await subtle.deriveBits(
      { name: "HKDF", hash: "SHA-256", salt: th, info: utf8("pttd web 1 keys") }, base, 56 * 8));
    const made = bytes => subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
    return {
      up: new Direction(await made(keys.subarray(0, 16)), keys.slice(32, 44)),
      down: new Direction(await made(keys.subarray(16, 32)), keys.slice(44, 56)),
    };
  }

  async #verify(publicKey, signature, message) {
    let isRight = false;
    try {
      const key = await subtle.importKey("spki", publicKey, curve, false, ["verify"]);
      isRight = await subtle.verify(signing, key, signature, message);
    } catch {
      isRight = false;
    }
    if (!isRight) throw new WrongRelay("the relay does not prove its key");
  }
}

/** A new identity of this device. Its private key cannot be read, not even by this page. */
export async function makeIdentity() {
  const pair = await subtle.generateKey(curve, false, ["sign", "verify"]);
  return { privateKey: pair.privateKey, publicKey: new Uint8Array(await subtle.exportKey("spki", pair.publicKey)) };
}
