// The page in a real browser. Each test is a sentence about what people see and hear.
import assert from "node:assert/strict";

import { noteSubscription } from "../support/simulated-button.js";
import { pause } from "./world.js";

const script = "<img src=x onerror=\"document.title='broken'\"><b>Eve</b>";
const hears = page => page.until("a voice", "Number(document.querySelector('.channel .talk').dataset.level) > 0.3");
const text = (page, selector) => page.value(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`);

export const tests = [];
const add = (name, run, needsOwnRelay = true) => tests.push({ name, run, needsOwnRelay });
/** Of what Chromium alone has, or lets a test do. */
const addForChromium = (name, run, more = {}) => tests.push({ name, run, needsOwnRelay: true, needsChromium: true, ...more });
/** One that changes how the relay treats everybody. */
const addAlone = (name, run) => tests.push({ name, run, needsOwnRelay: true, isAlone: true });

add("whoever holds the button is heard, and nobody else's page says so", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.listen(channel, "Bob", { dark: true })]);
  await world.picture(ann, "phone-idle");
  const release = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  await world.state(bob, "hearing");
  await hears(bob);
  assert.equal(await text(bob, ".who-main"), "Ann is talking");
  await pause(700);
  await world.picture(ann, "phone-talking");
  await world.picture(bob, "phone-hearing-dark");
  await release();
  await world.state(ann, "idle");
  await world.state(bob, "idle");
  if (!world.relay) return;
  const member = world.member("Ann", channel);
  const request = member.got("floorRequest")[0], end = member.got("floorRelease")[0];
  assert.ok(member.media.every(({ at }) => at >= request.at && at <= end.at));
  assert.ok(member.media.length > 60, `${member.media.length} packets`);
  const reports = world.member("Bob", channel).got("receptionReport");
  assert.deepEqual([reports.at(-1).received, reports.at(-1).lost], [member.media.length, 0]);
}, false);

/** Records how loud each 21 ms of the page's sound is. */
const tap = `const connect = AudioNode.prototype.connect; window.loud = [];
  AudioNode.prototype.connect = function (to, ...rest) {
    if (this instanceof AudioWorkletNode && to === this.context.destination) {
      const tap = this.context.createScriptProcessor(1024, 2, 1);
      tap.onaudioprocess = event => {
        const samples = event.inputBuffer.getChannelData(0);
        window.loud.push([performance.timeOrigin + performance.now(), Math.hypot(...samples) / 32]);
      };
      connect.call(this, tap);
      connect.call(tap, this.context.destination);
    }
    return connect.call(this, to, ...rest);
  };`;

addAlone("what is heard is whole, soon after it is said", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.listen(channel, "Bob", { before: tap })]);
  bob.expected = /ScriptProcessor/;
  // On a calm machine there are no gaps. One that is halted for a moment has some, but not in most of a few bursts.
  const notes = [];
  let whole = 0;
  for (let burst = 0; burst < 5; burst++) {
    const before = world.member("Ann", channel).media.length, pressedAt = Date.now();
    const release = await ann.press(".channel .talk");
    await pause(2500);
    await release();
    await world.state(bob, "hearing");
    await world.state(bob, "idle");
    const loud = await bob.value("window.loud");
    const heard = loud.filter(([at]) => at > pressedAt).map(([at, level]) => ({ at, isLoud: level > 0.003 }));
    const first = heard.findIndex(each => each.isLoud), last = heard.findLastIndex(each => each.isLoud);
    assert.ok(first >= 0, "nothing was heard");
    const gaps = heard.slice(first, last).filter(each => !each.isLoud).length;
    const said = (world.member("Ann", channel).media.length - before) * 10, length = (last - first + 1) * 1024 / 48;
    notes.push(`after ${Math.round(heard[first].at - pressedAt)} ms, ${Math.round(length)} of ${said} ms, ${gaps} gaps`);
    world.note = notes.join("; ");
    if (heard[first].at - pressedAt < 2000 && length > said * 0.8 && length < said * 1.3 && gaps * 1024 / 48 < said * 0.2) whole++;
    if (burst === 0 && whole) return;
  }
  assert.ok(whole >= 3, world.note);
});

add("the space bar talks, repeats do not, and losing the focus lets go", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.listen(channel, "Bob")]);
  await ann.value("document.activeElement.blur()");
  await ann.key("keyDown", " ", "Space");
  await world.state(ann, "talking");
  for (let count = 0; count < 5; count++) await ann.key("keyDown", " ", "Space", { autoRepeat: true });
  await world.state(bob, "hearing");
  await ann.value("window.dispatchEvent(new Event('blur'))");
  await world.state(bob, "idle");
  await ann.key("keyDown", " ", "Space", { autoRepeat: true });
  await pause(300);
  await world.state(ann, "idle");
  await ann.key("keyUp", " ", "Space");
  await ann.key("keyDown", " ", "Space");
  await world.state(bob, "hearing");
  await ann.key("keyUp", " ", "Space");
  await world.state(bob, "idle");
}, false);

add("the space bar lets go also on a button that got the focus while it was held", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.listen(channel, "Bob")]);
  for (const selector of [".channel .talk", ".channel .emergency"]) {
    await ann.value("document.activeElement.blur()");
    await ann.key("keyDown", " ", "Space");
    await world.state(bob, "hearing");
    await ann.click(selector);
    await world.state(ann, "talking");
    await ann.key("keyUp", " ", "Space");
    await world.state(ann, "idle");
    await world.state(bob, "idle");
    const release = await ann.press(".channel .talk");
    await world.state(ann, "talking");
    await world.state(bob, "hearing");
    await release();
    await world.state(ann, "idle");
    await world.state(bob, "idle");
  }
}, false);

add("a page that is closed while its person talks frees the floor at once", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.listen(channel, "Bob")]);
  await ann.press(".channel .talk");
  await world.state(bob, "hearing");
  await ann.close();
  const closedAt = Date.now();
  await world.state(bob, "idle");
  assert.ok(Date.now() - closedAt < 2000, "it took too long");
  await bob.until("nobody else", "document.querySelector('.members summary').innerText.includes('Nobody')");
}, false);

add("a page that is hidden lets go", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.listen(channel, "Bob")]);
  await ann.press(".channel .talk");
  await world.state(bob, "hearing");
  await ann.value("Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true }), document.dispatchEvent(new Event('visibilitychange'))");
  await world.state(ann, "idle");
  await world.state(bob, "idle");
}, false);

addForChromium("a cancelled touch lets go, and a screen reader's click begins and ends", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann", { mobile: true }), world.listen(channel, "Bob")]);
  const at = await ann.middle(".channel .talk");
  await ann.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [at] });
  await world.state(bob, "hearing");
  await ann.send("Input.dispatchTouchEvent", { type: "touchCancel", touchPoints: [] });
  await world.state(ann, "idle");
  await pause(600);
  await ann.value("document.querySelector('.channel .talk').click()");
  await world.state(ann, "talking");
  await pause(300);
  await ann.value("document.querySelector('.channel .talk').click()");
  await world.state(ann, "idle");
}, { needsOwnRelay: false });

add("of three quick clicks of a screen reader the last one talks, and can be ended", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.listen(channel, "Bob")]);
  const click = "document.querySelector('.channel .talk').click()";
  const hide = "Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true }), document.dispatchEvent(new Event('visibilitychange'))";
  for (const end of [click, hide]) {
    await ann.value(`(${click}, ${click}, ${click})`);
    await world.state(bob, "hearing");
    await world.state(ann, "talking");
    await ann.value(end);
    await world.state(ann, "idle");
    await world.state(bob, "idle");
  }
}, false);

add("names with script in them stay text", async world => {
  const channel = world.channel(script);
  const ann = await world.join(channel, "Ann");
  channel.others(null, "memberJoined", { member: { memberId: Buffer.alloc(16, 7), displayName: `${script}\u202e`, ssrc: 99 } });
  channel.others(null, "floorTaken", { memberId: Buffer.alloc(16, 7), ssrc: 99, keyId: 5n, priority: 255 });
  await ann.until("the name", "document.querySelector('.who-main').textContent.includes('<b>Eve</b>')");
  assert.equal(await ann.value("document.images.length"), 0);
  assert.equal(await ann.value("document.querySelectorAll('.channel b, .alarm b').length"), 0);
  assert.doesNotMatch(await ann.value("document.title"), /broken|token/);
  assert.ok(!(await ann.value("document.body.textContent")).includes("\u202e"));
});

add("an emergency needs a second, takes the floor, and sounds at others until it is acknowledged", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.join(channel, "Bob")]);
  const touch = await ann.press(".emergency");
  await pause(300);
  await touch();
  await pause(200);
  if (world.relay) assert.equal(world.member("Ann", channel).got("floorRequest").length, 0);
  const bobUp = await bob.press(".channel .talk");
  await world.state(bob, "talking");
  const release = await ann.press(".emergency");
  await pause(500);
  await world.picture(ann, "phone-emergency-holding");
  await world.state(ann, "talking");
  await world.state(bob, "hearing");
  if (world.relay) assert.equal(world.member("Ann", channel).got("floorRequest")[0].priority, 255);
  assert.match(await text(bob, ".alarm"), /EMERGENCY[\s\S]*Ann on /);
  await hears(bob);
  await world.picture(bob, "phone-alarm");
  await world.picture(ann, "phone-emergency-talking");
  await bobUp();
  await release();
  await world.state(ann, "idle");
  await bob.until("that it is over", "document.querySelector('.alarm')?.innerText.includes('is over')");
  await bob.click(".alarm button");
  await bob.until("no alarm", "document.querySelector('.alarm') === null");
}, false);

add("an emergency that ends while the connection is lost is over on the page, too", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  ann.expected = /WebSocket/;
  channel.others(null, "floorTaken", { memberId: Buffer.alloc(16, 7), ssrc: 99, keyId: 5n, priority: 255 });
  await ann.until("the alarm", "document.querySelector('.alarm') !== null");
  const before = world.member("Ann", channel);
  before.frames.cut();
  await ann.until("that it is over", "document.querySelector('.alarm')?.innerText.includes('is over')");
  assert.notEqual(world.member("Ann", channel), before);
  await ann.click(".alarm button");
  await ann.until("no alarm", "document.querySelector('.alarm') === null");
});

add("a refused emergency is asked for again while its button is held", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  channel.denial = { cause: 1 };
  const release = await ann.press(".emergency");
  await ann.until("the word", "document.querySelector('.emergency small').innerText.includes('Another')");
  channel.denial = null;
  for (const member of channel.members) member.send("floorIdle", { ssrc: 1 });
  await world.state(ann, "talking");
  await release();
  await world.state(ann, "idle");
});

add("refusals are told in words, and nothing is sent", async world => {
  const channel = world.channel();
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.join(channel, "Bob")]);
  const bobUp = await bob.press(".channel .talk");
  await world.state(ann, "hearing");
  const release = await ann.press(".channel .talk");
  await world.state(ann, "refused");
  assert.equal(await text(ann, ".who-sub"), "Bob is talking.");
  await world.picture(ann, "phone-refused");
  await release();
  await bobUp();
  for (const [cause, words] of [[3, "Nobody would hear you."], [6, "The relay cannot grant it now."]]) {
    channel.denial = { cause };
    await ann.until("quiet", "document.querySelector('.channel').dataset.state !== 'hearing'");
    const up = await ann.press(".channel .talk");
    await ann.until(words, `document.querySelector('.who-sub').innerText === ${JSON.stringify(words)}`);
    await up();
  }
  assert.equal(world.member("Ann", channel).media.length, 0);
});

add("a press that waits shows its place, and talks when it is its turn", async world => {
  const channel = world.channel("Queue", { hasFloorQueue: true });
  const [ann, bob] = await Promise.all([world.join(channel, "Ann"), world.join(channel, "Bob")]);
  const bobUp = await bob.press(".channel .talk");
  await world.state(ann, "hearing");
  const release = await ann.press(".channel .talk");
  await world.state(ann, "queued");
  assert.match(await text(ann, ".who-main"), /You are next/);
  await world.picture(ann, "phone-queued");
  await pause(300);
  assert.equal(world.member("Ann", channel).media.length, 0);
  await bobUp();
  await world.state(ann, "talking");
  await pause(600);
  await release();
  await world.state(ann, "idle");
  assert.ok(world.member("Ann", channel).media.length > 0);
});

add("the relay takes the floor back, and the page says why", async world => {
  const channel = world.channel("Short", { talkTimeLimitMs: 1500 });
  const ann = await world.join(channel, "Ann");
  const release = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  await world.state(ann, "refused");
  assert.equal(await text(ann, ".who-sub"), "Your talk time is over.");
  await pause(500);
  assert.equal(world.member("Ann", channel).got("floorRequest").length, 1, "a button that stays down pressed again");
  await release();
});

const noMicrophone = name => `navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("no", "${name}"); };`;

add("a refused microphone is told before anybody talks, and listening works", async world => {
  const channel = world.channel();
  const bob = await world.join(channel, "Bob");
  const ann = await world.open(world.address(channel), { before: noMicrophone("NotAllowedError") });
  await ann.fill("#name", "Ann");
  await ann.click("button.try");
  await ann.until("the word", "document.querySelector('.mic-state').innerText.includes('may not use the microphone')");
  await world.picture(ann, "phone-microphone-refused");
  await ann.click("button.join");
  await world.connected(ann);
  const release = await bob.press(".channel .talk");
  await world.state(ann, "hearing");
  await hears(ann);
  await release();
  await world.state(ann, "idle");
  await ann.click(".channel .talk");
  await ann.until("the word", "document.querySelector('.who-sub').innerText.includes('No microphone')");
  assert.equal(world.member("Ann", channel).got("floorRequest").length, 0);
});

add("a microphone that gives no sound is told before anybody talks", async world => {
  const silent = `navigator.mediaDevices.getUserMedia = async () => { const context = new AudioContext(); const node = context.createConstantSource();
    const gain = context.createGain(); gain.gain.value = 0; const out = context.createMediaStreamDestination(); node.connect(gain).connect(out); node.start(); return out.stream; };`;
  const ann = await world.open(world.address(world.channel()), { before: silent });
  await ann.fill("#name", "Ann");
  await ann.click("button.try");
  await ann.until("the word", "document.querySelector('.mic-state').innerText.includes('Nothing is heard')");
});

add("a browser that plays no sound is told before anybody talks", async world => {
  const ann = await world.open(world.address(world.channel()), { before: "AudioContext.prototype.resume = () => new Promise(() => {});" });
  await ann.fill("#name", "Ann");
  await ann.click("button.try");
  await ann.until("the word", "document.querySelector('.mic-state').innerText.includes('plays no sound')");
  await ann.click("button.join");
  await world.connected(ann);
});

addForChromium("a microphone that goes while its person talks frees the floor", async world => {
  const channel = world.channel();
  const keep = `const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async wish => { const stream = await open(wish); window.track = stream.getAudioTracks()[0]; return stream; };`;
  const ann = await world.join(channel, "Ann", { before: keep });
  const release = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  await ann.value("window.track.dispatchEvent(new Event('ended'))");
  await world.state(ann, "refused");
  assert.equal(await text(ann, ".who-sub"), "Your microphone gives no sound.");
  assert.equal(channel.holders.length, 0);
  await release();
});

add("a console talks to one channel, to all that are selected, and mutes one", async world => {
  const channels = ["Fire", "Police", "Rescue"].map(name => world.channel(name));
  const ann = await world.join(channels, "Ann", { width: 1280, height: 900 });
  const bob = await world.join(channels[1], "Bob");
  const one = await ann.press(".card .talk", 1);
  await world.state(ann, "talking", 1);
  await world.state(bob, "hearing");
  await world.state(ann, "idle", 0);
  await one();
  await world.state(bob, "idle");
  await ann.click(".card .select input", 1);
  const all = await ann.press(".talk.wide");
  await world.state(ann, "talking", 0);
  await world.state(ann, "talking", 1);
  await world.state(ann, "idle", 2);
  await world.picture(ann, "desk-talking");
  await all();
  await world.state(ann, "idle", 0);
  assert.deepEqual(channels.map(channel => channel.bursts.length), [1, 2, 0]);
  const bobUp = await bob.press(".channel .talk");
  await world.state(ann, "hearing", 1);
  await ann.click(".card .volume .round", 1);
  await ann.until("muted", "document.querySelectorAll('.card .volume .round')[1].getAttribute('aria-pressed') === 'true'");
  await world.picture(ann, "desk-hearing");
  await bobUp();
  await world.state(ann, "idle", 1);
});

add("the last messages are heard again, also those from before", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  const release = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  await pause(900);
  await release();
  await world.state(ann, "idle");
  const bob = await world.listen(channel, "Bob");
  await bob.until("the message", "document.querySelectorAll('.message-list li').length === 1");
  await bob.click(".message-list button");
  await bob.until("it is played", "document.querySelector('.message-list li').dataset.playing === 'true'");
  await bob.until("its sound", "Number(document.querySelector('.channel .talk').dataset.level) >= 0 && document.querySelector('.message-list li').dataset.playing === 'false'");
  const requests = world.member("Bob", channel).got("burstRequest").length;
  assert.ok(requests > 0);
  const again = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  await pause(500);
  await again();
  await world.state(bob, "idle");
  await bob.until("two messages", "document.querySelectorAll('.message-list li').length === 2");
  await bob.click(".message-list button", 0);
  await bob.until("it is played", "document.querySelector('.message-list li').dataset.playing === 'true'");
  assert.equal(world.member("Bob", channel).got("burstRequest").length, requests, "what was heard here was fetched");
});

add("whoever joins within a message hears it from its beginning", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  const release = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  await pause(1000);
  const bob = await world.listen(channel, "Bob");
  await world.state(bob, "hearing");
  await hears(bob);
  await release();
  await world.state(bob, "idle");
  const said = world.member("Ann", channel).media.length;
  const length = await bob.until("the message", "document.querySelector('.message-length')?.innerText");
  assert.equal(length, `0:${String(Math.floor(said / 100)).padStart(2, "0")}`);
});

addAlone("a lost connection is told, the floor is given up, and the page comes back by itself", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  ann.expected = /WebSocket/;
  const release = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  world.relay.refuses = true;
  world.member("Ann", channel).frames.cut();
  await ann.until("the word", "document.querySelector('.who-sub').innerText.includes('Trying again')");
  await world.picture(ann, "phone-lost");
  world.relay.refuses = false;
  await world.connected(ann);
  await release();
  await world.state(ann, "idle");
});

addAlone("a relay that does not acknowledge is not talked to", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  world.relay.acknowledges = false;
  const release = await ann.press(".channel .talk");
  await world.state(ann, "talking");
  await ann.until("the word", "document.querySelector('.who-sub').innerText.includes('last seconds were not heard') || document.querySelector('.who-sub').innerText.includes('lost')");
  world.relay.acknowledges = true;
  await world.connected(ann);
  await release();
});

add("what a relay sends wrong ends the connection with a word, not the page", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  world.member("Ann", channel).seal(1, Buffer.from("2a020800", "hex"));
  await ann.until("the word", "document.querySelector('.who-sub').innerText.includes('something wrong')");
  await world.connected(ann);
});

add("a relay with another key than the link's gets nothing", async world => {
  const channel = world.channel();
  const address = world.address(channel).replace(/pin=...../, "pin=AAAAA");
  const ann = await world.open(address);
  await ann.fill("#name", "Ann");
  await ann.click("button.join");
  await ann.until("the word", "document.querySelector('.who-sub')?.innerText.includes('not the relay of the invitation')");
  assert.equal(channel.members.length, 0);
});

add("a damaged link is told, and a pasted one is taken", async world => {
  const channel = world.channel();
  const ann = await world.open(`http://${world.relay.host}/#localhost:1/x?token=abc`);
  await ann.until("the word", "document.querySelector('.problem')?.innerText.includes('damaged')");
  await ann.fill("#link", `ptt://${channel.link(world.relay.host)}`);
  await ann.click("form .primary");
  await ann.until("the channel", "document.querySelector('.channels-to-join')?.innerText.includes('Radio 7')");
  assert.match(await ann.value("location.hash"), /token=/);
});

