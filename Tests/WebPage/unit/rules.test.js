// The rules of the link, of talking and of pressing. Times are passed in, so nothing here waits.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Alarms } from "../../../Sources/RelayWeb/Page/emergency.js";
import { HearingWatch } from "../../../Sources/RelayWeb/Page/link-rules.js";
import { Keyring } from "../../../Sources/RelayWeb/Page/sframe.js";
import { LinkRules, linkTimes } from "../../../Sources/RelayWeb/Page/link-rules.js";
import { emergencyPriority } from "../../../Sources/RelayWeb/Page/messages.js";
import { EmergencyKey, EmergencyRetry, TalkKey } from "../../../Sources/RelayWeb/Page/talk-key.js";
import { Uplink, uplinkTimes } from "../../../Sources/RelayWeb/Page/uplink.js";
import { Random } from "../support/random.js";

const does = actions => actions.map(action => action.do === "tell" ? action.what : action.do);

// The link.

function readyLink() {
  const link = new LinkRules();
  link.start(0);
  link.connected(10);
  link.welcomed(20);
  return link;
}

test("a link connects, joins and is ready", () => {
  const link = new LinkRules();
  assert.deepEqual(does(link.start(0)), ["connect", "state"]);
  assert.deepEqual(does(link.connected(10)), ["join", "state"]);
  assert.deepEqual(does(link.welcomed(20)), ["state"]);
  assert.equal(link.state, "ready");
});

test("pauses between attempts grow, and begin anew once the link was ready", () => {
  const link = readyLink();
  let now = 100;
  link.closed(null, now);
  for (const wait of [...linkTimes.backoff, 30000]) {
    assert.equal(link.deadline, now + wait);
    now += wait;
    assert.deepEqual(does(link.due(now)), ["connect", "state"]);
    link.closed(null, now);
  }
  link.due(link.deadline);
  link.connected(now);
  link.welcomed(now);
  link.closed(null, now);
  assert.equal(link.deadline, now + 250);
});

test("a ping goes after 15 s, and without an answer in 5 s the link is made anew", () => {
  const link = readyLink();
  assert.deepEqual(does(link.due(15020)), ["ping"]);
  link.pong();
  assert.deepEqual(does(link.due(30020)), ["ping"]);
  assert.deepEqual(does(link.due(35019)), []);
  assert.deepEqual(does(link.due(35020)), ["lost", "close", "state"]);
  assert.equal(link.state, "waiting");
});

test("code 3 keeps away for 30 s, whatever happens to the network; 5 and 7 for good", () => {
  const link = readyLink();
  link.closed(3, 100);
  link.hurry(200);
  assert.equal(link.deadline, 30100);
  for (const code of [5, 7]) {
    const other = readyLink();
    other.closed(code, 100);
    assert.equal(other.state, "halted");
    assert.equal(other.nextDeadline, Infinity);
  }
});

test("a relay's wait is kept, but not for longer than ten minutes", () => {
  const link = new LinkRules();
  link.start(0);
  link.connected(1);
  link.refused({ cause: 4, phrase: "", retryAfterMs: 4e9 }, 2);
  assert.equal(link.deadline, 2 + 600000);
});

test("whoever stops is not connected again", () => {
  const link = readyLink();
  assert.deepEqual(does(link.stop()), ["lost", "close", "state"]);
  assert.deepEqual(link.closed(null, 50), []);
  assert.deepEqual(link.due(1e9), []);
});

test("a hurry makes a long wait short", () => {
  const link = readyLink();
  link.failures = 7;
  link.closed(null, 0);
  link.hurry(1000);
  assert.equal(link.deadline, 1250);
});

// Hearing.

test("a talker that is not acknowledged for 4 s is not heard; a page that was held up is excused once", () => {
  const watch = new HearingWatch();
  watch.sent(0);
  assert.ok(!watch.isGone(3999));
  assert.ok(watch.isGone(4000));
  watch.sent(5000);
  watch.answered();
  watch.sent(8000);
  assert.ok(!watch.isGone(20000), "held up");
  assert.ok(watch.isGone(24000));
  watch.released(30000);
  assert.ok(watch.isGone(36000));
  watch.released(40000);
  watch.concluded();
  assert.ok(!watch.isGone(50000));
});

// Talking.

const frame = Uint8Array.of(1, 2, 3);
function readyUplink() {
  const uplink = new Uplink(1000, 48000);
  uplink.linkComing();
  uplink.linkReady(0);
  return uplink;
}

