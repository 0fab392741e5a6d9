// The page while on channels: a walkie-talkie for one, a console for several.
import { makeHold } from "./hold.js";
import { h, icon, keyed, setAttribute, setData, setHidden, setIcon, setLevel, setText } from "./parts.js";
import { alarmsView } from "./view-alarms.js";
import { channelView } from "./view-channel.js";
import { messagesView } from "./view-messages.js";
import { settingsView } from "./view-settings.js";
import { channelText, shown } from "./words.js";

/** @param options { words, language, app, settings, onlanguage, oninvitations, onleave } */
export function mainView(options) {
  const { words, app } = options;
  const alarms = alarmsView(options), messages = messagesView(options), settings = settingsView(options);
  const blocked = h("button", { type: "button", class: "blocked", text: words.say("sound-blocked"), onclick: () => app.context?.resume() });
  const open = h("button", { type: "button", class: "round", "aria-label": words.say("settings"), onclick: () => {
    settings.draw();
    settings.open();
  } }, icon("settings"));
  const bar = h("div", { class: "bar" }, h("span", { class: "brand", text: words.say("title") }), open);
  const grid = h("div", { class: "grid" });
  const all = talkToAll(options);
  const desk = h("main", { class: "desk" }, h("div", { class: "left" }, grid, all.element), messages.element);
  const element = h("div", { class: "page" }, bar, alarms.element, blocked, desk, settings.element);
  let isConsole = null;

  function draw() {
    const isNowConsole = app.channels.length > 1;
    if (isNowConsole !== isConsole) {
      isConsole = isNowConsole;
      grid.keyedParts = undefined;
      grid.replaceChildren();
      setData(element, "layout", isConsole ? "console" : "walkie");
    }
    keyed(grid, app.channels, channel => channel.id, channel => channelView({ ...options, channel, isCard: isConsole }));
    all.draw();
    messages.draw();
    settings.draw();
    alarms.draw();
    setHidden(blocked, !app.context || app.context.state === "running");
    const emergency = app.alarms.all.length > 0;
    const title = emergency ? `${words.say("alarm")} – ${words.say("title")}` : words.say("title");
    if (document.title !== title) document.title = title;
  }

  draw();
  return { element, draw, sound: alarms.sound };
}

/** The console's button for all channels that are selected. */
function talkToAll({ words, app }) {
  const symbol = h("span", { class: "symbol", "aria-hidden": "true" });
  const label = h("span", { class: "label" });
  const names = h("span", { class: "hint" });
  const button = h("button", { type: "button", class: "talk wide" },
    h("span", { class: "face" }, symbol, h("span", { class: "wide-words" }, label, names)));
  makeHold(button, {
    down: holder => app.down(holder, null), up: holder => app.up(holder), toggle: holder => app.toggle(holder, null),
  }, "talk-all");
  const element = h("div", { class: "all" }, button);

  function draw() {
    setHidden(element, app.channels.length < 2);
    const now = performance.now();
    const selected = app.channels.filter(channel => channel.isSelected);
    const owning = app.channels.filter(channel => channel.own);
    const channel = owning.find(each => each.own.phase === "talking") ?? owning[0] ?? null;
    const state = channel ? channel.state(now) : "idle";
    const text = channel ? channelText(words, app, channel, state, now) : null;
    setData(element, "state", state);
    setData(element, "emergency", Boolean(channel?.own?.isEmergency));
    setIcon(symbol, text?.icon ?? "mic");
    const idle = !app.canTalk ? "no-microphone" : selected.length > 0 ? "talk-selected" : "talk-selected-none";
    setText(label, text ? `${text.main} ${text.time ?? ""}`.trim() : words.say(idle));
    setText(names, words.say("talk-to", { names: (owning.length > 0 ? owning : selected).map(each => shown(each.name)).join(", ") }));
    setHidden(names, selected.length === 0 && owning.length === 0);
    setAttribute(button, "aria-pressed", channel !== null);
    setAttribute(button, "aria-disabled", selected.length === 0 || !app.canTalk);
    setLevel(button, state === "talking" ? app.microphoneLevel : 0);
  }
  return { element, draw };
}
