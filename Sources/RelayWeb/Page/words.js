// Texts: names from others made harmless, translations, times. Pure.

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
