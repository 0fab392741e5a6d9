"""WAV files as numpy arrays, and where their samples lie in time.

A recording can have a neighbour NAME.wav.clock: lines `FRAME NANOSECONDS`, each saying when (CLOCK_MONOTONIC) a frame passed
the sound card. With one, samples of different recordings and log lines share one time axis.
"""
import os
import wave

import numpy as np

RATE = 48000


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

    def _offsets(self):
        """Frames of the clock's points, and for each the instant at which frame 0 would have been."""
        return self.clock[:, 0], self.clock[:, 1] - self.clock[:, 0] * (1e9 / self.rate)

    def frame_at(self, nanoseconds):
        """The frame (fractional) at an instant."""
        frames, origins = self._offsets()
        at = (nanoseconds - origins[0]) * self.rate / 1e9
        for _ in range(2):
            at = (nanoseconds - np.interp(at, frames, origins)) * self.rate / 1e9
        return at

    def time_of(self, frame):
        """The instant of a frame, in nanoseconds."""
        frames, origins = self._offsets()
        return frame * 1e9 / self.rate + np.interp(frame, frames, origins)

    def clock_spread_ms(self):
        """How much the clock's points disagree: what one may believe of a latency."""
        return float(np.ptp(self._offsets()[1])) / 1e6

    def cut(self, first, count):
        """`count` frames from `first` on; zeros outside the recording, or the recording again and again when it loops."""
        index = np.arange(first, first + count)
        if self.loops:
            return np.where(index < 0, 0, self.samples[index % len(self.samples)])
        inside = (index >= 0) & (index < len(self.samples))
        out = np.zeros(count)
        out[inside] = self.samples[index[inside]]
        return out
