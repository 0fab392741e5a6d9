// Plays what is heard and the tones: decoders (WebCodecs) in front of the audio thread. Rules are in jitter.js and lane.js.
import { DelayEstimator, Order } from "./jitter.js";
import { samplesOf } from "./lane.js";
import { opusSamples } from "./rtp.js";
import { notes, toneSamples } from "./tones.js";

const aheadMax = samplesOf(1500);
const waitingMax = 12000;
const decodingMax = 16;

/** One burst that is heard: packets in, sound out. */
class Heard {
  #order = new Order();
  #waiting = [];
  #level = 0;
  #decoding = 0;
  #isFinished = false;
  #timer = null;

  constructor(player, id, estimator, isReplay) {
    Object.assign(this, { player, id, estimator, isReplay });
    estimator?.begin();
  }

  get #wait() { return this.isReplay ? 0 : Math.max(60, this.estimator.target); }

  take({ header, payload, receivedAt, isLate }) {
    const samples = opusSamples(payload);
    if (samples === 0) return;
    if (!this.isReplay && !isLate) {
      this.estimator.received(header.timestamp, samples, receivedAt);
      this.player.post({ do: "target", lane: this.id, target: samplesOf(this.estimator.target) });
    }
    const packet = { sequence: header.sequence, timestamp: header.timestamp, samples, payload };
    this.#ready(this.#order.insert(packet, this.#wait, performance.now()));
  }

  #ready(items) {
    this.#waiting.push(...items.slice(0, waitingMax - this.#waiting.length));
    clearTimeout(this.#timer);
    const due = this.#order.deadline(this.#wait);
    if (due !== Infinity) {
      this.#timer = setTimeout(() => this.#ready(this.#order.take(this.#wait, performance.now())), Math.max(5, due - performance.now()));
    }
    this.#feed();
  }

  /** Only so much is decoded ahead: a late listener has a minute of packets waiting. */
  #feed() {
    while (this.#waiting.length > 0 && this.#decoding < decodingMax && this.#level < aheadMax) {
      const { packet, lost } = this.#waiting.shift();
      if (lost) this.player.post({ do: "lose", lane: this.id, count: lost });
      else this.#decode(packet);
    }
    if (this.#isFinished && this.#waiting.length === 0 && this.#decoding === 0) this.player.post({ do: "finish", lane: this.id });
  }

  #decode(packet) {
    try {
      this.decoder ??= this.#makeDecoder();
      this.decoder.decode(new EncodedAudioChunk({ type: "key", timestamp: packet.timestamp * 1000 / 48, data: packet.payload }));
      this.#decoding++;
      this.#level += packet.samples;
    } catch {
      this.#broken();
    }
  }

  #makeDecoder() {
    const decoder = new AudioDecoder({ output: data => this.#decoded(data, decoder), error: () => decoder === this.decoder && this.#broken() });
    decoder.configure({ codec: "opus", sampleRate: 48000, numberOfChannels: 1 });
    return decoder;
  }

  /** A packet that is no Opus ends the decoder, not the burst. */
  #broken() {
    this.decoder = null;
    this.#decoding = 0;
    setTimeout(() => this.#feed(), 0);
  }

  #decoded(data, decoder) {
    if (decoder !== this.decoder) return data.close();
    const samples = new Float32Array(data.numberOfFrames);
    data.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
    data.close();
    this.#decoding = Math.max(0, this.#decoding - 1);
    this.player.post({ do: "push", lane: this.id, samples }, [samples.buffer]);
    this.#feed();
  }

  level(samples) {
    this.#level = samples;
    this.#feed();
  }

  /** Nothing more comes; what is there is played. */
  finish() {
    this.#ready(this.#order.finish());
    clearTimeout(this.#timer);
    this.#isFinished = true;
    this.#feed();
  }

  close() {
    clearTimeout(this.#timer);
    if (this.decoder?.state === "configured") this.decoder.close();
    this.decoder = null;
  }
}

export class Player {
  #heard = new Map();
  #estimators = new Map();
  #tones = {};

  /** @param tell gets { channel, burst, is: "level", peak } and { …, is: "played" } */
  constructor(context, tell) {
    Object.assign(this, { context, tell });
    for (const name of Object.keys(notes)) this.#tones[name] = toneSamples(name);
  }

  async start() {
    await this.context.audioWorklet.addModule("/page/playout-worklet.js");
    this.node = new AudioWorkletNode(this.context, "pttd-playout", { numberOfInputs: 0, outputChannelCount: [2] });
    this.node.port.onmessage = ({ data }) => this.#told(data);
    this.node.connect(this.context.destination);
  }

  post(message, transfer) { this.node?.port.postMessage(message, transfer ?? []); }

  tone(name) { this.post({ do: "tone", samples: this.#tones[name] }); }
  gain(channel, gain) { this.post({ do: "gain", channel, gain }); }

  open(channel, burst, { isAlone, isReplay = false }) {
    const id = `${channel} ${burst}`;
    this.#drop(id);
    let estimator = this.#estimators.get(channel);
    if (!estimator) this.#estimators.set(channel, estimator = new DelayEstimator());
    const made = new Heard(this, id, isReplay ? null : estimator, isReplay);
    Object.assign(made, { channel, burst });
    this.#heard.set(id, made);
    this.post({ do: "open", lane: id, channel, isAlone, target: samplesOf(isReplay ? 20 : estimator.target) });
  }

  frame(channel, burst, frame) { this.#heard.get(`${channel} ${burst}`)?.take(frame); }
  finish(channel, burst) { this.#heard.get(`${channel} ${burst}`)?.finish(); }

  /** Ends it at once. */
  drop(channel, burst) { this.#drop(`${channel} ${burst}`); }

  #drop(id) {
    this.#heard.get(id)?.close();
    if (this.#heard.delete(id)) this.post({ do: "drop", lane: id });
  }

  dropChannel(channel) {
    for (const heard of [...this.#heard.values()]) if (heard.channel === channel) this.#drop(heard.id);
  }

  #told({ lanes, ended }) {
    for (const { lane, level, peak } of lanes ?? []) {
      const heard = this.#heard.get(lane);
      if (!heard) continue;
      heard.level(level);
      this.tell({ is: "level", channel: heard.channel, burst: heard.burst, peak });
    }
    if (ended === undefined) return;
    const heard = this.#heard.get(ended);
    heard?.close();
    this.#heard.delete(ended);
    if (heard) this.tell({ is: "played", channel: heard.channel, burst: heard.burst });
  }
}
