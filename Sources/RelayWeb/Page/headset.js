// The play/pause key of a headset, by the Media Session API. Browsers give it only to pages that play something: so something that
// nobody hears is played while the person has this switched on.

const seconds = 8, rate = 8000;
/** A deep tone, 66 dB below full scale: below what ears hear, and above what Firefox takes for nothing. */
const faint = 16, hertz = 25;

function inaudible() {
  const length = seconds * rate * 2;
  const bytes = new Uint8Array(44 + length);
  const view = new DataView(bytes.buffer);
  const text = (at, letters) => [...letters].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, length, true);
  for (let index = 0; index < seconds * rate; index++) {
    view.setInt16(44 + index * 2, Math.round(faint * Math.sin(2 * Math.PI * hertz * index / rate)), true);
  }
  return new Blob([bytes], { type: "audio/wav" });
}

export const hasHeadsetKey = () => "mediaSession" in navigator;

export class HeadsetKey {
  constructor(onpress) { this.onpress = onpress; }

  async start(title) {
    this.audio ??= Object.assign(new Audio(URL.createObjectURL(inaudible())), { loop: true });
    await this.audio.play();
    navigator.mediaSession.metadata = new MediaMetadata({ title });
    for (const action of ["play", "pause", "stop"]) {
      navigator.mediaSession.setActionHandler(action, () => {
        // The key is a talk key here: what is played goes on.
        this.audio.play().catch(() => {});
        this.onpress();
      });
    }
  }

  /** What the headset shows, and which of the two keys it sends next. */
  talking(isTalking) { if (this.audio) navigator.mediaSession.playbackState = isTalking ? "playing" : "paused"; }

  stop() {
    if (this.audio) {
      URL.revokeObjectURL(this.audio.src);
      // Without a source the browser takes the page for none that plays, and gives the key to others.
      this.audio.removeAttribute("src");
      this.audio.load();
    }
    for (const action of ["play", "pause", "stop"]) navigator.mediaSession?.setActionHandler(action, null);
    this.audio = null;
  }
}
