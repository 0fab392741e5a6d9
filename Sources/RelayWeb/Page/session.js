// One channel: carries events between the connection and the rules, and tells the page what happens.
import { Floor } from "./floor.js";
import { Keyring } from "./sframe.js";
import { closeCodes, HearingWatch, LinkRules } from "./link-rules.js";
import { decodeServer, encodeClient, ProtocolError } from "./messages.js";
import { Questions } from "./queries.js";
import { Listener } from "./listener.js";
import { Sender } from "./sender.js";
import { Transport } from "./transport.js";
import { Uplink } from "./uplink.js";

export class Session {
  #jobs = Promise.resolve();
  #timer = null;
  #transport = null;
  #pings = new Map();
  #pingNumber = 0;
  #acknowledged = 0;

  /**
   * @param options { invitation, identity, name, url, tell } and, in tests, { Socket, clock }. Told: { is: "link", state, problem,
   * retryAt }, { is: "floor" }, { is: "taken", talker }, { is: "idle" }, { is: "uplink", what, burst, … }, { is: "began" | "ended",
   * talker }, { is: "frame", talker, header, payload, … }, { is: "loss", percent }, { is: "lost-hearing" }.
   */
  constructor(options) {
    Object.assign(this, { clock: () => performance.now(), Socket: globalThis.WebSocket }, options);
    const [sequence] = crypto.getRandomValues(new Uint16Array(1));
    // Goes on when the page is loaded again (docs/relay-protocol.md, section 20).
    const timestamp = Date.now() * 48 >>> 0;
    this.link = new LinkRules();
    this.floor = new Floor();
    this.hearing = new HearingWatch();
    this.uplink = new Uplink(sequence, timestamp);
    this.keyring = new Keyring(this.invitation.key);
    this.questions = new Questions({ clock: this.clock, send: (kind, fields) => this.#send(kind, fields) });
    this.listener = new Listener({
      keyring: this.keyring, queries: this.questions.queries, clock: this.clock, tell: event => this.tell(event),
      send: (kind, fields) => this.#send(kind, fields),
    });
    this.sender = new Sender({
      keyring: this.keyring, hearing: this.hearing, uplink: this.uplink, clock: this.clock, tell: event => this.tell(event),
      send: (kind, fields) => this.#send(kind, fields), probe: () => this.probe(), transport: () => this.#transport,
    });
  }

  get isReady() { return this.link.state === "ready"; }

  start() {
    this.uplink.linkComing();
    this.#link(this.link.start(this.clock()));
  }

  /** Leaves in good order; nothing is asynchronous here, since the page may be closing. */
  stop() {
    this.#up(this.uplink.linkClosed());
    this.#link(this.link.stop());
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  begin(burst, options) {
    this.#link(this.link.hurry(this.clock()));
    this.#up(this.uplink.begin(burst, options, this.clock()));
  }

  frame(payload, samples, captured) { this.#up(this.uplink.frame(payload, samples, captured, this.clock())); }
  end() { this.#up(this.uplink.end(this.clock())); }
  abort(reason) { this.#up(this.uplink.abort(reason, this.clock())); }
  hurry() { this.#link(this.link.hurry(this.clock())); }
  probe() { this.#link(this.link.probe(this.clock())); }

  /** The bursts that the relay keeps; rejects with a problem. */
  list() { return this.#asked(() => this.questions.list()); }

  /** The frames of a burst that the relay keeps. */
  async fetch(ssrc, keyId) {
    const { packets } = await this.#asked(() => this.questions.fetch(ssrc, keyId));
    return this.listener.openKept(packets, ssrc, keyId);
  }

  #asked(ask) {
    if (!this.isReady || !this.lateEntry) return Promise.reject(new Error("off"));
    const answer = ask();
    this.#schedule();
    return answer;
  }

  // Time.

  #schedule() {
    clearTimeout(this.#timer);
    const due = Math.min(
      this.link.nextDeadline, this.hearing.nextDeadline, this.uplink.nextDeadline, this.listener.nextDeadline,
      this.questions.nextDeadline);
    this.#timer = due === Infinity ? null : setTimeout(() => this.#due(), Math.max(1, due - this.clock()));
  }

  #due() {
    const now = this.clock();
    this.#link(this.link.due(now));
    if (this.hearing.isGone(now)) this.#goneDeaf(now);
    this.uplink.hasRoom ||= this.sender.hasRoom;
    this.#up(this.uplink.due(now));
    this.questions.due();
    this.#run(() => this.listener.due());
  }

  #goneDeaf(now) {
    this.#up(this.uplink.abort("unheard", now));
    this.tell({ is: "lost-hearing" });
    this.#link(this.link.doubt(now));
  }

  /** Everything that comes is dealt with in its order, also where it has to be decrypted first. */
  #run(job) {
    this.#jobs = this.#jobs.then(job).catch(error => {
      const what = error instanceof ProtocolError ? error.message : `the page: ${error?.message ?? error}`;
      this.#link(this.link.violation(what, this.clock()));
    }).then(() => this.#schedule());
    return this.#jobs;
  }

  // The link.

  #link(actions) {
    for (const action of actions) {
      switch (action.do) {
        case "connect": this.#connect(); break;
        case "join":
          this.#send("join", {
            channelId: this.invitation.channelId, invitationToken: this.invitation.token, displayName: this.name, protocolVersion: 1,
          });
          break;
        case "ping": this.#ping(); break;
        case "close":
          this.#transport?.close(action.code, action.what);
          this.#transport = null;
          break;
        case "lost": this.#lost(); break;
        case "state":
          if (action.state === "halted") this.#up(this.uplink.linkClosed());
          if (action.state === "connecting") this.uplink.linkComing();
          this.tell({ is: "link", ...action });
      }
    }
    this.#schedule();
  }

  #connect() {
    this.#transport?.close(closeCodes.done);
    this.#pings.clear();
    this.#acknowledged = 0;
    let transport = null;
    try {
      transport = new Transport(this.url, this.identity, this.invitation.pin, event => {
        // What still comes of an earlier connection means nothing.
        if (this.#transport === transport) return this.#run(() => this.#event(event));
      }, this.Socket);
    } catch {
      // The address is none.
    }
    this.#transport = transport;
    if (!transport) this.#link(this.link.closed(null, this.clock()));
  }

  #lost() {
    const now = this.clock();
    this.floor.clear();
    this.hearing.concluded();
    this.sender.linkLost();
    this.#up(this.uplink.linkLost(now));
    this.questions.linkLost();
    this.#run(() => this.listener.linkLost());
    this.tell({ is: "floor" });
  }

