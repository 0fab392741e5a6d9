"""A PipeWire of our own with null sinks as microphone and ear: pipewire, wireplumber and pipewire-pulse on a private session bus.

It has the same use as `pulse.Pulse`: `devices()` leads a program's default devices here, through ALSA's `pulse` or `pipewire` plug-in. The
package of the second one (pipewire-alsa) conflicts with PulseAudio and changes ALSA's default, so it is not installed: its plug-in is
taken out of the package.
"""
import os
import pathlib
import subprocess
import time

from pulse import EAR, MICROPHONE, NOWHERE, MonitorRecording, Pulse, ended
from wavefile import RATE

PLUGIN = "libasound_module_pcm_pipewire.so"
# Recorders ask for the step that pttd asks for: a step that changes when a stream comes or goes would cost samples of the recording.
RECORDER_MS = 6


def plugin(folder):
    """The path of ALSA's `pipewire` plug-in: installed, or unpacked into the folder from its package."""
    for place in pathlib.Path("/usr/lib").glob(f"*/alsa-lib/{PLUGIN}"):
        return place
    package = folder / "pipewire-alsa"
    if not package.exists():
        package.mkdir(parents=True)
        for command in ["apt-get", "download", "-qq", "pipewire-alsa"], ["sh", "-c", "dpkg -x pipewire-alsa_*.deb ."]:
            done = subprocess.run(command, cwd=package, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"could not get ALSA's pipewire plug-in:\n{done.stderr[-1000:]}")
    return next(package.glob(f"usr/lib/*/alsa-lib/{PLUGIN}"))


class PipeWire(Pulse):
    """The servers. A context manager; `environment` leads programs to them."""

    def __init__(self, folder):
        self.folder = folder / "pipewire"
        runtime = self.folder / "run"
        runtime.mkdir(parents=True, exist_ok=True)
        runtime.chmod(0o700)
        self.environment = {
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(runtime),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus", "PULSE_SERVER": f"unix:{runtime}/pulse/native"}
        self.log = self.folder / "servers.log"
        self.configuration = self.folder / "asound.conf"
        self.plugin = plugin(folder)
        self.processes, self.playing = [], []
        with open(self.log, "wb") as log:
            for command, socket in [
                    (["dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address=unix:path={runtime}/bus"], "bus"),
                    (["pipewire"], "pipewire-0"), (["wireplumber"], None), (["pipewire-pulse"], "pulse/native")]:
                self.processes.append(subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
                self._wait(lambda: socket is None or (runtime / socket).exists(), command[0])
        self._wait(lambda: self._control("info").returncode == 0, "pipewire-pulse")
        for name in (MICROPHONE, EAR, NOWHERE):
            self._control("load-module", "module-null-sink", f"sink_name={name}", f"rate={RATE}", "channels=1")
        self._wait(lambda: self._control("list", "short", "sinks").stdout.count(b"null") >= 3
                   or self._control("list", "short", "sinks").stdout.count(b"\n") >= 3, "the null sinks")

    def _control(self, *words):
        return subprocess.run(["pactl", *words], env=self.environment, capture_output=True, timeout=20)

    def _wait(self, condition, what):
        deadline = time.monotonic() + 20
        while not condition():
            if time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit(f"{what} did not start; its log is {self.log}:\n{self.log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.05)

    def __exit__(self, *_):
        self.silence()
        while self.processes:
            ended(self.processes.pop())

    def devices(self, source, sink, plugin="pulse"):
        """The environment of a program whose ALSA devices `line_in` and `line_out` are the monitor of `source` and `sink`, through the
        plug-in."""
        path = self.folder / f"{source}-{sink}-{plugin}.conf"
        if plugin == "pulse":
            text = (f'pcm.line_in {{ type pulse device "{source}.monitor" }}\npcm.line_out {{ type pulse device "{sink}" }}\n')
        else:
            text = (f'pcm_type.pipewire {{ lib "{self.plugin}" }}\n'
                    f'pcm.line_in {{ type pipewire capture_node "{source}" }}\npcm.line_out {{ type pipewire playback_node "{sink}" }}\n')
        path.write_text(text)
        return {**self.environment, "ALSA_CONFIG_PATH": str(path)}

    def record(self, sink, latency_ms=None):
        return MonitorRecording(f"{sink}.monitor", self.environment, RECORDER_MS, loses_steps=True)

    def force_step(self, frames):
        """The graph moves so many frames at once from now on, whatever anybody asks for; 0: as they ask."""
        subprocess.run(["pw-metadata", "-n", "settings", "0", "clock.force-quantum", str(frames)], env=self.environment, check=True,
                       capture_output=True, timeout=20)
