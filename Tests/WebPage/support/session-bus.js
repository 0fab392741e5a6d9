// A D-Bus session bus of our own. Browsers offer their media keys there (MPRIS), as a desktop's and a headset's keys come to it.
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export class SessionBus {
  async start() {
    this.folder = mkdtempSync(join(tmpdir(), "web-page-bus-"));
    const address = `unix:path=${join(this.folder, "bus")}`;
    this.process = spawn("dbus-daemon", ["--session", "--nofork", "--nopidfile", `--address=${address}`, "--print-address=1"], { stdio: ["ignore", "pipe", "ignore"] });
    await new Promise((resolve, reject) => {
      this.process.stdout.once("data", resolve);
      this.process.once("error", () => reject(new Error("there is no dbus-daemon: apt-get install dbus")));
    });
    this.environment = { DBUS_SESSION_BUS_ADDRESS: address };
    return this;
  }

  async #call(to, path, method) {
    const { stdout } = await run("dbus-send", ["--session", "--print-reply", `--dest=${to}`, path, method], { env: { ...process.env, ...this.environment } });
    return stdout;
  }

  /** The players that are there. */
  async players() {
    return (await this.#call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.ListNames")).match(/org\.mpris\.MediaPlayer2\.[^"]+/g) ?? [];
  }

  /** A press of a key: PlayPause, Play, Pause or Stop. */
  async key(player, name) { await this.#call(player, "/org/mpris/MediaPlayer2", `org.mpris.MediaPlayer2.Player.${name}`); }

  stop() {
    this.process.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
