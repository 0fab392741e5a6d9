// Steers a browser (Chromium; Firefox if BROWSER=firefox) for programs in other languages: a request is a line of JSON on standard input, its answer one on standard output.
//
//   { id, do: "page", url, options }        a page of its own person; the answer is its number
//   { id, do: "press" | "release", page, selector, index }   the mouse's button on an element
//   { id, do: "key", page, type, key, code }
//   { id, do: NAME, page, with: [...] }     that method of the page (chromium.js): fill, click, value, until, text, picture, send, close
//   { id, do: "send", method, params }      the browser's own
//
// An answer is { id, is, at, done } or { id, error }: `at` and `done` are instants of CLOCK_MONOTONIC in ns, just before the browser was
// told and just after it had done it. The browser ends with standard input.
import { createInterface } from "node:readline";

import { Chromium } from "./chromium.js";
import { Firefox } from "./firefox.js";

const [microphone, ...flags] = process.argv.slice(2);
const browser = await (process.env.BROWSER === "firefox" ? new Firefox() : new Chromium()).start(microphone || null, flags);
const pages = [];
const held = new Map();
const now = () => process.hrtime.bigint();

/** @returns {Promise<[is, at]>} */
async function carryOut({ do: what, page: number, ...rest }) {
  const page = pages[number];
  switch (what) {
    case "page":
      pages.push(await browser.page(rest.url, rest.options));
      return [pages.length - 1];
    case "press": {
      const place = await page.middle(rest.selector, rest.index);
      held.set(number, place);
      return told(() => page.mouse("mousePressed", place));
    }
    case "release":
      return told(() => page.mouse("mouseReleased", held.get(number), 0));
    case "key":
      return told(() => page.key(rest.type, rest.key, rest.code));
    case "errors":
      return [page.errors];
    default:
      if (!page) return told(() => browser.send(rest.method, rest.params));
      return told(() => page[what](...rest.with ?? []));
  }
}

async function told(act) {
  const at = now();
  return [await act(), at];
}

createInterface({ input: process.stdin }).on("line", async line => {
  const { id, ...request } = JSON.parse(line);
  let answer;
  try {
    const [is, at] = await carryOut(request);
    answer = { is: is ?? null, at: Number(at ?? 0), done: Number(now()) };
  } catch (error) {
    answer = { error: error.message ?? String(error) };
  }
  process.stdout.write(`${JSON.stringify({ id, ...answer })}\n`);
}).on("close", () => browser.stop());
process.stdout.write('{"id":0}\n');
