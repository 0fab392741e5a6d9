// Starts the page: what the browser can do, the links in the address, then the screens.
import { App } from "./app.js";
import { canDecode } from "./encoder.js";
import { holdSpaceBar } from "./hold.js";
import { h } from "./parts.js";
import { deviceIdentity, forget, get, put } from "./store.js";
import { invitationsIn, readyView, startView } from "./view-start.js";
import { mainView } from "./view-main.js";
import { preferred, Words } from "./words.js";

const drawEvery = 250;
const holder = document.getElementById("app");
const settings = {};
let words, language, app, view = null, invitations = [], kept = [], wakeLock = null;

async function table(tag) { return (await fetch(`/page/lang-${tag}.json`)).json(); }

async function speak(tag) {
  language = tag;
  const fallback = await table("en");
  words = new Words(tag === "en" ? fallback : await table(tag), fallback);
  document.documentElement.lang = tag;
  document.title = words.say("title");
}

/** What this browser lacks; empty: nothing. */
async function missing() {
  const found = [];
  if (!globalThis.isSecureContext) return ["https"];
  if (!globalThis.AudioWorkletNode) found.push("AudioWorklet");
  if (!await canDecode()) found.push("WebCodecs Opus");
  try {
    await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
  } catch {
    found.push("X25519");
  }
  return found;
}

function show(next) {
  view?.close?.();
  view = next;
  holder.replaceChildren(view.element);
  view.element.querySelector("[autofocus], h1")?.focus?.();
}

function showStart(problem = null) {
  show(startView({
    words, problem, kept,
    oninvitations(found) {
      invitations = found;
      setAddress();
      showReady();
    },
    async onforget() {
      kept = [];
      await forget("channels");
      showStart();
    },
  }));
}

/** The address keeps the links, so that loading the page again works. They are secret: they stay behind '#'. */
function setAddress() {
  history.replaceState(null, "", `${location.pathname}#${invitations.map(each => each.link).join("%20")}`);
}

async function showReady() {
  const name = await get("name") ?? "";
  show(readyView({
    words, app, invitations, name, isKept: kept.length > 0,
    async onjoin({ name: chosen, isKept }) {
      app.name = chosen;
      await put("name", chosen);
      settings.isKept = isKept;
      await keep();
      app.join(invitations);
      showMain();
    },
  }));
}

async function keep() {
  if (!settings.isKept) return forget("channels");
  kept = invitations.map(({ link, name }) => ({ link, name }));
  await put("channels", kept);
}

function showMain() {
  stayAwake();
  show(mainView({
    words, language, app, settings,
    async onlanguage(tag) {
      await put("language", tag);
      await speak(tag);
      showMain();
    },
    oninvitations(found) {
      const known = new Set(invitations.map(each => each.channel));
      invitations = [...invitations, ...found.filter(each => !known.has(each.channel))];
      setAddress();
      keep();
      app.join(found);
    },
    onleave(channel) {
      app.leave(channel);
      invitations = invitations.filter(each => each.channel !== channel.id);
      setAddress();
      keep();
      if (app.channels.length > 0) return;
      app.microphone?.close();
      app.hasMicrophone = false;
      wakeLock?.release();
      showStart();
    },
  }));
}

/** A telephone that goes dark takes the page's microphone and network away. */
async function stayAwake() {
  if (document.visibilityState !== "visible" || !navigator.wakeLock || app.channels.length === 0) return;
  try {
    wakeLock ??= await navigator.wakeLock.request("screen");
    wakeLock.addEventListener("release", () => { wakeLock = null; });
  } catch {
    // A low battery: the screen goes dark as usual.
  }
}

function watchPage() {
  window.addEventListener("blur", () => app.lostFocus());
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") return app.lostFocus();
    stayAwake();
    app.context?.resume();
    for (const channel of app.channels) channel.session.probe();
    app.changed();
  });
  window.addEventListener("pagehide", () => app.close());
  window.addEventListener("pageshow", event => event.persisted && app.reopen());
  window.addEventListener("online", () => app.channels.forEach(channel => channel.session.hurry()));
  window.addEventListener("offline", () => {
    // Nobody hears what is said now.
    app.talker?.stop("link");
    for (const channel of app.channels) channel.session.probe();
  });
  window.addEventListener("hashchange", () => location.reload());
  window.addEventListener("pointerdown", () => app.context?.state === "suspended" && app.context.resume());
  holdSpaceBar({
    down: holder => app.channels.length > 0 && !document.querySelector("dialog[open]") && app.down(holder, null),
    up: holder => app.up(holder),
  });
}

async function start() {
  await speak(preferred([await get("language") ?? "", ...navigator.languages ?? []]));
  const lacks = await missing();
  if (lacks.length > 0) {
    const text = lacks[0] === "https" ? words.say("insecure-text") : words.say("old-text", { missing: lacks.join(", ") });
    return show({ element: h("main", { class: "sheet" }, h("h1", { text: words.say("old-title") }), h("p", { text })) });
  }
  kept = await get("channels") ?? [];
  app = new App({ identity: await deviceIdentity(), name: "" });
  app.onchange(() => view.draw?.());
  watchPage();
  // Times run on while nothing happens, an alarm sounds on, and messages grow old.
  setInterval(() => {
    if (app.channels.length === 0) return;
    app.history.expire(Date.now());
    view.sound?.(performance.now());
    app.changed();
  }, drawEvery);
  const hash = location.hash.slice(1);
  if (hash === "") return showStart();
  try {
    invitations = invitationsIn(hash);
    showReady();
  } catch (error) {
    showStart(error.code ?? "link-broken");
  }
}

start();
