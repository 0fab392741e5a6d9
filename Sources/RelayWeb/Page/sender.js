// Talking on one channel: carries out what the rules of talking ask for. Seals what is said under the key of its burst.
import { rtpHeader } from "./rtp.js";
import { freshKeyId, sealFrame, sframeKey } from "./sframe.js";

const keysMax = 32;
// About half a second of speech with its overhead: what waits longer is too old (docs/relay-protocol.md, section 21.4).
const roomBytes = 6 * 1024;
const overhead = 48;

export class Sender {
  #keys = new Map();
  ssrc = 0;

  /** @param parts { keyring, hearing, uplink, clock(), transport(), send(kind, fields), probe(), tell(event) } */
  constructor(parts) { Object.assign(this, parts); }

  /** Whether the connection takes more at present. */
  get hasRoom() { return (this.transport()?.buffered ?? 0) < roomBytes; }

  linkLost() { this.#keys.clear(); }

  perform(actions) {
    for (const action of actions) {
      switch (action.do) {
        case "request": this.#request(action); break;
        case "media": this.#frame(action); break;
        case "release":
          if (action.lastSequence !== undefined) this.hearing.released(this.clock());
          this.#keys.delete(action.requestId);
          this.send("floorRelease", action);
          break;
        case "probe": this.probe(); break;
        case "tell": this.tell({ ...action, is: "uplink" });
      }
    }
  }

  /** Each request has a key id of its own, and its burst that key. */
  #request(action) {
    const { epoch, baseKey } = this.keyring.current;
    const keyId = freshKeyId(epoch);
    this.#keys.set(action.requestId, { key: sframeKey(baseKey, keyId), counter: 0 });
    if (this.#keys.size > keysMax) this.#keys.delete(this.#keys.keys().next().value);
    this.send("floorRequest", { ...action, keyId });
  }

  #frame({ requestId, sequence, timestamp, marker, payload }) {
    const sealing = this.#keys.get(requestId), transport = this.transport();
    if (!sealing || !transport) return;
    const header = rtpHeader({ sequence, timestamp, marker, ssrc: this.ssrc });
    const counter = sealing.counter++;
    transport.sendMedia(sealing.key.then(key => sealFrame(key, counter, header, payload)), payload.length + overhead);
    this.hearing.sent(this.clock());
    this.uplink.hasRoom = this.hasRoom;
  }
}
