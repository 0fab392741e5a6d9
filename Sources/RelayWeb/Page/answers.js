// Answers that come in parts: packets that were asked for again, and bursts (docs/relay-protocol.md, sections 17, 18, 21.3).
import { concat, viewOf } from "./bytes.js";
import { ProtocolError } from "./protobuf.js";

const answerMax = 5 * 1024 * 1024;
const openMax = 8;
const partHeader = 5;

/** Puts parts together. What is complete is { repairId, packets } or { requestId, packets, isWhole }. */
export class Answers {
  #open = new Map();
  #lastNumber = 0;

  /** @returns the answer that this part completes, or null */
  part(bytes) {
    if (bytes.length < partHeader) throw new ProtocolError("a part of an answer is cut off");
    const number = viewOf(bytes).getUint32(0), isLast = (bytes[4] & 1) !== 0;
    let answer = this.#open.get(number);
    if (!answer) {
      if (number <= this.#lastNumber) throw new ProtocolError("an answer's number again");
      if (this.#open.size >= openMax) throw new ProtocolError("too many answers at a time");
      this.#lastNumber = number;
      this.#open.set(number, answer = { parts: [], length: 0 });
    }
    answer.parts.push(bytes.slice(partHeader));
    answer.length += bytes.length - partHeader;
    if (answer.length > answerMax || answer.parts.length > 4096) throw new ProtocolError("an answer is too long");
    if (!isLast) return null;
    this.#open.delete(number);
    return parseAnswer(concat(...answer.parts));
  }
}

/** Reads what a stream would contain. */
export function parseAnswer(bytes) {
  const view = viewOf(bytes);
  const need = (at, count) => {
    if (at + count > bytes.length) throw new ProtocolError("an answer is cut off");
  };
  need(0, 4);
  const repairId = view.getUint32(0);
  const answer = { packets: [], isWhole: false };
  let at = 4;
  if (repairId !== 0) answer.repairId = repairId;
  else {
    need(4, 4);
    answer.requestId = view.getUint32(4);
    at = 8;
  }
  while (at < bytes.length) {
    need(at, 2);
    const length = view.getUint16(at);
    at += 2;
    if (length === 0 && repairId === 0) {
      if (at !== bytes.length) throw new ProtocolError("an answer goes on behind its end");
      answer.isWhole = true;
      break;
    }
    if (length < 13 || length > 1200) throw new ProtocolError("a packet of a wrong length in an answer");
    need(at, length);
    answer.packets.push(bytes.subarray(at, at + length));
    at += length;
  }
  // An answer without a packet is the end, too.
  if (answer.packets.length === 0) answer.isWhole = true;
  return answer;
}
