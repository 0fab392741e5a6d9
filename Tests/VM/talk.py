#!/usr/bin/env python3
"""Holds a virtual button for a while, at a moment when the microphone is fed loud sound, and notes what happened when.

    talk.py NAME BUTTON[:CONTROL] SECONDS END
    END: release | vanish | drop | COMMAND (run by the shell; the finger lets go half a second later)

Appends a line of JSON to $BURSTS: name, press, release (ns, CLOCK_MONOTONIC: when the button was let go or the line was cut),
cut (what ended it, unless the finger did), and from the press to 0.3 s after it: page_reads (how often programs waited for a page of
their code or data to be read from the disk, by their names) and waits_ms (how long some task of a service, or of the whole guest, had to
wait for the disk or for the processor: PSI, Documentation/accounting/psi.rst). $MOUTH and $MOUTH_CLOCK are the WAV file being played and
its clock.
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


SERVICES = ['bluetooth', 'dbus', 'pttd', 'pttrelay']
WATCHED_SECONDS = 0.3


def page_reads():
    """The major faults of each process until now, with its name; field 12 of /proc/PID/stat."""
    counts = {}
    for process in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{process}/stat') as f:
                name, _, fields = f.read().partition('(')[2].rpartition(')')
        except OSError:
            continue    # It has just ended.
        counts[process, name] = int(fields.split()[9])
    return counts


def waits():
    """Microseconds until now in which some task of a service, or of the guest, waited for the disk or the processor."""
    paths = {('guest', kind): f'/proc/pressure/{kind}' for kind in ('io', 'cpu')}
    for service in SERVICES:
        for kind in ('io', 'cpu'):
            paths[service, kind] = f'/sys/fs/cgroup/system.slice/{service}.service/{kind}.pressure'
    totals = {}
    for key, path in paths.items():
        try:
            with open(path) as f:
                totals[key] = int(f.readline().rpartition('total=')[2])
        except (OSError, ValueError):
            continue    # No such service, or a kernel without PSI.
    return totals


name, button, seconds, end = sys.argv[1:]
button, _, control = button.partition(':')
controls = [control] if control else []
await_loud(os.environ['MOUTH'], os.environ['MOUTH_CLOCK'])
reads_before, waits_before = page_reads(), waits()
pressed = vbt(button, 'press', *controls)
if pressed['receivers'] == '0':
    sys.exit(f'talk.py: nobody is subscribed to {button}')
press = int(pressed['t'])
time.sleep(WATCHED_SECONDS)
waited = {}
for (service, kind), total in waits().items():
    if total - waits_before.get((service, kind), total) >= 1000:
        waited.setdefault(service, {})[kind] = round((total - waits_before[service, kind]) / 1000, 1)
reads = {}
for (process, program), count in page_reads().items():
    if count > (before := reads_before.get((process, program), count)):
        reads[program] = reads.get(program, 0) + count - before
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
    f.write(json.dumps({'name': name, 'press': press, **burst, 'page_reads': reads, 'waits_ms': waited}) + '\n')
print(f'{name}: {button} held for {(burst["release"] - press) / 1e9:.2f} s, ended by {burst.get("cut", "release")}')
