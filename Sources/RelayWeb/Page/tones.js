// How tones sound: those of pttd, and the alarm of an emergency; and when those of a connection sound.

const rate = 48000;

/** Notes: hertz (0 is a rest) and milliseconds. */
export const notes = {
  goAhead: [[880, 45], [1320, 65]],
  end: [[880, 45], [587, 65]],
  wait: [[587, 90], [0, 60], [587, 90]],
  deny: [[311, 90], [0, 40], [311, 90], [0, 40], [311, 140]],
  warning: [[1047, 80], [0, 60], [1047, 80]],
  linkLost: [[523, 60], [0, 60], [523, 60], [0, 60], [392, 240]],
  linkBack: [[392, 70], [0, 40], [523, 200]],
  fault: [[1175, 90], [784, 90], [523, 90], [349, 220]],
  alarm: [[988, 140], [740, 140], [988, 140], [740, 140], [988, 140], [740, 200]],
};

/** The samples of a tone at 48 kHz, with ramps of 5 ms at both ends of each note so that nothing clicks. */
export function toneSamples(name, volume = 0.25) {
  const parts = notes[name];
  const samples = new Float32Array(parts.reduce((sum, [, milliseconds]) => sum + milliseconds * rate / 1000, 0));
  const ramp = rate * 5 / 1000;
  let at = 0;
  for (const [hertz, milliseconds] of parts) {
    const count = milliseconds * rate / 1000;
    for (let index = 0; index < count; index++, at++) {
      if (hertz === 0) continue;
      const edge = Math.min(1, Math.min(index, count - 1 - index) / ramp);
      const phase = 2 * Math.PI * hertz * index / rate;
      // A little of the octave makes it heard on small speakers.
      samples[at] = volume * 0.5 * (1 - Math.cos(Math.PI * edge)) * (0.85 * Math.sin(phase) + 0.15 * Math.sin(2 * phase));
    }
  }
  return samples;
}

const toldAfter = 2000;

/** The tones of a connection that is lost and back. A short loss is not told. */
export class LinkTones {
  #channels = new Map();

  /** @param {(name) => void} tone */
  constructor(tone) { this.tone = tone; }

  /** What a channel's link has told. */
  state(channel, state) {
    const known = this.#channels.get(channel);
    if (state === "ready") {
      clearTimeout(known?.timer);
      if (known?.isTold) this.tone("linkBack");
      this.#channels.set(channel, { timer: null, isTold: false });
    } else if (known && state === "waiting" && !known.isTold) {
      known.timer ??= setTimeout(() => {
        known.isTold = true;
        this.tone("linkLost");
      }, toldAfter);
    }
  }

  left(channel) {
    clearTimeout(this.#channels.get(channel)?.timer);
    this.#channels.delete(channel);
  }
}
