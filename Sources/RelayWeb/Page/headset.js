// The play/pause key of a headset, by the Media Session API. Browsers give it only to pages that play something: so silence is
// played while the person has this switched on.

const seconds = 8, rate = 8000;

function silence() {
  const samples = seconds * rate;
  const bytes = new Uint8Array(44 + samples);
  const view = new DataView(bytes.buffer);
  const text = (at, letters) => [...letters].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + samples, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate, true);
  view.setUint16(32, 1, true);
  view.setUint16(34, 8, true);
  text(36, "data");
  view.setUint32(40, samples, true);
  bytes.fill(128, 44);
  return new Blob([bytes], { type: "audio/wav" });
}

export const hasHeadsetKey = () => "mediaSession" in navigator;

export class HeadsetKey {
  constructor(onpress) { this.onpress = onpress; }

  async start(title) {
    this.audio ??= Object.assign(new Audio(URL.createObjectURL(silence())), { loop: true });
    await this.audio.play();
    navigator.mediaSession.metadata = new MediaMetadata({ title });
    for (const action of ["play", "pause", "stop"]) {
      navigator.mediaSession.setActionHandler(action, () => {
        // The key is a talk key here: the silence goes on.
        this.audio.play().catch(() => {});
        this.onpress();
      });
    }
  }

  /** What the headset shows, and which of the two keys it sends next. */
  talking(isTalking) { if (this.audio) navigator.mediaSession.playbackState = isTalking ? "playing" : "paused"; }

  stop() {
    this.audio?.pause();
    for (const action of ["play", "pause", "stop"]) navigator.mediaSession?.setActionHandler(action, null);
    this.audio = null;
  }
}
