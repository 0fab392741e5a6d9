// The rules of listening, the order and delay of packets, and the sound that comes of them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Downlink } from "../../../Sources/RelayWeb/Page/downlink.js";
import { History, historyLimits } from "../../../Sources/RelayWeb/Page/history.js";
import { DelayEstimator, Order } from "../../../Sources/RelayWeb/Page/jitter.js";
import { Lane, Limiter } from "../../../Sources/RelayWeb/Page/lane.js";
import { burstName } from "../../../Sources/RelayWeb/Page/rtp.js";
import { Random } from "../support/random.js";

const talkerOf = (ssrc, key = 1) => ({ id: `m${ssrc}`, ssrc, keyId: BigInt(key), name: "Ann", burst: burstName(ssrc, BigInt(key)) });
const header = (ssrc, sequence, marker = false) => ({ ssrc, sequence: sequence & 0xffff, timestamp: sequence * 480 >>> 0, marker });

/** What a page does around the rules, without cryptography. */
class Listening {
  downlink = new Downlink();
  told = [];
  asked = [];

  perform(actions, now) {
    for (const action of actions) {
      if (action.do === "retry") for (const { packet } of action.packets) this.packet(...packet, now);
      else if (action.do === "conclude") this.perform(this.downlink.conclude(action.burst, now), now);
      else if (["ask", "fetch", "report"].includes(action.do)) this.asked.push(action);
      else this.told.push(action);
    }
  }

  packet(talker, sequence, marker, isRepaired, now) {
    const place = { burst: talker.burst, ssrc: talker.ssrc, sequence: sequence & 0xffff };
    let admission = this.downlink.admit(place, isRepaired);
    if (admission === "resume") {
      this.perform(this.downlink.resume(talker.burst, now), now);
      admission = this.downlink.admit(place, isRepaired);
    }
    if (admission === "hold") this.downlink.hold([talker, sequence, marker, isRepaired], place, now);
    if (admission === "open") this.perform(this.downlink.opened(talker.burst, header(talker.ssrc, sequence, marker), Uint8Array.of(1), now, isRepaired, now), now);
  }

  of(what) { return this.told.filter(action => action.do === what); }
  get sequences() { return this.of("frame").map(action => action.header.sequence); }
}

test("packets that come before the floor is told are heard", () => {
  const listening = new Listening(), ann = talkerOf(5);
  for (let index = 0; index < 5; index++) listening.packet(ann, index, index === 0, false, index);
  assert.deepEqual(listening.told, []);
  listening.perform(listening.downlink.taken(ann, false, 10), 10);
  assert.deepEqual(listening.sequences, [0, 1, 2, 3, 4]);
  listening.perform(listening.downlink.idle(5, 4, 20), 20);
  assert.equal(listening.of("ended")[0].reason, "completed");
});

test("packets that come early are few, and not kept for long", () => {
  const listening = new Listening(), ann = talkerOf(5);
  for (let index = 0; index < 1000; index++) listening.packet(ann, index, false, false, 0);
  listening.perform(listening.downlink.due(2000), 2000);
  listening.perform(listening.downlink.taken(ann, false, 2001), 2001);
  assert.deepEqual(listening.sequences, []);
});

test("a burst waits for its last packets, asks for them, and ends when the answer lacks them", () => {
  const listening = new Listening(), ann = talkerOf(5);
  listening.perform(listening.downlink.taken(ann, false, 0), 0);
  listening.packet(ann, 65534, true, false, 0);
  listening.packet(ann, 65535, false, false, 10);
  listening.perform(listening.downlink.idle(5, 1, 20), 20);
  assert.equal(listening.of("ended").length, 0);
  listening.perform(listening.downlink.due(120), 120);
  const ask = listening.asked.find(action => action.do === "ask");
  assert.deepEqual(ask.ranges, [{ first: 0, last: 1 }]);
  listening.packet(ann, 65536, false, true, 130);
  listening.perform(listening.downlink.answered(ask.repairId, 140), 140);
  assert.deepEqual(listening.sequences, [65534, 65535, 0]);
  assert.deepEqual([listening.of("ended")[0].reason, listening.of("ended")[0].lost], ["completed", 1]);
});

