#!/usr/bin/python3
"""Lays what a listener heard over what the microphone was fed, burst by burst.

    align.py MIC.wav EAR.wav [--bursts FILE | --press NS --release NS]... [--loop] [--tail MS] [--minimum-correlation X]

FILE is JSON: [{"press": NS, "release": NS}, …] on the clock of the recordings (see wavefile.py). Without bursts the whole ear
recording is one. Prints JSON and fails when a burst is not the same speech.

How: both sides are band-limited to speech and thinned out to 12 kHz. Every 200 ms of the ear are correlated with all delays
that are possible, and the most consistent course of delays through the burst is taken (a listener who catches up shortens
the delay as he goes). Where he catches up all the time, by compression that keeps the pitch, no 200 ms agree: there the course is
followed from its neighbours in steps of 10 ms. The ear is then laid over the microphone by that course, at 48 kHz, and 5 ms pieces are compared.
"""
import argparse
import json
import sys
from dataclasses import asdict, dataclass

import numpy as np

from wavefile import RATE, Recording

THIN = 4                            # 48 kHz -> 12 kHz: what of speech survives any Opus bit rate
SPEECH_HZ = (120, 3800)
WINDOW_S, HOP_S = 0.2, 0.05         # pieces whose delay is sought
PEAKS, PEAKS_APART_S = 6, 0.002     # the delays of a window that are looked at: less apart than periods of the voice
STEP_S, STEP_WINDOW_S = 0.01, 0.04  # following a delay that changes all the time
STEP_WANDER_S = 0.012               # a place found in a step: a period of the voice more or less
STEP_SPEED = 0.6                    # catching up shortens the delay by at most so much of the time that passes
STEP_GAIN_MIN = 0.1                 # of the correlation, for a delay to change
STEPS_MISSED_MAX = 12               # a pause, or a hole: beyond it nothing is followed any more
PIECE_S = 0.005                     # pieces that are heard or lost
LOOK_S = 0.03                       # what is compared around a piece
DELAY_S = (-0.05, 2.5)              # mouth to ear, with clocks; one second may be held until the floor is granted
HELD_S = 1.1                        # a delay further than this from the usual one is chance: no more speech is ever held back
AUDIBLE_DB = -25                    # against the burst's mean: quieter microphone pieces are pauses, which nobody can lose
HEARD_CORRELATION = 0.5             # of a piece with its surroundings
SAME_CORRELATION = 0.7              # of windows; other words of the same voice reach 0.6


@dataclass
class Alignment:
    """One burst. Delays in ms; `None` where there was no press or release to compare with."""

    correlation: float              # over everything heard, after laying one over the other
    correlation_windows_p10: float  # the same in windows of 200 ms: the worst tenth
    mouth_to_ear_ms: float          # median over the windows
    mouth_to_ear_first_ms: float
    mouth_to_ear_last_ms: float
    heard_ms: float                 # from the first to the last audible piece heard
    lost_inside_ms: float           # audible pieces in between in whose place there was no sound
    start_lost_ms: float | None     # audible pieces after the press and before the first one heard
    end_lost_ms: float | None       # audible pieces before the release and after the last one heard
    before_press_ms: float | None   # heard from before the press (positive: the microphone was open too early)
    after_release_ms: float | None  # heard from after the release (the tail)
    press_to_ear_ms: float | None
    release_to_silence_ms: float | None
    first_heard_ns: float           # mouth's clock
    last_heard_ns: float
    ear_first_ns: float             # ear's clock
    ear_last_ns: float


class NotFound(Exception):
    """The ear holds nothing of the microphone's speech."""


