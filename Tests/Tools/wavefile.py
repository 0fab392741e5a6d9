"""WAV files as numpy arrays, and where their samples lie in time.

A recording can have a neighbour NAME.wav.clock: lines `FRAME NANOSECONDS`, each saying when (CLOCK_MONOTONIC) a frame passed
the sound card. With one, samples of different recordings and log lines share one time axis.
"""
import os
import wave

import numpy as np

RATE = 48000
STILL_MS = 5        # a clock does not drift that much from one of its points to the next


def read_wav(path):
    """(samples -1…1 of the first channel, rate); 16-bit PCM only. A file cut short (a killed recorder) is read to its end."""
    with wave.open(path) as w:
        if w.getsampwidth() != 2:
            raise ValueError(f'{path}: {w.getsampwidth() * 8}-bit samples; 16-bit ones are read')
        raw = w.readframes(w.getnframes())
        frames = np.frombuffer(raw[:len(raw) // (2 * w.getnchannels()) * 2 * w.getnchannels()], '<i2')
        return frames.reshape(-1, w.getnchannels())[:, 0].astype(np.float64) / 32768, w.getframerate()


def write_wav(path, samples, rate=RATE):
    with wave.open(path, 'wb') as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes((np.clip(samples, -1, 32767 / 32768) * 32768).astype('<i2').tobytes())


class Recording:
    """Samples and, where there is a clock, the time of each."""

    def __init__(self, samples, rate=RATE, clock=None, loops=False):
        self.samples, self.rate, self.loops = samples, rate, loops
        self.clock = None if clock is None else np.asarray(clock, float).reshape(-1, 2)

    @classmethod
    def read(cls, path, loops=False):
        samples, rate = read_wav(path)
        return cls(samples, rate, cls.read_clock(path + '.clock'), loops)

    @staticmethod
    def read_clock(path):
        """[[frame, ns], …], or None when there is no such file or nothing in it."""
        if not os.path.exists(path):
            return None
        with open(path) as f:
            points = [[float(word) for word in line.split()] for line in f]
        return np.array(points).reshape(-1, 2) if points else None

    def start_at(self, nanoseconds):
        """The same recording, its first sample at this instant."""
        return Recording(self.samples, self.rate, [[0, nanoseconds]], self.loops)

    def _origins(self):
        """Frames of the clock's points, and for each the instant at which frame 0 would have been."""
        return self.clock[:, 0], self.clock[:, 1] - self.clock[:, 0] * (1e9 / self.rate)

    def _origin_at(self, frame):
        """Between two points the origin drifts, unless the sound stood still between them: then it is the nearer point's."""
        frames, origins = self._origins()
        i = int(np.clip(np.searchsorted(frames, frame), 1, max(len(frames) - 1, 1)))
        if len(frames) > 1 and abs(origins[i] - origins[i - 1]) > STILL_MS * 1e6:
            return origins[i] if abs(frames[i] - frame) < abs(frame - frames[i - 1]) else origins[i - 1]
        return float(np.interp(frame, frames, origins))

    def frame_at(self, nanoseconds):
        """The frame (fractional) at an instant."""
        at = (nanoseconds - self._origins()[1][0]) * self.rate / 1e9
        for _ in range(3):
            at = (nanoseconds - self._origin_at(at)) * self.rate / 1e9
        return at

    def time_of(self, frame):
        """The instant of a frame, in nanoseconds."""
        return frame * 1e9 / self.rate + self._origin_at(frame)

    def stood_still(self):
        """[(from, to)] instants between which the sound stood still or jumped: an overrun, or a virtual machine without a turn."""
        frames, origins = self._origins()
        jumps = np.flatnonzero(np.abs(np.diff(origins)) > STILL_MS * 1e6)
        return [(self.clock[i, 1], self.clock[i + 1, 1]) for i in jumps]

    def clock_spread_ms(self):
        """How much the clock's points disagree, jumps left aside: what one may believe of a latency."""
        steps = np.diff(self._origins()[1])
        return float(np.abs(steps[np.abs(steps) <= STILL_MS * 1e6]).max(initial=0)) / 1e6

    def cut(self, first, count):
        """`count` frames from `first` on; zeros outside the recording, or the recording again and again when it loops."""
        index = np.arange(first, first + count)
        if self.loops:
            return np.where(index < 0, 0, self.samples[index % len(self.samples)])
        inside = (index >= 0) & (index < len(self.samples))
        out = np.zeros(count)
        out[inside] = self.samples[index[inside]]
        return out
