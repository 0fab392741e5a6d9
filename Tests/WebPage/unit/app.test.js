// The page's parts together, without a browser and without a relay: presses in, bursts and what is shown out.
import assert from "node:assert/strict";
import { test } from "node:test";

import { App } from "../../../Sources/RelayWeb/Page/app.js";
import { parseInvitation } from "../../../Sources/RelayWeb/Page/invitation.js";
import { Session } from "../../../Sources/RelayWeb/Page/session.js";

// A browser in which everything works at once.
class SoundNode {
  port = { postMessage() {} };
  connect() {}
  disconnect() {}
}
const track = { muted: false, addEventListener() {}, stop() {} };
const browser = {
  location: { protocol: "https:", host: "relay.example" },
  requestAnimationFrame() {},
  AudioContext: class {
    audioWorklet = { async addModule() {} };
    async resume() {}
    createMediaStreamSource() { return new SoundNode(); }
  },
  AudioWorkletNode: SoundNode,
  AudioEncoder: class {
    static async isConfigSupported() { return { supported: true }; }
    state = "configured";
    constructor(parts) { Object.assign(this, parts); }
    configure() {}
    encode() { this.output({ byteLength: 1, copyTo() {} }); }
    async flush() {}
    close() { this.state = "closed"; }
  },
  AudioData: class { close() {} },
  navigator: { mediaDevices: { getUserMedia: async () => ({ getAudioTracks: () => [track], getTracks: () => [track] }) } },
};
for (const [name, value] of Object.entries(browser)) Object.defineProperty(globalThis, name, { configurable: true, value });

// A test is the relay: it tells what a session would.
Object.assign(Session.prototype, { start() {}, stop() {}, frame() {} });
Session.prototype.begin = function (burst) { (this.begun ??= []).push(burst); };
Session.prototype.end = function () { (this.given ??= []).push("end"); };
Session.prototype.abort = function (reason) { (this.given ??= []).push(reason); };

const secrets = `token=AAECAwQFBgcICQoLDA0ODw&pin=${"A".repeat(43)}`;
const link = index => `relay.example:4433/Radio?channel=0f9b2c4e-1a2b-4c3d-8e4f-5a6b7c8d9e0${index}&${secrets}`;

/** A page on so many channels, with a microphone that works. What the test says, it says of the first channel. */
async function page(count = 1) {
  const app = new App({ identity: {}, name: "Ann" });
  // A second passes at once.
  app.emergency.key.down = function (holder) { return Object.getPrototypeOf(this).down.call(this, holder, -Infinity); };
  app.join(Array.from({ length: count }, (_, index) => parseInvitation(link(index))));
  const [channel] = app.channels, { session } = channel;
  for (const each of app.channels) each.session.tell({ is: "link", state: "ready", problem: null, retryAt: Infinity });
  await app.openMicrophone();
  return {
    app, channel, session,
    get begun() { return session.begun ?? []; },
    get state() { return channel.state(performance.now()); },
    granted: burst => session.tell({ is: "uplink", what: "granted", burst, limit: 0 }),
    ended: (burst, reason = "completed") => session.tell({ is: "uplink", what: "ended", burst, reason, sent: 0 }),
    words: (count = 3) => {
      for (let index = 0; index < count; index++) app.talker.block({ samples: new Float32Array(480).fill(0.1), captured: 0 });
    },
  };
}

/** The encoder gives out what it has; what is said is ready to be sent. */
const flushed = () => new Promise(resolve => setTimeout(resolve, 5));

test("what still comes of a burst says nothing about the one after it", async () => {
  const ann = await page(), { channel } = ann;
  channel.began("burst 1", 0);
  ann.granted("burst 1");
  assert.equal(ann.state, "talking");
  channel.began("burst 2", 0);
  ann.granted("burst 1");
  assert.equal(ann.state, "asking");
  ann.ended("burst 1");
  assert.equal(ann.state, "asking");
  ann.granted("burst 2");
  assert.equal(ann.state, "talking");
  ann.ended("burst 2");
  assert.equal(ann.state, "idle");
});

