// The emergency button put to work: held for a second, then a burst that takes the floor, asked for again where that may help.
import { emergencyPriority } from "./messages.js";
import { EmergencyKey, EmergencyRetry } from "./talk-key.js";

const lookEvery = 30;

export class EmergencyControl {
  key = new EmergencyKey();
  retry = new EmergencyRetry();
  /** Where it goes: one channel, or null for all selected ones. */
  target = null;
  #timer = null;

  constructor(app) { this.app = app; }

  get isActive() { return this.key.state === "active"; }

  down(holder, target = null) {
    if (this.key.down(holder, performance.now()) !== "holding") return;
    this.target = target;
    this.#look();
  }

  up(holder) { this.#letGo(this.key.up(holder)); }
  lostFocus() { this.#letGo(this.key.lostFocus()); }

  #letGo(what) {
    if (what === "end") {
      this.retry.clear();
      this.app.release();
    }
    this.app.changed();
  }

  clear() {
    this.key.clear();
    this.retry.clear();
  }

  floorIdle(now) { this.retry.floorIdle(now); }

  /** A burst is over: another emergency goes on, or the link is away, and the button is still held. */
  isOver({ priority, reason, cause, wasHeld }) {
    if (!this.isActive || priority !== emergencyPriority || !wasHeld) return;
    const mayHelp = reason === "denied" && cause === 1 || reason === "link" || reason === "unanswered";
    if (mayHelp && this.retry.denied(performance.now())) this.#look();
  }

  #look() {
    clearTimeout(this.#timer);
    const now = performance.now();
    if (this.key.due(now) === "begin") {
      if (this.app.talker?.isBusy) this.app.talker.stop("emergency");
      this.#begin();
    } else if (this.isActive && this.retry.due(now)) this.#begin();
    else if (this.key.state === "holding" || this.isActive && this.retry.isWaiting) this.#timer = setTimeout(() => this.#look(), lookEvery);
    this.app.changed();
  }

  #begin() {
    this.app.target = this.target;
    this.app.begin(emergencyPriority);
  }
}

const kept = 16;

/** Emergencies of others: shown on top, and sounding until somebody acknowledges them. Pure. */
export class Alarms {
  #alarms = [];

  /** Newest first: { channel, burst, name, ssrc, at, isGoingOn, isAcknowledged } */
  get all() { return this.#alarms.filter(alarm => alarm.isGoingOn || !alarm.isAcknowledged); }
  get isSounding() { return this.#alarms.some(alarm => !alarm.isAcknowledged); }

  began(channel, talker, at) {
    const known = this.#alarms.find(alarm => alarm.channel === channel && alarm.burst === talker.burst);
    if (known) return void (known.isGoingOn = true);
    this.#alarms.unshift({ channel, burst: talker.burst, ssrc: talker.ssrc, name: talker.name, at, isGoingOn: true, isAcknowledged: false });
    this.#alarms.splice(kept);
  }

  /** @param {number} ssrc whose burst is over */
  idle(channel, ssrc) { this.#over(channel, alarm => alarm.ssrc === ssrc); }

  /** Which emergencies went on while the link was away shows when it is back. None goes on where it does not come back. */
  link(channel, state, talkers) {
    if (!["ready", "halted", "stopped"].includes(state)) return;
    this.#over(channel, alarm => !talkers.some(talker => talker.burst === alarm.burst));
  }

  #over(channel, isOver) {
    for (const alarm of this.#alarms) if (alarm.channel === channel && isOver(alarm)) alarm.isGoingOn = false;
  }

  acknowledge(alarm) { alarm.isAcknowledged = true; }
}
