// Settings: language, headset key, Bluetooth button, more channels, leaving.
import { BluetoothButton, hasBluetooth } from "./bluetooth.js";
import { hasHeadsetKey } from "./headset.js";
import { h, icon, keyed, setHidden, setText } from "./parts.js";
import { invitationsIn } from "./view-start.js";
import { languages, shown } from "./words.js";

function languageChooser({ words, language, onlanguage }) {
  return h("select", { "aria-label": words.say("language"), onchange: event => onlanguage(event.target.value) },
    ...Object.entries(languages).map(([tag, name]) => h("option", { value: tag, lang: tag, text: name, selected: tag === language })));
}

/**
 * @param options { words, language, app, settings, onlanguage, oninvitations, onleave }; `settings` outlives the view, which is made
 * anew in another language.
 */
export function settingsView(options) {
  const { words, app, settings } = options;
  const dialog = h("dialog", { class: "settings", "aria-labelledby": "settings-title" });
  const problem = h("p", { class: "problem", role: "alert" });
  const link = h("input", { id: "more-link", autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const add = h("form", { class: "row", onsubmit: event => {
    event.preventDefault();
    try {
      options.oninvitations(invitationsIn(link.value));
      link.value = "";
      setText(problem, "");
    } catch (thrown) {
      setText(problem, words.say(thrown.code ?? "link-broken"));
    }
  } }, link, h("button", { text: words.say("channel-add") }));
  const channels = h("ul", { class: "plain channel-list" });

  const headset = h("input", { type: "checkbox", id: "headset", checked: Boolean(app.headset), onchange: () => {
    app.useHeadset(headset.checked, words.say("title")).catch(() => { headset.checked = false; });
  } });
  const buttonState = h("p", { class: "faint", role: "status", text: hasBluetooth() ? "" : words.say("button-unsupported") });
  const button = h("button", { type: "button", text: words.say("button-add"), onclick: () => connect() });
  setHidden(button, !hasBluetooth());

  function setButton(key, name = "") {
    settings.buttonState = { key, name };
    app.changed();
  }

  async function connect() {
    settings.button?.close();
    try {
      const profiles = await (await fetch("/page/profiles.json")).json();
      settings.button = new BluetoothButton(profiles, event => {
        if (event.is === "control") app.control(event);
        else setButton(event.is === "connected" ? "button-connected" : "button-lost", event.name);
      });
      await settings.button.choose();
    } catch (error) {
      // Who closes the chooser has chosen nothing.
      if (error.name !== "NotFoundError") setButton("button-failed");
    }
  }

  dialog.append(
    h("header", {}, h("h2", { id: "settings-title", text: words.say("settings") }),
      h("button", { type: "button", class: "round", "aria-label": words.say("settings-close"), onclick: () => dialog.close() }, icon("cross"))),
    h("section", {}, h("h3", { text: words.say("ready-channels") }), channels,
      h("label", { for: "more-link", text: words.say("start-label") }), add, problem),
    h("section", {}, h("h3", { text: words.say("language") }), languageChooser(options)),
    h("section", { hidden: !hasHeadsetKey() }, h("label", { class: "check" }, headset,
      h("span", {}, words.say("headset"), h("small", { class: "faint", text: words.say("headset-help") })))),
    h("section", {}, h("h3", { text: words.say("button") }), button, buttonState));

  function draw() {
    const state = settings.buttonState;
    if (state) setText(buttonState, words.say(state.key, { name: shown(state.name) }));
    keyed(channels, app.channels, channel => channel.id, channel => {
      const name = h("span");
      return {
        element: h("li", { class: "row" }, name,
          h("button", { type: "button", text: words.say("channel-leave"), onclick: () => options.onleave(channel) })),
        draw() { setText(name, shown(channel.name)); },
      };
    });
  }
  return { element: dialog, draw, open: () => dialog.showModal() };
}
