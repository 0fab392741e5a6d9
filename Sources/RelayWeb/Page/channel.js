// What the page shows of one channel, and how it is talked to: a session, and what it has told.
import { emergencyPriority, modes } from "./messages.js";
import { Session } from "./session.js";
import { refusalKey } from "./words.js";

const noticeTime = 5000;

export class Channel {
  volume = 1;
  isMuted = false;
  isSelected = true;
  link = { state: "stopped", problem: null, retryAt: Infinity };
  /** This end's burst here, the one begun last: { burst, phase: asking | queued | talking, since, position, isEmergency } */
  own = null;
  notice = null;
  /** Bursts that are heard or still to be heard, by name. */
  heard = new Map();
  level = 0;
  /** What is said here does not open with the key of the invitation. */
  isUnreadable = false;
  loss = 0;

  constructor(invitation, { identity, name, url, tell }) {
    this.invitation = invitation;
    this.id = invitation.channel;
    this.tell = tell;
    this.session = new Session({ invitation, identity, name, url, tell: event => this.#told(event) });
  }

  get floor() { return this.session.floor; }
  get name() { return this.floor.channelName || this.invitation.name; }
  get talkers() { return this.floor.talkers; }
  get isFullDuplex() { return this.floor.mode === modes.fullDuplex; }
  get emergency() { return this.talkers.find(talker => talker.isEmergency) ?? null; }

  /** Who is heard, or about to be. */
  get voices() {
    const all = new Map(this.talkers.map(talker => [talker.burst, talker]));
    for (const [burst, talker] of this.heard) all.set(burst, talker);
    return [...all.values()];
  }

  /** How it is shown; the first that fits. */
  state(now) {
    if (this.own?.phase === "talking") return "talking";
    if (this.own?.phase === "queued") return "queued";
    if (this.link.state !== "ready") return this.own ? "asking" : "offline";
    if (this.own) return "asking";
    // An emergency is not hidden by a word about this end.
    if (this.notice && this.notice.until > now && !this.emergency) return "refused";
    if (this.voices.length > 0) return "hearing";
    return this.floor.listenOnly ? "listening" : "idle";
  }

  notify(key, values = {}) { this.notice = { key, values, until: performance.now() + noticeTime }; }

  began(burst, priority) {
    this.notice = null;
    this.loss = 0;
    this.own = { burst, phase: "asking", since: performance.now(), position: 0, isEmergency: priority === emergencyPriority };
  }

  /** Also of a burst that was never asked for. */
  over(burst) { if (this.own?.burst === burst) this.own = null; }

  #told(event) {
    switch (event.is) {
      case "link":
        this.link = event;
        break;
      case "uplink": this.#uplink(event); break;
      case "began":
        this.isUnreadable = false;
        this.heard.set(event.talker.burst, event.talker);
        this.level = 0;
        break;
      case "unreadable": this.isUnreadable = true; break;
      case "loss": this.loss = event.percent; break;
      case "lost-hearing": this.notify("end-unheard");
    }
    this.tell(this, event);
  }

  #uplink(event) {
    // An earlier burst may wait for its grant while the next one is said. Of the earlier one, only a failure is told.
    const isOwn = this.own?.burst === event.burst;
    if (event.what === "granted" && isOwn) {
      Object.assign(this.own, { phase: "talking", since: performance.now(), limit: event.limit });
    } else if (event.what === "queued" && isOwn) {
      Object.assign(this.own, { phase: "queued", position: event.position });
    } else if (event.what === "ended") {
      this.over(event.burst);
      const key = event.reason === "completed" ? null : refusalKey(event);
      const who = this.talkers[0]?.name;
      if (key) this.notify(key === "deny-taken" && who ? "deny-taken-by" : key, { name: who });
    }
  }

  played(burst) { this.heard.delete(burst); }
}