test("duplicates are heard once, also when they are announced again", () => {
  const listening = new Listening(), ann = talkerOf(5);
  listening.perform(listening.downlink.taken(ann, false, 0), 0);
  for (const sequence of [0, 1, 1, 0, 2, 1]) listening.packet(ann, sequence, sequence === 0, false, sequence);
  listening.perform(listening.downlink.idle(5, 2, 20), 20);
  listening.perform(listening.downlink.taken(ann, false, 30), 30);
  for (const sequence of [0, 1, 2]) listening.packet(ann, sequence, sequence === 0, false, 40);
  assert.deepEqual(listening.sequences, [0, 1, 2]);
});

test("a burst without a packet for 6 s is over, and goes on when packets come again", () => {
  const listening = new Listening(), ann = talkerOf(5);
  listening.perform(listening.downlink.taken(ann, false, 0), 0);
  listening.packet(ann, 0, true, false, 0);
  listening.perform(listening.downlink.due(6000), 6000);
  assert.equal(listening.of("ended")[0].reason, "silent");
  listening.perform(listening.downlink.due(8000), 8000);
  assert.ok(listening.asked.some(action => action.do === "report"));
  listening.packet(ann, 300, false, false, 9000);
  assert.deepEqual(listening.sequences, [0, 300]);
});

test("reports come after 1 to 2 s, then every 4 s, every 2 s with loss", () => {
  const listening = new Listening(), ann = talkerOf(5);
  listening.downlink.firstReport = 1500;
  listening.perform(listening.downlink.taken(ann, false, 0), 0);
  const times = [];
  for (let index = 0; index <= 2000; index++) {
    const now = index * 10;
    // At 12 s packets begin to be lost, and stay lost.
    if (index < 1200 || index % 50 !== 0) listening.packet(ann, index, index === 0, false, now);
    const before = listening.asked.filter(action => action.do === "report").length;
    if (listening.downlink.nextDeadline <= now) listening.perform(listening.downlink.due(now), now);
    const reports = listening.asked.filter(action => action.do === "report");
    if (reports.length > before) times.push(now);
  }
  assert.deepEqual(times.slice(0, 4), [1500, 4000, 8000, 12000]);
  assert.ok(times[5] - times[4] === 2000, times.join());
});

test("late entry fetches the beginning, holds what comes, and is told in order", () => {
  const listening = new Listening(), ann = talkerOf(5);
  listening.downlink.offersLateEntry = true;
  listening.perform(listening.downlink.taken(ann, true, 0), 0);
  const [fetch] = listening.asked;
  assert.deepEqual([fetch.do, fetch.first], ["fetch", undefined]);
  listening.downlink.fetchAsked(1, ann.burst, 0);
  for (let index = 10; index < 15; index++) listening.packet(ann, index, false, false, index);
  assert.deepEqual(listening.sequences, []);
  for (let index = 0; index < 8; index++) listening.packet(ann, index, index === 0, true, 20);
  listening.perform(listening.downlink.fetched(1, false, 21), 21);
  const again = listening.asked.at(-1);
  assert.deepEqual([again.do, again.first], ["fetch", 8]);
  listening.downlink.fetchAsked(2, ann.burst, 22);
  for (let index = 8; index < 12; index++) listening.packet(ann, index, false, true, 30);
  listening.perform(listening.downlink.idle(5, 14, 40), 40);
  assert.deepEqual(listening.sequences, Array.from({ length: 15 }, (_, index) => index));
  assert.equal(listening.of("ended").length, 1);
});

test("a beginning that does not come is given up after three attempts", () => {
  const listening = new Listening(), ann = talkerOf(5);
  listening.downlink.offersLateEntry = true;
  listening.perform(listening.downlink.taken(ann, true, 0), 0);
  for (let now = 0; now < 8000; now += 10) {
    const asked = listening.asked.filter(action => action.do === "fetch").length;
    listening.downlink.fetchAsked(asked, ann.burst, now);
    listening.packet(ann, 500 + now / 10, false, false, now);
    if (listening.downlink.nextDeadline <= now) listening.perform(listening.downlink.due(now), now);
  }
  assert.equal(listening.asked.filter(action => action.do === "fetch").length, 3);
  assert.equal(listening.sequences.length, 800);
});

