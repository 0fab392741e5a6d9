#!/usr/bin/python3
"""Makes a speech recording of radio traffic that never repeats itself: 48 kHz mono WAV, spoken by espeak-ng.

    speech.py OUT.wav [SECONDS] [--seed N]

Pauses are shortened; the same seed gives the same words. OUT.wav.loud lists moments (in seconds) in the midst of loud sound: a
press at one of them shows to the millisecond what a listener misses.
"""
import argparse
import os
import random
import subprocess
import tempfile

import numpy as np

from wavefile import RATE, read_wav, write_wav

CALL_SIGNS = 'alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike november oscar papa'.split()
PLACES = ('the north gate', 'the lower yard', 'building seven', 'the loading ramp', 'the river crossing', 'level three',
          'the pump station', 'the old quarry', 'the crane', 'the tool store', 'platform nine', 'the eastern fence')
REPORTS = ('we are moving to {place}', 'nobody is at {place}', 'two crates are waiting at {place}', 'keep clear of {place}',
           'the truck has left {place}', 'water is rising near {place}', 'send the electrician to {place}',
           'I can see smoke behind {place}', 'the meter reads {number}', 'temperature is {number} degrees',
           'we need {number} metres of cable', 'convoy of {number} vehicles passing {place}', 'job number {number} is done',
           'switch to channel {number}', 'expect us in {number} minutes', 'please repeat the last number after {number}')
LONGEST_PAUSE_S = 0.12


def sentences(seed):
    r = random.Random(seed)
    while True:
        report = r.choice(REPORTS).format(place=r.choice(PLACES), number=r.randint(2, 9999))
        yield f'{r.choice(CALL_SIGNS)} {r.randint(1, 99)} this is {r.choice(CALL_SIGNS)} {r.randint(1, 99)} {report}'


def resampled(samples, rate, new_rate):
    """Band-limited, by cutting or padding the spectrum."""
    length = len(samples) * new_rate // rate
    spectrum = np.fft.rfft(samples)
    wanted = np.zeros(length // 2 + 1, complex)
    n = min(len(spectrum), len(wanted))
    wanted[:n] = spectrum[:n]
    return np.fft.irfft(wanted, length) * (length / len(samples))


def pauses_shortened(samples, rate):
    block = rate // 100
    blocks = samples[:len(samples) // block * block].reshape(-1, block)
    loud = np.sqrt((blocks ** 2).mean(1)) > 0.01
    keep, silent = np.ones(len(blocks), bool), 0
    for i, is_loud in enumerate(loud):
        silent = 0 if is_loud else silent + 1
        keep[i] = silent <= LONGEST_PAUSE_S * 100
    return blocks[keep].ravel()


def speech(seconds, seed=1):
    """48 kHz samples, -1…1."""
    parts, length, source = [], 0, sentences(seed)
    while length < seconds * RATE:
        text = ' '.join(next(source) for _ in range(12))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'spoken.wav')
            subprocess.run(['espeak-ng', '-v', 'en', '-s', '165', '-w', path, text], check=True)
            samples, rate = read_wav(path)
        part = pauses_shortened(resampled(samples, rate, RATE), RATE)
        parts.append(part)
        length += len(part)
    samples = np.concatenate(parts)[:int(seconds * RATE)]
    return samples / np.abs(samples).max() * 0.7


def loud_moments(samples):
    """The middle of every stretch of 80 ms and more that is loud throughout, in seconds."""
    block = RATE // 100
    level = np.sqrt((samples[:len(samples) // block * block].reshape(-1, block) ** 2).mean(1))
    loud = np.concatenate(([0], level > level.mean(), [0])).astype(int)
    edges = np.flatnonzero(np.diff(loud)).reshape(-1, 2)
    return [(a + b) / 200 for a, b in edges if b - a >= 8]


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('out')
    parser.add_argument('seconds', type=float, nargs='?', default=60)
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    made = speech(options.seconds, options.seed)
    write_wav(options.out, made)
    np.savetxt(options.out + '.loud', loud_moments(made), '%.2f')
