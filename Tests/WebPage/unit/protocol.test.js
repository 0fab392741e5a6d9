// What is on the wire, against the values that docs/relay-protocol.md and RFC 9605 give.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { concat, equal, fromBase64url, hex, unhex, utf8 } from "../../../Sources/RelayWeb/Page/bytes.js";
import { Answers, parseAnswer } from "../../../Sources/RelayWeb/Page/answers.js";
import { decodeClient, decodeServer, encodeClient, encodeServer, ProtocolError } from "../../../Sources/RelayWeb/Page/messages.js";
import { opusSamples, parseRtp, rtpHeader, sequenceDistance } from "../../../Sources/RelayWeb/Page/rtp.js";
import { shareOf } from "../../../Sources/RelayWeb/Page/invitation.js";
import { labels, openFrame, parseSframe, sealFrame, sframeHeader, sframeKey } from "../../../Sources/RelayWeb/Page/sframe.js";

const root = new URL("../../../", import.meta.url);
const text = readFileSync(new URL("docs/relay-protocol.md", root), "utf8");
const vectors = Object.fromEntries([...text.matchAll(/^([a-z0-9_]+) = ([0-9a-f]+)$/gm)].map(([, name, value]) => [name, value]));
const vector = name => unhex(vectors[name]);
const message = name => vector(name).subarray(4);

const channelId = unhex("0f9b2c4e1a2b4c3d8e4f5a6b7c8d9e0f");
const memberId = unhex("202122232425262728292a2b2c2d2e2f");
const ssrc = 0x12345678, keyId = 0x0007a1b2c3d4e5f6n;

const clientMessages = {
  join_message: ["join", { channelId, invitationToken: unhex("000102030405060708090a0b0c0d0e0f"), displayName: "Radio 7", protocolVersion: 1, pushOnly: false }],
  floor_request_message: ["floorRequest", { requestId: 1, priority: 0, keyId, mayQueue: false }],
  floor_release_message: ["floorRelease", { requestId: 1, lastSequence: 1001 }],
  media_repair_message: ["mediaRepair", { packet: vector("uplink_packet_1") }],
  repair_request_message: ["repairRequest", { repairId: 1, ssrc, keyId, ranges: [{ first: 1001, last: 1001 }] }],
  burst_request_message: ["burstRequest", { requestId: 1, ssrc, keyId, first: 1001 }],
  burst_list_request_message: ["burstListRequest", { requestId: 2 }],
};
const serverMessages = {
  floor_granted_message: ["floorGranted", { requestId: 1, durationMs: 60000, priority: 0 }],
  floor_taken_message: ["floorTaken", { memberId, ssrc, keyId, priority: 0 }],
  floor_idle_message: ["floorIdle", { ssrc, lastSequence: 1001 }],
  burst_list_message: ["burstList", { requestId: 2, bursts: [{
    memberId, displayName: "Radio 7", ssrc, keyId, ageMs: 5000, durationMs: 20, packets: 2, isGoingOn: false,
  }] }],
  burst_refused_message: ["burstRefused", { requestId: 3, cause: 2, phrase: "", retryAfterMs: 0 }],
};

test("a channel is in the share that the document names", () => assert.equal(shareOf(channelId), vector("channel_share")[0]));

test("the document gives its vectors", () => assert.ok(Object.keys(vectors).length > 40));

for (const [name, [kind, fields]] of Object.entries(clientMessages)) {
  test(`${name} is encoded and decoded as in the document`, () => {
    assert.equal(hex(encodeClient(kind, fields)), hex(message(name)));
    assert.deepEqual(decodeClient(message(name)), { kind, ...fields });
  });
}

for (const [name, [kind, fields]] of Object.entries(serverMessages)) {
  test(`${name} is decoded and encoded as in the document`, () => {
    if (kind === "burstList") fields.bursts[0].durationMs = decodeServer(message(name)).bursts[0].durationMs;
    assert.deepEqual(decodeServer(message(name)), { kind, ...fields });
    assert.equal(hex(encodeServer(kind, fields)), hex(message(name)));
  });
}

