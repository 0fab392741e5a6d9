// The WebSocket of one connection: its handshake, and what goes through it in order. Rules are elsewhere.
import { viewOf } from "./bytes.js";
import { content, Handshake, kinds, WrongRelay } from "./handshake.js";
import { ProtocolError } from "./messages.js";

const path = "/pttd/1", subprotocol = "pttd.1";
const messageMax = 16640;
const waitingMax = 8192;
/** With so much unsent, the relay does not read. */
const pongRoom = 16 * 1024;
const closeBase = 4000;

/**
 * Where the relay that served this page takes links. It passes them on, if another relay of its cluster serves that share of the
 * channels. Plain only where the page came plainly, as in tests.
 */
export const relayUrl = (location, share) =>
  `${location.protocol === "http:" ? "ws:" : "wss:"}//${location.host}${path}?share=${share}`;

/**
 * Events: { is: "connected" }, { is: "control" | "answer" | "media", bytes }, { is: "pong", number }, { is: "acknowledged", count },
 * { is: "closed", code }, { is: "violation", what }, { is: "wrong-relay" }. The last three end it; one of them comes.
 */
export class Transport {
  #inbox = Promise.resolve();
  #outbox = Promise.resolve();
  #waiting = 0;
  #leaving = 0;
  #pong = null;
  #keys = null;
  #isOver = false;

  /** @param {(event) => Promise | void} tell is awaited: the next message waits for it */
  constructor(url, identity, pin, tell, Socket = globalThis.WebSocket) {
    this.tell = tell;
    this.socket = new Socket(url, subprotocol);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.#run(async () => {
      this.handshake = await Handshake.begin(identity, pin);
      if (!this.#isOver) this.socket.send(this.handshake.hello);
    });
    this.socket.onmessage = event => this.#run(() => this.#message(event.data));
    this.socket.onclose = event => this.#end({
      is: "closed", code: event.code >= closeBase && event.code < closeBase + 256 ? event.code - closeBase : null,
    });
    // The close that follows tells more.
    this.socket.onerror = () => {};
  }

  /** What is not sent yet, in bytes. */
  get buffered() { return this.socket.bufferedAmount + this.#leaving; }

  sendControl(message) { this.#sealed(content.control, message); }

  /** The number tells it from others, and comes back. */
  ping(number) {
    const bytes = new Uint8Array(8);
    viewOf(bytes).setBigUint64(0, BigInt(number));
    this.#sealed(content.ping, bytes);
  }

  /** @param {Promise<Uint8Array>} packet goes behind what was sent before it */
  sendMedia(packet, length) {
    this.#leaving += length;
    this.#sealed(content.media, packet.finally(() => { this.#leaving -= length; }));
  }

  /** Nothing comes of it any more. */
  close(code, why = "") {
    if (this.#isOver) return;
    this.#isOver = true;
    try {
      this.socket.close(closeBase + code, why.slice(0, 100).replace(/[^ -~]/g, ""));
    } catch {
      // It never opened.
    }
  }

  #end(event) {
    if (this.#isOver) return;
    // What has come before the end counts.
    const told = this.#inbox.then(() => {
      if (this.#isOver) return;
      this.#isOver = true;
      return this.tell(event);
    });
    this.#inbox = told.catch(() => {});
  }

  #run(job) {
    if (this.#isOver) return;
    if (++this.#waiting > waitingMax) return this.#fail(new ProtocolError("the relay sends faster than this page reads"));
    this.#inbox = this.#inbox.then(() => this.#isOver ? undefined : job())
      .catch(error => this.#fail(error)).finally(() => { this.#waiting--; });
  }

  #fail(error) {
    if (this.#isOver) return;
    const isKnown = error instanceof ProtocolError || error instanceof WrongRelay;
    this.close(1, isKnown ? error.message : "");
    if (error instanceof WrongRelay) return this.tell({ is: "wrong-relay" });
    return this.tell({ is: "violation", what: isKnown ? error.message : `the page: ${error?.message ?? error}` });
  }

  async #message(data) {
    if (!(data instanceof ArrayBuffer)) throw new ProtocolError("a message of text");
    const bytes = new Uint8Array(data);
    if (bytes.length === 0 || bytes.length > messageMax) throw new ProtocolError("a message of a wrong length");
    if (!this.#keys) {
      const keys = await this.handshake.finish(bytes);
      this.#keys = keys;
      this.socket.send(keys.proof);
      return this.tell({ is: "connected" });
    }
    if (bytes[0] === kinds.media) return this.tell({ is: "media", bytes });
    if (bytes[0] === kinds.sealed) return this.#opened(await this.#keys.down.open(bytes.subarray(1)));
  }

  #opened(plaintext) {
    const body = plaintext.subarray(1);
    switch (plaintext[0]) {
      case content.control: return this.tell({ is: "control", bytes: body });
      case content.answer: return this.tell({ is: "answer", bytes: body });
      case content.acknowledgement:
        if (body.length !== 4) throw new ProtocolError("an acknowledgement of a wrong length");
        return this.tell({ is: "acknowledged", count: viewOf(body).getUint32(0) });
      case content.ping:
        if (body.length !== 8) throw new ProtocolError("a ping of a wrong length");
        return this.#answer(body);
      case content.pong: return this.tell({ is: "pong", number: body.length === 8 ? Number(viewOf(body).getBigUint64(0)) : 0 });
    }
  }

  /** Of several pings that wait for an answer the last one is enough. A relay that does not read gets none: they would wait here. */
  #answer(ping) {
    if (this.socket.bufferedAmount > pongRoom) return;
    const isWaiting = this.#pong !== null;
    this.#pong = ping;
    if (isWaiting) return;
    this.#sealed(content.pong, this.#outbox.then(() => {
      const last = this.#pong;
      this.#pong = null;
      return last;
    }));
  }

  /** Sealed in the order of the calls, which is that of the counter; `body` may be a promise. */
  #sealed(what, body) {
    this.#outbox = this.#outbox.then(async () => {
      const bytes = await body;
      if (!this.#keys || this.#isOver) return;
      const plaintext = new Uint8Array(1 + bytes.length);
      plaintext[0] = what;
      plaintext.set(bytes, 1);
      const sealed = await this.#keys.up.seal(plaintext);
      const message = new Uint8Array(1 + sealed.length);
      message[0] = kinds.sealed;
      message.set(sealed, 1);
      if (!this.#isOver && this.socket.readyState === 1) this.socket.send(message);
    }).catch(error => this.#fail(error));
  }
}
