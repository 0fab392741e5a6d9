"""A PulseAudio of our own with null sinks as microphone and ear, and recordings of them that lie on CLOCK_MONOTONIC.

A null sink renders its next block at the instant at which the last one is used up, so the earliest arrival of any block, less its
place in the stream, is the instant of the stream's first sample. A recorder that asks for a short latency makes the sink's blocks
short: the microphone is recorded so (it behaves like a card with such periods); the ear is recorded without asking for anything,
because that would shorten the listener's own queue. The sinks do not rewind: one that does renders two seconds ahead while nobody
plays, and its monitor has then handed out silence in the place of what is played into them. Without rewinding that is 50 ms, which a
program that shuts its stream between bursts pays for at the next.
"""
import os
import subprocess
import threading
import time

import numpy as np

from wavefile import RATE, Recording

MICROPHONE, EAR, NOWHERE = "microphone", "ear", "nowhere"
MICROPHONE_BLOCK_MS = 2
READ_BYTES_MAX = 65536
SAME_BLOCK_S = 0.00025          # reads closer together than this are pieces of one block
SETTLE_S = 1.0                  # the first blocks of a stream come as they like
SPREAD_WINDOW_S = 10.0
STEPS_WINDOW_S = 0.2            # of servers that leave out steps: long enough for some reads that were in time


def ended(process):
    """Ends a process that we started, gently first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class MonitorRecording:
    """What one sink plays, from now until `finish()`. `loses_steps`: the server leaves a recorder out when it is late, and tells
    nothing of it; then the clock is read off anew every so often."""

    def __init__(self, source, environment, latency_ms=None, loses_steps=False):
        self.loses_steps = loses_steps
        command = ["parec", "--device", source, "--raw", f"--rate={RATE}", "--channels=1", "--format=s16le"]
        if latency_ms is not None:
            command.append(f"--latency-msec={latency_ms}")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, bufsize=0)
        self.blocks, self.arrivals = [], []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        count, pipe = 0, self.process.stdout.fileno()
        while block := os.read(pipe, READ_BYTES_MAX):
            self.arrivals.append((time.monotonic_ns(), count))
            self.blocks.append(block)
            count += len(block)

    def finish(self):
        """The Recording, its first sample at its instant. `spread_ms` of it: what to believe of the clock; `block_ms`: the sink's."""
        ended(self.process)
        self.reader.join(5)
        raw = b"".join(self.blocks)
        if len(raw) < 2 * RATE * (SETTLE_S + 1):
            raise SystemExit("PulseAudio recorded next to nothing; its log is pulse.log in the folder of the run")
        samples = np.frombuffer(raw[:len(raw) // 2 * 2], "<i2").astype(np.float64) / 32768
        at = np.array([t for t, _ in self.arrivals], float)
        frame = np.array([n for _, n in self.arrivals], float) / 2
        new = np.concatenate(([True], np.diff(at) > SAME_BLOCK_S * 1e9))
        at, frame = at[new], frame[new]
        settled = at > at[0] + SETTLE_S * 1e9
        origin = (at - frame * 1e9 / RATE)[settled]
        since = (at[settled] - at[settled][0]) / 1e9
        windows = [origin[(since >= w) & (since < w + SPREAD_WINDOW_S)] for w in np.arange(0, since[-1], SPREAD_WINDOW_S)]
        earliest = [w.min() for w in windows if len(w) > 20] or [origin.min()]
        recording = self._with_steps(samples, origin, frame[settled]) if self.loses_steps else Recording(samples).start_at(float(origin.min()))
        recording.spread_ms = (max(earliest) - min(earliest)) / 1e6
        recording.block_ms = float(np.median(np.diff(frame))) * 1000 / RATE
        if self.loses_steps:
            recording.spread_ms = recording.clock_spread_ms()
        return recording

    @staticmethod
    def _with_steps(samples, origin, frame):
        """With a clock of its own in every window: the least origin there, at the window's middle."""
        window = (frame - frame[0]) // (STEPS_WINDOW_S * RATE)
        points = []
        for number in np.unique(window):
            here = window == number
            middle = (number + 0.5) * STEPS_WINDOW_S * RATE + frame[0]
            points.append([middle, origin[here].min() + middle * 1e9 / RATE])
        return Recording(samples, clock=points)


class Pulse:
    """The server. A context manager; `environment` leads programs to it. `sinks`: more of them."""

    def __init__(self, folder, sinks=()):
        self.folder = folder / "pulse"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self.socket = self.folder / "socket"
        self.log = self.folder / "pulse.log"
        own = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder)}
        # The ALSA plugin asks for the default device, which these two name.
        self.environment = {**own, "PULSE_SERVER": f"unix:{self.socket}"}
        modules = [f"module-native-protocol-unix socket={self.socket} auth-anonymous=1"]
        modules += [f"module-null-sink sink_name={name} rate={RATE} channels=1 format=s16le norewinds=1" for name in (MICROPHONE, EAR, NOWHERE, *sinks)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disallow-exit=yes",
                 "--log-level=warning"] + [word for module in modules for word in ("-L", module)],
                env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.playing = []
        deadline = time.monotonic() + 10
        while not self.socket.exists() or subprocess.run(["pactl", "info"], env=self.environment, capture_output=True).returncode:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit(f"PulseAudio did not start; its log is {self.log}:\n{self.log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.silence()
        ended(self.process)

    def devices(self, source, sink):
        """The environment of a program whose default devices are these: the monitor of `source`, and `sink`."""
        return {"PULSE_SERVER": self.environment["PULSE_SERVER"], "PULSE_SOURCE": f"{source}.monitor", "PULSE_SINK": sink,
                "PULSE_COOKIE": str(self.folder / "cookie")}

    def set_defaults(self, source, sink):
        """For programs that do not look at the environment: the default devices are a microphone that hears what the sink `source`
        plays (monitors are not offered by browsers), and `sink`."""
        for words in (["load-module", "module-remap-source", f"master={source}.monitor", f"source_name={source}-of-all", "remix=no"],
                      ["set-default-source", f"{source}-of-all"], ["set-default-sink", sink]):
            subprocess.run(["pactl", *words], env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def play(self, samples, sink=MICROPHONE):
        """Plays samples (-1…1) into a sink until they end or `silence()`."""
        path = self.folder / "playing.raw"
        np.clip(samples * 32768, -32768, 32767).astype("<i2").tofile(path)
        self.playing.append(subprocess.Popen(
            ["pacat", "--device", sink, "--raw", f"--rate={RATE}", "--channels=1", "--format=s16le", str(path)],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def silence(self):
        while self.playing:
            ended(self.playing.pop())

    def record(self, sink, latency_ms=None):
        return MonitorRecording(f"{sink}.monitor", self.environment, latency_ms)
