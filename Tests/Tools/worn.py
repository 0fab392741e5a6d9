"""A headset as a sound server shows one, with a link for sound that comes up some time after each press.

The headset's microphone hears what the sink `microphone` plays, and its speaker is a sink of its own; both have the headset's address. While
the link is down the microphone gives zeros, as PipeWire does while it sets up a real one (docs/worn-sound.md). There is no card with
profiles, so the headset is never in A2DP.
"""
import random
import subprocess
import threading
import time

import numpy as np

from pulse import MICROPHONE
from wavefile import RATE

ADDRESS = "00:AA:01:01:00:02"
SOURCE, SPEAKER = (f"bluez_{name}.{ADDRESS.replace(':', '_')}.{number}" for name, number in (("input", 0), ("output", 1)))
LINK_S = (0, 1.5)               # so long a link takes, by the reports of users (reports name 0.5 to 1.5 s)
STAYS_UP_S = 0.5                # after the release: longer than the tail
GO_AHEAD_HZ = 880               # the first of the two notes
NOTE_S = 0.045
LOUD = 0.01


class Worn:
    """The headset's two devices on a server, which end with it."""

    def __init__(self, pulse):
        self.environment = pulse.environment
        mark = f"api.bluez5.address={ADDRESS}"
        self._control("load-module", "module-null-sink", f"sink_name={SPEAKER}", f"sink_properties={mark}", f"rate={RATE}", "channels=1",
                      "format=s16le", "norewinds=1")
        self._control("load-module", "module-remap-source", f"source_name={SOURCE}", f"master={MICROPHONE}.monitor",
                      f"source_properties={mark}")

    def _control(self, *words):
        subprocess.run(["pactl", *words], env=self.environment, check=True, stdout=subprocess.DEVNULL, timeout=20)

    def link(self, is_up):
        """Returns the instant (ns) at which the server had done it."""
        self._control("set-source-mute", SOURCE, "0" if is_up else "1")
        return time.monotonic_ns()


class LinkedKey:
    """A key whose press brings the headset's link up, after a time of its own each, and whose release takes it down again."""

    def __init__(self, key, worn, count, seed=2):
        r = random.Random(seed)
        self.key, self.worn = key, worn
        self.waits = [r.uniform(*LINK_S) for _ in range(count)]
        self.up_at, self.pending = [], None
        worn.link(False)

    def press(self):
        at = self.key.press()
        if self.pending:
            self.pending.cancel()
        self.pending = threading.Timer(max(0, at / 1e9 + self.waits[len(self.up_at)] - time.monotonic()), self._come_up, [len(self.up_at)])
        self.up_at.append(None)
        self.pending.start()
        return at

    def _come_up(self, number):
        self.up_at[number] = self.worn.link(True)

    def release(self):
        at = self.key.release()
        self.pending.join(5)
        self.pending = threading.Timer(STAYS_UP_S, self.worn.link, [False])
        self.pending.start()
        return at


def go_ahead_at(ear, press, until):
    """The instant of the go-ahead tone in a recording of the wearer's ear; None: there was none between the two instants."""
    begin, end = max(0, round(ear.frame_at(press))), min(len(ear.samples), round(ear.frame_at(until)))
    loud = np.flatnonzero(np.abs(ear.samples[begin:end]) > LOUD)
    if not len(loud):
        return None
    note = ear.samples[begin + loud[0]:begin + loud[0] + int(NOTE_S * RATE)]
    spectrum = np.abs(np.fft.rfft(note * np.hanning(len(note))))
    pitch = float(np.fft.rfftfreq(len(note), 1 / RATE)[spectrum.argmax()])
    return ear.time_of(begin + loud[0]) if abs(pitch - GO_AHEAD_HZ) < 50 else None
