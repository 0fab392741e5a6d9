#!/usr/bin/python3
"""Judges what line.sh brought home: was each burst the same speech, what was lost, how long did everything take.

    judge.py FOLDER SPEECH.wav       FOLDER: what the guest put into /ctl/out

Prints a line per burst and the latencies; writes FOLDER/results.json and FOLDER/timeline.png. Fails when a burst does not hold.
"""
import json
import os
import statistics
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'Tools'))
from align import NotFound, align, rounded  # noqa: E402
from logevents import read_log  # noqa: E402
from timeline import burst_milestones, draw  # noqa: E402
from wavefile import RATE, Recording  # noqa: E402

TAIL_MS = 200
CORRELATION = 0.8           # another speaker's words reach 0.55, Opus at 16 kbit/s 0.95
# At either end and inside, by alignment. Most lose nothing; the first burst on a card finds how much that has to hold (25 ms were seen).
LOST_MS = 50
PRESS_TO_EAR_MS = 100       # 40 to 47 are usual; the first press after a start of either program is no exception
BEFORE_PRESS_MS = 10        # heard from before the press: the microphone was closed, but for the codec's smear
# Silence after the release (tail of 200 ms included), or after the line was cut: `vanish` is the LE supervision time-out of a held button.
SILENCE_MS = {'vanish': 800, 'drop': 400, None: 400}
SILENCE_OTHERWISE_MS = 1500
DISTURBED_MAX = 3           # bursts during which a guest with KVM got no turn


def problems(burst, a):
    cut = burst.get('cut')
    if a['correlation'] < CORRELATION:
        yield f'likeness {a["correlation"]} is below {CORRELATION}'
    if a['press_to_ear_ms'] > PRESS_TO_EAR_MS:
        yield f'heard {a["press_to_ear_ms"]} ms after the press, {PRESS_TO_EAR_MS} allowed'
    if a['start_lost_ms'] > LOST_MS:
        yield f'{a["start_lost_ms"]} ms lost at the start'
    if a['before_press_ms'] > BEFORE_PRESS_MS:
        yield f'{a["before_press_ms"]} ms from before the press'
    if a['lost_inside_ms'] > LOST_MS:
        yield f'{a["lost_inside_ms"]} ms lost inside'
    if cut is None and a['end_lost_ms'] > LOST_MS:
        yield f'{a["end_lost_ms"]} ms lost at the end'
    limit = SILENCE_MS.get(cut, SILENCE_OTHERWISE_MS)
    if a['release_to_silence_ms'] > limit:
        yield f'sound {a["release_to_silence_ms"]} ms after the end, {limit} allowed'


def whole_from(talker, listener, burst):
    """When the microphone began (ns), if the logs say that every frame from there on was sent, arrived and was played; else None.

    A listener who got the beginning late catches up by shortening it, and one who ran dry conceals: near either end no alignment in
    windows can follow that.
    """
    def after(events, message):
        return next((e for e in events if e['message'] == message and e.get('t', 0) >= burst['press']), None)
    began, sent, played = after(talker, 'capture began'), after(talker, 'burst ended'), after(listener, 'playback ended')
    if not (began and sent and played) or played['t'] > burst['release'] + 2e9:
        return None
    whole = sent['metadata']['sent'] == played['metadata']['played'] and sent['metadata']['dropped'] == '0' \
        and played['metadata']['lost'] == played['metadata']['late'] == '0' and played['metadata']['reason'] == 'complete'
    return began['t'] if whole else None


def first_sound(ear, since):
    """When the ear hears something after `since` (ns); it is silent between bursts. None: not within three seconds."""
    begin = int(ear.frame_at(since))
    loud = np.flatnonzero(np.abs(ear.cut(begin, 3 * RATE)) > 0.01)
    return ear.time_of(begin + int(loud[0])) if len(loud) else None


def circumstances(burst):
    """What the guest was busy with after the press, in words."""
    for program, count in burst.get('page_reads', {}).items():
        yield f'{program} read {count} pages from the disk'
    for name, waits in burst.get('waits_ms', {}).items():
        yield f'{name} waited: ' + ', '.join(f'{milliseconds} ms for {kind}' for kind, milliseconds in waits.items())


def verdict(count, failures, disturbed):
    """Whether a run of so many bursts has failed, of which some failed and some could not be judged; and what is to be said of it."""
    if disturbed > DISTURBED_MAX or count == disturbed:
        return True, f'FAIL {disturbed} of {count} bursts could not be judged; this machine is too busy or no burst was made'
    return failures > 0, ''


