#!/usr/bin/python3
"""Reads the log lines of pttd and pttrelay, and finds the milestones of a talk burst in them.

    logevents.py LOG...                              every line as a JSON object
    logevents.py --press NS [--until NS] LOG...      the milestones of the burst that this press began

A line is `label: message key=value …`, after whatever the journal or the terminal puts before it (Sources/Logs). `t` is the
instant of the event: CLOCK_MONOTONIC in nanoseconds, so lines of several programs on one machine share an axis.
"""
import argparse
import json
import re
import sys

LINE = re.compile(r'(?:^|[\s>])(?P<label>pttd|pttctl|pttrelay|[a-z][\w.-]*): (?P<rest>.*)$')
LEVEL = re.compile(r'\b(trace|debug|info|notice|warning|error|critical) [\w.-]+: ')
PAIR = re.compile(r'(?:^| )([A-Za-z][\w.-]*)=("(?:[^"\\]|\\.)*"|\S*)')
ESCAPED = re.compile(r'\\(x[0-9a-fA-F]{2}|.)')

# What the milestones are called in pictures and tables -> (whose, what its message has to match), in the order of a burst.
MILESTONES = {
    'press noticed': ('pttd', r'^press$'),
    'begin request': ('pttd', r'^press handled$'),
    'capture began': ('pttd', r'^capture began$'),
    'floor granted': ('pttd', r'^floor granted$'),
    'first packet sent': ('pttd', r'^first packet sent$'),
    'first packet at relay': ('pttrelay', r'^first packet$'),
    'talker announced': ('pttd', r'^talker begins$'),
    'playback began': ('pttd', r'^playback began$'),
    'release noticed': ('pttd', r'^release$'),
    'last frame sent': ('pttd', r'^last frame$'),
    'floor released at relay': ('pttrelay', r'^floor released$'),
    'playback ended': ('pttd', r'^playback ended$'),
}


def unescaped(text):
    simple = {'n': '\n', 'r': '\r', 't': '\t'}
    return ESCAPED.sub(lambda m: chr(int(m[1][1:], 16)) if m[1][0] == 'x' and len(m[1]) == 3 else simple.get(m[1], m[1]), text)


def parse_line(line):
    """A dictionary with label, message, level (where known), metadata and t (ns, where told); None for other lines."""
    line = line.rstrip('\n')
    match = LINE.search(line)
    if match is None:
        return None
    rest = match['rest']
    # Metadata is the longest run of pairs at the end: the message itself may hold an equals sign.
    start, metadata = len(rest), {}
    pairs = list(PAIR.finditer(rest))
    for pair in reversed(pairs):
        if pair.end() != start:
            break
        start = pair.start()
        value = pair[2]
        metadata[pair[1]] = unescaped(value[1:-1]) if value.startswith('"') else unescaped(value)
    level = LEVEL.search(line)
    event = {'label': match['label'], 'message': rest[:start].strip(), 'level': level[1] if level else None,
             'metadata': dict(reversed(metadata.items()))}
    if metadata.get('t', '').isdigit():
        event['t'] = int(metadata['t'])
    return event


def read_log(path):
    with open(path, errors='replace') as f:
        return [event for event in map(parse_line, f) if event is not None]


def milestones(events, press, until=None):
    """{milestone: t} of the burst begun by the press at `press` (ns): the first match of each from there on."""
    found = {}
    for name, (label, pattern) in MILESTONES.items():
        times = [e['t'] for e in events if 't' in e and e['label'].startswith(label) and e['t'] >= press
                 and (until is None or e['t'] < until) and re.search(pattern, e['message'], re.IGNORECASE)]
        if times:
            found[name] = min(times)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('logs', nargs='+')
    parser.add_argument('--press', type=int)
    parser.add_argument('--until', type=int)
    options = parser.parse_args()
    events = [event for path in options.logs for event in read_log(path)]
    if options.press is not None:
        json.dump(milestones(events, options.press, options.until), sys.stdout, indent=2)
        print()
    else:
        for event in events:
            print(json.dumps(event))


if __name__ == '__main__':
    main()
