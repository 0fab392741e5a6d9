"""Whether a judged press was heard, and whole: by the chirps of its talker in the ears of the others."""
import dataclasses

from bounds import BUSY_SHARE, END_LOST_MS, HALTED_MS, HOLES_MS, LATE_MS, START_LOST_MS, UNAWARE_S, UNLIKE_SHARE, WAY_LATE_MS
from chirps import measure

AROUND_NS = 300_000_000
BEFORE_NS = 1_000_000_000       # what somebody else said until then is still on its way
AFTER_NS = 750_000_000


@dataclasses.dataclass
class Verdict:
    talker: str
    listener: str
    at: int
    figures: dict
    late_ms: tuple              # threads of the highest priority, ordinary ones, ways
    kind: str = "whole"         # whole, excused (not judged by samples), damaged, unheard, unjudged (by sound), unaware
    why: str = ""


def wrong_with(found):
    """What is missing of a burst that was heard; empty: nothing."""
    wrong = []
    if found["start_lost"] > START_LOST_MS:
        wrong.append(f"{found['start_lost']:.0f} ms are missing at its beginning")
    if found["after_release"] < -END_LOST_MS:
        wrong.append(f"{-found['after_release']:.0f} ms are missing at its end")
    if found["holes"] > HOLES_MS:
        wrong.append(f"{found['holes']:.0f} ms of silence are in it")
    pieces = len(found["pieces"]) + found["rejected"]
    if found["rejected"] > UNLIKE_SHARE * pieces:
        wrong.append(f"{found['rejected']} of {pieces} pieces are not what was said")
    return "; ".join(wrong)


def judge(press, listener, microphone, ear, lateness):
    """One press in the ear of one other machine. Recordings may be None."""
    begin = press.pressed or press.finger_down
    end = press.released or press.finger_up
    threads = lateness.latest_ms(begin - AROUND_NS, end + AFTER_NS)
    ways = lateness.ways_late_ms(begin - BEFORE_NS, end + AFTER_NS)
    late = (*threads, ways)
    busy = lateness.halted_ms(begin - BEFORE_NS, end + AFTER_NS) * 1e6 / (end + AFTER_NS - begin + BEFORE_NS)
    verdict = Verdict(press.machine, listener, begin, {}, late)
    if press.pressed is None or press.released is None:
        verdict.kind, verdict.why = "unheard", "the button's BlueZ did not answer"
        return verdict
    if microphone is None or ear is None:
        figures = {"lost": "the sound server gave no recording"}
    else:
        figures = measure(microphone, ear, begin, end, end + AFTER_NS)
    verdict.figures = figures
    if "lost" in figures:
        is_other = max(threads) > HALTED_MS or ways > WAY_LATE_MS or busy > BUSY_SHARE
        verdict.kind, verdict.why = ("unjudged" if is_other else "unheard"), figures["lost"]
    elif wrong := wrong_with(figures):
        verdict.kind, verdict.why = ("excused" if max(threads) > LATE_MS or ways > WAY_LATE_MS else "damaged"), wrong
    return verdict


def excuse_unaware(verdict, relay_log, lives):
    """A relay that was killed tells nobody: who has not joined its next life yet neither hears nor is heard, for so long."""
    if verdict.kind not in ("unheard", "damaged"):
        return
    earlier = [(begin, end) for begin, end in lives if begin <= verdict.at]
    if len(earlier) < 2 or verdict.at - earlier[-2][1] > UNAWARE_S * 1e9:
        return
    joined = {event["metadata"]["name"] for event in relay_log
              if event["message"] == "member joined" and earlier[-1][0] <= event.get("t", 0) <= verdict.at}
    if missing := {verdict.talker, verdict.listener} - joined:
        verdict.kind = "unaware"
        verdict.why = f"{' and '.join(sorted(missing))} did not know yet that the relay had been killed"
