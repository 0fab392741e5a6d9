"""How many samples of a burst are missing at its ends, when every 20 ms of the microphone are a chirp of their own (chirps.py).

The chirps are sought in the ear two by two, the longest course of places that follow one another is taken (a listener who catches
up shortens the way, by cutting or by compression), and the edges of the sound are laid over the microphone by its first and its
last place.
"""
import numpy as np

from align import THIN, band_limited, correlations
from chirps import CHIRP_S, LEVEL
from wavefile import RATE

CHIRP = int(CHIRP_S * RATE)
SAME = 0.6                      # of two chirps; other ones reach that now and then, but in no order
FASTEST = 0.5                   # of its length the most that is left out of a piece by catching up
STRAY = 0.02                    # of a piece's length: so much a place may wander without catching up
EDGE = 0.25                     # of a burst's amplitude: where sound begins and ends
EDGE_SAMPLES = 48               # what a codec smears: an edge that is so much off is none
FINE_SAMPLES = 3 * THIN


def places_of(mic, ear, last, stall=0):
    """[(chirp's number, ear sample where its first sample is)] of those that are found, in order. `stall`: so many samples the ear may
    stand still between two of them."""
    thin_ear = band_limited(ear)[::THIN]
    thin_mic = band_limited(mic[:(last + 2) * CHIRP])[::THIN]
    step = CHIRP // THIN
    candidates = []
    for k in range(last):
        pattern = thin_mic[k * step:(k + 2) * step]
        if len(pattern) < 2 * step or len(thin_ear) <= len(pattern):
            break
        likeness = correlations(pattern, thin_ear)
        best = int(likeness.argmax())
        if likeness[best] >= SAME:
            candidates.append((k, finely(mic[k * CHIRP:(k + 2) * CHIRP], ear, best * THIN)))
    return longest_course(candidates, stall)


def finely(pattern, ear, near):
    """A place to the sample."""
    first = max(0, near - FINE_SAMPLES)
    window = ear[first:near + FINE_SAMPLES + len(pattern)]
    return first + int(correlations(pattern, window).argmax()) if len(window) > len(pattern) else near


def longest_course(candidates, stall=0):
    """The most candidates that can follow one another: places go on as the chirps do, or faster where the listener catches up, or later
    where it stood still."""
    best, before = [1] * len(candidates), [-1] * len(candidates)
    for j, (k, at) in enumerate(candidates):
        for i, (earlier, was) in enumerate(candidates[:j]):
            due = (k - earlier) * CHIRP
            if due * (1 - FASTEST) <= at - was <= due * (1 + STRAY) + stall and best[i] + 1 > best[j]:
                best[j], before[j] = best[i] + 1, i
    course, j = [], int(np.argmax(best)) if best else -1
    while j >= 0:
        course.append(candidates[j])
        j = before[j]
    return course[::-1]


def clipped(mic, released, ear, pressed, until, stall=0):
    """One burst: `mic` from its first sample on, `released`: how many of its samples came before the release; the ear between two
    instants (ns). `stall`: as of places_of. A dictionary in samples, or {"lost": why}."""
    begin, end = max(0, round(ear.frame_at(pressed))), min(len(ear.samples), round(ear.frame_at(until)))
    sound = ear.samples[begin:end]
    if end - begin < 4 * CHIRP or not np.abs(sound).max() > 1e-3:
        return {"lost": "nothing was heard"}
    course = places_of(mic, sound, min(released // CHIRP + 40, len(mic) // CHIRP - 2), stall)
    if len(course) < 3:
        return {"lost": "what was heard is not what was said"}
    (first, first_at), (last, last_at) = course[0], course[-1]
    inside = sound[first_at:last_at + CHIRP]
    amplitude = float(np.sqrt(2 * np.median(np.convolve(inside ** 2, np.full(480, 1 / 480), "valid"))))
    heard = np.flatnonzero(np.abs(sound) > EDGE * amplitude)
    mic_first = int(np.flatnonzero(np.abs(mic) > EDGE * LEVEL)[0])
    start = int(heard[0]) - (first_at - first * CHIRP) - mic_first
    heard_to = int(heard[-1]) - (last_at - last * CHIRP)
    end_missing = released - heard_to
    wanted = max(0, released // CHIRP - 1)
    return {"start": start if start > EDGE_SAMPLES else 0, "end": end_missing if end_missing > EDGE_SAMPLES else 0,
            "start_exact": start, "tail": -end_missing, "chirps": wanted,
            "unlike": wanted - sum(k < wanted for k, _ in course), "way_first": first_at - first * CHIRP, "way_last": last_at - last * CHIRP,
            "ways": [at - k * CHIRP for k, at in course if k < wanted], "first_sound": int(heard[0])}
