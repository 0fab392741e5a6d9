// What a test in the browser has: pages of different people on channels of the relay.
import assert from "node:assert/strict";
import { join } from "node:path";

import { SimulatedButton } from "../support/simulated-button.js";

export class World {
  pages = [];

  constructor(parts) {
    Object.assign(this, parts);
    this.problemsBefore = this.relay?.problems.length ?? 0;
    this.straysBefore = this.relay?.strays ?? 0;
  }

  /** A channel's address on the relay; of a real relay it is always the one that was given. */
  channel(name = "Radio 7", rules = {}) { return this.relay ? this.relay.channel(name, rules) : { name }; }

  address(...channels) {
    if (this.relay) return this.relay.page(...channels);
    return `${this.values.relay.replace(/\/$/, "")}/#${this.values.link.replace(/^ptt:\/\//, "").replace("#key=", "&key=")}`;
  }

  async open(address, options = {}) {
    const page = await this.browser.page(address, options);
    this.pages.push(page);
    return page;
  }

  /** A page whose person has joined, with a microphone that works. */
  async join(channels, name, options = {}) {
    const page = await this.open(this.address(...[channels].flat()), options);
    await page.fill("#name", name);
    await page.click("button.try");
    await page.until("a microphone that works", "document.querySelector('.mic-state').dataset.tone === 'good'");
    await page.click("button.join");
    await this.connected(page, [channels].flat().length);
    return page;
  }

  connected(page, count = 1) {
    return page.until("connected", `document.querySelectorAll(".link[data-state=ready]").length === ${count}`);
  }

  /** A page whose person only listens. */
  async listen(channel, name, options = {}) {
    const page = await this.open(this.address(channel), options);
    await page.fill("#name", name);
    await page.click("button.join");
    await this.connected(page);
    return page;
  }

  state(page, state, index = 0) {
    return page.until(`the state ${state}`, `document.querySelectorAll(".channel")[${index}]?.dataset.state === "${state}"`);
  }

  async picture(page, name) { if (this.values.pictures) await page.picture(join(this.values.pictures, `${name}.png`)); }

  member(name, channel) { return this.relay.connections.findLast(member => member.name === name && (!channel || member.channel === channel)); }

  /** A Bluetooth button near the browser. */
  async button(facts) {
    this.simulated = await new SimulatedButton(this.browser, facts).start();
    return this.simulated;
  }

  /** What no page may do, whatever the test was about. */
  async check() {
    for (const page of this.pages) {
      // A browser without Bluetooth says that it does not know the header's word for it.
      const isExpected = error => page.expected?.test(error) || /Unrecognized feature: 'bluetooth'/.test(error);
      assert.deepEqual(page.errors.filter(error => !isExpected(error)), [], "errors of the page");
      const own = new URL(page.requests.find(url => url.startsWith("http"))).host;
      for (const url of page.requests) {
        if (/^(data|blob|about):/.test(url)) continue;
        assert.equal(new URL(url).host, own, "a request to elsewhere");
        assert.doesNotMatch(url.split("#")[0], /token|pin=|key=/, "a secret in a request");
      }
    }
    if (this.relay) {
      assert.deepEqual(this.relay.problems.slice(this.problemsBefore), [], "problems at the relay");
      assert.equal(this.relay.strays, this.straysBefore, "packets without the floor");
    }
  }

  async close() {
    await this.simulated?.stop().catch(() => {});
    for (const page of this.pages) await page.close().catch(() => {});
  }
}

export const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