add("loading again keeps the channel, the name and the key of the device", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  const before = channel.members[0].id.toString("hex");
  await ann.reload();
  await ann.until("the name", "document.querySelector('#name')?.value === 'Ann'");
  await ann.click("button.join");
  await world.connected(ann);
  assert.equal(channel.members[0].id.toString("hex"), before);
  assert.equal(await ann.value("new Promise(done => { const open = indexedDB.open('pttd'); open.onsuccess = () => { const get = open.result.transaction('kept').objectStore('kept').get('channels'); get.onsuccess = () => done(get.result === undefined); }; })"), true, "channels are kept though nobody said so");
  assert.equal(await ann.value("new Promise(done => { const open = indexedDB.open('pttd'); open.onsuccess = () => { const get = open.result.transaction('kept').objectStore('kept').get('identity'); get.onsuccess = () => done(get.result.privateKey.extractable); }; })"), false);
});

add("the page speaks Korean, French and German", async world => {
  for (const [language, words, name] of [["ko-KR", "눌러서 말하기", "ko"], ["fr-FR", "Tenez pour parler", "fr"], ["de-DE", "Zum Sprechen halten", "de"]]) {
    const page = await world.join(world.channel(), "Ann", { language });
    assert.equal(await text(page, ".channel .talk .label"), words);
    assert.equal(await page.value("document.documentElement.lang"), name);
    await world.picture(page, `phone-${name}`);
  }
});

