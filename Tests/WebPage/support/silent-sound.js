// A PulseAudio of our own whose loudspeaker is heard by nobody, for browsers that need a device.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export class SilentSound {
  async start() {
    this.folder = mkdtempSync(join(tmpdir(), "web-page-pulse-"));
    const socket = join(this.folder, "socket");
    const modules = [`module-native-protocol-unix socket=${socket} auth-anonymous=1`, "module-null-sink sink_name=nobody rate=48000 channels=2"];
    this.process = spawn("pulseaudio", ["-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", ...modules.flatMap(each => ["-L", each])], {
      stdio: "ignore", env: { PATH: process.env.PATH, HOME: this.folder, XDG_RUNTIME_DIR: this.folder },
    });
    const failed = new Promise((_, reject) => {
      this.process.once("error", () => reject(new Error("there is no pulseaudio: apt-get install pulseaudio")));
      this.process.once("exit", code => reject(new Error(`pulseaudio ended: ${code}`)));
    });
    failed.catch(() => {});
    const there = async () => { while (!existsSync(socket)) await new Promise(resolve => setTimeout(resolve, 50)); };
    await Promise.race([there(), failed]);
    this.environment = { PULSE_SERVER: `unix:${socket}`, PULSE_COOKIE: join(this.folder, "cookie") };
    return this;
  }

  stop() {
    this.process.kill();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}
