// The page's parts put together: channels, sound, talk key, alarms. What is shown is in the views.
import { Channel } from "./channel.js";
import { Drawing } from "./parts.js";
import { Encoder, encoderConfiguration } from "./encoder.js";
import { HeadsetKey } from "./headset.js";
import { History } from "./history.js";
import { Alarms, EmergencyControl } from "./emergency.js";
import { shareOf } from "./invitation.js";
import { LinkTones } from "./tones.js";
import { emergencyPriority } from "./messages.js";
import { Microphone } from "./microphone.js";
import { Player } from "./player.js";
import { opusSamples } from "./rtp.js";
import { Replays } from "./replays.js";
import { TalkKey } from "./talk-key.js";
import { Talker } from "./talker.js";
import { relayUrl } from "./transport.js";
import { within } from "./within.js";

const microphoneProblems = new Set(["refused", "none", "busy", "encoder", "muted", "ended", "sound"]);
/** So long the page's code for the audio thread may take to load, and a browser to open its loudspeaker. */
const loadMax = 10000, soundMax = 4000;

export class App {
  channels = [];
  history = new History();
  key = new TalkKey();
  emergency = new EmergencyControl(this);
  messages = new Replays(this);
  alarms = new Alarms();
  tones = new LinkTones(name => this.player?.tone(name));
  /** Where the talk key talks to: null for all selected channels, or one channel. */
  target = null;
  microphoneProblem = null;
  microphoneLevel = 0;
  isSilent = false;
  #drawing = new Drawing();

  constructor({ identity, name }) { Object.assign(this, { identity, name }); }

  onchange(draw) { this.#drawing.add(draw); }
  changed() { this.#drawing.changed(); }

  // Sound.

  /** Needs a gesture: browsers play nothing before one. */
  async startSound() {
    this.sound ??= this.#makeSound().catch(error => {
      this.sound = null;
      throw error;
    });
    await within(loadMax, this.sound, "load");
    // A browser without a sound device lets its context wait, and says nothing.
    await within(soundMax, this.context.resume(), "sound");
  }

  async #makeSound() {
    this.context = new AudioContext({ sampleRate: 48000, latencyHint: "interactive" });
    // While the gesture counts.
    this.context.resume();
    this.player = new Player(this.context, event => this.#played(event));
    this.microphone = new Microphone(this.context);
    this.microphone.onproblem = problem => this.#microphoneProblem(problem);
    this.talker = new Talker({
      microphone: this.microphone, tone: name => this.player.tone(name), tell: event => this.#talked(event),
      makeEncoder: (onframe, onerror) => new Encoder(this.encoding, onframe, onerror),
    });
    this.context.onstatechange = () => this.changed();
    this.encoding = await encoderConfiguration();
    await this.player.start();
  }

  async openMicrophone() {
    this.microphoneProblem = null;
    try {
      await this.startSound();
      if (!this.encoding) throw new Error("encoder");
      if (await this.microphone.open()) this.hasMicrophone = true;
    } catch (error) {
      this.hasMicrophone = false;
      this.microphoneProblem = microphoneProblems.has(error.message) ? error.message : "failed";
    }
    this.changed();
  }

