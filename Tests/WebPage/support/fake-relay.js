// A relay for tests: serves the page with the content security policy that the relay will have, and takes links over TLS's
// WebSocket. It keeps the floor of its channels by the main rules, and does what a test tells it to.
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

import { decodeClient, encodeServer } from "../../../Sources/RelayWeb/Page/messages.js";
import { answer, makeIdentity } from "./relay-handshake.js";
import { upgrade } from "./websocket.js";

const pageFolder = fileURLToPath(new URL("../../../Sources/RelayWeb/Page/", import.meta.url));
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
  + "media-src 'self' blob:; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const types = { js: "text/javascript", css: "text/css", svg: "image/svg+xml", html: "text/html", json: "application/json" };

const toBase64url = bytes => Buffer.from(bytes).toString("base64url");
const u32 = value => Buffer.from([value >>> 24, value >>> 16 & 255, value >>> 8 & 255, value & 255]);

class Member {
  constructor(relay, frames) {
    Object.assign(this, { relay, frames, messages: [], media: [], acknowledged: 0, answers: 0 });
    frames.onmessage = data => {
      try {
        this.#message(data);
      } catch (error) {
        this.relay.problems.push(String(error));
        frames.close(4001, String(error).slice(0, 100));
      }
    };
    frames.onclose = code => {
      this.closeCode = code;
      this.isGone = true;
      this.channel?.remove(this);
    };
  }

  #message(data) {
    if (!this.handshake) {
      this.handshake = answer(data, this.relay.handshakeIdentity ?? this.relay.identity, this.relay.fault);
      return this.frames.send(this.handshake.hello);
    }
    if (!this.id) {
      this.id = this.handshake.verify(data).subarray(0, 16);
      return;
    }
    if (data[0] !== 16) return;
    const plain = this.handshake.up.open(Buffer.from(data.subarray(1)));
    if (plain[0] === 3 && this.relay.answersPings) this.seal(4, plain.subarray(1));
    if (plain[0] === 6) return this.#media(plain.subarray(1));
    if (plain[0] === 4) this.pongs = (this.pongs ?? 0) + 1;
    if (plain[0] === 1) {
      const message = decodeClient(new Uint8Array(plain.subarray(1)));
      if (!message) return;
      this.messages.push({ ...message, at: Date.now() });
      if (message.kind === "join") this.relay.join(this, message);
      else this.channel?.message(this, message);
    }
  }

  #media(packet) {
    this.media.push({ packet, at: Date.now() });
    if (this.relay.acknowledges) this.seal(2, u32(this.media.length));
    this.channel?.media(this, packet);
  }

  seal(kind, body) { if (!this.isGone) this.frames.send(Buffer.concat([Buffer.from([16]), this.handshake.down.seal(Buffer.concat([Buffer.from([kind]), body]))])); }
  send(kind, fields) { this.seal(1, encodeServer(kind, fields)); }

  /** An answer in parts. */
  answer(bytes, partLength = 16384) {
    const number = u32(++this.answers);
    for (let at = 0; at === 0 || at < bytes.length; at += partLength) {
      const isLast = at + partLength >= bytes.length;
      this.seal(5, Buffer.concat([number, Buffer.from([isLast ? 1 : 0]), bytes.subarray(at, at + partLength)]));
    }
  }

  got(kind) { return this.messages.filter(message => message.kind === kind); }
}

class Channel {
  constructor(relay, name, rules) {
    this.relay = relay;
    this.name = name;
    this.rules = { floorMode: 1, hasFloorQueue: false, floorPriority: 10, preemptionStep: 0, talkTimeLimitMs: 60000, ...rules };
    this.id = randomBytes(16);
    this.token = randomBytes(16);
    this.key = rules.isEndToEnd ? randomBytes(32) : null;
    this.mediaKey = { epoch: 7, baseKey: randomBytes(32) };
    this.members = [];
    this.holders = [];
    this.queue = [];
    this.bursts = [];
  }