test("nothing is sent before the grant, and nothing is lost after it", () => {
  const uplink = readyUplink();
  assert.deepEqual(does(uplink.begin("a", {}, 0)), ["request"]);
  for (let index = 0; index < 30; index++) assert.deepEqual(uplink.frame(frame, 480, index * 480, index * 10), []);
  const sent = uplink.granted({ requestId: 1, durationMs: 60000 }, 300);
  assert.deepEqual(does(sent), ["granted", "media", "media", "media", "media"]);
  const media = sent.filter(action => action.do === "media");
  let now = 300;
  uplink.end(now);
  for (let actions = []; !actions.some(action => action.do === "release");) {
    now += 5;
    actions = uplink.due(now);
    media.push(...actions.filter(action => action.do === "media"));
  }
  assert.deepEqual(media.map(action => action.sequence), Array.from({ length: 30 }, (_, index) => 1000 + index));
  assert.deepEqual(media.map(action => action.timestamp), Array.from({ length: 30 }, (_, index) => 48000 + 480 * index));
  assert.deepEqual(media.map(action => action.marker), Array.from({ length: 30 }, (_, index) => index === 0));
  assert.ok(uplink.bursts.length === 0);
});

test("a release names the last packet, and none where nothing was sent", () => {
  const uplink = readyUplink();
  uplink.begin("a", {}, 0);
  const [release, ended] = uplink.end(50);
  assert.deepEqual([release.do, release.lastSequence, ended.reason], ["release", undefined, "completed"]);
  uplink.begin("b", {}, 100);
  uplink.frame(frame, 480, 0, 100);
  uplink.granted({ requestId: 2, durationMs: 0 }, 120);
  const actions = uplink.end(130);
  assert.deepEqual([actions[0].do, actions[0].requestId, actions[0].lastSequence], ["release", 2, 1000]);
});

test("a denied burst erases what it holds", () => {
  const uplink = readyUplink();
  uplink.begin("a", {}, 0);
  uplink.frame(frame, 480, 0, 0);
  const actions = uplink.denied({ requestId: 1, cause: 1, phrase: "" }, 20);
  assert.deepEqual(does(actions), ["ended"]);
  assert.deepEqual(uplink.frame(frame, 480, 480, 30), []);
  assert.equal(uplink.counts.erased, 1);
  assert.equal(uplink.counts.sent, 0);
});

test("without an answer in 2 s the request is withdrawn and the relay probed", () => {
  const uplink = readyUplink();
  uplink.begin("a", {}, 0);
  assert.deepEqual(uplink.due(1999), []);
  assert.deepEqual(does(uplink.due(2000)), ["release", "probe", "ended"]);
});

test("a request that waits erases what was said, and sends only what is said after its grant", () => {
  const uplink = readyUplink();
  uplink.begin("a", { mayQueue: true }, 0);
  uplink.frame(frame, 480, 0, 0);
  assert.deepEqual(does(uplink.queued({ requestId: 1, position: 2 }, 20)), ["queued"]);
  uplink.frame(frame, 480, 480, 30);
  assert.deepEqual(does(uplink.granted({ requestId: 1, durationMs: 0 }, 5000)), ["granted"]);
  assert.deepEqual(does(uplink.frame(frame, 480, 240000, 5010)), ["media"]);
  assert.equal(uplink.counts.erased, 2);
});

test("a request that waits is made again under a new key, and its old number means nothing", () => {
  const uplink = readyUplink();
  uplink.begin("a", { mayQueue: true }, 0);
  uplink.queued({ requestId: 1, position: 1 }, 20);
  const [again] = uplink.keyRenewed(100);
  assert.deepEqual([again.do, again.requestId, again.mayQueue], ["request", 2, true]);
  assert.deepEqual(uplink.granted({ requestId: 1, durationMs: 0 }, 120), []);
  assert.deepEqual(does(uplink.granted({ requestId: 2, durationMs: 0 }, 130)), ["granted"]);
});

test("whoever let go before a place in the queue came is not there for its grant", () => {
  const uplink = readyUplink();
  uplink.begin("a", { mayQueue: true }, 0);
  uplink.frame(frame, 480, 0, 0);
  uplink.end(10);
  assert.deepEqual(does(uplink.queued({ requestId: 1, position: 1 }, 20)), ["release", "ended"]);
});

test("a burst ends at the talk-time limit, and warns 5 s before", () => {
  const uplink = readyUplink();
  uplink.begin("a", {}, 0);
  uplink.granted({ requestId: 1, durationMs: 20000 }, 10);
  uplink.frame(frame, 480, 0, 100);
  assert.deepEqual(uplink.due(15099), []);
  assert.deepEqual(does(uplink.due(15100)), ["warning"]);
  const actions = uplink.due(20100);
  assert.deepEqual(does(actions), ["release", "ended"]);
  assert.deepEqual([actions[1].reason, actions[1].cause], ["revoked", 2]);
});

