// The sound of one burst between decoder and loudspeaker: waits until enough is there, then plays without a break; catches up
// by leaving out periods of the voice, and covers gaps by repeating them. Pure; runs in the audio thread.

const rate = 48000;
const capacity = 1 << 18;
const block = 960;
const overlap = 480;
const [lagMin, lagMax] = [120, 600];
const step = 4;
const historyLength = 2 * lagMax + overlap;
const concealMax = 4800;
/** So much more than the target is left alone. */
const slack = 1920;
/** What is left out is a fifth of what is played, and far behind a quarter: docs/relay-protocol.md, section 18.2. */
const farBehind = 48000, [wholeNear, wholeFar] = [5, 4];
const ramp = 240;

/** The distance, within the range of voices, at which `samples` from `at` on is most like itself. */
function bestLag(samples, at, length) {
  let best = lagMin, most = -Infinity;
  for (let lag = lagMin; lag <= lagMax; lag += step) {
    let product = 0, energy = 1e-9;
    for (let index = 0; index < length; index += step) {
      const later = samples[at + lag + index];
      product += samples[at + index] * later;
      energy += later * later;
    }
    const likeness = product / Math.sqrt(energy);
    if (likeness > most) [most, best] = [likeness, lag];
  }
  return best;
}

export class Lane {
  #buffer = new Float32Array(capacity);
  #read = 0;
  #write = 0;
  #out = new Float32Array(0);
  #outAt = 0;
  #history = new Float32Array(historyLength);
  #concealed = 0;
  #lag = 0;
  #waited = 0;
  /** So much is played as it is before the next period is left out. */
  #whole = 0;

  /** @param {number} target how much waits before it begins, in samples */
  constructor(target) {
    this.target = target;
    this.state = "filling";
    this.isFinished = false;
    this.dropped = 0;
    this.leftOut = 0;
  }

  get level() { return this.#write - this.#read + this.#out.length - this.#outAt; }

  push(samples) {
    const room = capacity - (this.#write - this.#read);
    if (samples.length > room) {
      this.dropped += samples.length;
      return;
    }
    for (const sample of samples) this.#buffer[this.#write++ & capacity - 1] = sample;
  }

  /** That many samples never came: something like the voice stands in for them. */
  lose(count) {
    const length = Math.min(count, 2880);
    const cover = new Float32Array(length);
    const lag = this.#pitch();
    const had = this.#tail();
    for (let index = 0; index < length; index++) cover[index] = had(index, lag) * (1 - index / concealMax);
    this.push(cover);
  }

  /** Nothing more comes. */
  finish() { this.isFinished = true; }

  /** Fills `out`; false: silence, and nothing was filled. */
  pull(out) {
    if (this.state === "ended") return false;
    if (this.state === "filling" && !this.#mayBegin(out.length)) return false;
    let at = 0;
    while (at < out.length) {
      if (this.#outAt === this.#out.length && !this.#refill()) {
        out.fill(0, at);
        return at > 0;
      }
      const count = Math.min(out.length - at, this.#out.length - this.#outAt);
      out.set(this.#out.subarray(this.#outAt, this.#outAt + count), at);
      this.#outAt += count;
      at += count;
    }
    return true;
  }

  #mayBegin(asked) {
    if (this.level === 0) {
      if (this.isFinished) this.state = "ended";
      return false;
    }
    this.#waited += asked;
    if (this.level < this.target && this.#waited < this.target && !this.isFinished) return false;
    this.state = "playing";
    this.#waited = 0;
    return true;
  }

  #refill() {
    const there = this.#write - this.#read;
    if (there === 0) return this.#runDry();
    const excess = there - this.target - slack;
    const mayShorten = excess > 0 && this.#whole <= 0 && there > block + lagMax + overlap;
    const made = mayShorten ? this.#shortened(excess > farBehind) : this.#taken(Math.min(block, there));
    this.#whole -= made.length;
    if (this.#concealed > 0) this.#join(made);
    this.#give(made);
    return true;
  }

  #taken(count) {
    const made = new Float32Array(count);
    for (let index = 0; index < count; index++) made[index] = this.#buffer[this.#read++ & capacity - 1];
    return made;
  }

  /** One block, with one period of the voice left out. */
  #shortened(isFar) {
    const all = new Float32Array(block + lagMax);
    for (let index = 0; index < all.length; index++) all[index] = this.#buffer[this.#read + index & capacity - 1];
    const lag = bestLag(all, 0, overlap);
    const made = all.slice(lag, lag + block);
    for (let index = 0; index < overlap; index++) {
      const share = index / overlap;
      made[index] = all[index] * (1 - share) + made[index] * share;
    }
    this.#read += block + lag;
    this.leftOut += lag;
    this.#whole = lag * (isFar ? wholeFar : wholeNear);
    return made;
  }

  /** Nothing is there: the voice is held on for a moment, then it is silent until enough waits again. */
  #runDry() {
    if (this.isFinished) {
      this.state = "ended";
      return false;
    }
    if (this.#concealed >= concealMax) {
      this.state = "filling";
      this.#concealed = 0;
      this.#lag = 0;
      return false;
    }
    this.#lag ||= this.#pitch();
    const had = this.#tail();
    const made = new Float32Array(480);
    for (let index = 0; index < made.length; index++) {
      const gain = 1 - (this.#concealed + index) / concealMax;
      made[index] = had(index, this.#lag) * Math.max(0, gain) / Math.max(0.1, 1 - this.#concealed / concealMax);
    }
    this.#concealed += made.length;
    this.#give(made);
    return true;
  }

  #pitch() { return bestLag(this.#history, historyLength - lagMax - overlap, overlap); }

  /** Goes on with the last period of what was played. */
  #tail() {
    const history = this.#history.slice();
    return (index, lag) => history[historyLength - lag + index % lag];
  }

  /** From what stood in back to the voice. */
  #join(made) {
    const had = this.#tail();
    const lag = this.#lag || lagMin;
    for (let index = 0; index < Math.min(ramp, made.length); index++) {
      const share = index / ramp;
      made[index] = had(index, lag) * (1 - share) + made[index] * share;
    }
    this.#concealed = 0;
    this.#lag = 0;
  }

  #give(made) {
    this.#out = made;
    this.#outAt = 0;
    if (made.length >= historyLength) this.#history.set(made.subarray(made.length - historyLength));
    else {
      this.#history.copyWithin(0, made.length);
      this.#history.set(made, historyLength - made.length);
    }
  }
}

/** Keeps a sum of voices below full scale: turned down within a block, up again slowly; what is still too loud is bent. */
export class Limiter {
  gain = 1;

  apply(samples, isMix) {
    if (!isMix && this.gain >= 1) return;
    let peak = 0;
    for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    const wanted = isMix && peak > 0.89 ? 0.89 / peak : 1;
    let next = Math.min(wanted, this.gain + (1 - this.gain) / 80);
    if (next > 0.999) next = 1;
    const change = (next - this.gain) / samples.length;
    for (let index = 0; index < samples.length; index++) {
      this.gain += change;
      samples[index] = Limiter.bent(samples[index] * this.gain);
    }
    this.gain = next;
  }

  static bent(sample) {
    const size = Math.abs(sample);
    if (size <= 0.89) return sample;
    const over = (size - 0.89) / 0.11;
    return Math.sign(sample) * (0.89 + 0.11 * over / (1 + over));
  }
}

export const samplesOf = milliseconds => Math.round(milliseconds * rate / 1000);
