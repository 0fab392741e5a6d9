// What is said about a channel in words: the same for eyes and for screen readers. Pure.
import { clockTime, shown } from "./words.js";

/** The connection in a word; what is wrong with it is said where it is said who talks. */
export function linkWord(words, { state }) {
  return words.say(state === "ready" ? "link-ready" : state === "connecting" || state === "joining" ? "link-connecting" : "link-stopped");
}

export function linkText(words, { state, problem }) {
  return problem && state !== "ready" ? words.say(`problem-${problem}`) : words.say(`link-${state}`);
}

/** @returns {{ icon, main, sub, label }} main and sub say what goes on; label is the button's */
export function channelText(words, app, channel, state, now) {
  const { own, voices, notice } = channel;
  const nameOf = talker => shown(talker.name, words.say("talker-strange"));
  const canTalk = app.canTalk;
  const unreadable = channel.isUnreadable ? words.say("unreadable") : "";
  const noticed = () => notice && notice.until > now
    ? words.say(notice.key, { ...notice.values, name: shown(notice.values.name ?? "", words.say("talker-strange")) }) : "";
  const label = !canTalk ? words.say("no-microphone") : words.say("talk");
  switch (state) {
    case "talking": {
      const time = clockTime(now - own.since);
      const left = own.limit > 0 ? ` / ${clockTime(own.limit)}` : "";
      const warning = app.isSilent ? words.say("talking-silent") : channel.loss >= 5 ? words.say("talking-loss", { percent: channel.loss }) : "";
      const main = words.say(own.isEmergency ? "talking-emergency" : "talking");
      return { icon: "mic", main, sub: warning, time: `${time}${left}`, label: words.say("talk-release") };
    }
    case "queued":
      return {
        icon: "clock", main: own.position === 1 ? words.say("queued-next") : words.say("queued", { position: own.position }),
        sub: voices.length > 0 ? words.say("hearing", { name: nameOf(voices[0]) }) : "", label: words.say("talk-wait"),
      };
    case "asking":
      return {
        icon: "clock", main: words.say("asking"), sub: channel.link.state === "ready" ? "" : linkText(words, channel.link),
        label: words.say("talk-wait"),
      };
    case "offline":
      return {
        icon: "offline", main: words.say(["waiting", "halted"].includes(channel.link.state) ? "offline" : "link-connecting"),
        sub: linkText(words, channel.link), label: words.say("offline"),
      };
    case "refused":
      return { icon: "cross", main: words.say("refused"), sub: noticed(), label };
    case "hearing": {
      const [first] = voices;
      const emergency = channel.emergency;
      const main = emergency ? words.say("hearing-emergency", { name: nameOf(emergency) })
        : voices.length === 1 ? words.say("hearing", { name: nameOf(first) })
          : words.say("hearing-many", { names: voices.map(nameOf).join(", ") });
      return { icon: "speaker", main, sub: unreadable || noticed() && `${words.say("refused")}: ${noticed()}`, label };
    }
    case "listening": return { icon: "ear", main: words.say("idle"), sub: words.say("listening"), label: words.say("listening") };
    default: {
      const problem = app.microphoneProblem;
      return { icon: "mic", main: words.say("idle"), sub: noticed() || unreadable || (problem ? words.say(`mic-${problem}`) : ""), label };
    }
  }
}

export function membersText(words, count) { return count === 0 ? words.say("members-none") : words.count("members", count); }
