"""The sentences that are scored: two voices of espeak-ng's, one after the other."""
import subprocess

import numpy as np

from speech import pauses_shortened, resampled
from wavefile import RATE, read_wav

SENTENCES = [
    ("en", "The truck has left the loading ramp and is on its way to the north gate."),
    ("en+f3", "Please send the electrician to building seven, the light is broken."),
    ("en", "Keep clear of the river crossing until the water has gone down."),
    ("en+f3", "I can see smoke behind the old quarry, two people are walking there."),
]
PAUSE_S, SPEED = 0.35, "170"
BEFORE_S = 0.3          # of silence, before the first sentence


def say(folder):
    """(all sentences as one recording, [(first, last) sample of each])."""
    parts, spans, at = [np.zeros(int(BEFORE_S * RATE))], [], int(BEFORE_S * RATE)
    for voice, text in SENTENCES:
        path = folder / "sentence.wav"
        subprocess.run(["espeak-ng", "-v", voice, "-s", SPEED, "-w", path, text], check=True)
        samples, rate = read_wav(str(path))
        spoken = pauses_shortened(resampled(samples, rate, RATE), RATE)
        spoken = spoken / np.abs(spoken).max() * 0.6
        parts += [spoken, np.zeros(int(PAUSE_S * RATE))]
        spans.append((at, at + len(spoken)))
        at += len(parts[-1]) + len(parts[-2])
    return np.concatenate(parts), spans