add("everything is reached and worked by the keyboard", async world => {
  const ann = await world.join(world.channel(), "Ann");
  await ann.value("document.activeElement.blur()");
  const reached = new Set();
  for (let count = 0; count < 12; count++) {
    await ann.key("keyDown", "Tab");
    await ann.key("keyUp", "Tab");
    reached.add(await ann.value("document.activeElement.className || document.activeElement.tagName"));
  }
  for (const part of ["talk", "emergency", "round", "INPUT", "SUMMARY"]) assert.ok([...reached].some(each => each.includes(part)), `${part}: ${[...reached]}`);
  await ann.value("document.querySelector('.channel .talk').focus()");
  const outline = await ann.value("(({ outlineStyle, outlineColor }) => `${outlineStyle} ${outlineColor}`)(getComputedStyle(document.activeElement))");
  // A window of Firefox that is not in front shows no focus.
  if (!world.values.firefox) assert.match(outline, /^solid rgb\(2\d, /, `the focus is not seen on a light page: ${outline}`);
  await ann.key("keyDown", "Enter");
  await world.state(ann, "talking");
  await ann.key("keyUp", "Enter");
  await world.state(ann, "idle");
  const unnamed = await ann.value("[...document.querySelectorAll('button, input, select')].filter(each => each.offsetParent && !each.innerText?.trim() && !each.getAttribute('aria-label') && !each.labels?.length).length");
  assert.equal(unnamed, 0);
});

add("on a full-duplex channel two talk at once, and both are named", async world => {
  const channel = world.channel("Open", { floorMode: 2 });
  const [ann, bob, eve] = await Promise.all(["Ann", "Bob", "Eve"].map(name => world.join(channel, name)));
  const annUp = await ann.press(".channel .talk");
  await world.state(bob, "hearing");
  const bobUp = await bob.press(".channel .talk");
  await world.state(bob, "talking");
  await eve.until("both", "/Ann, Bob are talking|Bob, Ann are talking/.test(document.querySelector('.who-main').innerText)");
  await annUp();
  await eve.until("one", "document.querySelector('.who-main').innerText === 'Bob is talking'");
  await bobUp();
  await world.state(eve, "idle");
});

/** The person chooses another language in the settings; the page is drawn anew. */
async function speakGerman(page) {
  await page.value(`(chooser => { chooser.value = "de"; chooser.dispatchEvent(new Event("change")); })(document.querySelector(".settings select"))`);
  await page.until("German", "document.querySelector('.channel .talk .label')?.innerText === 'Zum Sprechen halten'");
}

addAlone("the settings show in another language, too, that the key of a headset is switched on", async world => {
  const ann = await world.join(world.channel(), "Ann");
  const isChecked = "document.querySelector('#headset').checked";
  await ann.click(".bar .round");
  await ann.click("#headset");
  await ann.until("the key", "navigator.mediaSession.metadata !== null");
  await speakGerman(ann);
  assert.equal(await ann.value(isChecked), true);
  await ann.click(".bar .round");
  await ann.click("#headset");
  assert.equal(await ann.value(isChecked), false);
});

const full = short => `0000${short}-0000-1000-8000-00805f9b34fb`;

/** The person chooses the button in the settings and in the browser's chooser. */
async function connect(page, button) {
  const { asked } = await button.chosenIn(page);
  await page.click(".bar .round");
  await page.click(".settings section > button");
  await asked;
  await page.until("the word", `document.querySelector('.settings').innerText.includes(${JSON.stringify(`${button.name} is connected`)})`);
}

addForChromium("a Bluetooth button talks, also while the page is not in front, and its loss lets go", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann", { before: noteSubscription });
  const button = await world.button({ address: "C4:11:11:11:11:11", name: "PTT-Z01", advertised: [], service: full("ffe0"), characteristic: full("ffe1") });
  await connect(ann, button);
  await button.tell(ann, 1);
  await world.state(ann, "talking");
  await ann.value("window.dispatchEvent(new Event('blur'))");
  await pause(300);
  await world.state(ann, "talking");
  await button.tell(ann, 0);
  await world.state(ann, "idle");
  await button.tell(ann, 1);
  await world.state(ann, "talking");
  await button.goAway();
  await world.state(ann, "idle");
  await ann.until("the word", "document.querySelector('.settings').innerText.includes('PTT-Z01 is not connected')");
  await button.comeBack();
  await ann.until("it is back", () => button.subscriptions === 2, 15000);
  await ann.until("the word", "document.querySelector('.settings').innerText.includes('PTT-Z01 is connected')");
  await button.tell(ann, 1);
  await world.state(ann, "talking");
  await button.tell(ann, 0);
  await world.state(ann, "idle");
}, { isAlone: true });