test("on a full-duplex channel four are heard at once", () => {
  const listening = new Listening();
  listening.downlink.talkersMax = 4;
  for (let ssrc = 1; ssrc <= 4; ssrc++) {
    listening.perform(listening.downlink.taken(talkerOf(ssrc), false, 0), 0);
    listening.packet(talkerOf(ssrc), 0, true, false, 1);
  }
  assert.equal(listening.downlink.bursts.length, 4);
  listening.perform(listening.downlink.idle(2, 0, 5), 5);
  assert.equal(listening.downlink.bursts.length, 3);
  listening.perform(listening.downlink.linkLost(10), 10);
  assert.equal(listening.of("ended").filter(action => action.reason === "link").length, 3);
});

test("whatever a relay sends, frames come once, bursts end once, and memory stays small", () => {
  for (let seed = 1; seed <= 150; seed++) {
    const random = new Random(seed), listening = new Listening();
    listening.downlink.talkersMax = random.pick([1, 4]);
    listening.downlink.offersLateEntry = random.below(2) === 1;
    let now = 0, request = 0;
    for (let step = 0; step < 400; step++) {
      now += random.below(200);
      const talker = talkerOf(1 + random.below(5), 1 + random.below(3));
      switch (random.below(8)) {
        case 0: listening.perform(listening.downlink.taken(talker, random.below(2) === 1, now), now); break;
        case 1: listening.perform(listening.downlink.idle(talker.ssrc, random.pick([undefined, random.below(65536), 100]), now), now); break;
        case 2: listening.downlink.fetchAsked(++request, talker.burst, now); break;
        case 3: listening.perform(listening.downlink.fetched(random.below(request + 1), random.below(2) === 1, now), now); break;
        case 4: listening.perform(listening.downlink.answered(random.below(20), now), now); break;
        case 5: if (random.below(20) === 0) listening.perform(listening.downlink.linkLost(now), now); break;
        default: {
          const first = random.pick([0, 65500, random.below(65536)]);
          for (let index = 0; index < 20; index++) listening.packet(talker, first + index, random.below(10) === 0, random.below(4) === 0, now);
        }
      }
      listening.perform(listening.downlink.due(now), now);
      assert.ok(listening.downlink.bursts.length <= 4);
      const last = listening.asked.filter(action => action.do === "ask").at(-1);
      assert.ok(!last || last.ranges.length <= 64);
    }
    listening.perform(listening.downlink.linkLost(now), now);
    assert.equal(listening.of("began").length, listening.of("ended").length, `seed ${seed}`);
  }
});

// Order, delay and sound.

test("packets are decoded in order; a gap is waited for, then passed over", () => {
  const order = new Order();
  const packet = sequence => ({ sequence, timestamp: sequence * 480, samples: 480 });
  const out = [];
  out.push(...order.insert(packet(10), 100, 0), ...order.insert(packet(12), 100, 10), ...order.insert(packet(13), 100, 20));
  assert.deepEqual(out.map(each => each.packet?.sequence), [10]);
  out.push(...order.insert(packet(11), 100, 50));
  assert.deepEqual(out.map(each => each.packet.sequence), [10, 11, 12, 13]);
  assert.deepEqual(order.insert(packet(15), 100, 60), []);
  assert.equal(order.deadline(100), 160);
  assert.deepEqual(order.take(100, 160), [{ lost: 480 }, { packet: packet(15) }]);
  assert.deepEqual(order.insert(packet(14), 100, 170), []);
});

test("the delay follows the jitter: up at once, down slowly, within its bounds", () => {
  const estimator = new DelayEstimator();
  const start = estimator.target;
  for (let index = 0; index < 500; index++) estimator.received(index * 480, 480, index * 10);
  assert.ok(estimator.target <= start);
  const calm = estimator.target;
  for (let index = 500; index < 700; index++) estimator.received(index * 480, 480, index * 10 + (index % 10 === 0 ? 150 : 0));
  assert.ok(estimator.target >= 150, String(estimator.target));
  for (let index = 700; index < 4000; index++) estimator.received(index * 480, 480, index * 10);
  assert.ok(estimator.target < calm + 20, String(estimator.target));
  estimator.begin();
  for (let index = 0; index < 200; index++) estimator.received(index * 480, 480, index * 900);
  assert.ok(estimator.target <= 400);
});

const voice = (count, at = 0, hertz = 150) => Float32Array.from({ length: count }, (_, index) => 0.5 * Math.sin(2 * Math.PI * hertz * (at + index) / 48000));