def band_limited(samples, rate=RATE):
    """The speech band only."""
    n = len(samples)
    padded = 1 << max(10, (n + rate // 10 - 1).bit_length())
    spectrum = np.fft.rfft(samples, padded)
    hz = np.fft.rfftfreq(padded, 1 / rate)
    spectrum *= np.clip((hz - SPEECH_HZ[0] / 2) / (SPEECH_HZ[0] / 2), 0, 1) * np.clip((SPEECH_HZ[1] + 600 - hz) / 600, 0, 1)
    return np.fft.irfft(spectrum, padded)[:n]


def smoothed(samples):
    """Without what lies above 4 kHz (a codec may drop that) by a filter of a quarter millisecond: edges stay where they are."""
    return np.convolve(samples, np.full(12, 1 / 12), 'same')


def correlations(pattern, signal):
    """Normalised correlation of a pattern with every place in a signal."""
    n, m = len(signal), len(pattern)
    size = 1 << (n + m - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(signal, size) * np.conj(np.fft.rfft(pattern, size)), size)[:n - m + 1]
    energy = np.concatenate(([0], np.cumsum(signal ** 2)))
    local = np.maximum(energy[m:] - energy[:-m], 0)
    floor = 1e-6 * (local.max() + 1e-12)
    return product / np.sqrt((pattern ** 2).sum() * np.maximum(local, floor) + 1e-20)


def peak_between(values, k):
    """Where between the values the peak at k really is: a parabola through it and its neighbours."""
    if not 0 < k < len(values) - 1:
        return 0.0
    a, b, d = values[k - 1:k + 2]
    return 0.5 * (a - d) / (a - 2 * b + d) if a - 2 * b + d else 0.0


def sharpened(mic, ear, start, at):
    """(place, correlation) at the full rate of the ear's window from `start` on, whose place in the microphone is about `at`: at the
    thinned rate half a sample may cost more likeness than a false place a period of the voice away."""
    window = ear[start:start + int(WINDOW_S * RATE)]
    first, last = max(0, at - THIN), min(len(mic), at + THIN + len(window))
    if last - first < len(window):
        return at, 0.0
    near = np.lib.stride_tricks.sliding_window_view(mic[first:last], len(window))
    c = near @ window / np.sqrt((near ** 2).sum(1) * (window ** 2).sum() + 1e-20)
    k = int(c.argmax())
    return first + k + peak_between(c, k), float(c[k])


def delay_course(mic, ear, shift, delays):
    """[(ear sample, delay in samples, correlation)] per window. `shift`: ear sample i and mic sample i + shift are the same instant.

    The course is found by dynamic programming over the best few delays of each window: a change of delay costs.
    """
    full_mic, full_ear, full_shift = mic, ear, shift
    mic, ear, shift, rate = mic[::THIN], ear[::THIN], int(round(shift / THIN)), RATE // THIN
    window, hop = int(WINDOW_S * rate), int(HOP_S * rate)
    smallest, largest, apart = int(delays[0] * rate), int(delays[1] * rate), int(PEAKS_APART_S * rate)
    starts = range(0, len(ear) - window, hop)
    power = np.array([np.mean(ear[s:s + window] ** 2) for s in starts])
    if power.size == 0 or power.max() < 1e-10:
        raise NotFound('the ear recording is silent')
    candidates = []
    for s, p in zip(starts, power):
        if p < power.max() * 10 ** (AUDIBLE_DB / 10):
            continue
        first, last = s + shift - largest, s + shift - smallest + window
        lo, hi = max(first, 0), min(last, len(mic))
        if hi - lo < window:
            continue
        c = correlations(ear[s:s + window], mic[lo:hi])
        peaks = []
        c_left = c.copy()
        for _ in range(PEAKS):
            k = int(c_left.argmax())
            if c_left[k] < 0.35:
                break
            at, likeness = sharpened(full_mic, full_ear, s * THIN, (lo + k) * THIN)
            peaks.append(((s * THIN + full_shift - at) / THIN, likeness))
            c_left[max(0, k - apart):k + apart] = -1
        if peaks:
            candidates.append((s + window // 2, peaks))
    if not candidates:
        raise NotFound('nothing in the ear recording resembles the microphone in the time of the burst')

    def cost_of_change(a, b):
        change = abs(a - b) / rate
        return 0.0 if change < 0.0005 else 0.3 + min(change, 1.0) * 0.5
    scores, back = [[c for _, c in candidates[0][1]]], [[0] * len(candidates[0][1])]
    for (_, before), (_, here) in zip(candidates, candidates[1:]):
        row, pointers = [], []
        for delay, c in here:
            options = [scores[-1][j] + c - cost_of_change(delay, d) for j, (d, _) in enumerate(before)]
            j = int(np.argmax(options))
            row.append(options[j])
            pointers.append(j)
        scores.append(row)
        back.append(pointers)
    j, course = int(np.argmax(scores[-1])), []
    for (at, peaks), pointers in zip(reversed(candidates), reversed(back)):
        course.append((at, *peaks[j]))
        j = pointers[j]
    course.reverse()
    strong = supported(course, rate)
    if not strong:
        raise NotFound(f'the best correlation of any window is {max(c[2] for c in course):.2f}')
    return [(e * THIN, d * THIN, c) for e, d, c in strong]


def supported(course, rate):
    """The course without chance: a delay counts when several windows in a row agree on it and their sound is clearly the same.

    Speech resembles itself a pitch period or a syllable away, most of all in windows that are half silent.
    """
    runs = []
    for entry in course:
        if runs and abs(entry[1] - runs[-1][-1][1]) < 0.001 * rate:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    runs = [r for r in runs if np.median([c for _, _, c in r]) >= SAME_CORRELATION]
    firm = [len(r) >= 3 for r in runs]
    if any(firm):
        usual = np.median([d for r, f in zip(runs, firm) if f for _, d, _ in r])
        runs = [r for r in runs if abs(r[0][1] - usual) < HELD_S * rate]
        firm = [len(r) >= 3 for r in runs]
        # a short run may lie on the way from one firm delay to the next, nowhere else
        kept = []
        for i, run in enumerate(runs):
            before = next((r[-1][1] for r, f in zip(runs[i - 1::-1], firm[i - 1::-1]) if f), None) if i else None
            after = next((r[0][1] for r, f in zip(runs[i + 1:], firm[i + 1:]) if f), None)
            between = before is not None and after is not None and min(before, after) <= run[0][1] <= max(before, after)
            if firm[i] or between:
                kept += run
        return kept
    return []


def followed(mic, ear, shift, course):
    """The course with what lies before, between and behind its windows, where the delay changes all the time (`delay_course`'s units)."""
    mic, ear, rate = mic[::THIN], ear[::THIN], RATE // THIN
    window, step, wander = int(STEP_WINDOW_S * rate), int(STEP_S * rate), int(STEP_WANDER_S * rate)
    loud = np.sqrt(np.convolve(ear ** 2, np.full(window, 1 / window), 'same'))
    quiet = max(loud.max() * 10 ** (AUDIBLE_DB / 20), 1e-5)
    sound = np.flatnonzero(np.abs(ear) >= quiet)
    sound_first, sound_last = (int(sound[0]), int(sound[-1])) if len(sound) else (0, len(ear))

    def lies_in_sound(at, half):
        """A window that is silent at one end resembles what lies a period of the voice away more than its own place."""
        return sound_first <= at - half and at + half <= sound_last

    def walk(begin, delay, until, direction):
        """From an ear sample with a known delay up to another one, in steps; [(ear sample, delay, correlation)] of those found."""
        found, missed, at = [], 0, begin
        while missed <= STEPS_MISSED_MAX:
            at += direction * step
            if (until - at) * direction <= step or not lies_in_sound(at, window // 2):
                break
            missed += 1
            if loud[at] < quiet:
                continue
            # Back in time the delay was longer, on it becomes shorter; the more steps were missed, the wider it is sought.
            change = -direction * int(STEP_SPEED * step * missed)
            before = int(round(delay))
            smallest, largest = before + min(0, change) - wander, before + max(0, change) + wander
            first, last = at - window // 2 + shift_thin - largest, at + window // 2 + shift_thin - smallest
            if first < 0 or last > len(mic):
                continue
            c = correlations(ear[at - window // 2:at + window // 2], mic[first:last])
            k, stay = int(c.argmax()), largest - before
            if c[k] < SAME_CORRELATION:
                continue
            missed = 0
            if c[stay] < c[k] - STEP_GAIN_MIN:      # it moves only for a reason: sound resembles itself a period away
                delay = largest - k - peak_between(c, k)
            found.append((at, delay, float(c[k])))
        return found

    shift_thin = int(round(shift / THIN))
    rest = shift_thin * THIN - shift        # what rounding took away, in samples
    # A window that reaches beyond the sound knows the delay of its inner part only.
    sure = [i for i, (_, _, c) in enumerate(course) if c >= SAME_CORRELATION]
    course = course[sure[0]:sure[-1] + 1] if sure else course
    course = [c for c in course if lies_in_sound(c[0] // THIN, int(WINDOW_S * rate) // 2)] or course
    thin = [(int(e) // THIN, (d - rest) / THIN) for e, d, _ in course]
    added = walk(*thin[0], 0, -1) + walk(*thin[-1], len(ear), 1)
    for (e, d), (next_e, next_d) in zip(thin, thin[1:]):
        if next_e - e > 1.5 * HOP_S * rate and abs(next_d - d) > 0.0005 * rate:
            added += walk(e, d, next_e, 1)
    return sorted(course + [(e * THIN, d * THIN + rest, c) for e, d, c in added])


def similar(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum() + 1e-20))


def heard_pieces(mic, ear, shift, course, mic_power, ear_sharp):
    """Which 5 ms pieces of the microphone can be heard, which have at least sound in their place, and with which delay.

    `mic` and `ear` are band-limited; `mic_power` (per piece) and `ear_sharp` tell exactly where sound is.
    """
    piece, look = int(PIECE_S * RATE), int(LOOK_S * RATE)
    at = np.array([e + shift - d for e, d, _ in course])        # mic sample in the middle of each window
    delay_of = np.array([d for _, d, _ in course])
    order = np.argsort(at)
    at, delay_of = at[order], delay_of[order]
    count = len(mic_power)
    energy = np.concatenate(([0], np.cumsum(ear_sharp ** 2)))

    def ear_power(e):
        return (energy[e + piece] - energy[e]) / piece
    gains = []
    for m, d in zip(at, delay_of):
        i = int(m) // piece
        e = i * piece - shift + int(round(d))
        if 0 <= i < count and 0 <= e <= len(ear) - piece and mic_power[i] > 0:
            gains.append(ear_power(e) / mic_power[i])
    gain = float(np.median(gains)) if gains else 1.0
    heard, sounding, delays = np.zeros(count, bool), np.zeros(count, bool), np.zeros(count)
    for i in range(count):
        m = i * piece
        k = int(np.searchsorted(at, m))
        for j in {min(max(k - 1, 0), len(at) - 1), min(k, len(at) - 1)}:
            e = m - shift + int(round(delay_of[j]))
            if e < 0 or e + piece > len(ear) or ear_power(e) < 0.04 * gain * mic_power[i]:
                continue
            sounding[i] = True
            best = 0.0          # a piece at the edge of a burst has its company on one side only
            for before, after in ((look, 0), (0, look), (look // 2, look // 2)):
                lo, hi = -min(before, m, e), min(piece + after, len(mic) - m, len(ear) - e)
                best = max(best, similar(mic[m + lo:m + hi], ear[e + lo:e + hi]))
            if best >= HEARD_CORRELATION and not heard[i]:
                heard[i], delays[i] = True, delay_of[j]
    return heard, sounding, delays


def align(mic, ear, press=None, release=None, tail_ms=0.0, until=None):
    """One burst: `mic` and `ear` are Recordings; press and release instants (ns) when both have clocks. What is heard after `until` is of
    another burst."""
    if mic.rate != RATE or ear.rate != RATE:
        raise ValueError(f'recordings have to be of {RATE} Hz')
    timed = press is not None and mic.clock is not None and ear.clock is not None
    if timed:
        end = release if release is not None else ear.time_of(len(ear.samples))
        mic_first, ear_first = int(mic.frame_at(press - 0.5e9)), int(ear.frame_at(press - 0.1e9))
        mic_count, ear_count = int((end - press + 1.2e9) * RATE / 1e9), int((end - press + 0.1e9 + DELAY_S[1] * 1e9) * RATE / 1e9)
        if until is not None:
            ear_count = min(ear_count, max(0, int(ear.frame_at(until)) - ear_first))
        mic_first_ns, ear_first_ns = mic.time_of(mic_first), ear.time_of(ear_first)
        delays = DELAY_S
    else:
        mic_first, mic_count, ear_first, ear_count = 0, len(mic.samples), 0, len(ear.samples)
        mic_first_ns, ear_first_ns = (0.0, 0.0) if mic.clock is None or ear.clock is None else (mic.time_of(0), ear.time_of(0))
        delays = (-mic_count / RATE, (mic_count + ear_count) / RATE)
    mic_samples, ear_samples = mic.cut(mic_first, mic_count), ear.cut(ear_first, ear_count)
    m, e = band_limited(mic_samples), band_limited(ear_samples)
    shift_exact = (ear_first_ns - mic_first_ns) * RATE / 1e9
    shift = int(round(shift_exact))
    course = delay_course(m, e, shift, delays)
    windows = [c for _, _, c in course]
    course = followed(m, e, shift, course)
    piece = int(PIECE_S * RATE)
    power = (smoothed(mic_samples)[:mic_count // piece * piece].reshape(-1, piece) ** 2).mean(1)
    heard, sounding, delay = heard_pieces(m, e, shift, course, power, smoothed(ear_samples))

    # the burst is where windows were found; lone pieces that resemble something far away are chance
    middle = [c[0] + shift - c[1] for c in course]
    near = WINDOW_S * RATE
    index = np.arange(len(heard)) * piece
    heard &= (index > min(middle) - near) & (index < max(middle) + near)
    if not heard.any():
        raise NotFound('no piece of the burst is heard')
    audible = power > power[heard].mean() * 10 ** (AUDIBLE_DB / 10)
    heard &= audible
    where = np.flatnonzero(heard)
    first, last = int(where[0]), int(where[-1])
    ms = PIECE_S * 1000

    def mouth_ns(i):
        return mic_first_ns + i * PIECE_S * 1e9

    def ear_ns(i, d):
        return mouth_ns(i) + (d + shift_exact - shift) * 1e9 / RATE
    # lay the ear over the microphone and compare the whole
    span = slice(first * piece, (last + 1) * piece)
    laid = np.zeros(len(m))
    for i in where:
        a = i * piece
        s = a - shift + int(round(delay[i]))
        n = min(piece, len(e) - s)
        laid[a:a + n] = e[s:s + n]
    places = np.array([at for at, _, _ in course])
    values = np.interp(np.arange(places[0], places[-1] + 1, HOP_S * RATE), places, [d for _, d, _ in course]) + shift_exact - shift
    to_ms = 1000 / RATE
    result = Alignment(
        correlation=similar(m[span], laid[span]),
        correlation_windows_p10=float(np.percentile(windows, 10)),
        mouth_to_ear_ms=float(np.median(values)) * to_ms,
        mouth_to_ear_first_ms=float(np.median(values[:3])) * to_ms, mouth_to_ear_last_ms=float(np.median(values[-3:])) * to_ms,
        heard_ms=(last - first + 1) * ms,
        lost_inside_ms=float((audible & ~sounding)[first:last + 1].sum()) * ms,
        start_lost_ms=None, end_lost_ms=None, before_press_ms=None, after_release_ms=None,
        press_to_ear_ms=None, release_to_silence_ms=None,
        first_heard_ns=mouth_ns(first), last_heard_ns=mouth_ns(last + 1),
        ear_first_ns=ear_ns(first, delay[first]), ear_last_ns=ear_ns(last + 1, delay[last]))
    if timed:
        pressed = (press - mic_first_ns) / (PIECE_S * 1e9)
        after_press = int(np.ceil(pressed))
        result.start_lost_ms = float(audible[after_press:first].sum()) * ms
        result.before_press_ms = max(0.0, float(pressed - first)) * ms
        result.press_to_ear_ms = (result.ear_first_ns - press) / 1e6
        if release is not None:
            released = (release - mic_first_ns) / (PIECE_S * 1e9)
            result.end_lost_ms = float(audible[last + 1:max(int(released + tail_ms / ms), last + 1)].sum()) * ms
            result.after_release_ms = max(0.0, float(last + 1 - released)) * ms
            result.release_to_silence_ms = (result.ear_last_ns - release) / 1e6
    return result


def rounded(alignment):
    return {k: None if v is None else round(v, 3 if 'correlation' in k else 1) for k, v in asdict(alignment).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('mic')
    parser.add_argument('ear')
    parser.add_argument('--bursts')
    parser.add_argument('--press', type=float, action='append', default=[])
    parser.add_argument('--release', type=float, action='append', default=[])
    parser.add_argument('--loop', action='store_true', help='the microphone was fed its recording again and again')
    parser.add_argument('--tail', type=float, default=0.0, help='ms after the release that belong to the burst')
    parser.add_argument('--minimum-correlation', type=float, default=0.7)
    options = parser.parse_args()
    mic, ear = Recording.read(options.mic, options.loop), Recording.read(options.ear)
    bursts = [{'press': p, 'release': r} for p, r in zip(options.press, options.release)]
    if options.bursts:
        with open(options.bursts) as f:
            bursts = json.load(f)
    results, good = [], True
    for burst in bursts or [{'press': None, 'release': None}]:
        try:
            a = align(mic, ear, burst['press'], burst['release'], options.tail)
            results.append({**burst, **rounded(a)})
            good = good and a.correlation >= options.minimum_correlation
        except NotFound as problem:
            results.append({**burst, 'error': str(problem)})
            good = False
    clocks = {name: round(r.clock_spread_ms(), 3) for name, r in (('mic', mic), ('ear', ear)) if r.clock is not None}
    json.dump({'bursts': results, 'clock_spread_ms': clocks}, sys.stdout, indent=2)
    print()
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
