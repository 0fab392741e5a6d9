// Links, names, words, tones, buttons: what the page reads and shows.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { App } from "../../../Sources/RelayWeb/Page/app.js";
import { ButtonInput, chooserOptions, profilesFor } from "../../../Sources/RelayWeb/Page/bluetooth.js";
import { hex } from "../../../Sources/RelayWeb/Page/bytes.js";
import { Encoder } from "../../../Sources/RelayWeb/Page/encoder.js";
import { InvitationError, linksIn, parseInvitation, splitLinks } from "../../../Sources/RelayWeb/Page/invitation.js";
import { decodeServer, encodeServer, ProtocolError } from "../../../Sources/RelayWeb/Page/messages.js";
import { parseProof } from "../../../Sources/RelayWeb/Page/handshake.js";
import { parseAnswer } from "../../../Sources/RelayWeb/Page/answers.js";
import { Microphone } from "../../../Sources/RelayWeb/Page/microphone.js";
import { parseRtp } from "../../../Sources/RelayWeb/Page/rtp.js";
import { parseSframe } from "../../../Sources/RelayWeb/Page/sframe.js";
import { SilenceWatch } from "../../../Sources/RelayWeb/Page/talker.js";
import { Talker } from "../../../Sources/RelayWeb/Page/talker.js";
import { notes, toneSamples } from "../../../Sources/RelayWeb/Page/tones.js";
import { clockTime, preferred, refusalKey, shown, Words } from "../../../Sources/RelayWeb/Page/words.js";
import { Random } from "../support/random.js";

const pageFolder = new URL("../../../Sources/RelayWeb/Page/", import.meta.url);
const read = name => readFileSync(new URL(name, pageFolder), "utf8");

const channel = "channel=0f9b2c4e-1a2b-4c3d-8e4f-5a6b7c8d9e0f", token = "token=AAECAwQFBgcICQoLDA0ODw";
const pin = `pin=${"A".repeat(43)}`, key = "key=AAECAwQFBgcICQoLDA0ODw";
const link = `relay.example:4433/Radio%207?${channel}&${token}&${pin}&web=443`;

test("an invitation is read, in any order of its parameters, with its key behind & or #", () => {
  const read = parseInvitation(link);
  assert.deepEqual([read.host, read.port, read.name, read.key, read.web], ["relay.example", 4433, "Radio 7", null, "443"]);
  assert.equal(hex(read.channelId), "0f9b2c4e1a2b4c3d8e4f5a6b7c8d9e0f");
  assert.equal(hex(read.token), "000102030405060708090a0b0c0d0e0f");
  for (const other of [`ptt://[fe80::1%25eth0]:1/a?${pin}&${token}&x=y&${channel}&${key}`, `10.0.0.1:65535/%ED%95%9C?${channel}&${token}&${pin}#${key}`]) {
    assert.equal(parseInvitation(other).key.length, 16);
  }
});

test("an invitation that is not whole is refused", () => {
  for (const wrong of [
    "", "ptt://", "relay.example/Radio?x", link.replace("4433", "0"), link.replace("4433", "65536"), link.replace("Radio%207", ""),
    link.replace("Radio%207", "%ff"), link.replace("Radio%207", "a%00b"), `${link}&${token}`, link.replace(token, ""), link.replace(pin, "pin=AAAA"),
    link.replace(token, "token=AAEC"), `${link}&key=short`, link.replace("0f9b2c4e", "0f9b2c4"), `${link}#${key}&${key}`, link.replace("?", "/x?"),
    `${link}&x=${"y".repeat(5000)}`,
  ]) assert.throws(() => parseInvitation(wrong), InvitationError, wrong.slice(0, 80));
});

test("several links are told apart, though names have %20, too", () => {
  assert.deepEqual(splitLinks(`${link}%20ptt://${link} ${link}\n`), [link, link, link]);
  assert.deepEqual(linksIn(`https://relay.example/#${link}%20${link}`), [link, link]);
  assert.equal(splitLinks(Array(50).fill(link).join(" ")).length, 16);
  assert.deepEqual(splitLinks("  "), []);
});