test("fields out of their bounds make a message invalid", () => {
  const welcome = { ssrc, downlinkKey: new Uint8Array(16), channelName: "Radio 7", memberId };
  assert.equal(decodeServer(encodeServer("welcome", welcome)).channelName, "Radio 7");
  for (const wrong of [
    { downlinkKey: new Uint8Array(15) }, { memberId: new Uint8Array(17) }, { channelName: "" }, { channelName: "a\u0007b" },
    { channelName: "x".repeat(129) }, { floorPriority: 255 }, { keptBursts: 65 }, { mediaKey: { epoch: 1, baseKey: new Uint8Array(15) } },
    { mediaKey: { epoch: 65536, baseKey: new Uint8Array(16) } }, { members: [{ memberId, displayName: "", ssrc }] },
    { members: Array.from({ length: 65 }, () => ({ memberId, displayName: "a", ssrc })) },
    { moreFloors: Array.from({ length: 4 }, () => ({ memberId, ssrc, keyId })) },
  ]) assert.throws(() => decodeServer(encodeServer("welcome", { ...welcome, ...wrong })), ProtocolError, JSON.stringify(Object.keys(wrong)));
  for (const [kind, fields] of [
    ["floorGranted", { requestId: 0 }], ["floorIdle", { ssrc, lastSequence: 65536 }], ["memberJoined", {}], ["listenerLoss", { percent: 101 }],
    ["floorQueuePosition", { requestId: 1, position: 0 }], ["floorTaken", { memberId, ssrc, keyId, priority: 256 }], ["successor", { host: "", port: 1 }],
  ]) assert.throws(() => decodeServer(encodeServer(kind, fields)), ProtocolError, kind);
});

test("unknown kinds and fields are ignored, cut messages are not", () => {
  assert.equal(decodeServer(unhex("ba3e03080110")), null);
  assert.deepEqual(decodeServer(unhex("2a09080110e0d403f80701")).kind, "floorGranted");
  assert.throws(() => decodeServer(unhex("2a0608")), ProtocolError);
  assert.throws(() => decodeServer(new Uint8Array(0)), ProtocolError);
  assert.throws(() => decodeServer(unhex("120512ff")), ProtocolError);
  // Not UTF-8.
  assert.throws(() => decodeServer(unhex("12041202c328")), ProtocolError);
});

test("RTP headers are those of the document, and nothing else is taken", () => {
  assert.equal(hex(rtpHeader({ sequence: 1000, timestamp: 48000, ssrc, marker: true })), vectors.rtp_header_0);
  assert.deepEqual(parseRtp(vector("uplink_packet_1")), { marker: false, sequence: 1001, timestamp: 48960, ssrc });
  for (const first of [0x90, 0xa0, 0x81, 0x40]) assert.equal(parseRtp(concat([first], vector("uplink_packet_1").subarray(1))), null);
  assert.equal(parseRtp(concat([0x80, 110], vector("uplink_packet_1").subarray(2))), null);
  assert.equal(parseRtp(vector("rtp_header_0")), null);
  assert.equal(parseRtp(concat(vector("rtp_header_0"), new Uint8Array(1149))), null);
  assert.equal(sequenceDistance(2, 65534), 4);
  assert.equal(sequenceDistance(65534, 2), -4);
});

test("SFrame keys, nonces and packets are those of the document", async () => {
  const [keyLabel, saltLabel] = labels(keyId);
  assert.equal(hex(keyLabel), vectors.sframe_key_label);
  assert.equal(hex(saltLabel), vectors.sframe_salt_label);
  const key = await sframeKey(vector("base_key"), keyId);
  assert.equal(hex(key.salt), vectors.sframe_salt);
  for (const counter of [0, 1]) {
    const header = vector(`rtp_header_${counter}`), frame = vector(`opus_frame_${counter}`);
    const packet = await sealFrame(key, counter, header, frame);
    assert.equal(hex(packet), vectors[`uplink_packet_${counter}`]);
    const parsed = parseSframe(packet.subarray(12));
    assert.deepEqual([parsed.keyId, parsed.counter], [keyId, BigInt(counter)]);
    assert.deepEqual(await openFrame(key, parsed, packet.subarray(0, 12), packet.subarray(12)), frame);
    for (let index = 0; index < packet.length; index++) {
      const wrong = packet.slice();
      wrong[index] ^= 4;
      const other = parseSframe(wrong.subarray(12));
      if (other?.keyId === keyId) assert.equal(await openFrame(key, other, wrong.subarray(0, 12), wrong.subarray(12)), null);
    }
  }
});

