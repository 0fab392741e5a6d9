// Opus by the browser's own encoder (WebCodecs): one encoder for each burst.
import { within } from "./within.js";

const rate = 48000;
/** So long an encoder may take to give out what it has. */
const flushMax = 400;
const base = { codec: "opus", sampleRate: rate, numberOfChannels: 1, bitrate: 24000, latencyMode: "realtime" };
let known = null;

/** The configuration that this browser takes, with frames of 10 ms if it can; null: it has no encoder. */
export async function encoderConfiguration() {
  if (known !== null || !globalThis.AudioEncoder) return known;
  const opus = { application: "voip", signal: "voice", complexity: 5 };
  for (const config of [
    { ...base, opus: { ...opus, frameDuration: 10000 } }, { ...base, opus: { frameDuration: 10000 } },
    { ...base, opus: { frameDuration: 20000 } }, base,
  ]) {
    try {
      if (!(await AudioEncoder.isConfigSupported(config)).supported) continue;
      return known = { config, samples: config.opus?.frameDuration === 10000 ? 480 : 960 };
    } catch {
      // Not known here: the next one.
    }
  }
  return null;
}

export const canDecode = async () => Boolean(globalThis.AudioDecoder)
  && (await AudioDecoder.isConfigSupported({ codec: "opus", sampleRate: rate, numberOfChannels: 1 }).catch(() => ({}))).supported === true;

/** Blocks of 10 ms in, { payload, samples, captured } out, in order. */
export class Encoder {
  #captured = [];
  #part = null;

  constructor({ config, samples }, onframe, onerror) {
    this.samples = samples;
    this.encoder = new AudioEncoder({
      output: chunk => {
        const payload = new Uint8Array(chunk.byteLength);
        chunk.copyTo(payload);
        const captured = this.#captured.shift();
        if (captured !== undefined) onframe({ payload, samples, captured });
      },
      error: onerror,
    });
    this.encoder.configure(config);
  }

  encode({ samples, captured }) {
    if (this.encoder.state !== "configured") return;
    let data = samples, at = captured;
    if (this.samples === 960) {
      if (!this.#part) return void (this.#part = { samples, captured });
      data = new Float32Array(960);
      data.set(this.#part.samples);
      data.set(samples, 480);
      at = this.#part.captured;
      this.#part = null;
    }
    this.#captured.push(at);
    const audio = new AudioData({
      format: "f32-planar", sampleRate: rate, numberOfFrames: data.length, numberOfChannels: 1, timestamp: Math.round(at * 1e6 / rate), data,
    });
    this.encoder.encode(audio);
    audio.close();
  }

  /** Resolves when the last frame was given out, or will not be: the floor is given back after this. */
  async finish() {
    try {
      await within(flushMax, this.encoder.flush(), "flush");
    } catch {
      // It failed, and said so; or it hangs, and what it has is left behind.
    }
    if (this.encoder.state !== "closed") this.encoder.close();
  }
}