test("what the connection does not take for 500 ms is dropped, and what waits less is sent", () => {
  const uplink = readyUplink();
  uplink.begin("a", {}, 0);
  uplink.granted({ requestId: 1, durationMs: 0 }, 0);
  uplink.frame(frame, 480, 0, 0);
  uplink.room(false, 10);
  for (let index = 1; index <= 60; index++) uplink.frame(frame, 480, index * 480, index * 10);
  assert.deepEqual(uplink.due(630), []);
  const actions = uplink.room(true, 700);
  assert.ok(uplink.counts.dropped > 0 && uplink.counts.dropped < 25, String(uplink.counts.dropped));
  assert.ok(does(actions).includes("media"));
  // Numbers go on without a gap: what was dropped was never sent.
  assert.equal(actions.find(action => action.do === "media").sequence, 1001);
});

test("a press while the link is away waits two seconds for it", () => {
  const uplink = readyUplink();
  uplink.linkLost(0);
  assert.deepEqual(uplink.begin("a", {}, 100), []);
  for (let index = 0; index < 150; index++) uplink.frame(frame, 480, index * 480, 100 + index * 10);
  assert.deepEqual(does(uplink.linkReady(1700)), ["request"]);
  assert.equal(does(uplink.granted({ requestId: 1, durationMs: 0 }, 1800)).filter(what => what === "media").length, 4);
  const other = readyUplink();
  other.linkLost(0);
  other.begin("a", {}, 100);
  const [ended] = other.due(2100);
  assert.deepEqual([ended.what, ended.reason], ["ended", "link"]);
});

test("many presses in a row are requested within the relay's limits, an emergency before the others", () => {
  const uplink = readyUplink();
  let requests = 0;
  for (let index = 0; index < 20; index++) {
    requests += does(uplink.begin(index, {}, index)).filter(what => what === "request").length;
    if (uplink.bursts[0]?.phase === "asked") uplink.denied({ requestId: uplink.requestId, cause: 1, phrase: "" }, index);
    else uplink.abort("test", index);
  }
  assert.ok(requests <= 9, String(requests));
  assert.deepEqual(does(uplink.begin("sos", { priority: emergencyPriority }, 30)), ["request"]);
});

test("whatever happens, each burst ends once, and nothing goes out without a grant", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = new Random(seed);
    const uplink = readyUplink();
    let now = 0, burst = 0, granted = null, captured = 0;
    const begun = new Set(), ended = new Set();
    const look = actions => {
      for (const action of actions) {
        if (action.do === "request") granted = null;
        if (action.what === "granted") granted = action.burst;
        if (action.do === "media") assert.notEqual(granted, null, `seed ${seed}`);
        if (action.what === "ended") {
          assert.ok(!ended.has(action.burst), `seed ${seed}: twice`);
          ended.add(action.burst);
          if (action.burst === granted) granted = null;
        }
      }
    };
    for (let step = 0; step < 200; step++) {
      now += random.below(400);
      const requestId = Math.max(1, uplink.requestId - random.below(2));
      switch (random.below(12)) {
        case 0: case 1: begun.add(++burst); look(uplink.begin(burst, { priority: random.pick([0, 5, 255]), mayQueue: random.below(2) === 1 }, now)); break;
        case 2: look(uplink.end(now)); break;
        case 3: look(uplink.granted({ requestId, durationMs: random.below(3) * 5000, priority: 0 }, now)); break;
        case 4: look(uplink.denied({ requestId, cause: 1, phrase: "" }, now)); break;
        case 5: look(uplink.queued({ requestId, position: 1 }, now)); break;
        case 6: look(uplink.revoked({ requestId, cause: 4, phrase: "" }, now)); break;
        case 7: look(random.below(3) ? uplink.linkLost(now) : uplink.linkClosed()); uplink.linkComing(); break;
        case 8: look(uplink.linkReady(now)); break;
        case 9: look(uplink.room(random.below(2) === 1, now)); break;
        case 10: look(uplink.abort("test", now)); break;
        default: for (let count = 0; count < 20; count++) look(uplink.frame(frame, 480, captured += 480, now += 10));
      }
      look(uplink.due(now));
    }
    look(uplink.linkClosed());
    assert.deepEqual([...ended].sort(), [...begun].sort(), `seed ${seed}`);
  }
});

// Keys.

test("a key that repeats presses once, and several holders are one press", () => {
  const key = new TalkKey();
  assert.equal(key.down("space"), "press");
  assert.equal(key.down("space"), null);
  assert.equal(key.down("pointer"), null);
  assert.equal(key.up("space"), null);
  assert.equal(key.up("pointer"), "release");
  assert.equal(key.up("pointer"), null);
});

test("losing the focus lets go of keys and fingers, not of a headset or a Bluetooth button", () => {
  const key = new TalkKey();
  key.down("space");
  assert.equal(key.lostFocus(), "release");
  key.toggle("media");
  assert.equal(key.lostFocus(), null);
  assert.equal(key.toggle("media"), "release");
});

