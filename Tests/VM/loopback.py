#!/usr/bin/env python3
"""A mouth and an ear for snd-aloop (or any ALSA device) that know when each sample passed the sound card.

    loopback.py play DEVICE IN.wav CLOCK     plays IN.wav again and again until SIGTERM
    loopback.py record DEVICE OUT.wav        records until SIGTERM; 48 kHz mono

CLOCK, or OUT.wav.clock: a line `FRAME NANOSECONDS` a second, the instant (CLOCK_MONOTONIC) of a frame at the device. The
device's pointer can only lag behind, so of all observations in a second the earliest is kept.
"""
import ctypes
import ctypes.util
import signal
import sys
import time
import wave

RATE, PERIOD = 48000, 480
PLAYBACK, CAPTURE, S16_LE, INTERLEAVED = 0, 1, 2, 3
BUFFER_US = 1_000_000         # a virtual machine can be without a turn for long
alsa = ctypes.CDLL(ctypes.util.find_library('asound') or 'libasound.so.2')
alsa.snd_strerror.restype = ctypes.c_char_p
alsa.snd_pcm_writei.restype = alsa.snd_pcm_readi.restype = alsa.snd_pcm_avail.restype = ctypes.c_long
alsa.snd_pcm_writei.argtypes = alsa.snd_pcm_readi.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ulong]
alsa.snd_pcm_avail.argtypes = [ctypes.c_void_p]
alsa.snd_pcm_delay.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_long)]
alsa.snd_pcm_recover.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
running = True


def checked(status, what):
    if status < 0:
        sys.exit(f'loopback.py: {what}: {alsa.snd_strerror(int(status)).decode()}')
    return status


def opened(device, direction):
    pcm = ctypes.c_void_p()
    checked(alsa.snd_pcm_open(ctypes.byref(pcm), device.encode(), direction, 0), device)
    checked(alsa.snd_pcm_set_params(pcm, S16_LE, INTERLEAVED, 1, RATE, 1, BUFFER_US), device)
    if direction == CAPTURE:        # set_params waits for a whole buffer to be asked for, which nobody does
        checked(alsa.snd_pcm_start(pcm), device)
    return pcm


class Clock:
    """Keeps the best observation of each second; the first one soon, so that a short recording has one too."""

    def __init__(self, path):
        self.file = open(path, 'w')
        self.best, self.write_at = None, RATE // 4

    def observe(self, frame):
        """The device is at `frame` now, or was a little earlier."""
        t = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        origin = t - frame * 1_000_000_000 // RATE
        if self.best is None or origin < self.best[0]:
            self.best = origin, frame, t
        if frame >= self.write_at:
            self.file.write(f'{self.best[1]} {self.best[2]}\n')
            self.file.flush()
            self.best, self.write_at = None, frame + RATE


def play(device, path, clock):
    with wave.open(path) as w:
        if (w.getnchannels(), w.getsampwidth(), w.getframerate()) != (1, 2, RATE):
            sys.exit(f'loopback.py: {path} is not 16-bit, mono, 48 kHz')
        data = w.readframes(w.getnframes())
    pcm, sent, delay = opened(device, PLAYBACK), 0, ctypes.c_long()
    while running:
        at = sent * 2 % len(data)
        block = data[at:at + PERIOD * 2]
        n = alsa.snd_pcm_writei(pcm, block, len(block) // 2)
        if n < 0:
            if not running:         # the signal came while waiting
                break
            print(f'loopback.py: {device}: {alsa.snd_strerror(int(n)).decode()} after {sent} frames', file=sys.stderr, flush=True)
            checked(alsa.snd_pcm_recover(pcm, int(n), 1), 'recovering')
            continue
        sent += n
        if alsa.snd_pcm_delay(pcm, ctypes.byref(delay)) == 0 and sent - delay.value > 0:
            clock.observe(sent - delay.value)


def record(device, path, clock):
    pcm, read, buffer = opened(device, CAPTURE), 0, ctypes.create_string_buffer(PERIOD * 2)
    with wave.open(path, 'wb') as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(RATE)
        while running:
            n = alsa.snd_pcm_readi(pcm, buffer, PERIOD)
            if n < 0:
                if not running:
                    break
                print(f'loopback.py: {device}: {alsa.snd_strerror(int(n)).decode()} after {read} frames', file=sys.stderr, flush=True)
                checked(alsa.snd_pcm_recover(pcm, int(n), 1), 'recovering')
                checked(alsa.snd_pcm_start(pcm), device)
                continue
            w.writeframesraw(buffer.raw[:n * 2])
            read += n
            waiting = alsa.snd_pcm_avail(pcm)
            if waiting >= 0:
                clock.observe(read + waiting)


def stop(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
if len(sys.argv) == 5 and sys.argv[1] == 'play':
    play(sys.argv[2], sys.argv[3], Clock(sys.argv[4]))
elif len(sys.argv) == 4 and sys.argv[1] == 'record':
    record(sys.argv[2], sys.argv[3], Clock(sys.argv[3] + '.clock'))
else:
    sys.exit(__doc__)
