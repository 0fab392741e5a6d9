#!/usr/bin/env python3
"""judge_worn.py OUT: judges what worn.sh recorded. Each line of OUT/recordings is `FILE SEED SILENCE SECONDS [loud]`: the file holds the
noise of that seed, begins with at most SILENCE milliseconds of zeros, and has SECONDS of the noise without a gap."""
import sys

import numpy as np

from worn_sound import RATE, at_rate, noise, read

BLOCK = RATE // 5       # what is looked for at a time


def find(recording, known):
    """For each block of the recording where in the noise it is, and how sure that is (1: the same but for its loudness)."""
    size = 1 << (len(known) + BLOCK).bit_length()
    spectrum = np.fft.rfft(known, size)
    sums = np.cumsum(np.concatenate(([0], known ** 2)))
    power = sums[BLOCK:] - sums[:-BLOCK]
    for at in range(0, len(recording) - BLOCK + 1, BLOCK):
        block = recording[at:at + BLOCK]
        own = np.sum(block ** 2)
        if own == 0:
            yield at, None, 0.0
            continue
        match = np.fft.irfft(spectrum * np.conj(np.fft.rfft(block, size)), size)[:len(power)] / np.sqrt(power * own)
        best = int(np.argmax(match))
        yield at, best - at, float(match[best])


def judge(path, seed, silence_ms, seconds):
    values, rate = read(path)
    recording = np.array(at_rate(values, rate, RATE), float)
    # The mouth says ten seconds of noise again and again.
    known = np.array(noise(10, seed) * 2, float)
    heard = np.flatnonzero(np.array(values))
    silence = len(values) * 1000 / rate if not len(heard) else heard[0] * 1000 / rate
    shifts = [(at, shift, sure) for at, shift, sure in find(recording, known) if sure > 0.6]
    longest = run = 0
    for before, this in zip([None, *shifts], shifts):
        joined = before is not None and this[0] == before[0] + BLOCK and min((this[1] - before[1]) % len(noise(10, seed)),
                                                                             (before[1] - this[1]) % len(noise(10, seed))) <= 8
        run = run + 1 if joined else 1
        longest = max(longest, run)
    held = longest * BLOCK / RATE
    good = silence <= silence_ms and held >= seconds
    sure = np.median([s for *_, s in shifts]) if shifts else 0
    print(f'{"ok  " if good else "FAIL"} {path.rpartition("/")[2]}: {silence:.0f} ms of zeros first (at most {silence_ms:.0f}), '
          f'{held:.1f} s of the noise without a gap (at least {seconds}), alike to {sure:.2f}')
    return good


out, failed = sys.argv[1], 0
for line in open(f'{out}/recordings'):
    name, seed, silence, seconds = line.split()
    failed += not judge(f'{out}/{name}', int(seed), float(silence), float(seconds))
print(f'{failed} failed')
sys.exit(failed > 0)
