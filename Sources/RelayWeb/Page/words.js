// Texts: names from others made harmless, translations, times; and what is said about a channel, the same for eyes and for screen
// readers. Pure.

export const languages = { en: "English", fr: "Français", de: "Deutsch", ko: "한국어" };
const nameMax = 64;

/**
 * A name as it may be shown: without characters that are not seen, turn the direction of writing around, or pile up.
 * It still goes into the page as text only.
 */
export function shown(name, instead = "?") {
  const visible = name
    .replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, "")
    .replace(/[\u{e0000}-\u{e0fff}]/gu, "")
    .replace(/(\p{M}{3})\p{M}+/gu, "$1")
    .replace(/\s+/gu, " ").trim();
  const letters = Array.from(visible);
  const text = letters.length > nameMax ? `${letters.slice(0, nameMax - 1).join("")}…` : visible;
  if (text === "") return instead;
  // A name from right to left keeps to itself: the words around it stay where they are.
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(text) ? `\u2068${text}\u2069` : text;
}

/** The language of these that the person prefers most. */
export function preferred(wanted) {
  for (const tag of wanted) {
    const language = tag.toLowerCase().split("-")[0];
    if (language in languages) return language;
  }
  return "en";
}

export class Words {
  constructor(table, fallback = {}) { Object.assign(this, { table, fallback }); }

  /** The text of a key, with {names} filled in. */
  say(key, values = {}) {
    const text = this.table[key] ?? this.fallback[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
  }

  /** One or several. */
  count(key, count) { return this.say(`${key}-${count === 1 ? "one" : "many"}`, { count }); }
}

export function clockTime(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

const denials = {
  1: "deny-taken", 2: "deny-relay", 3: "deny-alone", 4: "deny-wait", 5: "deny-listen", 6: "deny-relay", 7: "deny-queue",
};
const revocations = { 1: "revoke-alone", 2: "revoke-long", 3: "revoke-permission", 4: "revoke-preempted" };

/** The key of the text for a refusal, by its cause (docs/relay-protocol.md, sections 7.7 and 7.9). */
export function refusalKey({ reason, cause }) {
  if (reason === "denied") return denials[cause] ?? "deny-other";
  if (reason === "revoked") return revocations[cause] ?? "revoke-other";
  return {
    link: "end-link", unanswered: "end-unanswered", unheard: "end-unheard", taken: "deny-taken", microphone: "end-microphone",
    encoder: "end-encoder", stalled: "end-stalled", hidden: "end-hidden",
  }[reason] ?? null;
}

/** The connection in a word; what is wrong with it is said where it is said who talks. */
export function linkWord(words, { state }) {
  return words.say(state === "ready" ? "link-ready" : state === "connecting" || state === "joining" ? "link-connecting" : "link-stopped");
}

function linkText(words, { state, problem }) {
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
