"""A machine's PulseAudio: a null sink to speak into and one to hear by, a sound that never stops at the first, recordings of both."""
import os
import re
import subprocess

import numpy as np

from chirps import chirps
from pulse import EAR, MICROPHONE, MonitorRecording, ended
from supervisor import Supervised
from unitfile import RestartPolicy
from wavefile import RATE

SPOKEN_S = 40                   # of chirps, which are then repeated
LATENCY_MS = 10
SINKS = (MICROPHONE, EAR)


class Sound:
    """Supervised: the server, and the speech that is played into its microphone."""

    def __init__(self, name, folder, seed, minutes):
        self.folder = folder / f"{name}-pulse"
        self.folder.mkdir(mode=0o700)
        self.socket = self.folder / "socket"
        self.environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.folder),
                            "XDG_RUNTIME_DIR": str(self.folder), "PULSE_SERVER": f"unix:{self.socket}"}
        # What pttd's default devices are.
        self.devices = {"PULSE_SERVER": f"unix:{self.socket}", "PULSE_SOURCE": f"{MICROPHONE}.monitor", "PULSE_SINK": EAR,
                        "PULSE_COOKIE": str(self.folder / "cookie")}
        self._write_speech(seed, minutes)
        modules = [f"module-native-protocol-unix socket={self.socket} auth-anonymous=1"]
        modules += [f"module-null-sink sink_name={sink} rate={RATE} channels=1 format=s16le norewinds=1" for sink in SINKS]
        command = ["pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disallow-exit=yes",
                   "--log-level=warning"] + [word for module in modules for word in ("-L", module)]
        self.server = Supervised(f"{name}-sound", command, folder / f"{name}-pulse.log", RestartPolicy(limit_interval=0),
                                 self.environment, before=lambda: self.socket.unlink(missing_ok=True))
        play = ["pacat", "--device", MICROPHONE, "--raw", f"--rate={RATE}", "--channels=1", "--format=s16le", self.speech]
        self.player = Supervised(f"{name}-speech", play, folder / f"{name}-pacat.log",
                                 RestartPolicy("always", 0.2, limit_interval=0), self.environment)
        self.recorders = None

    def _write_speech(self, seed, minutes):
        self.speech = self.folder / "speech.raw"
        once = np.clip(chirps(SPOKEN_S, seed) * 32768, -32768, 32767).astype("<i2").tobytes()
        with open(self.speech, "wb") as file:
            for _ in range(int(minutes * 60 / SPOKEN_S) + 4):
                file.write(once)

    def record(self):
        """From now on both sinks are recorded, until `recorded`."""
        self.recorders = [MonitorRecording(f"{sink}.monitor", self.environment, LATENCY_MS if sink == MICROPHONE else None)
                          for sink in SINKS]

    def recorded(self):
        """(microphone, ear) as Recordings; None where there is next to nothing."""
        found = []
        for recorder in self.recorders or (None, None):
            try:
                found.append(recorder.finish() if recorder else None)
            except SystemExit:
                found.append(None)
        self.recorders = None
        return found

    def open_microphones(self):
        """How many streams of others than our recorder take sound from the microphone now; None when the server does not tell."""
        try:
            told = subprocess.run(["pactl", "list", "source-outputs"], env=self.environment, capture_output=True, text=True, timeout=3)
        except subprocess.TimeoutExpired:
            return None
        if told.returncode:
            return None
        return sum("Corked: no" in stream and not re.search(r'application\.name = "parec"', stream)
                   for stream in told.stdout.split("Source Output #")[1:])

    def end(self):
        for recorder in self.recorders or ():
            ended(recorder.process)
        self.player.end(1)
        self.server.end(1)