test("a burst that the relay ended does not press again while the button stays down", () => {
  const key = new TalkKey();
  key.down("pointer");
  key.burstEnded();
  assert.equal(key.down("space"), null);
  key.up("space");
  assert.equal(key.up("pointer"), "release");
  key.toggle("media");
  key.burstEnded();
  assert.equal(key.toggle("media"), "press");
});

test("an emergency needs a second, and ends when its button is let go", () => {
  const key = new EmergencyKey();
  key.down("pointer", 0);
  assert.equal(key.due(999), null);
  assert.equal(key.up("pointer"), "cancelled");
  key.down("pointer", 2000);
  assert.equal(key.progress(2500), 0.5);
  assert.equal(key.due(3000), "begin");
  assert.equal(key.due(3001), null);
  assert.equal(key.up("pointer"), "end");
});

test("an emergency ends when its own button is let go, and one of a Bluetooth button goes on without the focus", () => {
  const key = new EmergencyKey();
  for (const state of ["holding", "active"]) {
    key.down("bluetooth", 0);
    if (state === "active") key.due(1000);
    assert.equal(key.down("pointer", 1500), null);
    assert.equal(key.up("pointer"), null);
    assert.equal(key.lostFocus(), null);
    assert.equal(key.state, state);
    assert.equal(key.up("bluetooth"), state === "active" ? "end" : "cancelled");
  }
  key.down("pointer", 3000);
  key.due(4000);
  assert.equal(key.up("key"), null);
  assert.equal(key.lostFocus(), "end");
  assert.equal(key.up("pointer"), null);
  assert.equal(key.lostFocus(), null);
});

test("a denied emergency is asked for again when the floor is idle, or every 2 s, for half a minute", () => {
  const retry = new EmergencyRetry();
  assert.ok(retry.denied(0));
  assert.ok(!retry.due(1999));
  retry.floorIdle(500);
  assert.ok(retry.due(500));
  assert.ok(!retry.due(5000));
  assert.ok(retry.denied(29000));
  assert.ok(!retry.denied(30000));
});

test("an alarm sounds until it is acknowledged, also when its emergency is over", () => {
  const alarms = new Alarms();
  alarms.began("c", { burst: "1:2", ssrc: 1, name: "Ann" }, 0);
  alarms.began("c", { burst: "1:2", ssrc: 1, name: "Ann" }, 0);
  assert.equal(alarms.all.length, 1);
  alarms.idle("c", 1);
  assert.ok(alarms.isSounding && alarms.all.length === 1);
  alarms.acknowledge(alarms.all[0]);
  assert.ok(!alarms.isSounding && alarms.all.length === 0);
});

test("an emergency that ended while the link was away is over when it is back, or when the channel is left", () => {
  const alarms = new Alarms(), talker = { burst: "1:2", ssrc: 1, name: "Ann" };
  const going = () => alarms.all.filter(alarm => alarm.isGoingOn).map(alarm => alarm.channel);
  for (const channel of ["a", "b"]) alarms.began(channel, talker, 0);
  for (const state of ["waiting", "connecting", "joining"]) alarms.link("a", state, []);
  alarms.link("a", "ready", [{ burst: "1:2" }]);
  assert.deepEqual(going(), ["b", "a"]);
  alarms.link("a", "ready", [{ burst: "1:3" }]);
  assert.deepEqual(going(), ["b"]);
  for (const state of ["halted", "stopped"]) {
    alarms.began(state, talker, 0);
    alarms.link(state, state, []);
  }
  assert.deepEqual(going(), ["b"]);
  assert.ok(alarms.isSounding && alarms.all.length === 4);
  alarms.began("stopped", talker, 0);
  assert.deepEqual(going(), ["stopped", "b"]);
});

test("earlier media keys serve for 20 s and for announced bursts; an end-to-end channel takes none", () => {
  const ring = new Keyring(null), keyOf = epoch => ({ epoch, baseKey: Uint8Array.of(epoch) });
  ring.add(keyOf(7), 0);
  ring.add(keyOf(8), 1000);
  assert.equal(ring.live(7n << 48n, false, 20000)[0], 7);
  assert.equal(ring.live(7n << 48n, false, 22000), null);
  assert.equal(ring.live(7n << 48n, true, 22000)[0], 7);
  assert.equal(ring.current.epoch, 8);
  for (let epoch = 9; epoch < 30; epoch++) ring.add(keyOf(epoch), 2000);
  assert.equal(ring.kept(7n << 48n), null);
  assert.equal(ring.kept(25n << 48n)[0], 25);
  assert.equal(new Keyring(Uint8Array.of(1)).add(keyOf(0), 0), false);
});
