// Emergencies of others: shown on top, and sounding until somebody acknowledges them. Pure.

const kept = 16;

export class Alarms {
  #alarms = [];

  /** Newest first: { channel, burst, name, ssrc, at, isGoingOn, isAcknowledged } */
  get all() { return this.#alarms.filter(alarm => alarm.isGoingOn || !alarm.isAcknowledged); }
  get isSounding() { return this.#alarms.some(alarm => !alarm.isAcknowledged); }

  began(channel, talker, at) {
    if (this.#alarms.some(alarm => alarm.channel === channel && alarm.burst === talker.burst)) return;
    this.#alarms.unshift({ channel, burst: talker.burst, ssrc: talker.ssrc, name: talker.name, at, isGoingOn: true, isAcknowledged: false });
    this.#alarms.splice(kept);
  }

  /** @param {number} [ssrc] whose burst is over; absent: nothing of the channel goes on */
  idle(channel, ssrc) {
    for (const alarm of this.#alarms) {
      if (alarm.channel === channel && (ssrc === undefined || alarm.ssrc === ssrc)) alarm.isGoingOn = false;
    }
  }

  acknowledge(alarm) { alarm.isAcknowledged = true; }
}
