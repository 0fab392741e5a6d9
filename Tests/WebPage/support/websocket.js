// WebSockets (RFC 6455) over node's sockets, for both ends: as little as the tests need.
import { createHash, randomBytes } from "node:crypto";
import { connect } from "node:net";

const accept = key => createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");

function frame(opcode, payload, isMasked) {
  const length = payload.length;
  const header = Buffer.from(length < 126 ? [128 | opcode, length]
    : length < 65536 ? [128 | opcode, 126, length >> 8, length & 255]
    : [128 | opcode, 127, 0, 0, 0, 0, length >>> 24, length >> 16 & 255, length >> 8 & 255, length & 255]);
  if (!isMasked) return Buffer.concat([header, payload]);
  const mask = randomBytes(4), masked = Buffer.from(payload);
  for (let index = 0; index < length; index++) masked[index] ^= mask[index & 3];
  header[1] |= 128;
  return Buffer.concat([header, mask, masked]);
}

/** Frames over a socket: onmessage(bytes | text), onclose(code). */
class Frames {
  #buffer = Buffer.alloc(0);
  #parts = [];
  code = 1006;

  constructor(socket, isClient) {
    Object.assign(this, { socket, isClient, onmessage() {}, onclose() {} });
    socket.on("data", data => this.take(data));
    socket.on("error", () => {});
    socket.on("close", () => this.onclose(this.code));
  }

  take(data) {
    this.#buffer = Buffer.concat([this.#buffer, data]);
    for (;;) {
      const all = this.#buffer;
      if (all.length < 2) return;
      const isMasked = all[1] > 127;
      let length = all[1] & 127, at = 2;
      if (length === 127) [length, at] = all.length < 10 ? [Infinity, 10] : [Number(all.readBigUInt64BE(2)), 10];
      else if (length === 126) [length, at] = all.length < 4 ? [Infinity, 4] : [all.readUInt16BE(2), 4];
      const end = at + (isMasked ? 4 : 0) + length;
      if (all.length < end) return;
      const body = Buffer.from(all.subarray(end - length, end));
      if (isMasked) for (let index = 0; index < length; index++) body[index] ^= all[at + (index & 3)];
      this.#buffer = all.subarray(end);
      this.#frame(all[0] & 15, all[0] > 127, body);
    }
  }

  #frame(opcode, isLast, body) {
    if (opcode === 9) return this.socket.write(frame(10, body, this.isClient));
    if (opcode === 8) {
      this.code = body.length >= 2 ? body.readUInt16BE(0) : 1005;
      if (!this.isClosing) this.socket.write(frame(8, body, this.isClient));
      this.socket.end();
      return;
    }
    if (opcode > 2) return;
    this.#parts.push(body);
    if (!isLast) return;
    const whole = new Uint8Array(Buffer.concat(this.#parts));
    this.#parts = [];
    this.onmessage(opcode === 1 ? Buffer.from(whole).toString() : whole);
  }

  send(bytes) { if (!this.socket.destroyed) this.socket.write(frame(2, Buffer.from(bytes), this.isClient)); }
  sendText(text) { this.socket.write(frame(1, Buffer.from(text), this.isClient)); }

  close(code, reason = "") {
    const body = Buffer.alloc(2 + Buffer.byteLength(reason));
    body.writeUInt16BE(code);
    body.write(reason, 2);
    this.isClosing = true;
    this.socket.write(frame(8, body, this.isClient));
    setTimeout(() => this.socket.destroy(), 500).unref();
  }

  /** As a lost network: nothing is said. */
  cut() { this.socket.destroy(); }
}

/** Takes an upgrade of node's http server. */
export function upgrade(request, socket) {
  socket.write(["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
    `Sec-WebSocket-Accept: ${accept(request.headers["sec-websocket-key"])}`,
    `Sec-WebSocket-Protocol: ${request.headers["sec-websocket-protocol"]}`, "", ""].join("\r\n"));
  socket.setNoDelay(true);
  return new Frames(socket, false);
}

/** The browser's WebSocket, as much of it as the page uses. */
export class ClientSocket {
  readyState = 0;
  bufferedAmount = 0;

  constructor(url, subprotocol) {
    const { hostname, port, pathname } = new URL(url);
    const socket = connect(Number(port), hostname);
    socket.setNoDelay(true);
    const key = randomBytes(16).toString("base64");
    socket.write([`GET ${pathname} HTTP/1.1`, `Host: ${hostname}:${port}`, "Upgrade: websocket", "Connection: Upgrade",
      `Sec-WebSocket-Key: ${key}`, "Sec-WebSocket-Version: 13", ...subprotocol ? [`Sec-WebSocket-Protocol: ${subprotocol}`] : [], "", ""].join("\r\n"));
    this.socket = socket;
    socket.on("error", () => this.#closed(1006));
    let head = Buffer.alloc(0);
    const greet = data => {
      head = Buffer.concat([head, data]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) return;
      socket.off("data", greet);
      if (!head.includes("101") || !head.includes(accept(key))) return socket.destroy();
      this.readyState = 1;
      this.frames = new Frames(socket, true);
      this.frames.onmessage = data => this.onmessage?.({ data: typeof data === "string" ? data : data.buffer });
      this.frames.onclose = code => this.#closed(code);
      this.onopen?.({});
      this.frames.take(head.subarray(end + 4));
    };
    socket.on("data", greet);
    socket.on("close", () => this.frames || this.#closed(1006));
  }

  #closed(code) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code });
  }

  send(bytes) { this.frames.send(bytes); }
  sendText(text) { this.frames.sendText(text); }

  close(code, reason) {
    if (this.readyState >= 2) return;
    if (this.readyState === 0) return this.socket.destroy();
    this.readyState = 2;
    this.frames.close(code, reason);
  }
}
