#!/usr/bin/python3
"""Draws the way of one talk burst from the press to the ear: both sounds on one time axis, with what happened in between.

    timeline.py MIC.wav EAR.wav OUT.png --press NS --release NS [--log TALKER_OR_RELAY.log]... [--ear-log LISTENER.log]... [--loop]
                [--title TEXT]
"""
import argparse
import os
import tempfile

import numpy as np

os.environ.setdefault('MPLCONFIGDIR', os.path.join(tempfile.gettempdir(), 'matplotlib'))
import matplotlib  # noqa: E402

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

from align import NotFound, align  # noqa: E402
from logevents import milestones, read_log  # noqa: E402
from wavefile import Recording  # noqa: E402

MOUTH, EAR, PRESS, PAPER, INK, FAINT = '#2a6f97', '#c8553d', '#3a7d44', '#fbfaf7', '#22303c', '#9aa5ad'
ROWS = {     # where an event happens, and in which colour
    'talker': MOUTH, 'relay': '#7d5ba6', 'listener': EAR, 'finger': PRESS,
}
PLACE = {
    'press noticed': 'talker', 'begin request': 'talker', 'capture began': 'talker', 'floor granted': 'talker',
    'first packet sent': 'talker', 'release noticed': 'talker', 'last frame sent': 'talker',
    'first packet at relay': 'relay', 'floor released at relay': 'relay',
    'talker announced': 'listener', 'playback began': 'listener', 'playback ended': 'listener',
}
START_EVENTS = ['press', 'press noticed', 'begin request', 'capture began', 'floor granted', 'first packet sent',
                'first packet at relay', 'talker announced', 'playback began', 'first sample at the ear']
END_EVENTS = ['release', 'release noticed', 'last frame sent', 'floor released at relay', 'playback ended', 'last sample at the ear']


def envelope(recording, first_ns, last_ns, columns):
    """(times in ms after first_ns, lowest, highest) per column of the picture."""
    first = int(recording.frame_at(first_ns))
    samples = recording.cut(first, max(int((last_ns - first_ns) * recording.rate / 1e9) + columns, columns))
    per = len(samples) // columns
    blocks = samples[:per * columns].reshape(columns, per)
    return np.arange(columns) * per * 1000 / recording.rate, blocks.min(1), blocks.max(1)


def wave_in(axes, recording, first_ns, last_ns, origin_ns, middle, height, colour):
    t, low, high = envelope(recording, first_ns, last_ns, 1600)
    top = max(np.abs(low).max(), np.abs(high).max(), 1e-3)
    axes.fill_between(t + (first_ns - origin_ns) / 1e6, middle + low / top * height, middle + high / top * height,
                      color=colour, linewidth=0.3, alpha=0.9)
    axes.axhline(middle, color=colour, linewidth=0.4, alpha=0.5)


def clean(axes):
    axes.set_facecolor(PAPER)
    for side in ('top', 'right', 'left'):
        axes.spines[side].set_visible(False)
    axes.spines['bottom'].set_color(FAINT)
    axes.tick_params(colors=INK, length=3, labelsize=9)
    axes.set_yticks([])


