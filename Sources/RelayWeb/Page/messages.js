// The control messages of relay.proto that a page needs, with the bounds that its comments give.
import { decode, encode, ProtocolError } from "./protobuf.js";

export { ProtocolError };

export const messageMax = 16384;
export const emergencyPriority = 255;

const uint = (number, min = 0, max = 0xffffffff) => [number, "uint32", { min, max }];
const sequence = number => [number, "uint32", { optional: true, max: 65535 }];
const request = number => uint(number, 1);
const bytes = (number, min, max = min) => [number, "bytes", { min, max }];
const name = number => [number, "string", { min: 1, max: 128, isName: true }];
const phrase = number => [number, "string"];
const flag = number => [number, "bool"];
const fixed32 = number => [number, "fixed32"];
const fixed64 = number => [number, "fixed64"];
const inner = (number, schema, rule = {}) => [number, "message", { ...rule, schema }];
const many = (number, schema, max, min = 0) => [number, "message", { repeated: true, min, max, schema }];

const member = { memberId: bytes(1, 16), displayName: name(2), ssrc: fixed32(3) };
const mediaKey = { epoch: uint(1, 0, 65535), baseKey: bytes(2, 16, 64) };
const floorTaken = { memberId: bytes(1, 16), ssrc: fixed32(2), keyId: fixed64(3), priority: uint(4, 0, 255) };
const range = { first: uint(1, 0, 65535), last: uint(2, 0, 65535) };
const keptBurst = {
  memberId: bytes(1, 16), displayName: name(2), ssrc: fixed32(3), keyId: fixed64(4), ageMs: uint(5), durationMs: uint(6),
  packets: uint(7), isGoingOn: flag(8),
};

const clientKinds = {
  join: [1, {
    channelId: bytes(1, 16), invitationToken: bytes(2, 16, 64), displayName: name(3), protocolVersion: uint(4), pushOnly: flag(5),
  }],
  leave: [2, {}],
  floorRequest: [3, { requestId: request(1), priority: uint(2, 0, 255), keyId: fixed64(3), mayQueue: flag(4) }],
  floorRelease: [4, { requestId: request(1), lastSequence: sequence(2) }],
  receptionReport: [5, { ssrc: fixed32(1), received: uint(2), lost: uint(3), highestSequence: uint(4), jitter: uint(5) }],
  mediaRepair: [9, { packet: bytes(1, 13, 1200) }],
  repairRequest: [10, { repairId: request(1), ssrc: fixed32(2), keyId: fixed64(3), ranges: many(4, range, 64, 1) }],
  burstListRequest: [50, { requestId: request(1) }],
  burstRequest: [51, { requestId: request(1), ssrc: fixed32(2), keyId: fixed64(3), first: sequence(4) }],
};

const serverKinds = {
  welcome: [1, {
    ssrc: fixed32(1), downlinkKey: bytes(2, 16), mediaKey: inner(3, mediaKey), channelName: name(4), members: many(5, member, 64),
    floor: inner(6, floorTaken), memberId: bytes(7, 16), talkTimeLimitMs: uint(8), hasFloorQueue: flag(9), floorMode: uint(10),
    listenOnly: flag(11), floorPriority: uint(12, 0, 254), moreFloors: many(13, floorTaken, 3), preemptionStep: uint(14, 0, 255),
    lateEntry: flag(50), keptBursts: uint(51, 0, 64), keptTimeMs: uint(52),
  }],
  joinRefused: [2, { cause: uint(1), phrase: phrase(2), retryAfterMs: uint(3) }],
  memberJoined: [3, { member: inner(1, member, { required: true }) }],
  memberLeft: [4, { memberId: bytes(1, 16) }],
  floorGranted: [5, { requestId: request(1), durationMs: uint(2), priority: uint(3, 0, 255) }],
  floorDeny: [6, { requestId: request(1), cause: uint(2), phrase: phrase(3), retryAfterMs: uint(4) }],
  floorTaken: [7, floorTaken],
  floorIdle: [8, { ssrc: fixed32(1), lastSequence: sequence(2) }],
  floorRevoke: [9, { requestId: request(1), cause: uint(2), phrase: phrase(3) }],
  mediaKey: [10, mediaKey],
  floorQueuePosition: [15, { requestId: request(1), position: uint(2, 1) }],
  listenerLoss: [16, { percent: uint(1, 0, 100) }],
  burstList: [50, { requestId: request(1), bursts: many(2, keptBurst, 64) }],
  burstRefused: [51, { requestId: request(1), cause: uint(2), phrase: phrase(3), retryAfterMs: uint(4) }],
  successor: [70, { host: [1, "string", { min: 1, max: 253 }], port: uint(2, 1, 65535) }],
  floorRules: [71, {
    floorMode: uint(1), hasFloorQueue: flag(2), preemptionStep: uint(3, 0, 255), listenOnly: flag(4), floorPriority: uint(5, 0, 254),
  }],
};

function oneof(kinds) {
  const schema = { oneof: true };
  for (const [kind, [number, fields]] of Object.entries(kinds)) schema[kind] = inner(number, fields);
  Object.defineProperty(schema, "oneof", { enumerable: false });
  return schema;
}

const client = oneof(clientKinds), server = oneof(serverKinds);

function read(schema, data) {
  if (data.length === 0 || data.length > messageMax) throw new ProtocolError("a message of a wrong length");
  // Null: a kind of a later version, which is ignored.
  return Object.entries(decode(schema, data)).map(([kind, fields]) => ({ kind, ...fields }))[0] ?? null;
}

export const encodeClient = (kind, fields) => encode(client, { [kind]: fields });
export const encodeServer = (kind, fields) => encode(server, { [kind]: fields });
export const decodeClient = data => read(client, data);
export const decodeServer = data => read(server, data);

export const modes = { halfDuplex: 1, fullDuplex: 2, cutIn: 3 };
