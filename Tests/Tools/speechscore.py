"""How well speech came through: PESQ (wideband), STOI and how much of it was heard at all, sentence by sentence.

A listener who waits for what was lost, catches up, or plays late hears everything at another time than it was said. So the ear is
laid over the microphone piece by piece first; what a score tells is what was heard, not when. Needs `pesq` and `pystoi` (PyPI).
"""
import warnings
from dataclasses import dataclass

import numpy as np

from speech import resampled
from wavefile import RATE

THIN = 4                        # 48 kHz -> 12 kHz for finding delays
SPEECH_HZ = (150, 3600)
WINDOW_S, HOP_S = 0.3, 0.1      # pieces whose place is sought; half of a window is laid, with a fade
CANDIDATES = 5                  # places that are considered for each piece
SCORE_RATE = 16_000             # of PESQ's wideband
HEARD_CORRELATION = 0.5         # of a piece with its place; another word reaches less
AUDIBLE_DB = -25                # against the sentence's mean: quieter pieces are pauses
MARGIN_S = 0.2                  # around a sentence
WORST_PESQ = 1.0


@dataclass
class Score:
    pesq: float                 # 1 (bad) … 4.64
    stoi: float                 # 0 … 1: how much of it is understood
    heard: float                # the share of the audible pieces that is there, at whatever time
    latest_ms: float            # how much later than usual the latest piece was


def padded(samples):
    """With silence behind it up to a length that is quickly transformed."""
    return np.concatenate((samples, np.zeros(-len(samples) % (RATE // 5))))


def banded(samples):
    """Thinned, and the speech band only."""
    thin = resampled(samples, RATE, RATE // THIN)
    spectrum = np.fft.rfft(thin)
    hz = np.fft.rfftfreq(len(thin), THIN / RATE)
    spectrum[(hz < SPEECH_HZ[0]) | (hz > SPEECH_HZ[1])] = 0
    return np.fft.irfft(spectrum, len(thin))


class Signal:
    """Something to look for patterns in."""

    def __init__(self, samples):
        self.samples, self.size = samples, 1 << len(samples).bit_length()
        self.spectrum = np.fft.rfft(samples, self.size)
        self.energy = np.concatenate(([0], np.cumsum(samples ** 2)))

    def likeness(self, pattern):
        """Normalised correlation of a pattern with every place."""
        n, m = len(self.samples), len(pattern)
        product = np.fft.irfft(self.spectrum * np.conj(np.fft.rfft(pattern, self.size)), self.size)[:n - m + 1]
        local = np.maximum(self.energy[m:] - self.energy[:-m], 1e-4 * self.energy[-1] * m / n + 1e-12)
        return product / np.sqrt((pattern ** 2).sum() * local + 1e-20)


def places(said, ear):
    """For each window of `said` (both banded): (start in it, place in `ear`, likeness, audible).

    By dynamic programming: what was said later is heard later, and a change of delay has its price.
    """
    rate = RATE // THIN
    window, hop = int(WINDOW_S * rate), int(HOP_S * rate)
    starts = list(range(0, max(1, len(said) - window), hop))
    power = np.array([np.mean(said[s:s + window] ** 2) for s in starts])
    audible = power > power.mean() * 10 ** (AUDIBLE_DB / 10)
    ear = Signal(ear)
    whole = ear.likeness(said) if len(ear.samples) > len(said) else np.zeros(1)
    usual = int(np.argmax(whole))
    options = []
    for s in starts:
        c = ear.likeness(said[s:s + window])
        left, found = c.copy(), []
        for _ in range(CANDIDATES):
            k = int(left.argmax())
            found.append((k - s, float(c[k])))
            left[max(0, k - rate // 200):k + rate // 200] = -1
        k = min(max(0, s + usual), len(c) - 1)
        options.append(found + [(k - s, float(c[k]))])

    def price(a, b):
        change = (b - a) / rate
        if change < -HOP_S * 1.01:
            return 3.0                  # it would be heard before what was said before it
        return 0.0 if abs(change) < 0.001 else 0.15 + min(abs(change), 2.0) * 0.15
    best = [[c if a else 0.0 for _, c in options[0]] for a in audible[:1]]
    back = [[0] * len(options[0])]
    for i in range(1, len(options)):
        row, pointers = [], []
        for delay, c in options[i]:
            values = [best[-1][j] - price(d, delay) for j, (d, _) in enumerate(options[i - 1])]
            j = int(np.argmax(values))
            row.append(values[j] + (c if audible[i] else 0.0))
            pointers.append(j)
        best.append(row)
        back.append(pointers)
    j, path = int(np.argmax(best[-1])), []
    for i in range(len(options) - 1, -1, -1):
        path.append((starts[i], *options[i][j], bool(audible[i])))
        j = back[i][j]
    path.reverse()
    return path


def laid(said, ear, path):
    """The ear's samples (48 kHz) where the pieces of `said` have their places."""
    hop, result = int(HOP_S * RATE), np.zeros(len(said))
    fade, weight = np.hanning(2 * hop + 2)[1:-1], np.full(len(said), 1e-9)
    middle = int((WINDOW_S - 2 * HOP_S) / 2 * RATE)
    for i, (start, delay, _, _) in enumerate(path):
        at = start * THIN + (middle if 0 < i < len(path) - 1 else 0)
        length = 2 * hop if 0 < i < len(path) - 1 else int(WINDOW_S * RATE)
        if i == len(path) - 1:
            length = len(said) - at
        at_ear = at + delay * THIN
        length = min(length, len(said) - at, len(ear) - at_ear)
        if length <= 0 or at_ear < 0:
            continue
        shape = fade[:length] if 0 < i < len(path) - 1 else np.ones(length) * 0.5
        result[at:at + length] += ear[at_ear:at_ear + length] * shape
        weight[at:at + length] += shape
    return result / np.maximum(weight, 1e-3)


def score(said, ear):
    """The Score of a sentence `said`, somewhere in `ear`; 48 kHz both."""
    from pesq import NoUtterancesError, pesq
    from pystoi import stoi
    silence = np.zeros(int(MARGIN_S * RATE))
    said, ear = (padded(np.concatenate((silence, x, silence))) for x in (said, ear))
    if np.abs(ear).max() < 1e-4:
        return Score(WORST_PESQ, 0.0, 0.0, 0.0)
    path = places(banded(said), banded(ear))
    speaking = [(delay, c) for _, delay, c, audible in path if audible]
    there = [delay for delay, c in speaking if c >= HEARD_CORRELATION]
    heard = laid(said, ear, path)
    a, b = (resampled(x, RATE, SCORE_RATE) for x in (said, heard))
    try:
        quality = float(pesq(SCORE_RATE, a, b, "wb"))
    except NoUtterancesError:
        quality = WORST_PESQ
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # of a sentence that is nearly silent
        understood = max(0.0, float(stoi(a, b, SCORE_RATE)))
    late = (max(there) - np.median(there)) * THIN * 1000 / RATE if there else 0.0
    return Score(quality, understood, len(there) / max(1, len(speaking)), float(late))
