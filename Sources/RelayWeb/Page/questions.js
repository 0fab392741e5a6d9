// Questions for kept bursts as promises: carries them between whoever asks and the rules of asking.
import { Queries } from "./queries.js";

export class Questions {
  #waiters = new Map();
  queries = new Queries();

  /** @param parts { send(kind, fields), clock() } */
  constructor(parts) { Object.assign(this, parts); }

  get nextDeadline() { return this.queries.nextDeadline; }

  list() { return this.#ask(token => this.queries.list(token, this.clock())); }
  fetch(ssrc, keyId) { return this.#ask(token => this.queries.fetch(token, ssrc, keyId, this.clock())); }

  listed(message) { this.#perform(this.queries.listed(message)); }
  answered(answer) { this.#perform(this.queries.answered(answer, this.clock())); }
  refused(message) { this.#perform(this.queries.refused(message, this.clock())); }
  due() { this.#perform(this.queries.due(this.clock())); }
  linkLost() { this.#perform(this.queries.clear()); }

  #ask(start) {
    return new Promise((resolve, reject) => {
      const token = {};
      this.#waiters.set(token, { resolve, reject });
      this.#perform(start(token));
    });
  }

  #perform(actions) {
    for (const action of actions) {
      if (action.do === "list") this.send("burstListRequest", action);
      else if (action.do === "burst") this.send("burstRequest", action);
      else {
        const waiter = this.#waiters.get(action.token);
        this.#waiters.delete(action.token);
        if (action.problem) waiter?.reject(new Error(action.problem));
        else waiter?.resolve(action);
      }
    }
  }
}
