"""When each microphone was open and each machine sent, by its log and by what passed its link; and when it was allowed to."""
from bounds import CLOSED_S, SENDING_DATAGRAMS, SENDING_SAMPLES, SENDS_S

BEFORE_NS = 50_000_000          # logs' instants of a first sample lie that much before what tells of the press at most
SAMPLE_NS = 100_000_000


def lived(lives, until):
    return [(begin, end or until) for begin, end in lives]


def captures(events, lives, until):
    """[(from, to)] of open microphones: a life that ends takes its microphone along."""
    found, ends = [], [end for _, end in lived(lives, until)]
    began = None
    for event in events:
        if event["message"] == "capture began":
            began = int(event["metadata"]["t"])
        elif event["message"] in ("capture ended",) and began is not None:
            found.append((began, event["t"]))
            began = None
        elif event["message"] == "pttd starts" and began is not None:
            found.append((began, min((end for end in ends if end >= began), default=until)))
            began = None
    if began is not None:
        found.append((began, min((end for end in ends if end >= began), default=until)))
    return found


def windows(presses, frozen, until, bound_s):
    """[(from, to)] in which a machine may capture: while the finger is down and so long after; and a moment when BlueZ tells of it late.

    A release that BlueZ tells late is no excuse: a held button wants fresh evidence.
    """
    found = []
    for press in presses:
        up = press.finger_up or until
        found.append([press.finger_down, up])
        if press.pressed is not None:
            found.append([press.pressed, max(press.pressed, up)])
    for window in found:
        window[1] += int(bound_s * 1e9)
        for begin, end in frozen:          # time in which the program could do nothing
            if begin < window[1] and (end or until) > window[0]:
                window[1] += (end or until) - max(begin, window[0])
    return merged(found)


def merged(spells):
    found = []
    for begin, end in sorted(map(tuple, spells)):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return found


def outside(spell, allowed):
    """The part of a spell that no window covers: (from, to), or None."""
    begin, end = spell
    for window_begin, window_end in allowed:
        if window_begin - BEFORE_NS <= begin <= window_end:
            begin = max(begin, window_end)
    return (begin, end) if begin < end else None


def open_too_long(events, presses, lives, frozen, until, halted_ms):
    """What microphones did that no press explains: [(from, to)]."""
    found = []
    for spell in captures(events, lives, until):
        rest = outside(spell, windows(presses, frozen, until, CLOSED_S + halted_ms(*spell) / 1000))
        if rest:
            found.append(rest)
    return found


def sending(traffic):
    """[(from, to)] in which so many datagrams left the machine, for so long, that it is speech."""
    found, run = [], []
    for at, up, _ in traffic:
        if run and at - run[-1] > 3 * SAMPLE_NS:
            run = []
        if up < SENDING_DATAGRAMS:
            run = []
            continue
        run.append(at)
        if len(run) == SENDING_SAMPLES:
            found.append([run[0], at])
        elif len(run) > SENDING_SAMPLES:
            found[-1][1] = at
    return found


def sent_too_long(traffic, presses, frozen, until, halted_ms):
    found = []
    for begin, end in sending(traffic):
        # Its first tenth may be what makes a connection, just before the press.
        spell = (begin + SAMPLE_NS, end)
        rest = outside(spell, windows(presses, frozen, until, SENDS_S + halted_ms(*spell) / 1000))
        if rest and rest[1] - rest[0] > SENDING_SAMPLES * SAMPLE_NS:
            found.append(rest)
    return found


def read_traffic(path):
    with open(path) as file:
        return [tuple(map(int, line.split())) for line in file if line.count(" ") == 2]
