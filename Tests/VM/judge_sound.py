#!/usr/bin/python3
"""Judges what sound.sh brought home: what the mouth said after a card had gone, was it heard from the other one?

    judge_sound.py FOLDER SPEECH.wav       FOLDER: what the guest put into /ctl/out
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'Tools'))
from align import NotFound, align, rounded  # noqa: E402
from judge import brought_home, first_sound  # noqa: E402

CORRELATION = 0.8
START_MS = 150          # a command line begins the talk, and a lost card had sound in it
INSIDE_MS, END_MS = 100, 150
# While two seconds are caught up by compression, the alignment finds fewer of the pieces.
LATE_MS, LATE_INSIDE_MS = 1000, 300
PAUSE_NS = 2.9e9        # before the next talk
OTHER_SPEAKER_MS = 300  # from the loss of the speaker to sound from the other one


def main():
    folder, speech = sys.argv[1:]
    mic, ear, bursts = brought_home(folder, speech)
    with open(os.path.join(folder, 'instants')) as f:
        pulled = json.load(f)['speaker_pulled']
    problems = 0 if bursts else 1
    sound = first_sound(ear, pulled)
    took = None if sound is None else (sound - pulled) / 1e6
    print(f'{"speaker pulled out":28} the other speaker sounds ' + ('never' if took is None else f'{took:.0f} ms after it'))
    problems += took is None or took > OTHER_SPEAKER_MS
    for burst in bursts:
        try:
            a = rounded(align(mic, ear, burst['press'], burst['release'], 200, until=burst['release'] + PAUSE_NS))
        except NotFound as reason:
            print(f'{burst["name"]:28} FAIL not heard: {reason}')
            problems += 1
            continue
        inside = LATE_INSIDE_MS if a['mouth_to_ear_first_ms'] >= LATE_MS else INSIDE_MS
        holds = a['correlation'] >= CORRELATION and a['start_lost_ms'] <= START_MS and a['lost_inside_ms'] <= inside and \
            a['end_lost_ms'] <= END_MS
        print(f'{burst["name"]:28} {"" if holds else "FAIL "}likeness {a["correlation"]:.3f}, lost at start, inside, end '
              f'{a["start_lost_ms"]:.0f}, {a["lost_inside_ms"]:.0f}, {a["end_lost_ms"]:.0f} ms, mouth to ear first and last '
              f'{a["mouth_to_ear_first_ms"]:.0f}, {a["mouth_to_ear_last_ms"]:.0f} ms')
        problems += not holds
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
