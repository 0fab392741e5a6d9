// Chromium by its remote debugging pipe: no package and no port is needed.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { fileAnswer, Page } from "./page.js";

const programs = ["/usr/lib/chromium/chromium", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export class Chromium {
  #id = 0;
  #waiting = new Map();
  #buffer = Buffer.alloc(0);
  pages = new Map();
  /** Get what the browser itself tells. */
  listeners = new Set();

  /** @param {string | null} microphone a WAV file that the microphone hears; null: sound comes and goes by the machine's own devices */
  async start(microphone, more = [], environment = {}) {
    const program = process.env.CHROMIUM ?? programs.find(existsSync);
    if (!program) throw new Error("there is no chromium: apt-get install chromium");
    this.profile = mkdtempSync(join(tmpdir(), "web-page-"));
    const heard = microphone === null ? [] : ["--use-fake-device-for-media-stream", `--use-file-for-fake-audio-capture=${microphone}`];
    this.process = spawn(program, [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", `--user-data-dir=${this.profile}`,
      "--use-fake-ui-for-media-stream", ...heard,
      "--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", ...more, "about:blank",
    ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], env: { ...process.env, ...environment } });
    [, , , this.toBrowser, this.fromBrowser] = this.process.stdio;
    this.fromBrowser.on("data", data => this.#take(data));
    await this.send("Browser.getVersion");
    return this;
  }

  #take(data) {
    this.#buffer = Buffer.concat([this.#buffer, data]);
    for (let end; (end = this.#buffer.indexOf(0)) >= 0;) {
      const message = JSON.parse(this.#buffer.subarray(0, end).toString());
      this.#buffer = this.#buffer.subarray(end + 1);
      if (message.id) {
        const { resolve, reject } = this.#waiting.get(message.id);
        this.#waiting.delete(message.id);
        if (message.error) reject(new Error(message.error.message));
        else resolve(message.result);
      } else if (message.sessionId) this.pages.get(message.sessionId)?.event(message);
      else for (const listen of this.listeners) listen(message);
    }
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.#id;
    this.toBrowser.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  /** A page of its own person: nothing is shared with others. `files`: a folder with the page's files, in place of the server's; `hidden`: without a window. */
  async page(url, { before = "", language = "en-US", width = 390, height = 800, dark = false, mobile = false, files = null, hidden = false } = {}) {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId, ...hidden ? { hidden } : { width, height } });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new ChromiumPage(this, sessionId, targetId, browserContextId);
    this.pages.set(sessionId, page);
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.send(`${domain}.enable`);
    await page.send("Emulation.setFocusEmulationEnabled", { enabled: true });
    await page.send("Emulation.setLocaleOverride", { locale: language });
    await page.send("Emulation.setUserAgentOverride", { userAgent: "tests", acceptLanguage: language });
    await page.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: mobile ? 2 : 1, mobile });
    if (mobile) await page.send("Emulation.setTouchEmulationEnabled", { enabled: true });
    await page.colours(dark);
    if (before) await page.send("Page.addScriptToEvaluateOnNewDocument", { source: before });
    page.files = files;
    if (files) await page.send("Fetch.enable", { patterns: [{ urlPattern: "https://*" }] });
    await page.send("Page.navigate", { url });
    return page;
  }

  async stop() {
    const gone = new Promise(resolve => this.process.once("exit", resolve));
    this.send("Browser.close").catch(() => {});
    setTimeout(() => this.process.kill("SIGKILL"), 3000).unref();
    await gone;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

class ChromiumPage extends Page {
  constructor(browser, sessionId, targetId, context) {
    super();
    Object.assign(this, { browser, sessionId, targetId, context });
  }

  send(method, params) { return this.browser.send(method, params, this.sessionId); }

  event(message) {
    const { method, params } = message;
    for (const listen of this.listeners) listen(message);
    if (method === "Runtime.exceptionThrown") this.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Runtime.consoleAPICalled" && ["error", "warning"].includes(params.type)) this.errors.push(params.args.map(each => each.value ?? each.description).join(" "));
    if (method === "Log.entryAdded" && params.entry.level !== "info" && params.entry.level !== "verbose") this.errors.push(`${params.entry.source}: ${params.entry.text} ${params.entry.url ?? ""}`);
    if (method === "Fetch.requestPaused") this.#fulfil(params).catch(error => this.errors.push(String(error)));
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
  }

  async #fulfil({ requestId, request }) {
    const { status, type, body } = fileAnswer(this.files, request.url);
    await this.send("Fetch.fulfillRequest", { requestId, responseCode: status, responseHeaders: [{ name: "Content-Type", value: type }], body });
  }

  /** Without motion: a processor without graphics paints nothing else for long. */
  colours(dark) {
    return this.send("Emulation.setEmulatedMedia", { features: [
      { name: "prefers-color-scheme", value: dark ? "dark" : "light" }, { name: "prefers-reduced-motion", value: "reduce" },
    ] });
  }

  async value(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true, userGesture: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  async mouse(type, at, buttons = 1) { await this.send("Input.dispatchMouseEvent", { type, ...at, button: "left", buttons, clickCount: 1 }); }

  async key(type, key, code = key, more = {}) {
    const text = key.length === 1 && type === "keyDown" ? key : undefined;
    await this.send("Input.dispatchKeyEvent", { type, key, code, text, windowsVirtualKeyCode: key === " " ? 32 : key === "Enter" ? 13 : key === "Tab" ? 9 : 0, ...more });
  }

  insertText(text) { return this.send("Input.insertText", { text }); }

  async pictureData() { return (await this.send("Page.captureScreenshot", { format: "png" })).data; }

  reload() { return this.send("Page.reload"); }

  async close() { await this.browser.send("Target.closeTarget", { targetId: this.targetId }); }
}
