// The relay's side of the handshake (docs/relay-protocol.md, section 21.2) by node's own cryptography, not the browser's:
// so two implementations are tested against each other.
import {
  createCipheriv, createDecipheriv, createHash, createPublicKey, diffieHellman, generateKeyPairSync, hkdfSync, sign, verify,
} from "node:crypto";

export const sha256 = (...parts) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
};

const x25519Prefix = Buffer.from("302a300506032b656e032100", "hex");

/** An identity on P-256: { spki, privateKey, pin }. */
export function makeIdentity() {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  return { spki, privateKey, pin: sha256(spki) };
}

class Sealed {
  counter = 0n;

  constructor(key, iv) { Object.assign(this, { key: Buffer.from(key), iv: Buffer.from(iv) }); }

  #nonce() {
    const nonce = Buffer.from(this.iv);
    const low = BigInt(nonce.readUInt32BE(8)) ^ this.counter++;
    nonce.writeUInt32BE(Number(low), 8);
    return nonce;
  }

  seal(plain) {
    const cipher = createCipheriv("aes-128-gcm", this.key, this.#nonce());
    return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  }

  open(sealed) {
    const decipher = createDecipheriv("aes-128-gcm", this.key, this.#nonce());
    decipher.setAuthTag(sealed.subarray(-16));
    return Buffer.concat([decipher.update(sealed.subarray(0, -16)), decipher.final()]);
  }
}

/**
 * Answers a client's hello.
 * @returns {{ hello, up, down, verify(message) }} verify gives the client's pin, or throws
 */
export function answer(clientHello, identity, fault) {
  const theirs = Buffer.from(clientHello.subarray(1));
  if (clientHello[0] !== 1 || theirs.length !== 32) throw new Error("no hello");
  const own = generateKeyPairSync("x25519");
  const ownPublic = own.publicKey.export({ type: "spki", format: "der" }).subarray(-32);
  const th = sha256("pttd web 1", theirs, ownPublic);
  const publicKey = createPublicKey({ key: Buffer.concat([x25519Prefix, theirs]), format: "der", type: "spki" });
  const secret = diffieHellman({ privateKey: own.privateKey, publicKey });
  const keys = Buffer.from(hkdfSync("sha256", secret, th, "pttd web 1 keys", 56));
  const up = new Sealed(keys.subarray(0, 16), keys.subarray(32, 44));
  const down = new Sealed(keys.subarray(16, 32), keys.subarray(44, 56));
  const message = Buffer.concat([Buffer.from("pttd web 1 relay\0"), th, identity.pin]);
  const signature = sign("sha256", message, { key: identity.privateKey, dsaEncoding: "ieee-p1363" });
  if (fault === "signature") signature[5] ^= 1;
  const length = Buffer.from([identity.spki.length >> 8, identity.spki.length & 255]);
  const proof = down.seal(Buffer.concat([length, identity.spki, signature]));
  if (fault === "seal") proof[3] ^= 1;
  return {
    hello: Buffer.concat([Buffer.from([2]), fault === "zero" ? Buffer.alloc(32) : ownPublic, proof]), up, down,
    verify(clientProof) {
      if (clientProof[0] !== 3) throw new Error("no proof");
      const plain = up.open(Buffer.from(clientProof.subarray(1)));
      const size = plain.readUInt16BE(0), spki = plain.subarray(2, 2 + size);
      const pin = sha256(spki);
      const signed = Buffer.concat([Buffer.from("pttd web 1 client\0"), th, pin, identity.pin]);
      const key = createPublicKey({ key: spki, format: "der", type: "spki" });
      if (!verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, plain.subarray(2 + size))) throw new Error("a false proof");
      return pin;
    },
  };
}
