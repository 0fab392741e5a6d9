#!/usr/bin/python3
"""Checks the history of a channel's floor over all relays of a cluster, from their logs and those of the members.

    Tests/Cluster/floors.py [FOLDER]        by default recordings/cluster, where Tests/Cluster/run leaves its logs

What has to hold, whatever ended, was frozen or cut off:
- nobody is granted the floor while somebody else holds it, at whichever relay (invariant I4);
- a request is granted once by a run of a relay;
- a member that is granted the floor is told so once, unless its relay had ended or was frozen by then, and never by no relay;
- a floor ends with the run of the relay that has granted it, at the latest.
All programs are on one machine, so their logs have one clock.
"""
import dataclasses
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "Tests" / "Tools")]
from logevents import read_log  # noqa: E402

# How long a message takes at most. A machine that was halted needs some of it.
TOLD_NS = 1_000_000_000
# How far apart the lines of two programs may be about the same instant.
ALIKE_NS = 5_000_000


@dataclasses.dataclass
class Run:
    """One run of a relay: its events, its last sign of life, and when it was frozen (None: never)."""
    name: str
    events: list
    end: int
    frozen: int | None = None

    @property
    def last(self):
        return min(self.end, self.frozen or self.end)


@dataclasses.dataclass
class Hold:
    run: Run
    member: str
    request: str
    begin: int
    end: int


def holds_of(run):
    """(holds, problems) of one run. A floor that no line ends was held until the run ended."""
    holds, problems, held, granted, sources = [], [], {}, set(), {}
    for event in run.events:
        words, at = event["metadata"], event.get("t")
        if at is None:
            continue
        if event["message"] == "member joined":
            sources[words["ssrc"]] = words["member"]
        elif event["message"] == "floor granted":
            key = words["member"], words["request"]
            if key in granted:
                problems.append(f"{run.name}: request {words['request']} was granted twice")
            granted.add(key)
            hold = Hold(run, *key, at, run.last)
            if before := held.get(words["member"]):
                problems.append(f"{run.name}: request {words['request']} was granted while {before.request} of the same member was")
            held[words["member"]] = hold
            holds.append(hold)
        elif event["message"] == "floor released":
            if hold := held.pop(sources.get(words["ssrc"]), None):
                hold.end = min(at, run.last)
            else:
                problems.append(f"{run.name}: a floor ended that nobody had (ssrc {words['ssrc']})")
    return holds, problems


def judge(runs, told):
    """(holds, problems). `told`: when members were told that they have the floor."""
    holds, problems = [], []
    for run in runs:
        found, wrong = holds_of(run)
        holds += found
        problems += wrong
    holds.sort(key=lambda hold: hold.begin)
    longest = None
    for hold in holds:
        if longest and hold.begin < longest.end:
            problems.append(
                f"{hold.run.name} granted request {hold.request} while {longest.run.name} had granted {longest.request}, "
                f"for {(min(hold.end, longest.end) - hold.begin) / 1e6:.1f} ms")
        if longest is None or hold.end > longest.end:
            longest = hold
    rest = sorted(told)
    for hold in holds:
        heard = next((at for at in rest if hold.begin - ALIKE_NS <= at <= hold.begin + TOLD_NS), None)
        if heard is not None:
            rest.remove(heard)
        elif hold.run.last > hold.begin + TOLD_NS:
            problems.append(f"{hold.run.name} granted request {hold.request}, and no member was told")
    problems += [f"a member was told at {at / 1e9:.3f} s that it has the floor, which no relay had granted" for at in rest]
    return holds, problems


def read(folder):
    """(runs, told) of the logs in a folder."""
    frozen = folder / "frozen.json"
    frozen = json.loads(frozen.read_text()) if frozen.exists() else {}
    runs = []
    for log in sorted(folder.glob("relay?-*.log")):
        times = re.findall(r"^(\d+\.\d+) ", log.read_text(errors="replace"), re.M)
        if times:
            runs.append(Run(log.stem, read_log(log), int(float(times[-1]) * 1e9), frozen.get(log.stem)))
    told = [event["t"] for log in folder.glob("*.log") if not log.stem.startswith("relay")
            for event in read_log(log) if event["label"] == "pttd.relay" and event["message"] == "floor granted"]
    return runs, told


def check(folder):
    """Prints what was found, and returns what is wrong."""
    runs, told = read(folder)
    holds, problems = judge(runs, told)
    print(f"the floor was granted {len(holds)} times by {len({hold.run.name for hold in holds})} of {len(runs)} runs of relays, "
          f"and members were told {len(told)} times")
    return problems if holds else problems + ["no floor was granted at all"]


if __name__ == "__main__":
    wrong = check(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "recordings" / "cluster")
    sys.exit("\n".join(["What should not have been:", *wrong]) if wrong else 0)