  #microphoneProblem(problem) {
    this.microphoneProblem = problem;
    if (problem === "ended") this.hasMicrophone = false;
    if (problem) {
      this.#letGo();
      this.talker.stop("microphone");
    }
    this.changed();
  }

  #played(event) {
    const channel = this.channels.find(each => each.id === event.channel);
    if (event.is === "level") {
      if (channel) channel.level = event.peak;
      return this.#drawing.metered();
    } else {
      this.messages.played(event.burst);
      channel?.played(event.burst);
    }
    this.changed();
  }

  // Channels.

  join(invitations) {
    for (const invitation of invitations) {
      if (this.channels.some(channel => channel.id === invitation.channel)) continue;
      const channel = new Channel(invitation, {
        identity: this.identity, name: this.name, url: relayUrl(location, shareOf(invitation.channelId)),
        tell: (channel, event) => this.#told(channel, event),
      });
      // A press of the space bar is not to reach channels that nobody has chosen.
      channel.isSelected = this.channels.length === 0;
      this.channels.push(channel);
      channel.session.start();
    }
    this.changed();
  }

  leave(channel) {
    if (channel.own) this.release();
    channel.session.stop();
    this.player?.dropChannel(channel.id);
    this.history.clear(channel.id);
    this.tones.left(channel);
    this.channels = this.channels.filter(other => other !== channel);
    if (this.target === channel) this.target = null;
    this.changed();
  }

  /** The page goes: the floor is free at once. */
  close() {
    this.#letGo();
    this.talker?.stop("hidden");
    for (const channel of this.channels) channel.session.stop();
  }

  reopen() { for (const channel of this.channels) channel.session.start(); }

  setVolume(channel, volume, isMuted) {
    Object.assign(channel, { volume, isMuted });
    this.player?.gain(channel.id, isMuted ? 0 : volume);
    this.changed();
  }

  #told(channel, event) {
    const now = performance.now();
    switch (event.is) {
      case "link":
        this.tones.state(channel, event.state);
        this.alarms.link(channel.id, event.state, channel.talkers);
        if (event.state === "ready" && channel.session.keptBursts > 0) this.messages.refresh(channel);
        break;
      case "uplink":
        this.talker?.uplink(channel.session, event);
        if (event.what === "ended" && event.sent > 0) this.messages.refreshSoon(channel);
        break;
      case "taken":
        if (event.talker.isEmergency) this.alarms.began(channel.id, event.talker, now);
        break;
      case "idle":
        this.alarms.idle(channel.id, event.ssrc);
        this.emergency.floorIdle(now);
        break;
      case "began":
        this.messages.stop();
        this.history.began(channel.id, event.talker, Date.now());
        this.player?.open(channel.id, event.talker.burst, { isAlone: !channel.isFullDuplex });
        break;
      case "frame":
        this.history.frame(channel.id, event.talker.burst, event.header, event.payload, opusSamples(event.payload));
        this.player?.frame(channel.id, event.talker.burst, event);
        break;
      case "ended":
        this.history.ended(channel.id, event.talker.burst);
        if (this.player) this.player.finish(channel.id, event.talker.burst);
        else channel.played(event.talker.burst);
    }
    this.changed();
  }

  // Talking.

  get targets() {
    const all = this.target ? [this.target] : this.channels.filter(channel => channel.isSelected || this.channels.length === 1);
    return all.filter(channel => !channel.floor.listenOnly);
  }

  get canTalk() { return Boolean(this.hasMicrophone) && this.microphoneProblem === null; }

  down(holder, target = null) { this.#act(this.key.down(holder), target); }
  up(holder) { this.#act(this.key.up(holder)); }
  toggle(holder, target = null) { this.#act(this.key.toggle(holder), target); }

  #act(what, target = null) {
    if (what === "press") this.#press(target);
    if (what === "release" && !this.emergency.isActive) this.release();
  }

  #press(target) {
    this.target = target;
    if (this.emergency.isActive) this.key.burstEnded();
    else this.begin(0);
  }

  /** A burst on the channels of the target. */
  begin(priority) {
    const channels = this.targets;
    const listeners = (this.target ? [this.target] : this.channels).filter(channel => channel.floor.listenOnly);
    if (channels.length === 0) for (const channel of listeners) channel.notify("deny-listen");
    if (channels.length === 0 || !this.canTalk) {
      this.player?.tone("deny");
      if (!this.canTalk) for (const channel of channels) channel.notify("no-microphone");
      this.key.burstEnded();
      return this.changed();
    }
    this.context.resume();
    this.messages.stop();
    this.isSilent = false;
    for (const channel of channels) {
      channel.began(this.talker.nextBurst, priority);
      // What is still played of a burst that is over makes room; it can be heard again.
      if (!channel.isFullDuplex && channel.talkers.length === 0) this.#quiet(channel);
    }
    const waits = priority !== emergencyPriority && channels.some(channel => !channel.isFullDuplex && channel.talkers.length > 0);
    this.talker.press(channels.map(channel => channel.session), { priority, waits });
    this.headset?.talking(true);
    this.changed();
  }

  #quiet(channel) {
    this.player.dropChannel(channel.id);
    channel.heard.clear();
  }

  release() {
    this.talker?.release();
    this.headset?.talking(false);
    this.changed();
  }

  #letGo() {
    this.key.clear();
    this.emergency.clear();
  }

  /** The page lost the focus or is hidden: no release of a key or finger would come any more. */
  lostFocus() {
    this.emergency.lostFocus();
    this.#act(this.key.lostFocus());
    this.changed();
  }

  #talked(event) {
    switch (event.is) {
      case "level":
        this.microphoneLevel = Math.max(event.peak, this.microphoneLevel * 0.9);
        return this.#drawing.metered();
      case "silent": this.isSilent = true; break;
      case "over": this.#isOver(event);
    }
    this.changed();
  }

  #isOver(event) {
    // The talk key that is held, or was toggled, is that of the burst which follows.
    if (!event.isFollowed) {
      this.key.burstEnded();
      this.headset?.talking(false);
      for (const channel of this.channels) channel.over(event.burst);
    }
    this.microphoneLevel = 0;
    this.emergency.isOver(event);
  }

  // Buttons beside the page.

  async useHeadset(isWanted, title) {
    this.headset?.stop();
    this.headset = null;
    if (!isWanted) return;
    const headset = new HeadsetKey(() => this.toggle("media"));
    await headset.start(title);
    this.headset = headset;
  }

  control({ control, isDown }) {
    const key = control === "emergency" ? this.emergency : this;
    return isDown ? key.down("bluetooth") : key.up("bluetooth");
  }
}
