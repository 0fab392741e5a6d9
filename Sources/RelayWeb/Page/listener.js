// Listening on one channel: opens packets by the keys of the channel, and carries out what the rules of listening ask for.
import { Answers } from "./answers.js";
import { Downlink } from "./downlink.js";
import { ProtocolError } from "./messages.js";
import { firstReport } from "./reports.js";
import { burstName, parseRtp, rtpLength } from "./rtp.js";
import { openFrame, parseSframe, sframeKey } from "./sframe.js";

const keysMax = 32;
/** So many packets of a burst that do not open, and none that does: the invitation has another key. */
const unopenedMin = 25;

/** Its methods run one after the other: whoever calls them awaits them. */
export class Listener {
  #keys = new Map();
  #answers = null;
  #unopened = { burst: null, count: 0 };

  /** @param parts { keyring, queries, clock, send(kind, fields), tell(event) } */
  constructor(parts) {
    Object.assign(this, parts);
    this.downlink = new Downlink();
  }

  get nextDeadline() { return this.downlink.nextDeadline; }

  welcomed({ ssrc, lateEntry }, talkersMax) {
    this.#answers = new Answers();
    Object.assign(this.downlink, { offersLateEntry: lateEntry, firstReport: firstReport(ssrc), talkersMax });
  }

  /** The same epoch has another key. */
  forgetKeys() { this.#keys.clear(); }

  due() { return this.#perform(this.downlink.due(this.clock())); }
  taken(talker, isLate) { return this.#perform(this.downlink.taken(talker, isLate, this.clock())); }
  idle({ ssrc, lastSequence }) { return this.#perform(this.downlink.idle(ssrc, lastSequence, this.clock())); }
  refused(message) { return this.#perform(this.downlink.fetchRefused(message, this.clock())); }

  linkLost() {
    this.#keys.clear();
    return this.#perform(this.downlink.linkLost(this.clock()));
  }

  async #perform(actions) {
    for (const action of actions) {
      switch (action.do) {
        case "retry":
          for (const { packet, receivedAt } of action.packets) await this.packet(packet, receivedAt, false);
          break;
        case "ask": this.send("repairRequest", action); break;
        case "fetch": {
          const requestId = this.queries.nextId();
          this.send("burstRequest", { ...action, requestId });
          this.downlink.fetchAsked(requestId, action.burst, this.clock());
          break;
        }
        case "conclude": await this.#perform(this.downlink.conclude(action.burst, this.clock())); break;
        case "report": this.send("receptionReport", action); break;
        default: this.tell({ ...action, is: action.do });
      }
    }
  }

  /** A packet came: as it was sent, or because it was asked for. What is no packet is dropped. */
  async packet(packet, receivedAt, isRepaired) {
    const header = parseRtp(packet), sframe = header && parseSframe(packet.subarray(rtpLength));
    if (!sframe) return void this.downlink.drop();
    const place = { burst: burstName(header.ssrc, sframe.keyId), ssrc: header.ssrc, sequence: header.sequence };
    let admission = this.downlink.admit(place, isRepaired);
    if (admission === "resume") {
      await this.#perform(this.downlink.resume(place.burst, this.clock()));
      admission = this.downlink.admit(place, isRepaired);
    }
    if (admission === "hold") return this.downlink.hold(packet, place, receivedAt);
    if (admission !== "open") return;
    const key = await this.#key(place.burst, sframe.keyId);
    const payload = key && await openFrame(key, sframe, packet.subarray(0, rtpLength), packet.subarray(rtpLength));
    if (!payload) {
      this.downlink.drop();
      return this.#noteUnopened(place.burst);
    }
    this.#unopened = { burst: place.burst, count: -Infinity };
    await this.#perform(this.downlink.opened(place.burst, header, payload, receivedAt, isRepaired, this.clock()));
  }

  #noteUnopened(burst) {
    if (this.#unopened.burst !== burst) this.#unopened = { burst, count: 0 };
    if (++this.#unopened.count === unopenedMin) this.tell({ is: "unreadable" });
  }

  #key(name, keyId) {
    let key = this.#keys.get(name);
    if (!key) {
      const baseKey = this.keyring.live(keyId, true, this.clock());
      if (!baseKey) return null;
      this.#keys.set(name, key = sframeKey(baseKey, keyId));
      if (this.#keys.size > keysMax) this.#keys.delete(this.#keys.keys().next().value);
    }
    return key;
  }

  /** @returns an answer that is not about what is heard now */
  async part(bytes) {
    if (!this.#answers) throw new ProtocolError("an answer before Welcome");
    const answer = this.#answers.part(bytes);
    if (!answer) return null;
    const isRepair = answer.repairId !== undefined;
    if (!isRepair && !this.downlink.awaits(answer.requestId)) return answer;
    for (const packet of answer.packets) await this.packet(packet, this.clock(), true);
    await this.#perform(isRepair ? this.downlink.answered(answer.repairId, this.clock())
      : this.downlink.fetched(answer.requestId, answer.isWhole, this.clock()));
    return null;
  }

  /** The frames in the packets of a burst that the relay kept; what does not open is left out. */
  async openKept(packets, ssrc, keyId) {
    const baseKey = this.keyring.kept(keyId);
    if (!baseKey) throw new Error("no-key");
    const key = await sframeKey(baseKey, keyId);
    const frames = [];
    for (const packet of packets) {
      const header = parseRtp(packet), sframe = header && parseSframe(packet.subarray(rtpLength));
      if (header?.ssrc !== ssrc || sframe?.keyId !== keyId) continue;
      const payload = await openFrame(key, sframe, packet.subarray(0, rtpLength), packet.subarray(rtpLength));
      if (payload) frames.push({ header, payload });
    }
    return frames;
  }
}