  #ping() {
    const number = ++this.#pingNumber;
    this.#pings.set(number, this.clock());
    if (this.#pings.size > 8) this.#pings.delete(this.#pings.keys().next().value);
    this.#transport?.ping(number);
  }

  #event(event) {
    const now = this.clock();
    switch (event.is) {
      case "connected": return this.#link(this.link.connected(now));
      case "closed": return this.#gone(this.link.closed(event.code, now));
      case "violation": return this.#gone(this.link.violation(event.what, now));
      case "wrong-relay": return this.#gone(this.link.wrongRelay(now));
      case "control": return this.#message(decodeServer(event.bytes), now);
      case "media": return this.listener.packet(event.bytes, now, false);
      case "answer": return this.listener.part(event.bytes).then(answer => answer && this.questions.answered(answer));
      case "acknowledged":
        if (event.count > this.#acknowledged) this.hearing.answered();
        this.#acknowledged = event.count;
        return this.#up(this.uplink.room(this.sender.hasRoom, now));
      case "pong": {
        const sentAt = this.#pings.get(event.number);
        if (sentAt === undefined) return;
        this.#pings.clear();
        this.listener.downlink.roundTrip = Math.min(2000, now - sentAt);
        return this.link.pong();
      }
    }
  }

  #gone(actions) {
    this.#transport = null;
    this.#link(actions);
  }

  #send(kind, fields) { this.#transport?.sendControl(encodeClient(kind, fields)); }

  // Control messages.

  #message(message, now) {
    // The relay that takes the next link knows which one serves the channel now. This one closes the link.
    if (!message || message.kind === "successor") return;
    const isBefore = this.link.state === "joining";
    if (isBefore !== (message.kind === "welcome" || message.kind === "joinRefused")) {
      throw new ProtocolError(`${message.kind} at the wrong time`);
    }
    switch (message.kind) {
      case "welcome": return this.#welcomed(message, now);
      case "joinRefused": return this.#link(this.link.refused(message, now));
      case "memberJoined": this.floor.joined(message.member); break;
      case "memberLeft": this.floor.left(message); break;
      case "floorRules":
        this.floor.rules(message);
        this.listener.downlink.talkersMax = this.floor.talkersMax;
        break;
      case "floorGranted": return this.#up(this.uplink.granted(message, now));
      case "floorQueuePosition": return this.#up(this.uplink.queued(message, now));
      case "floorDeny": return this.#up(this.uplink.denied(message, now));
      case "floorRevoke": return this.#up(this.uplink.revoked(message, now));
      case "mediaKey": return this.#mediaKey(message, now);
      case "listenerLoss": return this.tell({ is: "loss", percent: message.percent });
      case "burstList": return this.questions.listed(message);
      case "burstRefused":
        this.questions.refused(message);
        return this.listener.refused(message);
      case "floorTaken": return this.#taken(message);
      case "floorIdle":
        if (message.ssrc === this.sender.ssrc) this.hearing.concluded();
        this.floor.idle(message);
        this.tell({ is: "floor" });
        this.tell({ is: "idle", ssrc: message.ssrc });
        return this.listener.idle(message);
    }
    this.tell({ is: "floor" });
  }

  async #welcomed(welcome, now) {
    if (this.invitation.key ? welcome.mediaKey : !welcome.mediaKey) {
      throw new ProtocolError("the relay has a media key that is not the link's, or none");
    }
    if (welcome.mediaKey) this.keyring.add(welcome.mediaKey, now);
    this.sender.ssrc = welcome.ssrc;
    this.lateEntry = welcome.lateEntry;
    this.keptBursts = welcome.lateEntry ? welcome.keptBursts : 0;
    this.floor.welcomed(welcome);
    this.listener.welcomed(welcome, this.floor.talkersMax);
    this.#link(this.link.welcomed(now));
    this.#ping();
    this.tell({ is: "floor" });
    for (const talker of this.floor.talkers) {
      this.tell({ is: "taken", talker });
      await this.listener.taken(talker, true);
    }
    this.#up(this.uplink.linkReady(now));
  }

  #taken(message) {
    const talker = this.floor.taken(message);
    this.tell({ is: "floor" });
    this.tell({ is: "taken", talker });
    return this.listener.taken(talker, false);
  }

  #mediaKey(key, now) {
    const before = this.keyring.current;
    if (!this.keyring.add(key, now)) throw new ProtocolError("a media key for an end-to-end channel");
    if (before?.epoch === key.epoch) this.listener.forgetKeys();
    else this.#up(this.uplink.keyRenewed(now));
  }

  // Talking.

  #up(actions) {
    this.sender.perform(actions);
    this.#schedule();
  }
}
