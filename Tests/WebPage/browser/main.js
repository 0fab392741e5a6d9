// Runs the tests in the browser, one after the other, and says what passed.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { Chromium } from "../support/chromium.js";
import { FakeRelay } from "../support/fake-relay.js";
import { Firefox } from "../support/firefox.js";
import { SessionBus } from "../support/session-bus.js";
import { speechFile } from "../support/speech-file.js";
import { tests } from "./tests.js";
import { World } from "./world.js";

const { values } = parseArgs({ options: {
  relay: { type: "string" }, link: { type: "string" }, pictures: { type: "string" }, only: { type: "string" }, firefox: { type: "boolean" },
} });
const folder = mkdtempSync(join(tmpdir(), "web-page-sound-"));
const speech = join(folder, "speech.wav");
speechFile(speech);
if (values.pictures) mkdirSync(values.pictures, { recursive: true });

const atOnce = 2;
const began = Date.now();
const relay = values.relay ? null : await new FakeRelay().start();
const bus = await new SessionBus().start();
const flags = ["--enable-features=WebBluetooth", ...values.relay ? ["--ignore-certificate-errors"] : []];
const browser = await (values.firefox ? new Firefox().start(speech, [], bus.environment) : new Chromium().start(speech, flags, bus.environment));
let failed = 0, passed = 0;

async function runOne({ name, run }) {
  const world = new World({ browser, bus, relay, values, name });
  const start = Date.now();
  try {
    await run(world);
    await world.check();
    passed++;
    process.stdout.write(`passed  ${name} (${((Date.now() - start) / 1000).toFixed(1)} s${world.note ? `; ${world.note}` : ""})\n`);
  } catch (error) {
    failed++;
    process.stdout.write(`FAILED  ${name}: ${error.stack ?? error}\n`);
  }
  await world.close();
}

const chosen = tests.filter(test => !(values.relay && test.needsOwnRelay) && !(values.firefox && test.needsChromium) && (!values.only || test.name.includes(values.only)));
// Most of a test is waiting. On a real relay all are on one channel, and those that change the relay's manners are alone, too.
const together = values.relay ? [] : chosen.filter(test => !test.isAlone);
const next = async () => {
  for (let test; (test = together.shift());) await runOne(test);
};
const alone = chosen.filter(test => values.relay || test.isAlone);
await Promise.all(Array.from({ length: atOnce }, next));
for (const test of alone) await runOne(test);
await browser.stop();
bus.stop();
relay?.stop();
rmSync(folder, { recursive: true });
process.stdout.write(`page: ${passed} passed, ${failed} failed, ${((Date.now() - began) / 1000).toFixed(0)} s\n`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
