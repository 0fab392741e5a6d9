// Messages that are heard again: from this page's memory, or from the relay.
import { burstName } from "./rtp.js";

const refreshAfter = 1500;

export class Replays {
  /** What is played again now: { entry, lane }. */
  playing = null;

  constructor(app) { this.app = app; }

  /** What this end said is among what the relay keeps. */
  refreshSoon(channel) {
    if (channel.session.keptBursts === 0) return;
    clearTimeout(channel.refreshTimer);
    channel.refreshTimer = setTimeout(() => channel.session.isReady && this.refresh(channel), refreshAfter);
  }

  async refresh(channel) {
    try {
      const { bursts } = await channel.session.list();
      const named = bursts.map(burst => ({ ...burst, burst: burstName(burst.ssrc, burst.keyId) }));
      this.app.history.kept(channel.id, named, Date.now());
    } catch {
      // The relay keeps nothing, or not now: what was heard here is shown.
    }
    this.app.changed();
  }

  /** Plays an entry of the history, or ends it where it is played already. */
  async toggle(entry) {
    const { app } = this;
    const wasThis = this.playing?.entry === entry;
    this.stop();
    const channel = app.channels.find(each => each.id === entry.channel);
    if (wasThis || !channel || !app.player) return app.changed();
    const playing = this.playing = { entry, lane: `again ${entry.burst}` };
    app.changed();
    const frames = entry.frames.length > 0 ? entry.frames : await channel.session.fetch(entry.ssrc, entry.keyId).catch(() => []);
    if (this.playing !== playing) return;
    if (frames.length === 0) {
      this.playing = null;
      entry.problem = "message-gone";
      return app.changed();
    }
    app.player.open(channel.id, playing.lane, { isAlone: false, isReplay: true });
    for (const frame of frames) app.player.frame(channel.id, playing.lane, frame);
    app.player.finish(channel.id, playing.lane);
    app.changed();
  }

  played(lane) { if (this.playing?.lane === lane) this.playing = null; }

  /** It disturbs nobody who talks. */
  stop() {
    if (!this.playing) return;
    this.app.player?.drop(this.playing.entry.channel, this.playing.lane);
    this.playing = null;
  }
}