test("names are shown without what is invisible, turns writing around or piles up", () => {
  assert.equal(shown("Ann\u202e\u200b\u2066 B\u0007ob"), "Ann Bob");
  assert.equal(shown("\u200b\u200b"), "?");
  assert.equal(shown("<b>Ann</b>"), "<b>Ann</b>");
  assert.equal(shown("e\u0301\u0301\u0301\u0301\u0301\u0301"), "e\u0301\u0301\u0301");
  assert.equal(Array.from(shown("한".repeat(200))).length, 64);
  assert.equal(shown("Ann\u{e0041}\u{e007f}"), "Ann");
  assert.equal(shown("\u05d0\u05d1\u202e"), "\u2068\u05d0\u05d1\u2069");
});

test("all languages have the same texts, with the same names in them", () => {
  const tables = Object.fromEntries(["en", "fr", "de", "ko"].map(tag => [tag, JSON.parse(read(`lang-${tag}.json`))]));
  const names = text => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort().join();
  for (const [tag, table] of Object.entries(tables)) {
    assert.deepEqual(Object.keys(table), Object.keys(tables.en), tag);
    for (const [key, text] of Object.entries(table)) {
      assert.ok(text.trim().length > 0, `${tag} ${key}`);
      assert.equal(names(text), names(tables.en[key]), `${tag} ${key}`);
    }
  }
});