function pulled(lane, count) {
  const all = new Float32Array(count), block = new Float32Array(128);
  for (let at = 0; at < count; at += 128) if (lane.pull(block)) all.set(block.subarray(0, Math.min(128, count - at)), at);
  return all;
}

test("a lane waits for its target, plays what came, and ends", () => {
  const lane = new Lane(1920);
  lane.push(voice(960));
  assert.equal(lane.pull(new Float32Array(128)), false);
  lane.push(voice(960, 960));
  lane.push(voice(960, 1920));
  lane.finish();
  const heard = pulled(lane, 2880);
  assert.deepEqual(heard, voice(2880));
  assert.equal(lane.pull(new Float32Array(128)), false);
  assert.equal(lane.state, "ended");
});

test("a lane that is far behind catches up without a break in the voice", () => {
  const lane = new Lane(1920);
  lane.push(voice(96000));
  lane.finish();
  const heard = pulled(lane, 96000);
  const end = heard.findLastIndex(sample => sample !== 0);
  assert.ok(end < 96000 * 0.87, `ends at ${end}`);
  assert.ok(end > 96000 / 1.25, `ends at ${end}: faster than by a quarter`);
  let step = 0;
  for (let index = 1; index < end; index++) step = Math.max(step, Math.abs(heard[index] - heard[index - 1]));
  assert.ok(step < 0.03, `a step of ${step}`);
});

test("a lane that runs dry holds the voice on and fades, then waits again", () => {
  const lane = new Lane(960);
  lane.push(voice(9600));
  const heard = pulled(lane, 9600 + 9600);
  const loud = from => Math.max(...heard.subarray(from, from + 480).map(Math.abs));
  assert.ok(loud(9700) > 0.3, String(loud(9700)));
  assert.equal(loud(9600 + 6000), 0);
  assert.equal(lane.state, "filling");
  lane.push(voice(960));
  assert.ok(lane.pull(new Float32Array(128)));
});

test("a lane's memory is bounded", () => {
  const lane = new Lane(960);
  for (let index = 0; index < 100; index++) lane.push(voice(9600));
  assert.ok(lane.level <= 1 << 18);
  assert.ok(lane.dropped > 0);
});

test("a mix stays below full scale", () => {
  const limiter = new Limiter();
  for (let block = 0; block < 50; block++) {
    const samples = voice(128, block * 128).map(sample => sample * 5);
    limiter.apply(samples, true);
    assert.ok(samples.every(sample => Math.abs(sample) < 1));
  }
});

test("the history is bounded in number, bytes and age", () => {
  const history = new History();
  for (let index = 0; index < 300; index++) {
    const talker = { ...talkerOf(index + 1), name: "Ann" };
    history.began("c", talker, index);
    for (let packet = 0; packet < 100; packet++) history.frame("c", talker.burst, { sequence: packet, timestamp: packet * 480 }, new Uint8Array(1000), 480);
    history.ended("c", talker.burst);
  }
  assert.ok(history.entries.length <= historyLimits.entries);
  assert.equal(history.bytes, history.entries.reduce((sum, entry) => sum + entry.frames.bytes, 0));
  assert.ok(history.bytes <= historyLimits.bytes && history.bytes > historyLimits.bytes * 0.9, `${history.bytes} bytes`);
  assert.equal(history.entries[0].at, 299);
  history.expire(historyLimits.age + 1000);
  assert.equal(history.entries.length, 0);
  assert.equal(history.bytes, 0);
});

test("an hour of speech in short messages takes little more than its packets, and comes back as it was", () => {
  const history = new History();
  const packets = Array.from({ length: 997 }, (_, index) => ({
    header: { sequence: 65000 + index & 0xffff, timestamp: 0xffffff00 + index * 480 >>> 0 },
    payload: Uint8Array.from({ length: 20 + index % 40 }, () => index & 255),
  }));
  history.began("c", { ...talkerOf(1), name: "Ann" }, 0);
  for (const { header, payload } of packets) history.frame("c", talkerOf(1).burst, header, payload, 480);
  const [live] = history.entries;
  assert.deepEqual([...live.frames], packets);
  history.ended("c", talkerOf(1).burst);
  assert.deepEqual([...live.frames], packets);
  assert.equal(history.bytes, packets.reduce((sum, { payload }) => sum + payload.length + 8, 0));
});
