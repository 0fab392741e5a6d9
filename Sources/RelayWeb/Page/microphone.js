// The microphone: opened once, when the person says so, and its samples taken only while somebody presses.
//
// It stays open between presses, because opening takes up to a second in which the first words would be lost. Its track is
// disabled then: the browser delivers silence, and nothing of it is looked at.
import { within } from "./within.js";

const problems = { NotAllowedError: "refused", SecurityError: "refused", NotFoundError: "none", NotReadableError: "busy" };
/** So long the page's code for the audio thread may take to load. */
const loadMax = 10000;

export class Microphone {
  #isWanted = false;
  #openings = 0;
  onblock = () => {};
  onproblem = () => {};

  constructor(context) { this.context = context; }

  /**
   * The browser takes its time, and may wait for the person.
   * @returns {Promise<boolean>} false: it was closed, or opened again, in between
   * @throws with a code: refused, none, busy, or failed
   */
  async open() {
    if (!navigator.mediaDevices?.getUserMedia) throw new Error("none");
    const opening = ++this.#openings;
    let stream;
    try {
      await within(loadMax, this.context.audioWorklet.addModule("/page/capture-worklet.js"), "load");
      if (opening !== this.#openings) return false;
      stream = await navigator.mediaDevices.getUserMedia({
        audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
      });
    } catch (error) {
      if (opening !== this.#openings) return false;
      throw new Error(problems[error.name] ?? "failed");
    }
    if (opening !== this.#openings) {
      for (const track of stream.getTracks()) track.stop();
      return false;
    }
    this.#end();
    const [track] = stream.getAudioTracks();
    if (!track) throw new Error("none");
    this.track = track;
    track.enabled = this.#isWanted;
    const ifCurrent = problem => () => track === this.track && this.onproblem(problem);
    track.addEventListener("ended", ifCurrent("ended"));
    track.addEventListener("mute", ifCurrent("muted"));
    track.addEventListener("unmute", ifCurrent(null));
    try {
      this.#listen(stream);
    } catch {
      // The browser cannot bring the microphone to 48 kHz, for one.
      this.close();
      throw new Error("failed");
    }
    if (track.muted) this.onproblem("muted");
    return true;
  }

  #listen(stream) {
    this.stream = stream;
    this.source = this.context.createMediaStreamSource(stream);
    this.node = new AudioWorkletNode(this.context, "pttd-capture", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    this.node.port.onmessage = ({ data }) => this.#isWanted && this.onblock(data);
    this.source.connect(this.node);
  }

  /** Whether samples are wanted: while somebody presses, and on the screen that tries the microphone. */
  want(isWanted) {
    const isOver = this.#isWanted && !isWanted;
    this.#isWanted = isWanted;
    if (!this.track) return;
    this.track.enabled = isWanted;
    if (isOver) this.#renew();
  }

  /**
   * What comes while the browser's sound thread is late waits in the source, up to 0.1 s of it, and is never caught up with: all later
   * speech is as late. A new source begins without that. Not at a press, whose first samples could be lost.
   */
  #renew() {
    const fresh = this.context.createMediaStreamSource(this.stream);
    fresh.connect(this.node);
    this.source.disconnect();
    this.source = fresh;
  }

  close() {
    this.#openings++;
    this.#end();
  }

  #end() {
    this.source?.disconnect();
    const { track } = this;
    this.track = null;
    track?.stop();
  }
}
