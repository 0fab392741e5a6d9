// One channel: who talks, the talk button, emergency, loudness, members. Large on a telephone, a card on a console.
import { makeHold } from "./hold.js";
import { h, icon, newId, setAttribute, setData, setHidden, setIcon, setLevel, setText } from "./parts.js";
import { channelText, linkWord, membersText, shown } from "./words.js";

const membersShown = 200;

export function channelView({ words, app, channel, isCard }) {
  const titleId = newId();
  const title = h(isCard ? "h2" : "h1", { id: titleId, class: "name" });
  const link = h("p", { class: "link" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span"));
  const select = isCard ? h("label", { class: "select" },
    h("input", { type: "checkbox", onchange: event => {
      channel.isSelected = event.target.checked;
      app.changed();
    } }), h("span", { text: words.say("select") })) : null;
  const main = h("p", { class: "who-main" });
  const sub = h("p", { class: "who-sub" });
  // Screen readers hear who talks; the time beside it would be read each second.
  const who = h("div", { class: "who", role: "status", "aria-live": "polite", "aria-atomic": "true" }, main, sub);

  const symbol = h("span", { class: "symbol", "aria-hidden": "true" });
  const label = h("span", { class: "label" });
  const time = h("span", { class: "time", "aria-hidden": "true" });
  const hint = h("span", { class: "hint", "aria-hidden": "true", text: isCard ? "" : words.say("talk-space") });
  const talk = h("button", { type: "button", class: "talk", "aria-describedby": titleId },
    h("span", { class: "ring", "aria-hidden": "true" }), h("span", { class: "face" }, symbol, label, time, hint));
  const target = isCard ? channel : null;
  makeHold(talk, {
    down: holder => app.down(holder, target), up: holder => app.up(holder), toggle: holder => app.toggle(holder, target),
  }, `talk-${channel.id}`);

  const emergency = h("button", { type: "button", class: "emergency" }, h("span", { class: "fill", "aria-hidden": "true" }),
    icon("warning"), h("span", { class: "emergency-words" }, h("span", { class: "emergency-label", text: words.say("emergency") }), h("small")));
  makeHold(emergency, {
    down: holder => app.emergency.down(holder, target), up: holder => app.emergency.up(holder),
  }, `emergency-${channel.id}`);

  const mute = h("button", { type: "button", class: "round", onclick: () => app.setVolume(channel, channel.volume, !channel.isMuted) });
  const volume = h("input", {
    type: "range", min: 0, max: 150, step: 5, "aria-label": words.say("volume"),
    oninput: event => app.setVolume(channel, event.target.value / 100, false),
  });
  const microphone = h("button", { type: "button", class: "turn-on", text: words.say("mic-now"), onclick: () => app.openMicrophone() });

  const count = h("span");
  const list = h("ul", { class: "plain members-list" });
  const members = h("details", { class: "members" }, h("summary", {}, icon("people"), count), list);

  const element = h("section", { class: isCard ? "channel card" : "channel", "aria-labelledby": titleId },
    h("header", {}, h("div", { class: "title" }, title, link), select), who, talk, microphone,
    h("div", { class: "controls" }, emergency, h("div", { class: "volume" }, mute, volume)), members);
  let drawnMembers = null;

  function drawMembers() {
    const all = [...channel.floor.members.values()];
    setText(count, membersText(words, all.length));
    const talking = new Set(channel.talkers.map(talker => talker.id));
    const key = all.map(member => `${member.id}${member.name}${talking.has(member.id)}`).join();
    if (key === drawnMembers) return;
    drawnMembers = key;
    list.replaceChildren(...all.slice(0, membersShown).map(member => h("li", {
      class: talking.has(member.id) ? "talks" : undefined, text: shown(member.name, words.say("talker-strange")),
    })));
  }

  function draw() {
    const now = performance.now();
    const state = channel.state(now);
    const text = channelText(words, app, channel, state, now);
    setData(element, "state", state);
    setData(element, "emergency", Boolean(channel.own?.isEmergency || channel.emergency));
    setText(title, shown(channel.name));
    setData(link, "state", channel.link.state);
    setText(link.lastChild, linkWord(words, channel.link));
    setText(main, text.main);
    setText(sub, text.sub);
    setIcon(symbol, text.icon);
    setText(label, text.label);
    setText(time, text.time ?? "");
    const isNamed = isCard && state !== "talking" && app.canTalk;
    setAttribute(talk, "aria-label", isNamed ? words.say("talk-channel", { name: shown(channel.name) }) : text.label);
    setAttribute(talk, "aria-pressed", channel.own !== null);
    setAttribute(talk, "aria-disabled", channel.floor.listenOnly || !app.canTalk);
    setHidden(hint, state !== "idle" && state !== "hearing" || !app.canTalk);
    setLevel(talk, state === "talking" ? app.microphoneLevel : state === "hearing" ? channel.level : 0);
    setHidden(emergency, channel.floor.listenOnly);
    drawEmergency(now);
    setHidden(microphone, app.canTalk || channel.floor.listenOnly);
    setIcon(mute, channel.isMuted ? "muted" : "speaker");
    setAttribute(mute, "aria-label", words.say(channel.isMuted ? "unmute" : "mute"));
    setAttribute(mute, "aria-pressed", channel.isMuted);
    if (document.activeElement !== volume) volume.value = channel.isMuted ? 0 : Math.round(channel.volume * 100);
    if (select) select.firstChild.checked = channel.isSelected;
    drawMembers();
  }

  function drawEmergency(now) {
    const { key, retry } = app.emergency;
    const isHere = app.emergency.target === target && key.state !== "idle";
    emergency.style.setProperty("--progress", isHere ? key.progress(now).toFixed(2) : 0);
    setData(emergency, "state", isHere ? key.state : "idle");
    const small = !isHere ? "emergency-hold" : retry.isWaiting ? "emergency-retry" : "emergency-keep";
    setText(emergency.querySelector("small"), words.say(isHere && app.emergency.isActive && channel.own ? "talk-release" : small));
  }

  draw();
  return { element, draw };
}
