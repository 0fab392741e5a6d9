// What the tests do with a page, in any browser. A browser's own class gives: value, mouse, key, insertText, pictureData and close.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { basename, extname, join } from "node:path";

const types = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json" };

/** What a server with the page's files in that folder answers: { status, type, body }, the body in base64. */
export function fileAnswer(folder, url) {
  const { pathname } = new URL(url);
  const name = pathname === "/" ? "index.html" : basename(pathname);
  const file = join(folder, name), isThere = existsSync(file);
  return { status: isThere ? 200 : 404, type: `${types[extname(name)] ?? "text/html"}; charset=utf-8`, body: isThere ? readFileSync(file, "base64") : "" };
}

export class Page {
  errors = [];
  requests = [];
  /** Get what the browser tells of the page. */
  listeners = new Set();

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

  async press(selector, index) {
    const at = await this.middle(selector, index);
    await this.mouse("mousePressed", at);
    return () => this.mouse("mouseReleased", at, 0);
  }

  async click(selector, index) { await (await this.press(selector, index))(); }

  async fill(selector, text) {
    await this.click(selector);
    await this.insertText(text);
  }

  async picture(file) { writeFileSync(file, Buffer.from(await this.pictureData(), "base64")); }
}
