"""The floor's history, from the relay's log: who held it from when to when, and what is wrong with that."""
import dataclasses

from bounds import FLOOR_S, TOLD_S


@dataclasses.dataclass
class Hold:
    member: str
    name: str
    begin: int
    end: int | None = None
    how: str = ""


def history(events, lives, until):
    """(holds, problems). A relay that ends takes its floors along."""
    holds, problems, held, names, sources = [], [], {}, {}, {}
    lives, life = [(begin, end or until) for begin, end in lives], 0

    def end_life():
        for hold in held.values():
            hold.end, hold.how = lives[life][1], "the relay ended"
        held.clear()
    for event in events:
        words, at = event["metadata"], event.get("t")
        if at is None:
            continue
        while life + 1 < len(lives) and lives[life + 1][0] <= at:
            end_life()
            life += 1
        if event["message"] == "member joined":
            names[words["member"]], sources[words["ssrc"]] = words["name"], words["member"]
        elif event["message"] == "floor granted":
            for other in held.values():
                problems.append((at, f"the floor is granted to {names.get(words['member'], words['member'])} while {other.name} holds it"))
            hold = Hold(words["member"], names.get(words["member"], words["member"]), at)
            held[words["member"]] = hold
            holds.append(hold)
        elif event["message"] == "floor released":
            member = sources.get(words["ssrc"])
            if hold := held.pop(member, None):
                hold.end, hold.how = at, words["reason"]
            else:
                problems.append((at, f"a floor ends that nobody held (ssrc {words['ssrc']})"))
    end_life()
    return holds, problems


def held_too_long(holds, windows_of, until):
    """[(hold, ms)] of floors that were held long after the holder's finger had left the button."""
    found = []
    for hold in holds:
        allowed = windows_of(hold.name, FLOOR_S, (hold.begin, hold.end))
        begin = hold.begin
        for window_begin, window_end in allowed:
            if window_begin - 10 ** 9 <= begin <= window_end:
                begin = max(begin, window_end)
        if begin < hold.end:
            found.append((hold, (hold.end - begin) / 1e6))
    return found


def hearing(events, lives, until):
    """[(who, from, to)]: whom a machine was told to be speaking."""
    found, open_ = [], {}
    ends = sorted(end or until for _, end in lives)
    for event in events:
        if event["message"] == "pttd starts":
            for who, begin in open_.items():
                found.append((who, begin, min((end for end in ends if end >= begin), default=until)))
            open_ = {}
        elif event["message"] == "talker begins":
            open_.setdefault(event["metadata"]["talker"], event["t"])
        elif event["message"] == "talker ended" and (begin := open_.pop(event["metadata"]["talker"], None)):
            found.append((event["metadata"]["talker"], begin, event["t"]))
    found += [(who, begin, min((end for end in ends if end >= begin), default=until)) for who, begin in open_.items()]
    return found


def told_too_long(spells, windows_of):
    """[(who, ms)] of talkers that a machine was told of long after their finger had left the button."""
    found = []
    for who, begin, end in spells:
        rest = begin
        for window_begin, window_end in windows_of(who, TOLD_S, (begin, end)):
            if window_begin - 10 ** 9 <= rest <= window_end:
                rest = max(rest, window_end)
        if rest < end:
            found.append((who, rest, (end - rest) / 1e6))
    return found