  link(host) {
    const text = this.id.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    const key = this.key ? `&key=${toBase64url(this.key)}` : "";
    return `${host}/${encodeURIComponent(this.name)}?channel=${text}&token=${toBase64url(this.token)}`
      + `&pin=${toBase64url(this.relay.identity.pin)}${key}&web=443`;
  }

  add(member, { displayName }) {
    for (const other of this.members.filter(other => other.id.equals(member.id))) other.frames.close(4003, "replaced");
    Object.assign(member, { channel: this, name: displayName, ssrc: randomBytes(4).readUInt32BE() });
    const talking = this.holders.map(holder => this.taken(holder));
    member.send("welcome", {
      ssrc: member.ssrc, downlinkKey: randomBytes(16), mediaKey: this.key ? undefined : this.mediaKey, channelName: this.name,
      members: this.members.map(other => this.shown(other)), floor: talking[0], moreFloors: talking.slice(1), memberId: member.id,
      lateEntry: true, keptBursts: 16, keptTimeMs: 3600000, ...this.rules,
    });
    this.others(member, "memberJoined", { member: this.shown(member) });
    this.members.push(member);
  }

  shown({ id, name, ssrc }) { return { memberId: id, displayName: name, ssrc }; }
  taken({ member, keyId, priority }) { return { memberId: member.id, ssrc: member.ssrc, keyId, priority }; }
  others(member, kind, fields) { for (const other of this.members) if (other !== member) other.send(kind, fields); }

  remove(member) {
    this.members = this.members.filter(other => other !== member);
    this.queue = this.queue.filter(waiting => waiting.member !== member);
    this.idle(this.holders.find(holder => holder.member === member));
    this.others(member, "memberLeft", { memberId: member.id });
  }

  idle(holder) {
    if (!holder) return;
    this.holders = this.holders.filter(other => other !== holder);
    holder.burst.isGoingOn = false;
    for (const member of this.members) member.send("floorIdle", { ssrc: holder.member.ssrc, lastSequence: holder.last });
    const next = this.queue.shift();
    if (next) this.grant(next);
    this.queue.forEach((waiting, index) => waiting.member.send("floorQueuePosition", { requestId: waiting.requestId, position: index + 1 }));
  }

  grant(holder) {
    this.holders.push(holder);
    holder.burst = { ...this.taken(holder), name: holder.member.name, at: Date.now(), packets: [], isGoingOn: true };
    this.bursts.unshift(holder.burst);
    // As many as a list may have.
    this.bursts.splice(64);
    holder.member.send("floorGranted", { requestId: holder.requestId, durationMs: this.rules.talkTimeLimitMs, priority: holder.priority });
    this.others(holder.member, "floorTaken", this.taken(holder));
  }

  message(member, message) {
    const holder = this.holders.find(each => each.member === member);
    switch (message.kind) {
      case "floorRequest": return this.request(member, message);
      case "floorRelease":
        this.queue = this.queue.filter(waiting => waiting.member !== member);
        if (holder?.requestId === message.requestId) this.idle(holder);
        return;
      case "leave": return member.frames.close(4000, "");
      case "burstListRequest":
        return member.send("burstList", { requestId: message.requestId, bursts: this.bursts.map(burst => ({
          ...burst, displayName: burst.name, ageMs: Date.now() - burst.at, durationMs: burst.packets.length * 10,
          packets: burst.packets.length,
        })) });
      case "burstRequest": return this.burst(member, message);
      case "repairRequest": {
        const burst = this.bursts.find(each => each.ssrc === message.ssrc && each.keyId === message.keyId);
        const isWanted = packet => message.ranges.some(({ first, last }) => (packet.sequence - first & 0xffff) <= (last - first & 0xffff));
        return member.answer(Buffer.concat([u32(message.repairId), ...this.packed((burst?.packets ?? []).filter(isWanted))]));
      }
    }
  }

  packed(packets) { return packets.flatMap(({ packet }) => [Buffer.from([packet.length >> 8, packet.length & 255]), packet]); }

