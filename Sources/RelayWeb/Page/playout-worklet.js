// The audio thread of listening: mixes the lanes of all channels and the tones.
import { Lane, Limiter } from "./lane.js";

const lanesMax = 24, tonesMax = 4;
const reportEvery = 2400;

class Playout extends AudioWorkletProcessor {
  lanes = new Map();
  gains = new Map();
  tones = [];
  limiter = new Limiter();
  scratch = new Float32Array(128);
  sinceReport = 0;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.take(data);
  }

  take(message) {
    const lane = this.lanes.get(message.lane);
    switch (message.do) {
      case "open":
        if (this.lanes.size < lanesMax) {
          this.lanes.set(message.lane, Object.assign(new Lane(message.target), { channel: message.channel, isAlone: message.isAlone, peak: 0 }));
        } else this.port.postMessage({ ended: message.lane });
        break;
      case "push": lane?.push(message.samples); break;
      case "lose": lane?.lose(message.count); break;
      case "target": if (lane) lane.target = message.target; break;
      case "finish": lane?.finish(); break;
      case "drop": this.lanes.delete(message.lane); break;
      case "gain": this.gains.set(message.channel, message.gain); break;
      case "tone": if (this.tones.length < tonesMax) this.tones.push({ samples: message.samples, at: 0 });
    }
  }

  process(_, [output]) {
    const out = output[0];
    let voices = 0;
    const busy = new Set();
    for (const [id, lane] of this.lanes) {
      // Where one talks at a time, the next one waits until the one before was heard.
      if (lane.isAlone && busy.has(lane.channel)) continue;
      if (this.scratch.length !== out.length) this.scratch = new Float32Array(out.length);
      const sounds = lane.pull(this.scratch);
      if (lane.state === "ended") {
        this.lanes.delete(id);
        this.port.postMessage({ ended: id });
      } else if (lane.level > 0 || sounds) busy.add(lane.channel);
      if (!sounds) continue;
      const gain = this.gains.get(lane.channel) ?? 1;
      for (let index = 0; index < out.length; index++) {
        const sample = this.scratch[index];
        lane.peak = Math.max(lane.peak, Math.abs(sample));
        out[index] += sample * gain;
      }
      voices++;
    }
    voices += this.mixTones(out);
    this.limiter.apply(out, voices > 1);
    for (let channel = 1; channel < output.length; channel++) output[channel].set(out);
    this.report(out.length);
    return true;
  }

  mixTones(out) {
    for (const tone of this.tones) {
      const count = Math.min(out.length, tone.samples.length - tone.at);
      for (let index = 0; index < count; index++) out[index] += tone.samples[tone.at + index];
      tone.at += count;
    }
    const sounding = this.tones.length;
    this.tones = this.tones.filter(tone => tone.at < tone.samples.length);
    return sounding;
  }

  report(length) {
    this.sinceReport += length;
    if (this.sinceReport < reportEvery || this.lanes.size === 0) return;
    this.sinceReport = 0;
    const lanes = [];
    for (const [id, lane] of this.lanes) {
      lanes.push({ lane: id, level: lane.level, peak: lane.peak, state: lane.state });
      lane.peak = 0;
    }
    this.port.postMessage({ lanes });
  }
}

registerProcessor("pttd-playout", Playout);