def brought_home(folder, speech):
    """The mouth, the ear and the bursts of a run."""
    mic = Recording.read(speech, loops=True)
    mic.clock = Recording.read_clock(os.path.join(folder, 'mic.wav.clock'))
    ear = Recording.read(os.path.join(folder, 'ear.wav'))
    with open(os.path.join(folder, 'bursts')) as f:
        return mic, ear, [json.loads(line) for line in f]


def main():
    folder, speech = sys.argv[1:]
    mic, ear, bursts = brought_home(folder, speech)
    talker_side = [e for n in ('talker.log', 'relay.log') for e in read_log(os.path.join(folder, n))]
    listener_side = read_log(os.path.join(folder, 'listener.log'))
    print(f'clocks agree within {mic.clock_spread_ms():.1f} ms (microphone) and {ear.clock_spread_ms():.1f} ms (ear)\n')
    print(f'{"burst":32} {"likeness":>8} {"lost at start/inside/end":>25} {"mouth→ear":>10} {"press→ear":>10} {"end→silence":>12}')
    results, failures, disturbed, picture = [], 0, 0, None
    still = mic.stood_still() + ear.stood_still()
    for burst, following in zip(bursts, bursts[1:] + [{}]):
        if any(first < burst['release'] + 1.5e9 and burst['press'] - 0.5e9 < last for first, last in still):
            print(f'{burst["name"]:32} not judged: the sound of the machine stood still meanwhile')
            disturbed += 1
            continue
        found = burst_milestones(talker_side, listener_side, burst['press'], burst['release'])
        result = {**burst, 'milestones_ms': {k: round((t - burst['press']) / 1e6, 1) for k, t in found.items()}}
        try:
            alignment = align(mic, ear, burst['press'], burst['release'], TAIL_MS if 'cut' not in burst else 0, following.get('press'))
            a = rounded(alignment)
            if (began := whole_from(talker_side, listener_side, burst)) is not None:
                a['start_lost_ms'] = min(a['start_lost_ms'], round(max(0, began - burst['press']) / 1e6, 1))
                a['end_lost_ms'] = 0.0
            # Where the delay changes at once, no alignment in windows tells where the burst begins.
            if (sound := first_sound(ear, burst['press'])) is not None:
                a['press_to_ear_ms'] = round((sound - burst['press']) / 1e6, 1)
            result.update(a)
            result['problems'] = list(problems(burst, a))
            lost = f'{a["start_lost_ms"]:.0f} / {a["lost_inside_ms"]:.0f} / {a["end_lost_ms"]:.0f} ms'
            print(f'{burst["name"]:32} {a["correlation"]:8.3f} {lost:>25} {a["mouth_to_ear_ms"]:7.1f} ms {a["press_to_ear_ms"]:7.1f} ms'
                  f' {a["release_to_silence_ms"]:9.1f} ms')
            if picture is None and not result['problems']:
                picture = alignment, burst, found
        except NotFound as reason:
            result['problems'] = [str(reason)]
            print(f'{burst["name"]:32} not heard: {reason}')
        for problem in result['problems']:
            print(f'{"":32} FAIL {problem}')
        for line in circumstances(burst) if result['problems'] else ():
            print(f'{"":32}      {line}')
        failures += bool(result['problems'])
        results.append(result)

    def latency(text, values):
        values = sorted(v for v in values if v is not None)
        if values:
            print(f'{text:34} median {statistics.median(values):6.1f} ms   from {values[0]:.1f} to {values[-1]:.1f} ms   ({len(values)} bursts)')
        else:
            print(f'{text:34} no log line tells')
    print()
    for text, milestone in (('press → begin request', 'begin request'), ('press → first packet sent', 'first packet sent'),
                            ('press → first packet at the relay', 'first packet at relay')):
        latency(text, [r['milestones_ms'].get(milestone) for r in results])
    latency('mouth → ear', [r.get('mouth_to_ear_ms') for r in results])
    latency('press → ear', [r.get('press_to_ear_ms') for r in results])
    latency('release → silence', [r.get('release_to_silence_ms') for r in results if 'cut' not in r])
    has_failed, words = verdict(len(bursts), failures, disturbed)
    print(words)
    with open(os.path.join(folder, 'results.json'), 'w') as f:
        json.dump(results, f, indent=2)
    if picture is not None:
        alignment, burst, found = picture
        draw(os.path.join(folder, 'timeline.png'), mic, ear, burst['press'], burst['release'], found, alignment,
             'From the button to the ear, in the virtual machine', TAIL_MS)
    print(f'\n{sum(not r["problems"] for r in results)} of {len(bursts)} bursts hold')
    return 1 if has_failed else 0


if __name__ == '__main__':
    sys.exit(main())
