"""A sound that never repeats itself, and where its pieces are heard again.

Every 20 ms another chirp within the speech band: any 60 ms of an ear recording tell which instant of the mouth they carry, however
the delay moves within a burst.
"""
import numpy as np

from align import correlations
from wavefile import RATE

CHIRP_S = 0.02
BAND_HZ = (350, 3200)           # survives every bit rate of Opus
LEVEL = 0.25
EDGE_S = 0.001
PIECE_S, HOP_S = 0.06, 0.02     # pieces whose delay is sought
ENDS_S = 0.025                  # the beginning and the end of a burst, each on its own: the delay moves within a burst
SETTLED_S = 0.2                 # after so long a burst has settled
DELAY_S = (-0.02, 1.2)          # where a delay is sought
SAME = 0.5                      # correlation of a piece with what it is a copy of; a chance peak reaches 0.3
SOUND = 0.1                     # of the burst's own level (-20 dB): where sound begins and ends
ENDS_NEAR_S = 0.1               # how far the delay of the ends may lie from that of their neighbours
ENDS_SAME = 0.7                 # little more than one chirp resembles others by chance


def chirps(seconds, seed=1):
    """`seconds` of sound, -1…1. Its first sample is at full strength, so that nothing of its beginning can be lost unnoticed."""
    r = np.random.default_rng(seed)
    n = int(CHIRP_S * RATE)
    t = np.arange(n) / RATE
    edge = np.minimum(1, np.minimum(np.arange(n), np.arange(n)[::-1]) / (EDGE_S * RATE))
    out = np.empty(n * int(np.ceil(seconds / CHIRP_S)))
    for i in range(len(out) // n):
        low, high = r.uniform(*BAND_HZ, 2)
        phase = 2 * np.pi * (low * t + (high - low) / (2 * CHIRP_S) * t * t) + r.uniform(0, 2 * np.pi)
        out[i * n:(i + 1) * n] = LEVEL * np.sin(phase) * (np.maximum(edge, t < CHIRP_S / 2) if i == 0 else edge)
    return out


def delay_of(mic, ear, first_ns, last_ns, delays=DELAY_S):
    """(delay in ns, correlation) of the ear's sound between two instants behind the microphone's; None outside a recording."""
    first, last = round(ear.frame_at(first_ns)), round(ear.frame_at(last_ns))
    if first < 0 or last > len(ear.samples) or last - first < 48:
        return None
    piece = ear.samples[first:last]
    start_ns = ear.time_of(first)
    from_frame = round(mic.frame_at(start_ns - delays[1] * 1e9))
    count = len(piece) + int((delays[1] - delays[0]) * RATE)
    if from_frame < 0 or from_frame + count > len(mic.samples):
        return None
    likeness = np.abs(correlations(piece, mic.samples[from_frame:from_frame + count]))
    best = int(likeness.argmax())
    return start_ns - mic.time_of(from_frame + best), float(likeness[best])


def measure(mic, ear, press, release, until):
    """One press (instants in ns): a dictionary in ms, or {"lost": why}.

    press_to_ear, release_to_silence: the first and the last sound at the ear; mouth_to_ear: the median of the settled burst;
    pieces: the delays of all its pieces of 60 ms; first, last: those of its ends; start_lost: mouth's instant of the first sound
    less the press (negative: sound of before the press was sent); after_release: mouth's instant of the last sound less the release.
    """
    begin, end = max(0, round(ear.frame_at(press))), min(len(ear.samples), round(ear.frame_at(until)))
    sound = ear.samples[begin:end]
    if len(sound) < RATE // 5:
        return {"lost": "the recording ended before"}
    power = np.convolve(sound ** 2, np.full(48, 1 / 48), "same")
    loud = power[power > 1e-8]
    if len(loud) < RATE // 10:
        return {"lost": "nothing was heard"}
    level = float(np.sqrt(np.median(loud)))
    heard = np.flatnonzero(np.abs(sound) > SOUND * level)
    first_ns, last_ns = ear.time_of(begin + heard[0]), ear.time_of(begin + heard[-1])
    found, rejected = [], 0
    for at in np.arange(first_ns, last_ns - PIECE_S * 1e9, HOP_S * 1e9):
        piece = delay_of(mic, ear, at, at + PIECE_S * 1e9)
        if piece and piece[1] >= SAME:
            found.append((at, piece[0]))
        else:
            rejected += 1
    if len(found) < 3:
        return {"lost": "what was heard is not what was said"}
    settled = [d for at, d in found if at > first_ns + SETTLED_S * 1e9] or [d for _, d in found]

    def end_delay(begin_ns, end_ns, near):
        result = delay_of(mic, ear, begin_ns, end_ns, (near / 1e9 - ENDS_NEAR_S, near / 1e9 + ENDS_NEAR_S))
        return result[0] if result and result[1] >= ENDS_SAME else near
    first = end_delay(first_ns, first_ns + ENDS_S * 1e9, found[0][1])
    last = end_delay(last_ns - ENDS_S * 1e9, last_ns, found[-1][1])
    holes = power[heard[0]:heard[-1]] < (0.05 * level) ** 2
    return {"press_to_ear": (first_ns - press) / 1e6, "release_to_silence": (last_ns - release) / 1e6,
            "mouth_to_ear": float(np.median(settled)) / 1e6, "pieces": [d / 1e6 for _, d in found], "rejected": rejected,
            "first": first / 1e6, "last": last / 1e6,
            "start_lost": (first_ns - first - press) / 1e6, "after_release": (last_ns - last - release) / 1e6,
            "holes": float(holes.sum()) * 1000 / RATE, "ear_first_ns": first_ns}
