// The screens before a channel: pasting an invitation; the name and the microphone.
import { InvitationError, linksIn, parseInvitation } from "./invitation.js";
import { h, icon, setAttribute, setHidden, setLevel, setText } from "./parts.js";
import { shown } from "./words.js";

/** The invitations in what was pasted; throws InvitationError. */
export function invitationsIn(text) {
  const links = linksIn(text);
  if (links.length === 0) throw new InvitationError("link-broken");
  return links.map(parseInvitation);
}

/** Asks for an invitation. @param options { words, problem, kept, oninvitations(found), onforget } */
export function startView({ words, problem, kept, oninvitations, onforget }) {
  const error = h("p", { class: "problem", role: "alert", id: "link-problem", text: problem ? words.say(problem) : "" });
  const field = h("textarea", {
    id: "link", rows: 4, autocomplete: "off", autocapitalize: "none", spellcheck: "false", required: true, "aria-describedby": "link-problem",
  });
  const take = text => {
    try {
      oninvitations(invitationsIn(text));
    } catch (thrown) {
      setText(error, words.say(thrown.code ?? "link-broken"));
      field.focus();
    }
  };
  const form = h("form", { onsubmit: event => {
    event.preventDefault();
    take(field.value);
  } },
  h("p", { text: words.say("start-text") }),
  h("label", { for: "link", text: words.say("start-label") }), field, error,
  h("button", { class: "primary", text: words.say("start-go") }));
  const view = h("main", { class: "sheet" }, h("h1", { tabindex: -1, text: words.say("start-title") }), form);
  if (kept.length > 0) {
    const names = h("ul", { class: "plain" }, ...kept.map(each => h("li", { text: shown(each.name) })));
    view.append(h("section", { class: "block" }, h("h2", { text: words.say("start-kept") }), names, h("div", { class: "row" },
      h("button", { class: "primary", text: words.say("start-go"), onclick: () => take(kept.map(each => each.link).join(" ")) }),
      h("button", { text: words.say("start-forget"), onclick: onforget }))));
  }
  return { element: view, draw() {} };
}

/** Below this, a second of it is silence. */
const quiet = 0.004;

/**
 * The name and the microphone, before anybody talks. @param options { words, app, invitations, name, isKept, onjoin({ name, isKept }) }
 */
export function readyView({ words, app, invitations, name, isKept, onjoin }) {
  const channels = h("ul", { class: "plain channels-to-join" }, ...invitations.map(each => h("li", {},
    h("strong", { text: shown(each.name) }), h("span", { class: "faint", text: each.host }))));
  const nameField = h("input", { id: "name", autocomplete: "nickname", maxlength: 40, required: true, value: name, "aria-describedby": "name-help" });
  const level = h("div", { class: "level", "aria-hidden": "true" }, h("span"));
  const state = h("p", { class: "mic-state", role: "status" });
  const tryButton = h("button", { type: "button", class: "try", onclick: () => tryMicrophone() }, icon("mic"), h("span"));
  const keep = h("input", { type: "checkbox", id: "keep", "aria-describedby": "keep-help" });
  keep.checked = isKept;
  const join = h("button", { class: "primary join" });
  let isOpening = false, isClosed = false, peak = 0, openedAt = 0;

  async function tryMicrophone() {
    isOpening = true;
    draw();
    await app.openMicrophone();
    // Who has joined before the browser asked has a talk button for it.
    if (isClosed) return;
    app.microphone?.want(true);
    openedAt = performance.now();
    peak = 0;
    isOpening = false;
    draw();
  }

  function stateKey() {
    if (isOpening) return "mic-opening";
    if (app.microphoneProblem) return `mic-${app.microphoneProblem}`;
    if (!app.hasMicrophone) return "";
    if (peak > quiet) return "mic-good";
    return performance.now() - openedAt > 2500 ? "mic-quiet" : "mic-speak";
  }

  function draw() {
    peak = Math.max(peak, app.microphoneLevel);
    const key = stateKey();
    setText(state, key ? words.say(key) : "");
    setAttribute(state, "data-tone", key === "mic-good" ? "good" : ["mic-speak", "mic-opening", ""].includes(key) ? "" : "bad");
    setHidden(tryButton, app.hasMicrophone && !app.microphoneProblem);
    tryButton.disabled = isOpening;
    setText(tryButton.lastChild, words.say(app.microphoneProblem ? "mic-again" : "mic-on"));
    setHidden(level, !app.hasMicrophone);
    setLevel(level, app.microphoneLevel);
    const mayTalk = app.canTalk;
    setText(join, words.say(mayTalk ? "join" : "join-listen"));
    join.classList.toggle("primary", mayTalk || app.microphoneProblem !== null);
    tryButton.classList.toggle("primary", !mayTalk && app.microphoneProblem === null);
  }

  const form = h("form", { class: "ready", onsubmit: async event => {
    event.preventDefault();
    const chosen = shown(nameField.value, "");
    if (chosen === "") return nameField.focus();
    await app.startSound().catch(() => {});
    app.microphone?.want(false);
    onjoin({ name: chosen, isKept: keep.checked });
  } },
  h("section", { class: "block" }, h("h2", { text: words.say("ready-channels") }), channels),
  h("section", { class: "block" }, h("label", { for: "name", class: "h2", text: words.say("name-label") }), nameField,
    h("p", { id: "name-help", class: "faint", text: words.say("name-help") })),
  h("section", { class: "block" }, h("h2", { text: words.say("mic-title") }), tryButton, level, state,
    h("p", { class: "faint", text: words.say("mic-privacy") })),
  h("label", { class: "check" }, keep, h("span", {}, words.say("remember"),
    h("small", { id: "keep-help", class: "faint", text: words.say("remember-help") }))),
  join);
  draw();
  // The meter and the word about silence go on while nothing else changes.
  const timer = setInterval(draw, 250);
  return {
    element: h("main", { class: "sheet" }, h("h1", { tabindex: -1, text: words.say("ready-title") }), form), draw,
    close() {
      isClosed = true;
      clearInterval(timer);
    },
  };
}