addForChromium("a Bluetooth button with an emergency key asks for a second of it", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann", { before: noteSubscription });
  const button = await world.button({
    address: "C4:22:22:22:22:22", name: "APTT0001", advertised: ["127face1-cb21-11e5-93d0-0002a5d5c51b"],
    service: "127face1-cb21-11e5-93d0-0002a5d5c51b", characteristic: "127fbeef-cb21-11e5-93d0-0002a5d5c51b",
  });
  await connect(ann, button);
  await button.tell(ann, 128 | 1);
  await world.state(ann, "talking");
  await button.tell(ann, 128);
  await world.state(ann, "idle");
  await button.tell(ann, 2);
  await pause(300);
  await button.tell(ann, 0);
  await pause(1200);
  assert.deepEqual(world.member("Ann", channel).got("floorRequest").map(each => each.priority), [0]);
  await button.tell(ann, 2);
  await world.state(ann, "talking");
  assert.equal(world.member("Ann", channel).got("floorRequest").at(-1).priority, 255);
  await ann.value("window.dispatchEvent(new Event('blur'))");
  await pause(300);
  await world.state(ann, "talking");
  await button.tell(ann, 0);
  await world.state(ann, "idle");
  const says = words => ann.until("the word", `document.querySelector(".settings").textContent.includes(${JSON.stringify(words)})`);
  await speakGerman(ann);
  await says("APTT0001 ist verbunden.");
  await button.goAway();
  await says("APTT0001 ist nicht verbunden.");
}, { isAlone: true });

add("the key of a headset begins and ends", async world => {
  const channel = world.channel();
  const ann = await world.join(channel, "Ann");
  await ann.click(".bar .round");
  await ann.click("#headset");
  const player = await ann.until("the key", async () => (await world.bus.players())[0]);
  await world.bus.key(player, "PlayPause");
  await world.state(ann, "talking");
  await ann.value("window.dispatchEvent(new Event('blur'))");
  await pause(300);
  await world.state(ann, "talking");
  await world.bus.key(player, "PlayPause");
  await world.state(ann, "idle");
  await world.bus.key(player, "PlayPause");
  await world.state(ann, "talking");
  await world.bus.key(player, "Pause");
  await world.state(ann, "idle");
  await ann.click("#headset");
  await pause(300);
  for (const name of await world.bus.players()) await world.bus.key(name, "PlayPause");
  await pause(500);
  assert.equal(world.member("Ann", channel).got("floorRequest").length, 2, "the key still talks though it was given back");
});
