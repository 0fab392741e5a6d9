// Sessions against the fake relay: the handshake by two implementations, joining, talking, listening, and what goes wrong.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { makeIdentity } from "../../../Sources/RelayWeb/Page/handshake.js";
import { parseInvitation } from "../../../Sources/RelayWeb/Page/invitation.js";
import { Session } from "../../../Sources/RelayWeb/Page/session.js";
import { FakeRelay } from "../support/fake-relay.js";
import { Random } from "../support/random.js";
import { makeIdentity as relayIdentity } from "../support/relay-handshake.js";
import { Transport } from "../../../Sources/RelayWeb/Page/transport.js";
import { ClientSocket } from "../support/websocket.js";

let relay;
const open = [];
before(async () => { relay = await new FakeRelay().start(); });
after(() => {
  for (const session of open) session.stop();
  relay.stop();
});

export async function until(what, condition, time = 3000) {
  const end = Date.now() + time;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) assert.fail(`not within ${time} ms: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 5));
  }
}

async function session(channel, name = "Ann", identity = undefined) {
  const told = [];
  const made = new Session({
    invitation: parseInvitation(channel.link(relay.host)), identity: identity ?? await makeIdentity(), name, url: relay.url,
    tell: event => told.push(event), Socket: ClientSocket,
  });
  made.told = told;
  made.of = is => told.filter(event => event.is === is);
  open.push(made);
  made.start();
  return made;
}

const ready = made => until("ready", () => made.isReady);
const frame = number => Uint8Array.of(0xf8, number & 255, number >> 8);

test("a member joins, talks, and is heard from the first word to the last", async () => {
  const channel = relay.channel("Radio 7");
  const ann = await session(channel), bob = await session(channel, "Bob");
  await Promise.all([ready(ann), ready(bob)]);
  await until("each other", () => ann.floor.members.size === 1 && bob.floor.members.size === 1);
  assert.deepEqual([...bob.floor.members.values()].map(member => member.name), ["Ann"]);
  ann.begin("b1", {});
  for (let number = 0; number < 50; number++) ann.frame(frame(number), 480, number * 480);
  ann.end();
  await until("the end", () => bob.of("ended").length === 1);
  assert.deepEqual(bob.of("frame").map(event => event.payload[1]), Array.from({ length: 50 }, (_, index) => index));
  assert.equal(bob.of("began")[0].talker.name, "Ann");
  assert.equal(bob.of("ended")[0].reason, "completed");
  const ended = ann.of("uplink").find(event => event.what === "ended");
  assert.deepEqual([ended.reason, ended.sent], ["completed", 50]);
  const [member] = relay.connections.filter(each => each.name === "Ann" && each.channel === channel);
  const request = member.got("floorRequest")[0], release = member.got("floorRelease")[0];
  assert.equal(Number(request.keyId >> 48n), 7);
  assert.ok(member.media[0].at >= request.at && release.at >= member.media.at(-1).at);
});

test("the RTP clock of a page that is loaded again is ahead of the one before, by the time between them", async () => {
  const channel = relay.channel("Again"), identity = await makeIdentity();
  const before = await session(channel, "Ann", identity);
  const [first, at] = [before.uplink.timestamp, Date.now()];
  before.stop();
  await new Promise(resolve => setTimeout(resolve, 30));
  const again = await session(channel, "Ann", identity);
  const ahead = again.uplink.timestamp - first | 0;
  assert.ok(ahead >= 29 * 48 && ahead <= (Date.now() - at + 1000) * 48, `${ahead} samples`);
});

test("end-to-end channels use the link's key, and refuse one from the relay", async () => {
  const channel = relay.channel("Sealed", { isEndToEnd: true });
  const ann = await session(channel), bob = await session(channel, "Bob");
  await Promise.all([ready(ann), ready(bob)]);
  ann.begin("b1", {});
  ann.frame(frame(3), 480, 0);
  ann.end();
  await until("the frame", () => bob.of("frame").length === 1);
  relay.connections.find(each => each.name === "Bob" && each.channel === channel).send("mediaKey", channel.mediaKey);
  await until("the violation", () => bob.link.problem === "violation");
});

test("the same key names the same member, and joining again replaces the earlier one for half a minute", async () => {
  const channel = relay.channel("Twice");
  const identity = await makeIdentity();
  const first = await session(channel, "Ann", identity);
  await ready(first);
  const second = await session(channel, "Ann", identity);
  await ready(second);
  await until("replaced", () => first.link.problem === "replaced");
  assert.equal(first.link.state, "waiting");
  assert.ok(first.link.deadline - performance.now() > 28000);
});

test("nothing is sent to a relay with another key", async () => {
  const channel = relay.channel("False");
  relay.handshakeIdentity = relayIdentity();
  const ann = await session(channel);
  await until("the refusal", () => ann.link.problem === "wrong-relay");
  relay.handshakeIdentity = null;
  assert.equal(channel.members.length, 0);
  assert.ok(!relay.connections.at(-1).id, "the client proved itself to a stranger");
});

for (const [fault, problem] of [["signature", "wrong-relay"], ["seal", "violation"]]) {
  test(`a relay with a false ${fault} is left`, async () => {
    relay.fault = fault;
    const ann = await session(relay.channel("Fault"));
    await until("the end", () => ann.link.problem === problem);
    relay.fault = null;
  });
}

test("a refused invitation is not tried again; a full channel is", async () => {
  const channel = relay.channel("Refused");
  relay.refusal = { cause: 3, phrase: "gone" };
  const ann = await session(channel);
  await until("halted", () => ann.link.state === "halted");
  assert.equal(ann.link.problem, "revoked");
  relay.refusal = { cause: 4, phrase: "", retryAfterMs: 300 };
  const bob = await session(channel, "Bob");
  await until("full", () => bob.link.problem === "full");
  relay.refusal = null;
  await ready(bob);
});

test("a denied press says so and sends nothing", async () => {
  const channel = relay.channel("Denied");
  const ann = await session(channel);
  await ready(ann);
  channel.denial = { cause: 5 };
  ann.begin("b1", {});
  ann.frame(frame(1), 480, 0);
  const ended = await until("denied", () => ann.of("uplink").find(event => event.what === "ended"));
  assert.deepEqual([ended.reason, ended.cause, ended.sent], ["denied", 5, 0]);
  ann.frame(frame(2), 480, 480);
  await new Promise(resolve => setTimeout(resolve, 50));
  assert.equal(relay.connections.at(-1).media.length, 0);
});

test("who comes late hears a burst from its beginning, in order", async () => {
  const channel = relay.channel("Late");
  const ann = await session(channel);
  await ready(ann);
  ann.begin("b1", {});
  for (let number = 0; number < 250; number++) {
    ann.frame(frame(number), 480, number * 480);
    if (number % 4 === 0) await new Promise(resolve => setTimeout(resolve, 1));
  }
  await until("sent", () => channel.bursts[0]?.packets.length > 200);
  const bob = await session(channel, "Bob");
  await ready(bob);
  for (let number = 250; number < 300; number++) ann.frame(frame(number), 480, number * 480);
  ann.end();
  await until("the end", () => bob.of("ended").length === 1, 8000);
  assert.deepEqual(bob.of("frame").map(event => event.payload[1] | event.payload[2] << 8), Array.from({ length: 300 }, (_, index) => index));
});

test("packets that are missing are asked for", async () => {
  const channel = relay.channel("Lossy");
  const ann = await session(channel), bob = await session(channel, "Bob");
  await Promise.all([ready(ann), ready(bob)]);
  channel.loses = count => [4, 9, 10, 11, 40].includes(count);
  ann.begin("b1", {});
  for (let number = 0; number < 40; number++) ann.frame(frame(number), 480, number * 480);
  ann.end();
  await until("the end", () => bob.of("ended").length === 1);
  assert.equal(new Set(bob.of("frame").map(event => event.payload[1])).size, 40);
  assert.equal(bob.of("ended")[0].lost, 0);
});

test("kept bursts are listed and fetched", async () => {
  const channel = relay.channel("Kept");
  const ann = await session(channel);
  await ready(ann);
  ann.begin("b1", {});
  await until("granted", () => ann.of("uplink").some(event => event.what === "granted"));
  for (let number = 0; number < 130; number++) ann.frame(frame(number), 480, number * 480);
  ann.end();
  await until("over", () => channel.bursts[0]?.isGoingOn === false);
  const bob = await session(channel, "Bob");
  await ready(bob);
  const { bursts } = await bob.list();
  assert.equal(bursts.length, 1);
  assert.equal(bursts[0].displayName, "Ann");
  const frames = await bob.fetch(bursts[0].ssrc, bursts[0].keyId);
  assert.deepEqual(frames.map(each => each.payload[1]), Array.from({ length: 130 }, (_, index) => index));
  await assert.rejects(bob.fetch(1, 2n), /refused/);
});

test("a lost connection comes back by itself, and a burst on it ends", async () => {
  const channel = relay.channel("Lost");
  const ann = await session(channel);
  await ready(ann);
  ann.begin("b1", {});
  ann.frame(frame(1), 480, 0);
  await until("granted", () => ann.of("uplink").some(event => event.what === "granted"));
  relay.connections.findLast(each => each.channel === channel).frames.cut();
  await until("the end", () => ann.of("uplink").some(event => event.what === "ended" && event.reason === "link"));
  await ready(ann);
});

test("a press while the link is down is sent when it is back within two seconds", async () => {
  const channel = relay.channel("Back");
  const ann = await session(channel), bob = await session(channel, "Bob");
  await Promise.all([ready(ann), ready(bob)]);
  relay.connections.findLast(each => each.name === "Ann" && each.channel === channel).frames.cut();
  await until("gone", () => !ann.isReady);
  ann.begin("b1", {});
  ann.frame(frame(9), 480, 0);
  ann.end();
  await until("heard", () => bob.of("frame").length === 1);
});

test("malformed messages end the connection and nothing else", async () => {
  const channel = relay.channel("Broken");
  const member = () => relay.connections.findLast(each => each.channel === channel && !each.isGone);
  const ann = await session(channel);
  const breaks = [
    () => member().seal(1, Buffer.from("2a020800", "hex")), () => member().seal(1, Buffer.alloc(0)), () => member().seal(2, Buffer.alloc(3)),
    () => member().seal(3, Buffer.alloc(7)), () => member().seal(5, Buffer.alloc(2)), () => member().frames.sendText("text"),
    () => member().frames.send(Buffer.from([16, 1, 2, 3])), () => member().send("welcome", { ssrc: 1, downlinkKey: Buffer.alloc(16), channelName: "x", memberId: Buffer.alloc(16) }),
    () => member().seal(5, Buffer.concat([Buffer.from([0, 0, 0, 1, 1]), Buffer.from("0000000000", "hex")])),
  ];
  for (const doBreak of breaks) {
    await ready(ann);
    const count = ann.of("link").filter(event => event.problem === "violation").length;
    doBreak();
    await until("the end", () => ann.of("link").filter(event => event.problem === "violation").length > count || assert.notEqual(ann.link.state, "halted"));
    ann.link.failures = 0;
    await until("again", () => ann.isReady);
  }
  // What is no packet of media is dropped.
  member().frames.send(Buffer.alloc(40, 128));
  member().frames.send(Buffer.from([77, 1]));
  await new Promise(resolve => setTimeout(resolve, 30));
  assert.ok(ann.isReady);
});

test("pings are answered, and leaving closes in good order", async () => {
  const channel = relay.channel("Ping");
  const ann = await session(channel);
  await ready(ann);
  const member = relay.connections.at(-1);
  member.seal(3, Buffer.from("0102030405060708", "hex"));
  await until("the pong", () => member.pongs === 1);
  ann.stop();
  await until("the close", () => member.isGone);
  assert.equal(member.closeCode, 4000);
});

test("one pong waits at most, and none for a relay that does not read", async () => {
  let full = false, isConnected = false, media;
  class Narrow extends ClientSocket {
    constructor(...place) {
      super(...place);
      Object.defineProperty(this, "bufferedAmount", { get: () => full ? 100000 : 0 });
    }
  }
  const told = event => { isConnected ||= event.is === "connected"; };
  const transport = new Transport(relay.url, await makeIdentity(), relay.identity.pin, told, Narrow);
  await until("connected", () => isConnected && relay.connections.at(-1).id);
  const member = relay.connections.at(-1);
  const pings = async number => {
    for (let count = 0; count < 50; count++) member.seal(3, Buffer.alloc(8, number));
    await new Promise(resolve => setTimeout(resolve, 100));
  };
  // Nothing goes while what is before it is not sealed.
  transport.sendMedia(new Promise(resolve => { media = resolve; }), 20);
  await pings(1);
  media(new Uint8Array(20));
  await until("the media", () => member.media.length === 1);
  await new Promise(resolve => setTimeout(resolve, 50));
  assert.equal(member.pongs, 1);
  full = true;
  await pings(2);
  assert.equal(member.pongs, 1);
  full = false;
  member.seal(3, Buffer.alloc(8, 3));
  await until("the pong", () => member.pongs === 2);
  transport.close(0);
});

test("a relay with an ephemeral key of zeros is left", async () => {
  relay.fault = "zero";
  const ann = await session(relay.channel("Zero"));
  await until("the end", () => ann.link.problem === "violation");
  relay.fault = null;
});

test("whatever a relay sends, the page only ends the connection", async () => {
  const channel = relay.channel("Noise");
  const random = new Random(7);
  const ann = await session(channel);
  const kinds = ["memberJoined", "memberLeft", "floorGranted", "floorDeny", "floorTaken", "floorIdle", "floorRevoke", "floorQueuePosition", "listenerLoss", "burstList", "burstRefused", "floorRules", "mediaKey", "joinRefused", "welcome"];
  const any = () => {
    const memberId = random.bytes(16), keyId = (7n << 48n) + BigInt(random.below(3)), ssrc = random.below(3);
    return {
      requestId: random.below(4), member: { memberId, displayName: "x", ssrc }, memberId, ssrc, keyId, priority: random.below(256), lastSequence: random.below(65536),
      position: random.below(3), percent: random.below(102), cause: random.below(9), phrase: "?", durationMs: random.next(), epoch: random.below(9),
      baseKey: random.bytes(32), bursts: [], floorMode: random.below(6), retryAfterMs: random.next(),
    };
  };
  let messages = 0, violations = 0;
  for (let round = 0; round < 40; round++) {
    await until("ready", () => ann.isReady);
    const member = relay.connections.findLast(each => each.channel === channel && !each.isGone);
    ann.begin(`b${round}`, { mayQueue: true });
    for (let count = 0; count < 40 && !member.isGone; count++) {
      messages++;
      switch (random.below(round % 2 ? 5 : 3)) {
        case 0: member.send(random.pick(kinds.slice(0, 13)), any()); break;
        case 1: member.frames.send(Buffer.concat([Buffer.from([128]), random.bytes(random.below(60))])); break;
        case 2: member.frames.send(Buffer.concat([Buffer.from("806f000100000000000000", "hex"), random.bytes(40)])); break;
        case 3: member.seal(random.below(7), random.bytes(random.below(40))); break;
        default: member.seal(1, random.bytes(random.below(60)));
      }
      ann.frame(frame(count), 480, count * 480);
    }
    await new Promise(resolve => setTimeout(resolve, 15));
    ann.end();
    if (ann.link.problem === "violation") violations++;
    ann.link.failures = 0;
    if (ann.link.deadline !== Infinity) ann.link.deadline = Math.min(ann.link.deadline, performance.now() + 10);
    ann.hurry();
  }
  assert.ok(messages > 400 && violations > 0, `${messages} ${violations}`);
  assert.ok(ann.told.every(event => !event.what?.startsWith?.("the page:")));
  ann.stop();
  relay.problems.length = 0;
  relay.strays = 0;
});

test("a connection that takes nothing drops old speech, and goes on when it takes again", async () => {
  const channel = relay.channel("Narrow");
  let full = false;
  class Narrow extends ClientSocket {
    constructor(...place) {
      super(...place);
      Object.defineProperty(this, "bufferedAmount", { get: () => full ? 100000 : 0 });
    }
  }
  const ann = new Session({
    invitation: parseInvitation(channel.link(relay.host)), identity: await makeIdentity(), name: "Ann", url: relay.url, tell() {}, Socket: Narrow,
  });
  open.push(ann);
  ann.start();
  await ready(ann);
  ann.begin("b1", {});
  const feed = async (from, to) => {
    for (let number = from; number < to; number++) {
      ann.frame(frame(number), 480, number * 480);
      await new Promise(resolve => setTimeout(resolve, 10));
    }
  };
  await feed(0, 20);
  full = true;
  await feed(20, 120);
  full = false;
  await feed(120, 140);
  ann.end();
  await until("the release", () => relay.connections.at(-1).got("floorRelease").length === 1);
  const { counts } = ann.uplink;
  assert.ok(counts.dropped > 30 && counts.dropped < 75, JSON.stringify(counts));
  assert.equal(counts.sent + counts.dropped, 140);
  assert.equal(relay.connections.at(-1).media.length, counts.sent);
});

test("the relay of the tests found nothing wrong", () => {
  assert.deepEqual(relay.problems, []);
  assert.equal(relay.strays, 0);
});
