// Random numbers from a seed (xorshift32), so that a failure comes again.
export class Random {
  constructor(seed) { this.state = seed >>> 0 || 1; }

  next() {
    this.state ^= this.state << 13;
    this.state ^= this.state >>> 17;
    this.state ^= this.state << 5;
    return this.state >>> 0;
  }

  below(count) { return this.next() % count; }
  bytes(length) { return Uint8Array.from({ length }, () => this.next() & 255); }
  pick(list) { return list[this.below(list.length)]; }
}
