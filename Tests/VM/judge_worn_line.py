#!/usr/bin/python3
"""Judges what worn-line.sh brought home: each burst against the mouth that it should come from, and the answers that the headset heard.

    judge_worn_line.py FOLDER SPEECH.wav       FOLDER: what the guest put into /ctl/out
"""
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'Tools'))
from align import NotFound, align, rounded  # noqa: E402
from wavefile import Recording  # noqa: E402
from worn_sound import read  # noqa: E402

CORRELATION = 0.75      # of speech that a headset gives with 8 kHz
INSIDE_MS, END_MS, BEFORE_MS = 120, 150, 20
ANSWER_S = 2.5          # of three seconds
LOUD = 60               # a headset's volume is at -24 dB when it is new to PipeWire


def mouth(folder, speech, burst):
    """What the burst should have, with the time of each sample."""
    if burst['mouth'] == 'desk':
        clock = 'mic.wav.clock'
    else:
        clock = f'{burst["mouth"]}.{burst["name"].partition(":")[0]}.clock'
    recording = Recording.read(speech, loops=True)
    recording.clock = Recording.read_clock(os.path.join(folder, clock))
    return recording


def main():
    folder, speech = sys.argv[1:]
    ear = Recording.read(os.path.join(folder, 'ear.wav'))
    with open(os.path.join(folder, 'bursts')) as f:
        bursts = [json.loads(line) for line in f]
    problems = 0 if bursts else 1
    print(f'{"burst":42} {"likeness":>8} {"lost at start/inside/end":>25} {"before":>7} {"mouth→ear":>10} {"press→ear":>10}')
    for burst in bursts:
        try:
            a = rounded(align(mouth(folder, speech, burst), ear, burst['press'], burst['release'], 200,
                              until=burst['release'] + 1.9e9))
        except NotFound as reason:
            print(f'{burst["name"]:42} FAIL not heard: {reason}')
            problems += 1
            continue
        holds = a['correlation'] >= CORRELATION and a['start_lost_ms'] <= burst['late'] and \
            a['lost_inside_ms'] <= INSIDE_MS and a['end_lost_ms'] <= END_MS and (burst['goes_on'] or a['before_press_ms'] <= BEFORE_MS)
        lost = f'{a["start_lost_ms"]:.0f} / {a["lost_inside_ms"]:.0f} / {a["end_lost_ms"]:.0f}'
        print(f'{burst["name"]:42} {a["correlation"]:8.3f} {lost:>25} {a["before_press_ms"]:7.0f} {a["mouth_to_ear_ms"]:10.1f} '
              f'{a["press_to_ear_ms"]:10.1f}{"" if holds else "  FAIL"}')
        problems += not holds
    with open(os.path.join(folder, 'answers')) as f:
        answers = f.read().split()
    problems += not answers
    for name in answers:
        values, rate = read(os.path.join(folder, name))
        blocks = np.abs(np.array(values[:len(values) // 80 * 80], float)).reshape(-1, 80).mean(axis=1)
        heard = np.count_nonzero(blocks > LOUD) * 80 / rate
        print(f'{name:42} {heard:.1f} s heard by the headset{"" if heard >= ANSWER_S else "  FAIL"}')
        problems += heard < ANSWER_S
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
