// What this member knows of the channel: who is there, who talks, and by which rules. Pure.
import { hex } from "./bytes.js";
import { emergencyPriority, modes } from "./messages.js";
import { burstName } from "./rtp.js";

const membersMax = 4096;
const talkersMax = 4;

export class Floor {
  constructor() { this.clear(); }

  clear() {
    this.members = new Map();
    this.talkers = [];
    this.mode = 0;
    this.hasQueue = false;
    this.listenOnly = false;
    this.channelName = "";
  }

  welcomed(welcome) {
    this.clear();
    this.channelName = welcome.channelName;
    this.rules(welcome);
    for (const member of welcome.members) this.joined(member);
    for (const taken of [welcome.floor, ...welcome.moreFloors]) if (taken) this.taken(taken);
  }

  rules({ floorMode, hasFloorQueue, listenOnly }) {
    this.mode = floorMode;
    this.hasQueue = hasFloorQueue;
    this.listenOnly = listenOnly;
  }

  get talkersMax() { return this.mode === modes.fullDuplex ? talkersMax : 1; }

  joined({ memberId, displayName, ssrc }) {
    const id = hex(memberId);
    if (!this.members.has(id) && this.members.size >= membersMax) return;
    this.members.set(id, { id, name: displayName, ssrc });
  }

  left({ memberId }) { this.members.delete(hex(memberId)); }

  /** @returns {{id, name, ssrc, keyId, burst, isEmergency}} who talks from now on */
  taken({ memberId, ssrc, keyId, priority }) {
    const id = hex(memberId);
    const talker = {
      id, ssrc, keyId, name: this.members.get(id)?.name ?? "", burst: burstName(ssrc, keyId),
      isEmergency: priority === emergencyPriority,
    };
    this.talkers = this.talkers.filter(other => other.ssrc !== ssrc && other.id !== id);
    if (this.talkers.length >= this.talkersMax) this.talkers.splice(0, this.talkers.length - this.talkersMax + 1);
    this.talkers.push(talker);
    return talker;
  }

  idle({ ssrc }) { this.talkers = this.talkers.filter(talker => talker.ssrc !== ssrc); }
}
