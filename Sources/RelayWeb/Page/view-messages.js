// The messages of the last hour, to hear them again.
import { h, keyed, setData, setHidden, setIcon, setText } from "./parts.js";
import { clockTime, shown } from "./words.js";

const shownMax = 50;

export function messagesView({ words, app, language }) {
  const list = h("ul", { class: "plain message-list" });
  const none = h("p", { class: "faint", text: words.say("messages-none") });
  const element = h("section", { class: "messages", "aria-labelledby": "messages-title" },
    h("h2", { id: "messages-title", text: words.say("messages") }), none, list);
  const hour = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" });

  function make(entry) {
    const play = h("button", { type: "button", class: "round", onclick: () => app.messages.toggle(entry) });
    const name = h("span", { class: "message-name" });
    const facts = h("span", { class: "faint" });
    const length = h("span", { class: "message-length" });
    const channel = app.channels.length > 1 ? shown(app.channels.find(each => each.id === entry.channel)?.name ?? "") : "";
    const time = hour.format(entry.at);
    setText(name, shown(entry.name, words.say("talker-strange")));
    return {
      element: h("li", {}, play, h("span", { class: "message-words" }, name, facts), length),
      draw() {
        const isPlaying = app.messages.playing?.entry === entry;
        setIcon(play, isPlaying ? "stop" : "play");
        setData(play.parentNode, "playing", isPlaying);
        setData(play.parentNode, "emergency", entry.isEmergency);
        play.setAttribute("aria-label", isPlaying ? words.say("message-stop") : words.say("message-play", { name: name.textContent, time }));
        play.disabled = entry.isLive || Boolean(entry.problem);
        const keys = [entry.isEmergency ? "message-emergency" : null, entry.problem].filter(Boolean);
        setText(facts, [time, channel, ...keys.map(key => words.say(key))].filter(Boolean).join(" · "));
        setText(length, entry.isLive ? words.say("message-live") : clockTime(entry.milliseconds));
      },
    };
  }

  function draw() {
    const entries = app.history.entries.filter(entry => entry.frames.length > 0 || entry.isKept).slice(0, shownMax);
    setHidden(none, entries.length > 0);
    keyed(list, entries, entry => `${entry.channel} ${entry.burst}`, make);
  }

  draw();
  return { element, draw };
}
