// A Bluetooth button that Chromium itself simulates, below the browser's real Web Bluetooth: chooser, connection, services, notifications,
// and loss are the browser's. Its double has one gap: it does not notify. So the value is read; the page gets the same event.

/** For the page, before it loads: what it subscribes to. */
export const noteSubscription = `const subscribe = BluetoothRemoteGATTCharacteristic.prototype.startNotifications;
  BluetoothRemoteGATTCharacteristic.prototype.startNotifications = function () { window.subscribed = this; return subscribe.call(this); };`;

export class SimulatedButton {
  isThere = true;
  subscriptions = 0;
  #value = 0;

  /** @param facts { address, name, advertised: [service], service, characteristic }; UUIDs in full */
  constructor(browser, facts) { Object.assign(this, { browser, ...facts }); }

  #send(method, params) { return this.browser.send(`BluetoothEmulation.${method}`, params); }

  async start() {
    const { address, name } = this;
    this.browser.listeners.add(this.#event);
    await this.#send("enable", { state: "powered-on", leSupported: true });
    await this.#send("simulatePreconnectedPeripheral", { address, name, manufacturerData: [], knownServiceUuids: this.advertised });
    await this.#add();
    return this;
  }

  async #add() {
    const { serviceId } = await this.#send("addService", { address: this.address, serviceUuid: this.service });
    const { characteristicId } = await this.#send("addCharacteristic", {
      serviceId, characteristicUuid: this.characteristic, properties: { read: true, notify: true },
    });
    this.characteristicId = characteristicId;
    await this.#send("addDescriptor", { characteristicId, descriptorUuid: "00002902-0000-1000-8000-00805f9b34fb" });
  }

  #event = ({ method, params }) => {
    if (method === "BluetoothEmulation.gattOperationReceived" && params.address === this.address) {
      // 0x08: nobody answers, as of a button that sleeps or is out of reach.
      this.#send("simulateGATTOperationResponse", { ...params, code: this.isThere ? 0 : 8 }).catch(() => {});
    }
    if (method === "BluetoothEmulation.characteristicOperationReceived" && params.characteristicId === this.characteristicId) {
      if (params.type === "subscribe-to-notifications") this.subscriptions++;
      const data = params.type === "read" ? { data: Buffer.from([this.#value]).toString("base64") } : {};
      this.#send("simulateCharacteristicOperationResponse", { characteristicId: params.characteristicId, type: params.type, code: 0, ...data }).catch(() => {});
    }
  };

  /** Takes it in the browser's chooser as soon as that opens. Resolves with what the chooser showed. */
  async chosenIn(page) {
    const asked = new Promise(resolve => {
      const listen = ({ method, params }) => {
        const device = method === "DeviceAccess.deviceRequestPrompted" && params.devices.find(each => each.id === this.address);
        if (!device) return;
        page.listeners.delete(listen);
        resolve(page.send("DeviceAccess.selectPrompt", { id: params.id, deviceId: device.id }));
      };
      page.listeners.add(listen);
    });
    await page.send("DeviceAccess.enable");
    return { asked };
  }

  /** Its value changes. */
  async tell(page, byte) {
    this.#value = byte;
    await page.value("window.subscribed.readValue().then(() => true)");
  }

  /** It is out of reach; the double forgets its services with that. */
  async goAway() {
    this.isThere = false;
    await this.#send("simulateGATTDisconnection", { address: this.address });
  }

  async comeBack() {
    await this.#add();
    this.isThere = true;
  }

  async stop() {
    this.browser.listeners.delete(this.#event);
    await this.#send("disable", {});
  }
}
