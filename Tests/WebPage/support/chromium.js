// Chromium by its remote debugging pipe: no package and no port is needed.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, extname, join } from "node:path";

const programs = ["/usr/lib/chromium/chromium", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export class Chromium {
  #id = 0;
  #waiting = new Map();
  #buffer = Buffer.alloc(0);
  pages = new Map();

  /** @param {string | null} microphone a WAV file that the microphone hears; null: sound comes and goes by the machine's own devices */
  async start(microphone, more = []) {
    const program = process.env.CHROMIUM ?? programs.find(existsSync);
    if (!program) throw new Error("there is no chromium: apt-get install chromium");
    this.profile = mkdtempSync(join(tmpdir(), "web-page-"));
    const heard = microphone === null ? [] : ["--use-fake-device-for-media-stream", `--use-file-for-fake-audio-capture=${microphone}`];
    this.process = spawn(program, [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", `--user-data-dir=${this.profile}`,
      "--use-fake-ui-for-media-stream", ...heard,
      "--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", ...more, "about:blank",
    ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
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
      } else this.pages.get(message.sessionId)?.event(message);
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
    const page = new Page(this, sessionId, targetId, browserContextId);
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

class Page {
  errors = [];
  requests = [];

  constructor(browser, sessionId, targetId, context) { Object.assign(this, { browser, sessionId, targetId, context }); }

  send(method, params) { return this.browser.send(method, params, this.sessionId); }

  event({ method, params }) {
    if (method === "Runtime.exceptionThrown") this.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Runtime.consoleAPICalled" && ["error", "warning"].includes(params.type)) this.errors.push(params.args.map(each => each.value ?? each.description).join(" "));
    if (method === "Log.entryAdded" && params.entry.level !== "info" && params.entry.level !== "verbose") this.errors.push(`${params.entry.source}: ${params.entry.text} ${params.entry.url ?? ""}`);
    if (method === "Fetch.requestPaused") this.#fulfil(params).catch(error => this.errors.push(String(error)));
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
  }

  async #fulfil({ requestId, request }) {
    const { pathname } = new URL(request.url);
    const name = pathname === "/" ? "index.html" : basename(pathname);
    const type = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json" }[extname(name)] ?? "text/html";
    const file = join(this.files, name);
    await this.send("Fetch.fulfillRequest", {
      requestId, responseCode: existsSync(file) ? 200 : 404, responseHeaders: [{ name: "Content-Type", value: `${type}; charset=utf-8` }],
      body: existsSync(file) ? readFileSync(file, "base64") : "",
    });
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

  async until(what, expression, time = 8000) {
    const end = Date.now() + time;
    for (;;) {
      const found = typeof expression === "function" ? await expression() : await this.value(expression);
      if (found) return found;
      if (Date.now() > end) throw new Error(`not within ${time} ms: ${what}; the page says: ${(await this.text()).replaceAll("\n", " | ").slice(0, 600)}; errors: ${this.errors.join("; ")}`);
      await new Promise(resolve => setTimeout(resolve, 40));
    }
  }

  text() { return this.value("document.body.innerText"); }

  async middle(selector, index = 0) {
    return this.until(selector, `(() => { const found = [...document.querySelectorAll(${JSON.stringify(selector)})].filter(each => each.offsetParent !== null || each.closest("dialog"))[${index}]; if (!found) return null;
      found.scrollIntoView({ block: "center" }); const box = found.getBoundingClientRect(); return { x: box.x + box.width / 2, y: box.y + box.height / 2 }; })()`);
  }

  async mouse(type, at, buttons = 1) { await this.send("Input.dispatchMouseEvent", { type, ...at, button: "left", buttons, clickCount: 1 }); }

  async press(selector, index) {
    const at = await this.middle(selector, index);
    await this.mouse("mousePressed", at);
    return () => this.mouse("mouseReleased", at, 0);
  }

  async click(selector, index) { await (await this.press(selector, index))(); }

  async key(type, key, code = key, more = {}) {
    const text = key.length === 1 && type === "keyDown" ? key : undefined;
    await this.send("Input.dispatchKeyEvent", { type, key, code, text, windowsVirtualKeyCode: key === " " ? 32 : key === "Enter" ? 13 : key === "Tab" ? 9 : 0, ...more });
  }

  async fill(selector, text) {
    await this.click(selector);
    await this.send("Input.insertText", { text });
  }

  async picture(file) {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    writeFileSync(file, Buffer.from(data, "base64"));
  }

  async close() { await this.browser.send("Target.closeTarget", { targetId: this.targetId }); }
}

/** A WAV file with something like speech: a voice of changing pitch in syllables. */
export function speechFile(file, seconds = 10) {
  const rate = 48000, count = seconds * rate;
  const bytes = Buffer.alloc(44 + count * 2);
  bytes.write("RIFF", 0);
  bytes.writeUInt32LE(36 + count * 2, 4);
  bytes.write("WAVEfmt ", 8);
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(rate, 24);
  bytes.writeUInt32LE(rate * 2, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write("data", 36);
  bytes.writeUInt32LE(count * 2, 40);
  let phase = 0;
  for (let index = 0; index < count; index++) {
    const time = index / rate;
    phase += 2 * Math.PI * (140 + 40 * Math.sin(2 * time)) / rate;
    let wave = 0;
    for (let harmonic = 1; harmonic < 12; harmonic++) wave += Math.sin(harmonic * phase) / harmonic;
    bytes.writeInt16LE(Math.round(9000 * wave * Math.max(0.1, Math.sin(2 * Math.PI * 2 * time))), 44 + index * 2);
  }
  writeFileSync(file, bytes);
}