test("a message that was not heard is told after the one that followed it", async () => {
  const ann = await page(), { channel } = ann;
  channel.began("burst 1", 0);
  channel.began("burst 2", 0);
  ann.ended("burst 1", "link");
  ann.granted("burst 2");
  assert.equal(ann.state, "talking");
  ann.ended("burst 2");
  assert.equal(ann.state, "refused");
  assert.equal(channel.notice.key, "end-link");
});

test("a press whose burst never begins is over", async () => {
  const ann = await page();
  ann.app.down("space");
  ann.words();
  ann.app.up("space");
  ann.app.down("space");
  assert.equal(ann.state, "asking");
  ann.app.up("space");
  await flushed();
  ann.ended("burst 1");
  assert.equal(ann.state, "idle");
  ann.app.talker.makeEncoder = () => { throw new Error("no more encoders"); };
  ann.app.down("space");
  assert.equal(ann.state, "idle");
  assert.deepEqual(ann.begun, ["burst 1"]);
});

test("a burst that still waits for its grant is shown while another channel is talked to", async () => {
  const ann = await page(2), [first, second] = ann.app.channels;
  ann.app.down("space", first);
  ann.words();
  ann.app.up("space");
  ann.words(20);
  await flushed();
  ann.app.down("space", second);
  assert.deepEqual(second.session.begun, ["burst 2"]);
  assert.equal(first.own?.burst, "burst 1");
  ann.ended("burst 1");
  assert.equal(first.own, null);
  assert.equal(second.own?.burst, "burst 2");
  ann.app.up("space");
});

test("a toggled press after one that was refused talks", async () => {
  const ann = await page();
  ann.app.microphoneProblem = "muted";
  ann.app.toggle("media");
  assert.equal(ann.state, "refused");
  await ann.app.openMicrophone();
  ann.app.emergency.key.state = "active";
  ann.app.toggle("media");
  ann.app.emergency.clear();
  assert.deepEqual(ann.begun, []);
  ann.app.toggle("media");
  assert.deepEqual(ann.begun, ["burst 1"]);
  ann.app.toggle("media");
  await flushed();
  assert.deepEqual(ann.session.given, ["end"]);
});

test("an emergency of a Bluetooth button goes on without the focus, also where a key is held", async () => {
  const ann = await page();
  ann.app.control({ control: "emergency", isDown: true });
  assert.deepEqual(ann.begun, ["burst 1"]);
  ann.app.down("space");
  ann.app.lostFocus();
  ann.app.emergency.up("emergency-key");
  assert.ok(ann.app.emergency.isActive);
  ann.words(30);
  await flushed();
  assert.equal(ann.session.given, undefined);
  ann.app.control({ control: "emergency", isDown: false });
  ann.words(30);
  await flushed();
  assert.deepEqual(ann.session.given, ["end"]);
  ann.app.emergency.down("emergency-pointer");
  ann.app.lostFocus();
  assert.ok(!ann.app.emergency.isActive);
});

test("a toggled press right after a toggled release can be ended", async () => {
  for (const isHidden of [false, true]) {
    const ann = await page();
    ann.app.toggle("click");
    ann.granted("burst 1");
    ann.words();
    ann.app.toggle("click");
    ann.app.toggle("click");
    await flushed();
    ann.ended("burst 1");
    assert.deepEqual(ann.begun, ["burst 1", "burst 2"]);
    ann.granted("burst 2");
    ann.words();
    if (isHidden) ann.app.lostFocus();
    else ann.app.toggle("click");
    ann.words(30);
    await flushed();
    assert.deepEqual(ann.session.given, ["end", "end"]);
    assert.deepEqual(ann.begun, ["burst 1", "burst 2"]);
  }
});
