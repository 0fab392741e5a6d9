#!/usr/bin/env python3
"""Holds a virtual button for a while, at a moment when the microphone is fed loud sound, and notes what happened when.

    talk.py NAME BUTTON[:CONTROL] SECONDS END
    END: release | vanish | drop | COMMAND (run by the shell; the finger lets go half a second later)

Appends a line of JSON to $BURSTS: name, press, release (ns, CLOCK_MONOTONIC: when the button was let go or the line was cut) and
cut (what ended it, unless the finger did). $MOUTH and $MOUTH_CLOCK are the WAV file being played and its clock.
"""
import json
import os
import socket
import subprocess
import sys
import time
import wave


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def vbt(*words):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(os.environ.get('VBT_SOCKET', '/run/vbt.sock'))
        s.sendall((' '.join(words) + '\n').encode())
        answer = s.makefile().readline().strip()
    if not answer.startswith('ok'):
        sys.exit(f'talk.py: {" ".join(words)}: {answer}')
    return dict(word.partition('=')[::2] for word in answer.split()[1:])


def await_loud(path, clock):
    """Sleeps until the middle of the next loud stretch (listed in PATH.loud) of what is being played."""
    with wave.open(path) as w:
        rate, length = w.getframerate(), w.getnframes() / w.getframerate()
    with open(path + '.loud') as f:
        moments = [float(line) for line in f]
    with open(clock) as f:
        frame, t = map(int, f.readlines()[-1].split())
    playing = ((now() - t) / 1e9 + frame / rate) % length
    time.sleep(min((m - playing) % length for m in moments if (m - playing) % length > 0.05))


name, button, seconds, end = sys.argv[1:]
button, _, control = button.partition(':')
controls = [control] if control else []
await_loud(os.environ['MOUTH'], os.environ['MOUTH_CLOCK'])
pressed = vbt(button, 'press', *controls)
if pressed['receivers'] == '0':
    sys.exit(f'talk.py: nobody is subscribed to {button}')
press = int(pressed['t'])
time.sleep(max(0, (press - now()) / 1e9 + float(seconds)))
if end == 'release':
    burst = {'release': int(vbt(button, 'release', *controls)['t'])}
elif end in ('vanish', 'drop'):
    burst = {'release': int(vbt(button, end)['t']), 'cut': end}
    vbt(button, 'release', *controls)
else:
    burst = {'release': now(), 'cut': end}
    subprocess.run(end, shell=True, check=True)
    time.sleep(0.5)
    vbt(button, 'release', *controls)
with open(os.environ['BURSTS'], 'a') as f:
    f.write(json.dumps({'name': name, 'press': press, **burst}) + '\n')
print(f'{name}: {button} held for {(burst["release"] - press) / 1e9:.2f} s, ended by {burst.get("cut", "release")}')
