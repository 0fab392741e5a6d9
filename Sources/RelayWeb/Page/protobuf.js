// Protocol buffers by small tables: a schema is { name: [number, type, rule] }. What is out of its bounds is refused.
import { concat, textOf, utf8, viewOf } from "./bytes.js";

/** The other end broke the protocol. */
export class ProtocolError extends Error {}

const depthMax = 4;

function varint(value) {
  const bytes = [];
  for (value >>>= 0; value > 127; value >>>= 7) bytes.push(value & 127 | 128);
  bytes.push(value);
  return Uint8Array.from(bytes);
}

function fixed(value, size) {
  const bytes = new Uint8Array(size);
  if (size === 4) viewOf(bytes).setUint32(0, value, true);
  else viewOf(bytes).setBigUint64(0, BigInt(value), true);
  return bytes;
}

const delimited = body => concat(varint(body.length), body);

function text(body) {
  try {
    return textOf(body);
  } catch {
    throw new ProtocolError("a text is not UTF-8");
  }
}

/** Of each type: its form on the wire, how it is written and read, and what stands in for a field that is not there. */
const types = {
  uint32: { wire: 0, write: varint, read: reader => reader.varint(), none: () => 0 },
  bool: { wire: 0, write: value => varint(value ? 1 : 0), read: reader => reader.varint() !== 0, none: () => false },
  fixed32: { wire: 5, write: value => fixed(value, 4), read: reader => viewOf(reader.take(4)).getUint32(0, true), none: () => 0 },
  fixed64: { wire: 1, write: value => fixed(value, 8), read: reader => viewOf(reader.take(8)).getBigUint64(0, true), none: () => 0n },
  bytes: { wire: 2, write: delimited, read: reader => reader.body().slice(), none: () => new Uint8Array(0) },
  string: { wire: 2, write: value => delimited(utf8(value)), read: reader => text(reader.body()), none: () => "" },
  message: {
    wire: 2, write: (value, { schema }) => delimited(encode(schema, value)),
    read: (reader, { schema }, depth) => decode(schema, reader.body(), depth + 1),
  },
};

const isDefault = value => value === 0 || value === 0n || value === false || value === "" || value.length === 0;

/** The bytes of `fields` by `schema`. */
export function encode(schema, fields) {
  const parts = [];
  for (const [name, [number, type, rule = {}]] of Object.entries(schema)) {
    const given = fields[name];
    if (given === undefined || given === null) continue;
    for (const value of rule.repeated ? given : [given]) {
      if (type !== "message" && !rule.optional && !rule.repeated && isDefault(value)) continue;
      parts.push(varint(number << 3 | types[type].wire), types[type].write(value, rule));
    }
  }
  return concat(...parts);
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  get isAtEnd() { return this.at >= this.bytes.length; }

  take(count) {
    if (count > this.bytes.length - this.at) throw new ProtocolError("a message is cut off");
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }

  /** The lower 32 bits of a varint of up to 64. */
  varint() {
    let value = 0;
    for (let index = 0; index < 10; index++) {
      const byte = this.take(1)[0];
      if (index < 5) value |= (byte & 127) << 7 * index;
      if (byte < 128) return value >>> 0;
    }
    throw new ProtocolError("a number is too long");
  }

  body() { return this.take(this.varint()); }

  skip(wire) {
    if (wire === 0) this.varint();
    else if (wire === 1) this.take(8);
    else if (wire === 2) this.body();
    else if (wire === 5) this.take(4);
    else throw new ProtocolError("a field of unknown form");
  }
}

/** The fields of a message by `schema`; throws ProtocolError where it is malformed or a field is out of its bounds. */
export function decode(schema, bytes, depth = 0) {
  if (depth > depthMax) throw new ProtocolError("a message is nested too deeply");
  const fields = {};
  const byNumber = tableOf(schema);
  const reader = new Reader(bytes);
  while (!reader.isAtEnd) {
    const tag = reader.varint();
    const [number, wire] = [tag >>> 3, tag & 7];
    if (number === 0) throw new ProtocolError("a field without a number");
    const found = byNumber.get(number);
    if (!found || types[found.type].wire !== wire) {
      // A field of a later version, or one of another form, means nothing here.
      reader.skip(wire);
      continue;
    }
    const { name, type, rule } = found;
    const read = types[type].read(reader, rule, depth);
    if (!rule.repeated) {
      // Of a oneof the last one counts.
      if (schema.oneof) for (const other of Object.keys(fields)) delete fields[other];
      fields[name] = read;
    } else {
      (fields[name] ??= []).push(read);
      if (fields[name].length > rule.max) throw new ProtocolError(`too many of ${name}`);
    }
  }
  if (schema.oneof) return fields;
  for (const { name, type, rule } of byNumber.values()) check(fields, name, type, rule);
  return fields;
}

const tables = new WeakMap();

function tableOf(schema) {
  let table = tables.get(schema);
  if (!table) {
    table = new Map();
    for (const [name, entry] of Object.entries(schema)) {
      if (name !== "oneof") table.set(entry[0], { name, type: entry[1], rule: entry[2] ?? {} });
    }
    tables.set(schema, table);
  }
  return table;
}

function check(fields, name, type, rule) {
  if (rule.repeated) {
    fields[name] ??= [];
    if (fields[name].length < (rule.min ?? 0)) throw new ProtocolError(`too few of ${name}`);
    return;
  }
  if (fields[name] === undefined) {
    if (rule.optional || type === "message" && !rule.required) return;
    if (type === "message") throw new ProtocolError(`${name} is missing`);
    fields[name] = types[type].none();
  }
  const read = fields[name];
  const size = type === "bytes" ? read.length : type === "string" ? utf8(read).length : type === "uint32" ? read : 0;
  if (size < (rule.min ?? 0) || size > (rule.max ?? 0xffffffff)) throw new ProtocolError(`${name} is out of its bounds`);
  if (rule.isName && hasControls(read)) throw new ProtocolError(`${name} has control characters`);
}

/** Whether a name has a character that relays refuse (docs/relay-protocol.md, section 5). */
export const hasControls = text => /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text);