test("frames are sealed as in RFC 9605, appendix C.3", async () => {
  const key = await sframeKey(unhex("000102030405060708090a0b0c0d0e0f"), 0x123n);
  const metadata = utf8("IETF SFrame WG");
  const packet = await sealFrame(key, 0x4567, metadata, utf8("draft-ietf-sframe-enc"));
  assert.equal(hex(packet.subarray(metadata.length)), "9901234567b7412c2513a1b66dbb48841bbaf17f598751176ad847681a69c6d0b091c07018ce4adb34eb");
});

test("headers are encoded as in RFC 9605, appendix C.1, and only in their shortest form", () => {
  const source = readFileSync(new URL("Tests/SFrameTests/HeaderVectors.swift", root), "utf8");
  const all = [...source.matchAll(/\(0x([0-9a-f]+), 0x([0-9a-f]+), "([0-9a-f]+)"\)/g)];
  assert.ok(all.length > 200);
  for (const [, kid, counter, header] of all) {
    assert.equal(hex(sframeHeader(BigInt(`0x${kid}`), BigInt(`0x${counter}`))), header);
    assert.deepEqual(parseSframe(unhex(header)), { keyId: BigInt(`0x${kid}`), counter: BigInt(`0x${counter}`), length: header.length / 2 });
  }
  for (const wrong of ["8000", "8007", "80", "900001", "9f"]) assert.equal(parseSframe(unhex(wrong)), null, wrong);
});

test("answers are those of the document, in parts of any length", () => {
  const repair = parseAnswer(vector("repair_stream"));
  assert.equal(repair.repairId, 1);
  assert.ok(equal(repair.packets[0], vector("uplink_packet_1")));
  const burst = vector("burst_stream");
  for (const length of [1, 7, 1000]) {
    const answers = new Answers();
    let whole = null;
    for (let at = 0; at < burst.length; at += length) {
      assert.equal(whole, null);
      whole = answers.part(concat([0, 0, 0, 1, at + length >= burst.length ? 1 : 0], burst.subarray(at, at + length)));
    }
    assert.equal(whole.requestId, 1);
    assert.ok(whole.isWhole && equal(whole.packets[0], vector("uplink_packet_1")));
  }
  for (const wrong of ["00", "0000000000", "00000001000c", "000000010027ff", "0000000000000001000000"]) {
    assert.throws(() => parseAnswer(unhex(wrong)), ProtocolError, wrong);
  }
  const answers = new Answers();
  answers.part(unhex("000000050100000001"));
  assert.throws(() => answers.part(unhex("000000050100000001")), ProtocolError);
});

test("base64url is strict", () => {
  for (let length = 0; length < 40; length++) {
    const bytes = Uint8Array.from({ length }, (_, index) => index * 37 & 255);
    assert.deepEqual(fromBase64url(Buffer.from(bytes).toString("base64url")), Uint8Array.from(bytes));
  }
  for (const wrong of ["A", "AA==", "A+", "AB", "ÄÄ"]) assert.equal(fromBase64url(wrong), null, wrong);
});

test("the length of Opus packets is read from their first bytes", () => {
  assert.equal(opusSamples(unhex("f8fffe")), 960);
  assert.equal(opusSamples(unhex("f0")), 480);
  assert.equal(opusSamples(unhex("f303")), 1440);
  assert.equal(opusSamples(unhex("f33f")), 0);
  assert.equal(opusSamples(new Uint8Array(0)), 0);
});