  burst(member, { requestId, ssrc, keyId, first }) {
    const burst = this.bursts.find(each => each.ssrc === ssrc && each.keyId === keyId);
    if (!burst) return member.send("burstRefused", { requestId, cause: 2 });
    const from = first === undefined ? 0 : burst.packets.findIndex(packet => packet.sequence === first);
    const packets = from < 0 ? [] : burst.packets.slice(from, from + 100);
    const isWhole = from < 0 || from + 100 >= burst.packets.length;
    member.answer(Buffer.concat([u32(0), u32(requestId), ...this.packed(packets), ...isWhole ? [Buffer.alloc(2)] : []]), 3000);
  }

  request(member, { requestId, keyId, priority, mayQueue }) {
    const wanted = { member, requestId, keyId, priority: priority === 255 ? 255 : Math.min(priority, this.rules.floorPriority) };
    if (this.silent) return;
    if (this.denial) return member.send("floorDeny", { requestId, phrase: "", ...this.denial });
    const limit = this.rules.floorMode === 2 ? 4 : 1;
    this.idle(this.holders.find(each => each.member === member));
    if (this.holders.length < limit) return this.grant(wanted);
    const [holder] = this.holders;
    if (priority === 255 && holder.priority !== 255) {
      // What is on its way may still come.
      holder.member.graceUntil = Date.now() + 500;
      holder.member.send("floorRevoke", { requestId: holder.requestId, cause: 4, phrase: "" });
      this.idle(holder);
      return this.grant(wanted);
    }
    if (!mayQueue || !this.rules.hasFloorQueue) return member.send("floorDeny", { requestId, cause: 1, phrase: "" });
    this.queue.push(wanted);
    member.send("floorQueuePosition", { requestId, position: this.queue.length });
  }

  media(member, packet) {
    const holder = this.holders.find(each => each.member === member);
    const header = Buffer.from(packet);
    if (!holder && member.graceUntil > Date.now()) return;
    if (!holder || header.readUInt32BE(8) !== member.ssrc) return void this.relay.strays++;
    const sequence = header.readUInt16BE(2);
    holder.last = sequence;
    holder.burst.packets.push({ sequence, packet: header });
    if (this.loses?.(holder.burst.packets.length)) return;
    for (const other of this.members) if (other !== member) other.frames.send(packet);
  }
}

export class FakeRelay {
  problems = [];
  channels = [];
  connections = [];
  strays = 0;
  acknowledges = true;
  answersPings = true;
  identity = makeIdentity();

  async start() {
    this.server = createServer((request, response) => this.#serve(request, response));
    this.server.on("upgrade", (request, socket) => {
      if (!/^\/pttd\/1(\?share=[0-9]+)?$/.test(request.url) || request.headers["sec-websocket-protocol"] !== "pttd.1" || this.refuses) return socket.destroy();
      this.connections.push(new Member(this, upgrade(request, socket)));
    });
    await new Promise(resolve => this.server.listen(0, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    this.host = `localhost:${this.port}`;
    this.url = `ws://127.0.0.1:${this.port}/pttd/1`;
    return this;
  }

  stop() {
    for (const member of this.connections) member.frames.cut();
    this.server.close();
    this.server.closeAllConnections();
  }

  channel(name, rules = {}) {
    const channel = new Channel(this, name, rules);
    this.channels.push(channel);
    return channel;
  }

  page(...channels) { return `http://${this.host}/#${channels.map(channel => channel.link(this.host)).join("%20")}`; }

  join(member, message) {
    const channel = this.channels.find(each => each.id.equals(Buffer.from(message.channelId)));
    const isInvited = channel?.token.equals(Buffer.from(message.invitationToken));
    const refusal = this.refusal ?? (isInvited ? null : { cause: 2, phrase: "" });
    if (!refusal) return channel.add(member, message);
    member.send("joinRefused", refusal);
    setTimeout(() => member.frames.close(4002, "refused"), 50);
  }

  async #serve(request, response) {
    const name = request.url === "/" ? "index.html" : request.url.match(/^\/page\/([a-z0-9-]+\.(js|css|svg|html|json))$/)?.[1];
    try {
      const body = await readFile(pageFolder + name);
      response.writeHead(200, {
        "Content-Type": `${types[name.split(".")[1]]}; charset=utf-8`, "Content-Security-Policy": policy, "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
      });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  }
}

