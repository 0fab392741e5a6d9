// Bluetooth buttons: what their values mean, by the profiles of pttd (profiles.json is made from them). Pure.

/** The full form of a UUID. */
export const fullUuid = uuid => uuid.length === 4 ? `0000${uuid}-0000-1000-8000-00805f9b34fb` : uuid;

/** What the browser's chooser shows. */
export function chooserOptions(profiles) {
  const filters = [], services = new Set();
  for (const profile of profiles) {
    for (const name of profile.names) filters.push({ namePrefix: name.replace(/\*$/, "") });
    for (const input of profile.inputs) {
      if (profile.serviceIdentifies) filters.push({ services: [fullUuid(input.service)] });
      services.add(fullUuid(input.service));
    }
  }
  return { filters, optionalServices: [...services] };
}

/** The profiles that a device of that name may have, the best first. */
export function profilesFor(profiles, name) {
  const fits = pattern => pattern.endsWith("*") ? (name ?? "").startsWith(pattern.slice(0, -1)) : name === pattern;
  return [...profiles].sort((a, b) => Number(b.names.some(fits)) - Number(a.names.some(fits)));
}

/** The controls of one input, from its notifications: each is told when it changes. */
export class ButtonInput {
  #held = new Set();

  constructor(input) { this.input = input; }

  /** @returns {{control: string, isDown: boolean}[]} */
  value(bytes) {
    if (bytes.length === 0) return [];
    const changes = [];
    for (const control of this.input.controls) {
      const isDown = this.#isDown(control, bytes[0]);
      if (isDown === null || isDown === this.#held.has(control.name)) continue;
      if (isDown) this.#held.add(control.name);
      else this.#held.delete(control.name);
      changes.push({ control: control.name, isDown });
    }
    return changes;
  }

  #isDown(control, byte) {
    switch (this.input.decode) {
      case "bits": return (byte & control.bit & ~(this.input.ignoredBits ?? 0)) !== 0;
      case "value": return byte === control.pressed ? true : byte === control.released ? false : null;
      default: return byte !== 0;
    }
  }

  /** The link is lost: what was held is let go. */
  lost() {
    const changes = [...this.#held].map(control => ({ control, isDown: false }));
    this.#held.clear();
    return changes;
  }
}