def waterfall(axes, mic, ear, origin, window, events, title):
    """A close look: the microphone above, the ear below, and between them a row for each event."""
    first, last = window
    rows = [e for e in events if first <= e[1] <= last]
    clean(axes)
    axes.set_title(title, loc='left', fontsize=11, color=INK, fontweight='bold')
    wave_in(axes, mic, first, last, origin, len(rows) + 1.1, 0.75, MOUTH)
    wave_in(axes, ear, first, last, origin, -1.1, 0.75, EAR)
    axes.text((first - origin) / 1e6, len(rows) + 1.95, 'microphone', color=MOUTH, fontsize=9, va='bottom')
    axes.text((first - origin) / 1e6, -0.28, 'ear', color=EAR, fontsize=9, va='bottom')
    places = []
    for i, (name, t, place) in enumerate(rows):
        x, y, colour = (t - origin) / 1e6, len(rows) - 0.5 - i, ROWS[place]
        places.append((x, y))
        axes.plot([x, x], [y, len(rows) + 0.3 if place != 'listener' else -0.4], color=colour, linewidth=0.7, alpha=0.35, zorder=1)
        to_right = x < ((first + last) / 2 - origin) / 1e6
        label = f'{name}' if i == 0 else f'{name}  {(t - rows[0][1]) / 1e6:+.1f} ms'
        axes.annotate(label, (x, y), xytext=(9 if to_right else -9, 0), textcoords='offset points', va='center',
                      ha='left' if to_right else 'right', fontsize=9.5, color=colour, zorder=4,
                      bbox={'facecolor': PAPER, 'edgecolor': 'none', 'alpha': 0.85, 'pad': 1})
    if places:
        axes.plot(*zip(*places), color=FAINT, linewidth=1.2, zorder=2)
        axes.scatter(*zip(*places), color=[ROWS[p] for _, _, p in rows], s=34, zorder=3)
    axes.set_xlim((first - origin) / 1e6, (last - origin) / 1e6)
    axes.set_ylim(-2.0, len(rows) + 2.6)
    axes.set_xlabel('ms after the press' if rows and rows[0][0] == 'press' else 'ms after the release', fontsize=9, color=INK)


def words(press, release, alignment, found):
    """The latencies, one sentence each."""
    lines = []

    def since(name, start, text):
        if name in found:
            lines.append((f'{(found[name] - start) / 1e6:.1f} ms', text))
    since('begin request', press, 'press → begin request')
    since('first packet sent', press, 'press → first packet on the wire')
    since('first packet at relay', press, 'press → first packet at the relay')
    lines.append((f'{alignment.mouth_to_ear_ms:.1f} ms', 'mouth → ear, median over the burst'))
    if alignment.press_to_ear_ms is not None:
        lines.append((f'{alignment.press_to_ear_ms:.1f} ms', 'press → first sound at the ear'))
        lines.append((f'{alignment.release_to_silence_ms:.1f} ms', 'release → last sound at the ear (the tail included)'))
        lines.append((f'{alignment.start_lost_ms:.0f} ms', 'of speech lost at the start'))
        lines.append((f'{alignment.end_lost_ms:.0f} ms', 'of speech lost at the end'))
    lines.append((f'{alignment.correlation:.3f}', 'likeness to the original (1 = the same)'))
    return lines


