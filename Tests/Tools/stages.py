"""Where the time between a press and the ear goes, from the log lines of talker, relay and listener.

Lines and fields that a build does not write are left out, and so are the stages that need them; nothing is guessed.
"""
import re

FIELD = re.compile(r"^[a-z][a-z0-9_]*_(ms|us)$")
OWN_LINES = re.compile(r"^(capture|first frame|last frame|playback|talker|burst|floor)\b")
AFTER_NS = 3_000_000_000        # so long after the release lines still belong to the burst


def first(events, message, since, until):
    for event in events:
        if event.get("t", 0) >= since and event.get("t", 0) < until and re.match(message, event["message"]):
            return event
    return None


def number(event, key):
    """A number of an event's metadata; None when the event or the number is not there."""
    try:
        return float(event["metadata"][key])
    except (KeyError, TypeError, ValueError):
        return None


def frame_ms(talker, pressed):
    """How long the frames of this burst are: no packet can go before the first one is full. None when the log does not say."""
    def event(message):
        return next((e["metadata"] for e in talker if e["message"] == message and e.get("t", 0) >= pressed), {})
    try:
        span = int(event("last frame")["captured"]) - int(event("first frame")["captured"])
        return round(span / 1e6 / (int(event("burst ended")["sent"]) - 1), 1)
    except (KeyError, ValueError, ZeroDivisionError):
        return None


def captured_at(frame, length):
    """The instant at which a frame of `length` ms was full."""
    begin = number(frame, "captured")
    return begin + length * 1e6 if begin is not None and length is not None else None


def stages_of(talker, relay, listener, pressed, released, heard=None):
    """{stage: ms} of one press, in the order of the way. `heard`: the instant of the first sound at the ear."""
    until = released + AFTER_NS
    noticed = first(talker, r"Press$|press noticed$", pressed, until)
    frame = first(talker, r"first frame$", pressed, until)
    floor = first(talker, r"floor granted$", pressed, until)
    packet = first(talker, r"first packet sent$", pressed, until)
    relayed = first(relay, r"first packet$", pressed, until)
    arrived = first(listener, r"talker begins$", pressed, until)
    playing = first(listener, r"playback began$", pressed, until)
    length = frame_ms([e for e in talker if e.get("t", 0) < until], pressed)
    full = captured_at(frame, length)
    captured, device = number(frame, "captured"), number(playing, "device_delay_ms")
    marks = [("button: the press is noticed", pressed, noticed and noticed["t"]),
             ("microphone: opened, its first sample", noticed and noticed["t"], captured),
             ("capture: the first frame fills", captured, full),
             ("capture: the device's blocks; encode", full or captured, frame and frame["t"]),
             ("wait for the floor, after that", frame and frame["t"],
              floor and frame and max(frame["t"], floor["t"])),
             ("sending", frame and floor and max(frame["t"], floor["t"]), packet and packet["t"]),
             ("network: talker to relay", packet and packet["t"], relayed and relayed["t"]),
             ("network: relay to listener", relayed and relayed["t"], arrived and arrived["t"])]
    if playing and arrived and device is not None:
        marks += [("jitter buffer and decode", arrived["t"], playing["t"] - device * 1e6),
                  ("playback: the device's queue", playing["t"] - device * 1e6, playing["t"])]
    if playing and heard:
        marks.append(("beyond what the device told, and the codec's own delay", playing["t"], heard))
    stages = {name: (end - begin) / 1e6 for name, begin, end in marks if begin and end}
    if heard:
        stages["all: press → ear"] = (heard - pressed) / 1e6
    return stages


def fields_table(talker, relay, listener, presses):
    """[(title, values)] of every field in ms or µs that the programs log about bursts: what they measured themselves."""
    if not presses:
        return []
    begin, end = presses[0][0], presses[-1][1] + AFTER_NS
    table = {}
    for who, events in (("talker", talker), ("relay", relay), ("listener", listener)):
        for event in events:
            if not begin <= event.get("t", 0) < end or not OWN_LINES.match(event["message"]):
                continue
            for key in event["metadata"]:
                value = number(event, key)
                if FIELD.match(key) and value is not None:
                    table.setdefault(f"{who}: {event['message']} {key}", []).append(value)
    return list(table.items())
