// A Bluetooth button over Web Bluetooth, where the browser has it, and what its values mean, by the profiles of pttd
// (profiles.json is made from them).

export const hasBluetooth = () => Boolean(globalThis.navigator?.bluetooth?.requestDevice);

const retries = [0, 1000, 3000, 10000, 30000];

/** Tells { is: "connected" | "lost", name } and { is: "control", control, isDown }. */
export class BluetoothButton {
  #inputs = [];
  #isWanted = true;

  constructor(profiles, tell) { Object.assign(this, { profiles, tell }); }

  /** Shows the browser's chooser; needs a gesture. */
  async choose() {
    this.device = await navigator.bluetooth.requestDevice(chooserOptions(this.profiles));
    this.device.addEventListener("gattserverdisconnected", () => this.#lost());
    await this.#connect();
  }

  async #connect() {
    const server = await this.device.gatt.connect();
    for (const profile of profilesFor(this.profiles, this.device.name)) {
      const inputs = [];
      try {
        for (const input of profile.inputs) {
          const service = await server.getPrimaryService(fullUuid(input.service));
          const characteristic = await service.getCharacteristic(fullUuid(input.characteristic));
          const reader = new ButtonInput(input);
          characteristic.addEventListener("characteristicvaluechanged", ({ target: { value } }) => {
            this.#changed(reader.value(new Uint8Array(value.buffer, value.byteOffset, value.byteLength)));
          });
          await characteristic.startNotifications();
          inputs.push(reader);
        }
      } catch {
        // Not this profile: the next one.
        continue;
      }
      this.#inputs = inputs;
      return this.tell({ is: "connected", name: this.device.name ?? profile.title });
    }
    this.device.gatt.disconnect();
    throw new Error("unknown");
  }

  #changed(changes) { for (const change of changes) this.tell({ is: "control", ...change }); }

  async #lost() {
    for (const input of this.#inputs.splice(0)) this.#changed(input.lost());
    this.tell({ is: "lost", name: this.device.name ?? "" });
    for (const pause of retries) {
      await new Promise(resolve => setTimeout(resolve, pause));
      if (!this.#isWanted || this.device.gatt.connected) return;
      try {
        return await this.#connect();
      } catch {
        // It sleeps; a press wakes it.
      }
    }
  }

  close() {
    this.#isWanted = false;
    this.device?.gatt?.disconnect();
  }
}

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