def draw(path, mic, ear, press, release, found, alignment=None, title='From the button to the ear', tail_ms=0.0):
    """Writes the PNG. `mic` and `ear` are Recordings with clocks, press and release instants in ns, `found` {milestone: ns}."""
    alignment = alignment or align(mic, ear, press, release, tail_ms)
    events = [('press', press, 'finger'), ('release', release, 'finger'),
              ('first sample at the ear', alignment.ear_first_ns, 'listener'),
              ('last sample at the ear', alignment.ear_last_ns, 'listener')]
    events += [(name, t, PLACE[name]) for name, t in found.items() if name in PLACE]

    figure = plt.figure(figsize=(15, 10.5), facecolor=PAPER)
    grid = figure.add_gridspec(3, 2, height_ratios=[1.0, 1.9, 0.62], hspace=0.36, wspace=0.1,
                               left=0.03, right=0.98, top=0.9, bottom=0.03)
    figure.text(0.03, 0.955, title, fontsize=18, color=INK, fontweight='bold')
    figure.text(0.03, 0.928, f'one talk burst of {(release - press) / 1e9:.1f} s, microphone and loudspeaker on one clock',
                fontsize=10.5, color=INK, alpha=0.75)

    # the whole burst
    whole = figure.add_subplot(grid[0, :])
    clean(whole)
    first, last = press - 0.3e9, max(release, alignment.ear_last_ns) + 0.4e9
    wave_in(whole, mic, first, last, press, 1.1, 0.95, MOUTH)
    wave_in(whole, ear, first, last, press, -1.1, 0.95, EAR)
    whole.axvspan(0, (release - press) / 1e6, color=PRESS, alpha=0.08, linewidth=0)
    for x, text in ((0, 'press'), ((release - press) / 1e6, 'release')):
        whole.axvline(x, color=PRESS, linewidth=1.2)
        whole.annotate(text, (x, 2.25), xytext=(5, 0), textcoords='offset points', color=PRESS, fontsize=10, va='bottom')
    heard = ((alignment.ear_first_ns - press) / 1e6, (alignment.ear_last_ns - press) / 1e6)
    whole.annotate('', (heard[0], -2.2), (heard[1], -2.2), arrowprops={'arrowstyle': '|-|', 'color': EAR, 'mutation_scale': 3})
    whole.text(sum(heard) / 2, -2.3, f'heard for {(heard[1] - heard[0]) / 1e3:.2f} s', color=EAR, fontsize=9.5, ha='center', va='top')
    whole.text((first - press) / 1e6, 1.95, 'microphone', color=MOUTH, fontsize=10, va='bottom')
    whole.text((first - press) / 1e6, -0.25, 'ear', color=EAR, fontsize=10, va='bottom')
    whole.set_ylim(-2.9, 2.7)
    whole.set_xlim((first - press) / 1e6, (last - press) / 1e6)
    whole.set_xlabel('ms after the press', fontsize=9, color=INK)

    def of(names):
        return sorted((e for e in events if e[0] in names), key=lambda e: (e[1], names.index(e[0])))
    start, end = of(START_EVENTS), of(END_EVENTS)
    latest = max(t for _, t, _ in start) - press
    waterfall(figure.add_subplot(grid[1, 0]), mic, ear, press, (press - 0.25 * latest - 10e6, press + 1.9 * latest + 30e6),
              start, 'The start, close up')
    latest = max(t for _, t, _ in end) - release
    waterfall(figure.add_subplot(grid[1, 1]), mic, ear, release, (release - 0.25 * latest - 10e6, release + 1.6 * latest + 30e6),
              end, 'The end, close up')

    text = figure.add_subplot(grid[2, :])
    text.axis('off')
    lines = words(press, release, alignment, found)
    columns = 3
    per = -(-len(lines) // columns)
    for i, (number, sentence) in enumerate(lines):
        x, y = i // per / columns, 0.86 - i % per * (0.9 / per)
        text.text(x + 0.065, y, number, fontsize=12.5, color=INK, fontweight='bold', ha='right', va='center', transform=text.transAxes)
        text.text(x + 0.072, y, sentence, fontsize=10.5, color=INK, va='center', transform=text.transAxes)
    figure.savefig(path, dpi=100, facecolor=PAPER)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('mic')
    parser.add_argument('ear')
    parser.add_argument('out')
    parser.add_argument('--press', type=int, required=True)
    parser.add_argument('--release', type=int, required=True)
    parser.add_argument('--log', action='append', default=[], help='of the talker or the relay')
    parser.add_argument('--ear-log', action='append', default=[], help='of the listener')
    parser.add_argument('--loop', action='store_true')
    parser.add_argument('--tail', type=float, default=0.0)
    parser.add_argument('--title', default='From the button to the ear')
    options = parser.parse_args()
    found = burst_milestones([e for p in options.log for e in read_log(p)], [e for p in options.ear_log for e in read_log(p)],
                             options.press, options.release)
    try:
        draw(options.out, Recording.read(options.mic, options.loop), Recording.read(options.ear), options.press, options.release,
             found, title=options.title, tail_ms=options.tail)
    except NotFound as problem:
        raise SystemExit(f'timeline.py: no picture without a burst: {problem}')


def burst_milestones(talker_events, listener_events, press, release, after_ms=3000):
    """{milestone: ns} of one burst, each looked for in the logs of where it happens."""
    until = release + after_ms * 1_000_000
    found = {}
    for events, of_listener in ((talker_events, False), (listener_events, True)):
        for begin, belongs in ((press, START_EVENTS), (release, END_EVENTS)):      # what belongs to the end comes after the release
            found.update({k: t for k, t in milestones(events, begin, until).items()
                          if k in belongs and (PLACE[k] == 'listener') == of_listener})
    return found


if __name__ == '__main__':
    main()
