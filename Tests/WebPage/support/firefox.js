// Firefox by WebDriver BiDi over its own port: no driver program is needed. Its microphone is Firefox's own fake one.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { fileAnswer, Page } from "./page.js";
import { SilentSound } from "./silent-sound.js";
import { ClientSocket } from "./websocket.js";

const programs = ["/usr/bin/firefox-esr", "/usr/bin/firefox"];

/** No question is asked, nothing is fetched from elsewhere, and nothing sleeps because nobody looks. */
const preferences = {
  "media.navigator.permission.disabled": true, "media.autoplay.default": 0, "media.autoplay.blocking_policy": 0,
  "media.block-autoplay-until-in-foreground": false,
  "app.update.disabledForTesting": true, "app.normandy.enabled": false, "browser.safebrowsing.update.enabled": false,
  "browser.shell.checkDefaultBrowser": false, "browser.startup.page": 0, "browser.startup.homepage_override.mstone": "ignore",
  "browser.topsites.contile.enabled": false, "browser.newtabpage.enabled": false, "datareporting.policy.dataSubmissionEnabled": false,
  "extensions.update.enabled": false, "extensions.systemAddon.update.enabled": false, "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false, "services.settings.server": "data:,#none", "toolkit.telemetry.server": "data:,",
  "dom.min_background_timeout_value": 4, "dom.timeout.enable_budget_timer_throttling": false, "dom.ipc.processPriorityManager.enabled": false,
  "ui.prefersReducedMotion": 1,
};

export class Firefox {
  #id = 0;
  #waiting = new Map();
  pages = new Map();

  /** @param {string | null} microphone null: sound comes and goes by the machine's own devices; else Firefox's own tone */
  async start(microphone, more = [], environment = {}) {
    const program = process.env.FIREFOX ?? programs.find(existsSync);
    if (!program) throw new Error("there is no firefox: apt-get install firefox-esr");
    this.profile = mkdtempSync(join(tmpdir(), "web-page-"));
    const all = { ...preferences, "media.navigator.streams.fake": microphone !== null };
    writeFileSync(join(this.profile, "user.js"), Object.entries(all).map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});\n`).join(""));
    // Without a sound device the clock of Firefox's sound does not run.
    if (microphone !== null) this.sound = await new SilentSound().start();
    this.process = spawn(program, ["--headless", "--no-remote", "--profile", this.profile, "--remote-debugging-port=0", ...more], {
      stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, ...environment, ...this.sound?.environment, HOME: this.profile, MOZ_CRASHREPORTER_DISABLE: "1" },
    });
    const url = await this.#address();
    this.socket = new ClientSocket(`${url}/session`);
    this.socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
    await new Promise((resolve, reject) => Object.assign(this.socket, { onopen: resolve, onclose: () => reject(new Error("firefox closed its port")) }));
    const { capabilities } = await this.send("session.new", { capabilities: { alwaysMatch: { acceptInsecureCerts: true } } });
    this.version = capabilities.browserVersion;
    await this.send("session.subscribe", { events: ["log.entryAdded", "network.beforeRequestSent"] });
    return this;
  }

  #address() {
    return new Promise((resolve, reject) => {
      let said = "";
      this.process.stderr.on("data", data => {
        said += data;
        const found = said.match(/WebDriver BiDi listening on (ws:\/\/\S+)/);
        if (found) resolve(found[1]);
      });
      this.process.once("exit", () => reject(new Error(`firefox ended: ${said.slice(-500)}`)));
    });
  }

  #take(message) {
    if (message.id) {
      const { resolve, reject } = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (message.type === "error") reject(new Error(`${message.error}: ${message.message}`));
      else resolve(message.result);
    } else this.pages.get(message.params?.context ?? message.params?.source?.context)?.event(message);
  }

  send(method, params = {}) {
    const id = ++this.#id;
    this.socket.sendText(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  /** A page of its own person: nothing is shared with others. `files`: a folder with the page's files, in place of the server's. */
  async page(url, { before = "", language = "en-US", width = 390, height = 800, files = null } = {}) {
    const { userContext } = await this.send("browser.createUserContext", { acceptInsecureCerts: true });
    const { context } = await this.send("browsingContext.create", { type: "tab", userContext, background: true });
    const page = new FirefoxPage(this, context);
    this.pages.set(context, page);
    await this.send("browsingContext.setViewport", { context, viewport: { width, height } });
    await this.send("emulation.setLocaleOverride", { locale: language, contexts: [context] });
    if (before) await this.send("script.addPreloadScript", { functionDeclaration: `() => { if (isSecureContext) { ${before} } }`, contexts: [context] });
    page.files = files;
    if (files) await this.send("network.addIntercept", { phases: ["beforeRequestSent"], contexts: [context], urlPatterns: [{ type: "pattern", protocol: "https" }] });
    await this.send("browsingContext.navigate", { context, url, wait: "complete" });
    return page;
  }

  async stop() {
    const gone = new Promise(resolve => this.process.once("exit", resolve));
    this.send("browser.close").catch(() => {});
    setTimeout(() => this.process.kill("SIGKILL"), 5000).unref();
    await gone;
    this.sound?.stop();
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

const keys = { Tab: "\uE004", Enter: "\uE007", Escape: "\uE00C" };

class FirefoxPage extends Page {
  constructor(browser, context) {
    super();
    Object.assign(this, { browser, context });
  }

  event({ method, params }) {
    if (method === "log.entryAdded" && ["error", "warn"].includes(params.level)) this.errors.push(params.text ?? "");
    if (method !== "network.beforeRequestSent") return;
    this.requests.push(params.request.url);
    if (params.isBlocked) this.#fulfil(params.request).catch(error => this.errors.push(String(error)));
  }

  async #fulfil({ request, url }) {
    const { status, type, body } = fileAnswer(this.files, url);
    await this.browser.send("network.provideResponse", {
      request, statusCode: status, reasonPhrase: "", headers: [{ name: "Content-Type", value: { type: "string", value: type } }], body: { type: "base64", value: body },
    });
  }

  send(method, params) { return this.browser.send(method, { context: this.context, ...params }); }

  async value(expression) {
    const answer = await this.browser.send("script.evaluate", {
      expression: `(async () => JSON.stringify(await (${expression})) ?? "null")()`, target: { context: this.context }, awaitPromise: true, userActivation: true,
    });
    if (answer.type === "exception") throw new Error(answer.exceptionDetails.text);
    return JSON.parse(answer.result.value);
  }

  async mouse(type, { x, y }) {
    const place = { type: "pointerMove", x: Math.round(x), y: Math.round(y) };
    await this.send("input.performActions", { actions: [{ type: "pointer", id: "mouse", parameters: { pointerType: "mouse" }, actions:
      type === "mousePressed" ? [place, { type: "pointerDown", button: 0 }] : [{ type: "pointerUp", button: 0 }] }] });
  }

  async key(type, key) { await this.#keys([{ type, value: keys[key] ?? key }]); }

  async insertText(text) { await this.#keys([...text].flatMap(value => [{ type: "keyDown", value }, { type: "keyUp", value }])); }

  #keys(actions) { return this.send("input.performActions", { actions: [{ type: "key", id: "keyboard", actions }] }); }

  async pictureData() { return (await this.send("browsingContext.captureScreenshot", {})).data; }

  reload() { return this.send("browsingContext.reload", { wait: "complete" }); }

  async close() { await this.send("browsingContext.close", {}); }
}