test("every text that the page asks for is there, and none is there in vain", () => {
  const table = JSON.parse(read("lang-en.json"));
  const source = readdirSync(fileURLToPath(pageFolder)).filter(name => name.endsWith(".js")).map(read).join("\n");
  const used = new Set([...source.matchAll(/"([a-z0-9]+(?:-[a-z0-9]+)*)"/g)].map(([, key]) => key));
  const composed = /^(link|problem|mic)-|-(one|many)$/;
  for (const key of Object.keys(table)) assert.ok(used.has(key) || composed.test(key), `${key} is not used`);
  for (const [, key] of source.matchAll(/say\("([a-z-]+)"/g)) assert.ok(key in table, `${key} is missing`);
  for (const reason of ["link", "unanswered", "unheard", "taken", "microphone", "encoder", "stalled", "hidden"]) assert.ok(refusalKey({ reason }) in table);
  for (let cause = 0; cause < 10; cause++) for (const reason of ["denied", "revoked"]) assert.ok(refusalKey({ reason, cause }) in table);
});

test("the language is the one that the person prefers", () => {
  assert.equal(preferred(["pt-BR", "ko-KR", "en"]), "ko");
  assert.equal(preferred(["xx", ""]), "en");
  assert.equal(new Words({ a: "{x} and {y}" }).say("a", { x: "1", y: "{x}" }), "1 and {x}");
  assert.equal(clockTime(61500), "1:01");
});

test("tones are those of pttd", () => {
  const swift = readFileSync(new URL("Sources/Audio/Playback/ToneSound.swift", new URL("../../../", import.meta.url)), "utf8");
  for (const name of ["goAhead", "end", "wait", "deny", "warning", "linkLost", "linkBack", "fault"]) {
    const theirs = swift.match(new RegExp(`case \\.${name}: (\\[\\(.*\\)\\])`))[1];
    assert.equal(JSON.stringify(notes[name]), theirs.replaceAll("(", "[").replaceAll(")", "]").replaceAll("_", "").replaceAll(" ", ""), name);
    const samples = toneSamples(name);
    assert.ok(samples.every(sample => Math.abs(sample) < 0.3) && Math.abs(samples.at(-1)) < 0.01);
  }
});

test("profiles.json is made from pttd's profiles, and current", () => {
  execFileSync(fileURLToPath(new URL("../make-profiles", import.meta.url)), ["--check"]);
});

test("buttons are read by their profiles", () => {
  const profiles = JSON.parse(read("profiles.json"));
  const [ptt] = profilesFor(profiles, "PTT-Z01"), [aina] = profilesFor(profiles, "APTT1234");
  assert.deepEqual([ptt.id, aina.id], ["ptt-z", "aina-v2"]);
  const z = new ButtonInput(ptt.inputs[0]);
  assert.deepEqual([...z.value(Uint8Array.of(1)), ...z.value(Uint8Array.of(1)), ...z.value(Uint8Array.of(7)), ...z.value(Uint8Array.of(0))],
    [{ control: "ptt", isDown: true }, { control: "ptt", isDown: false }]);
  const a = new ButtonInput(aina.inputs[0]);
  assert.deepEqual([0x01, 0x81, 0x01, 0x00].flatMap(byte => a.value(Uint8Array.of(byte))),
    [{ control: "ptt", isDown: true }, { control: "ptt", isDown: false }]);
  a.value(Uint8Array.of(3));
  assert.deepEqual(a.lost(), [{ control: "ptt", isDown: false }, { control: "emergency", isDown: false }]);
  const { filters, optionalServices } = chooserOptions(profiles);
  assert.ok(filters.some(filter => filter.namePrefix === "PTT-Z") && optionalServices.includes("0000ffe0-0000-1000-8000-00805f9b34fb"));
});

test("the page's files keep to what the relay serves, and load nothing from elsewhere", () => {
  for (const name of readdirSync(fileURLToPath(pageFolder))) {
    assert.match(name, /^[a-z0-9-]+\.(js|css|svg|html|json)$/);
    const text = read(name);
    for (const [address] of text.matchAll(/(https?|wss?):\/\/[^\s"'`$]+/g)) assert.equal(address, "http://www.w3.org/2000/svg", name);
    if (name.endsWith(".js")) {
      assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\bconsole\.[a-z]/, name);
      assert.ok(text.split("\n").length <= 310, `${name} is too long`);
    }
    if (name === "index.html") assert.doesNotMatch(text, /<script(?![^>]*src=)|<style|style=|onclick/);
  }
});

test("the page asks for all its modules at once", () => {
  const found = new Set();
  const walk = name => {
    for (const [, other] of read(name).matchAll(/from "\.\/([a-z0-9-]+\.js)"/g)) if (!found.has(other)) walk(other, found.add(other));
  };
  walk("main.js");
  const named = [...read("index.html").matchAll(/modulepreload" href="\/page\/([a-z0-9-]+\.js)"/g)].map(([, name]) => name);
  assert.deepEqual(named, [...found].sort());
});

test("random bytes are read as something or refused, and nothing else is thrown", () => {
  const random = new Random(42);
  const member = { memberId: new Uint8Array(16), displayName: "Ann", ssrc: 1 };
  const good = [
    encodeServer("welcome", { ssrc: 1, downlinkKey: new Uint8Array(16), mediaKey: { epoch: 1, baseKey: new Uint8Array(32) }, channelName: "Radio", memberId: new Uint8Array(16), members: [member, member] }),
    encodeServer("floorTaken", { memberId: new Uint8Array(16), ssrc: 7, keyId: 9n, priority: 255 }),
    encodeServer("burstList", { requestId: 1, bursts: [{ ...member, keyId: 5n, ageMs: 1 }] }),
  ];
  for (let round = 0; round < 40000; round++) {
    const bytes = random.below(2) ? random.bytes(random.below(80)) : Uint8Array.from(random.pick(good));
    for (let count = random.below(4); count > 0 && bytes.length > 0; count--) bytes[random.below(bytes.length)] = random.next();
    for (const reader of [decodeServer, parseAnswer, parseProof]) {
      try {
        reader(bytes);
      } catch (error) {
        assert.ok(error instanceof ProtocolError, `${reader.name} ${hex(bytes)}: ${error}`);
      }
    }
    parseRtp(bytes);
    parseSframe(bytes);
  }
});

// One press, without a browser.

function talking() {
  const made = { tones: [], told: [], wanted: false, sessions: [] };
  const microphone = { want: isWanted => { made.wanted = isWanted; } };
  made.session = (hasQueue = false) => {
    const session = { floor: { hasQueue }, calls: [], begin: id => session.calls.push("begin", id), frame: () => session.calls.push("frame"), end: () => session.calls.push("end"), abort: () => session.calls.push("abort") };
    return session;
  };
  made.talker = new Talker({
    microphone, tone: name => made.tones.push(name), tell: event => event.is !== "level" && made.told.push(event.is),
    makeEncoder: onframe => ({ encode: () => onframe({ payload: Uint8Array.of(1), samples: 480, captured: 0 }), finish: async () => {} }),
  });
  made.block = (count = 1, level = 0.1) => { for (let index = 0; index < count; index++) made.talker.block({ samples: new Float32Array(480).fill(level), captured: 0 }); };
  return made;
}

/** The browser's side of a microphone: openings are answered by `answers`, in order. */
async function withMicrophone(answers, body) {
  const made = { sources: [] };
  const context = {
    audioWorklet: { addModule: async () => {} },
    createMediaStreamSource(stream) {
      const source = { stream, isConnected: false, connect() { this.isConnected = true; }, disconnect() { this.isConnected = false; } };
      made.sources.push(source);
      return source;
    },
  };
  const before = [globalThis.navigator, globalThis.AudioWorkletNode];
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: { mediaDevices: { getUserMedia: async () => answers.shift() } } });
  globalThis.AudioWorkletNode = class { port = {}; };
  try {
    await body(Object.assign(made, { context, microphone: new Microphone(context) }));
  } finally {
    Object.defineProperty(globalThis, "navigator", { configurable: true, value: before[0] });
    globalThis.AudioWorkletNode = before[1];
  }
}

function microphoneStream() {
  const track = { readyState: "live", muted: false, enabled: true, addEventListener() {}, stop() { this.readyState = "ended"; } };
  return { track, getAudioTracks: () => [track], getTracks: () => [track] };
}

test("what has waited in the microphone's source is left behind after each burst, and never at a press", async () => {
  const stream = microphoneStream();
  await withMicrophone([stream], async ({ microphone, sources }) => {
    microphone.want(false);
    await microphone.open();
    assert.equal(stream.track.enabled, false);
    for (const burst of [1, 2, 3]) {
      microphone.want(true);
      assert.equal(sources.length, burst, "the press takes the source that is there");
      microphone.want(true);
      microphone.want(false);
      microphone.want(false);
      assert.equal(sources.length, burst + 1);
      assert.deepEqual(sources.map(source => source.isConnected), sources.map((_, index) => index === burst), "one source is heard");
    }
    microphone.close();
    microphone.want(true);
    microphone.want(false);
    assert.equal(sources.length, 4, "a microphone that is closed has none");
    assert.ok(!sources.some(source => source.isConnected));
  });
});

test("a microphone that is opened twice at once is heard once, by the later one", async () => {
  for (const order of [[0, 1], [1, 0]]) {
    const streams = [microphoneStream(), microphoneStream()], give = [];
    const answers = streams.map((_, index) => new Promise(resolve => { give[index] = resolve; }));
    await withMicrophone(answers, async ({ microphone, sources }) => {
      const opened = [microphone.open()];
      await new Promise(resolve => setImmediate(resolve));
      opened.push(microphone.open());
      await new Promise(resolve => setImmediate(resolve));
      for (const index of order) give[index](streams[index]);
      assert.deepEqual(await Promise.all(opened), [false, true]);
      assert.deepEqual(streams.map(stream => stream.track.readyState), ["ended", "live"]);
      assert.deepEqual(sources.filter(source => source.isConnected).map(source => source.stream), [streams[1]]);
    });
  }
  // The second one begins while the first one's code is loaded.
  const stream = microphoneStream();
  await withMicrophone([stream], async ({ microphone, sources, context }) => {
    let load;
    context.audioWorklet.addModule = () => new Promise(resolve => { load = resolve; });
    const first = microphone.open();
    context.audioWorklet.addModule = async () => {};
    assert.equal(await microphone.open(), true);
    load();
    assert.equal(await first, false);
    assert.equal(stream.track.readyState, "live");
    assert.equal(sources.length, 1);
  });
});

test("a microphone that is closed before the browser gives it stays closed", async () => {
  const stream = microphoneStream();
  let give;
  await withMicrophone([new Promise(resolve => { give = resolve; })], async ({ microphone, sources }) => {
    const opened = microphone.open();
    await new Promise(resolve => setImmediate(resolve));
    microphone.close();
    give(stream);
    assert.equal(await opened, false);
    assert.equal(stream.track.readyState, "ended");
    assert.equal(sources.length, 0);
  });
});

test("sound and a microphone whose code does not load are given up after ten seconds", async t => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const never = new Promise(() => {});
  const passed = async () => {
    for (let count = 0; count < 20; count++) await Promise.resolve();
    t.mock.timers.tick(10000);
  };
  await withMicrophone([], async ({ microphone, context }) => {
    context.audioWorklet.addModule = () => never;
    const opened = assert.rejects(microphone.open(), { message: "failed" });
    await passed();
    await opened;
  });
  const before = globalThis.AudioContext;
  globalThis.AudioContext = class {
    audioWorklet = { addModule: () => never };
    async resume() {}
  };
  try {
    const started = assert.rejects(new App({}).startSound(), { message: "load" });
    await passed();
    await started;
  } finally {
    globalThis.AudioContext = before;
  }
});

test("the go-ahead comes when the microphone delivers, not at the press", () => {
  const made = talking(), session = made.session();
  made.talker.press([session], {});
  assert.ok(made.wanted);
  assert.deepEqual(made.tones, []);
  made.block();
  assert.deepEqual(made.tones, ["goAhead"]);
});

test("after a release 200 ms more are taken, then the microphone is closed", async () => {
  const made = talking(), session = made.session();
  made.talker.press([session], {});
  made.block(5);
  made.talker.release();
  made.block(19);
  assert.ok(made.wanted);
  made.block(10);
  assert.ok(!made.wanted);
  await new Promise(resolve => setTimeout(resolve, 5));
  assert.equal(session.calls.filter(call => call === "frame").length, 25);
  assert.equal(session.calls.at(-1), "end");
  made.talker.uplink(session, { what: "ended", burst: made.talker.burst, reason: "completed", sent: 25 });
  assert.deepEqual(made.tones, ["goAhead", "end"]);
});

test("nothing is recorded while a press waits for its turn, and the go-ahead comes with the grant", () => {
  const made = talking(), session = made.session(true);
  made.talker.press([session], { waits: true });
  made.block(3);
  made.talker.uplink(session, { what: "queued", burst: made.talker.burst, position: 1 });
  assert.ok(!made.wanted);
  assert.deepEqual(made.tones, ["wait"]);
  made.talker.uplink(session, { what: "granted", burst: made.talker.burst });
  assert.ok(made.wanted);
  made.block();
  assert.deepEqual(made.tones, ["wait", "goAhead"]);
});

test("a silent microphone warns after a second, and ends the burst after three", () => {
  const made = talking(), session = made.session();
  made.talker.press([session], {});
  made.block(100, 0);
  assert.deepEqual(made.tones, ["goAhead", "warning"]);
  made.block(250, 0);
  assert.equal(made.tones.at(-1), "fault");
  assert.ok(session.calls.includes("abort"));
  assert.ok(!made.wanted);
});

test("one channel's refusal does not end what another carries", () => {
  const made = talking(), first = made.session(), second = made.session();
  made.talker.press([first, second], {});
  const { burst } = made.talker;
  made.talker.uplink(first, { what: "ended", burst, reason: "denied", cause: 1, sent: 0 });
  assert.ok(made.talker.isBusy);
  made.talker.uplink(second, { what: "ended", burst, reason: "revoked", cause: 2, sent: 3 });
  assert.ok(!made.talker.isBusy);
  assert.equal(made.tones.at(-1), "deny");
});

test("a press within the tail is a burst of its own", async () => {
  const made = talking(), session = made.session();
  made.talker.press([session], {});
  const first = made.talker.burst;
  made.block(5);
  made.talker.release();
  made.block(2);
  made.talker.press([session], {});
  await new Promise(resolve => setTimeout(resolve, 5));
  assert.notEqual(made.talker.burst, first);
  assert.deepEqual(session.calls.filter(call => call !== "frame"), ["begin", first, "end", "begin", made.talker.burst]);
  assert.ok(made.wanted);
});

test("a press while the burst before it waits for its grant is recorded from its first word", async () => {
  const made = talking(), session = made.session();
  made.talker.press([session], {});
  made.block(5);
  made.talker.release();
  made.block(20);
  await new Promise(resolve => setTimeout(resolve, 5));
  assert.ok(!made.wanted);
  session.calls.length = 0;
  made.talker.press([session], {});
  assert.deepEqual(session.calls, ["begin", "burst 2"]);
  assert.ok(made.wanted);
  made.talker.uplink(session, { what: "ended", burst: "burst 1", reason: "completed", sent: 25 });
  made.block(3);
  made.talker.release();
  made.block(20);
  await new Promise(resolve => setTimeout(resolve, 5));
  assert.deepEqual(session.calls.slice(2), [...Array(23).fill("frame"), "end"]);
});

test("a press right after one that was stopped is recorded and released, though the encoder before it is still busy", async () => {
  const made = talking(), session = made.session();
  let isDone;
  const { makeEncoder } = made.talker;
  made.talker.makeEncoder = onframe => ({ ...makeEncoder(onframe), finish: () => new Promise(resolve => { isDone = resolve; }) });
  made.talker.press([session], {});
  made.block(2);
  made.talker.release();
  made.block(30);
  made.talker.stop("link");
  made.talker.makeEncoder = makeEncoder;
  session.calls.length = 0;
  made.talker.press([session], {});
  made.block(3);
  assert.deepEqual(session.calls, ["begin", made.talker.burst, "frame", "frame", "frame"]);
  made.talker.release();
  made.block(20);
  await new Promise(resolve => setTimeout(resolve, 5));
  assert.equal(session.calls.at(-1), "end");
  isDone();
});

test("an encoder that never finishes keeps neither the end of a burst nor the next press back", async () => {
  const made = talking(), session = made.session();
  const encoders = [];
  const before = [globalThis.AudioEncoder, globalThis.AudioData];
  globalThis.AudioData = class { close() {} };
  globalThis.AudioEncoder = class {
    state = "configured";
    constructor({ output }) { encoders.push(Object.assign(this, { output })); }
    configure() {}
    encode() { this.output({ byteLength: 1, copyTo() {} }); }
    flush() { return new Promise(() => {}); }
    close() { this.state = "closed"; }
  };
  try {
    made.talker.makeEncoder = (onframe, onerror) => new Encoder({ config: {}, samples: 480 }, onframe, onerror);
    made.talker.press([session], {});
    made.block(5);
    made.talker.release();
    made.block(20);
    await new Promise(resolve => setTimeout(resolve, 600));
    assert.equal(session.calls.at(-1), "end");
    assert.equal(encoders[0].state, "closed");
    made.talker.uplink(session, { what: "ended", burst: made.talker.burst, reason: "completed", sent: 25 });
    made.talker.press([session], {});
    made.block(5);
    made.talker.release();
    made.talker.press([session], {});
    await new Promise(resolve => setTimeout(resolve, 600));
    assert.deepEqual(session.calls.slice(-3), ["end", "begin", "burst 3"]);
    made.talker.stop("link");
    await new Promise(resolve => setTimeout(resolve, 600));
    assert.ok(encoders.length === 3 && encoders.every(encoder => encoder.state === "closed"));
  } finally {
    [globalThis.AudioEncoder, globalThis.AudioData] = before;
  }
});

test("an encoder that fails ends its own burst, not the one after it", () => {
  const made = talking(), session = made.session();
  const { makeEncoder } = made.talker, fail = [];
  made.talker.makeEncoder = (onframe, onerror) => {
    fail.push(onerror);
    return makeEncoder(onframe);
  };
  made.talker.press([session], {});
  made.talker.stop("link");
  made.talker.press([session], {});
  fail[0]();
  assert.ok(made.talker.isBusy);
  fail[1]();
  assert.ok(!made.talker.isBusy);
  assert.equal(made.tones.at(-1), "fault");
});

test("the go-ahead waits for sound from the microphone, but not for long", () => {
  const made = talking();
  made.talker.press([made.session()], {});
  made.block(3, 0);
  assert.deepEqual(made.tones, []);
  made.block();
  assert.deepEqual(made.tones, ["goAhead"]);
  const muted = talking();
  muted.talker.press([muted.session()], {});
  muted.block(30, 0);
  assert.deepEqual(muted.tones, ["goAhead"]);
});

test("a microphone that is silent between words by itself is left alone", () => {
  const watch = new SilenceWatch();
  const feed = (count, isSilent) => Array.from({ length: count }, () => watch.take(isSilent)).filter(Boolean);
  watch.begin();
  for (let word = 0; word < 4; word++) feed(20, false), feed(10, true);
  assert.deepEqual(feed(400, true), []);
  watch.begin();
  assert.deepEqual(feed(400, true).slice(0, 3), ["begun", "warning", "end"]);
});
