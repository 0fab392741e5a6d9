// A Bluetooth button over Web Bluetooth, where the browser has it.
import { ButtonInput, chooserOptions, fullUuid, profilesFor } from "./buttons.js";

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
