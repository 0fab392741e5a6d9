// Emergencies on top of everything, until somebody acknowledges them.
import { h, icon, keyed, setData, setHidden, setText } from "./parts.js";
import { shown } from "./words.js";

const soundEvery = 3000;

export function alarmsView({ words, app }) {
  const element = h("section", { class: "alarms", role: "alert", "aria-live": "assertive" });
  let soundedAt = -Infinity;

  function make(alarm) {
    const what = h("span", { class: "alarm-words" });
    const channel = app.channels.find(each => each.id === alarm.channel);
    const button = h("button", { type: "button", text: words.say("alarm-acknowledge"), onclick: () => {
      app.alarms.acknowledge(alarm);
      app.changed();
    } });
    const row = h("div", { class: "alarm" }, icon("warning"), h("strong", { text: words.say("alarm") }), what, button);
    return {
      element: row,
      draw() {
        const who = words.say("alarm-who", {
          name: shown(alarm.name, words.say("talker-strange")), channel: shown(channel?.name ?? ""),
        });
        setText(what, alarm.isGoingOn ? who : `${who} ${words.say("alarm-over")}`);
        setHidden(button, alarm.isAcknowledged);
        setData(row, "acknowledged", alarm.isAcknowledged);
      },
    };
  }

  /** Sounds again and again; called also while nothing changes. */
  function sound(now) {
    if (!app.alarms.isSounding || now - soundedAt < soundEvery) return;
    soundedAt = now;
    app.player?.tone("alarm");
  }

  function draw() {
    keyed(element, app.alarms.all, alarm => `${alarm.channel} ${alarm.burst}`, make);
    sound(performance.now());
  }
  return { element, draw, sound };
}
