"""What a run came to: a table of its rounds, and what should not have been."""
import re
import statistics
import time

import floors
import microphones
from bounds import BUSY_SHARE, HALTED_MS, LATE_MS
from heard import excuse_unaware
from logevents import read_log

# What the compiler calls things, in a line for whoever runs the program: Module.Type, and descriptions of values that have no words.
CODE_NAME = re.compile(r"(?<![\w.])[A-Z]\w+\.[A-Z]\w+[.(]|Optional\(|CancellationError\(\)")
CRASHES = {-4: "SIGILL", -5: "SIGTRAP", -6: "SIGABRT", -7: "SIGBUS", -8: "SIGFPE", -11: "SIGSEGV"}


class RoundResult:
    """What one round came to."""

    def __init__(self, number, plan):
        self.number, self.plan = number, plan
        self.notes, self.back_after, self.missing, self.verdicts, self.open, self.busy = [], {}, {}, [], {}, {}


class Evidence:
    """The logs of a run, read once."""

    def __init__(self, session):
        self.session, self.until = session, time.monotonic_ns()
        self.logs = {name: read_log(machine.log) for name, machine in session.machines.items()}
        self.relay_log = read_log(session.relay.log)

    def halted_ms(self, begin, end):
        return self.session.lateness.halted_ms(begin, end)

    def windows_of(self, name, bound_s, spell):
        """When machine `name` may hold the floor, or be said to speak."""
        machine = self.session.machines[name]
        frozen = machine.pttd.frozen + self.session.relay.relay.frozen
        return microphones.windows(machine.button.presses, frozen, self.until, bound_s + self.halted_ms(*spell) / 1000)


def seconds(evidence, at):
    return f"{(at - evidence.session.began) / 1e9:.2f} s"


def stuck(evidence):
    """Microphones, packets, floors and talkers that nobody's finger explains."""
    for name, machine in evidence.session.machines.items():
        presses, pttd = machine.button.presses, machine.pttd
        for begin, end in microphones.open_too_long(evidence.logs[name], presses, pttd.lives, pttd.frozen, evidence.until, evidence.halted_ms):
            yield f"at {seconds(evidence, begin)}: the microphone of {name} was open {(end - begin) / 1e6:.0f} ms beyond what its button explains"
        traffic = microphones.read_traffic(machine.network.traffic)
        for begin, end in microphones.sent_too_long(traffic, presses, pttd.frozen, evidence.until, evidence.halted_ms):
            yield f"at {seconds(evidence, begin)}: {name} sent like a talker for {(end - begin) / 1e6:.0f} ms beyond what its button explains"
        spells = floors.hearing(evidence.logs[name], pttd.lives, evidence.until)
        known = [(who, *rest) for who, *rest in spells if who in evidence.session.machines]
        for who, at, ms in floors.told_too_long(known, windows_with(evidence, pttd.frozen)):
            yield f"at {seconds(evidence, at)}: {name} was told that {who} speaks, {ms:.0f} ms beyond what {who}'s button explains"
    holds, problems = floors.history(evidence.relay_log, evidence.session.relay.relay.lives, evidence.until)
    for at, problem in problems:
        yield f"at {seconds(evidence, at)}: {problem}"
    for hold, ms in floors.held_too_long(holds, evidence.windows_of, evidence.until):
        yield f"at {seconds(evidence, hold.begin)}: {hold.name} held the floor {ms:.0f} ms beyond what its button explains ({hold.how})"


def windows_with(evidence, frozen):
    """Talkers' windows, in which a listener's own frozen time counts too."""
    def windows_of(who, bound_s, spell):
        extra = sum((end or evidence.until) - begin for begin, end in frozen if begin < spell[1] and (end or evidence.until) > spell[0])
        return evidence.windows_of(who, bound_s + extra / 1e9, spell)
    return windows_of


def ends(session):
    """Programs that ended by themselves, or were not started again."""
    relay_and_machines = [session.relay, *session.machines.values()]
    for target in relay_and_machines:
        for name, program in target.programs.items():
            if name not in ("pttd", "relay"):
                continue
            who = program.name
            for at, status in program.unasked:
                if status in CRASHES:
                    yield f"at {(at - session.began) / 1e9:.2f} s: {who} crashed ({CRASHES[status]})"
            if program.gave_up:
                yield f"{who} stays down: {program.gave_up}"


def late_by(verdict):
    return " and ".join(f"{ms:.0f}" for ms in verdict.late_ms) + " ms"


def of_round(result):
    where = f"round {result.number}"
    for name, missing in result.missing.items():
        if missing:
            yield f"{where}: 5 s after the last fault {name} is not back: {missing}"
    for verdict in result.verdicts:
        if verdict.kind in ("unheard", "damaged"):
            yield (f"{where}: {verdict.listener} did not hear {verdict.talker}'s press{' whole' if verdict.kind == 'damaged' else ''}: "
                   f"{verdict.why} (late by {late_by(verdict)})")
    for name, count in result.open.items():
        if count:
            yield f"{where}: PulseAudio says that {count} stream(s) of {name} take sound from the microphone after all presses"
    for name, what in result.busy.items():
        yield f"{where}: after all presses {name} says that {what}"


def code_names(events):
    """[the first event of each message] above debug whose words are those of the source."""
    found = {}
    for event in events:
        words = [event["message"], *event["metadata"].values()]
        if event["level"] != "debug" and any(CODE_NAME.search(str(word)) for word in words):
            found.setdefault(event["message"], event)
    return list(found.values())


def table(session, results):
    yield f"{'round':5}  {'faults':58}  {'back after, s':13}  whole  excused  not judged  unaware"
    for result in results:
        back = " ".join(f"{result.back_after[name]:.1f}" if name in result.back_after else "-" for name in session.machines)
        kinds = [verdict.kind for verdict in result.verdicts]
        faults = ", ".join(" ".join((step.action, step.who, *(step.words[:1] if step.action in ("kill", "stop") else ())))
                           for step in result.plan.faults)
        whole = f"{kinds.count('whole')} of {len(kinds)}"
        yield (f"{result.number:5}  {faults[:58]:58}  {back:13}  {whole:>6}{kinds.count('excused'):8}{kinds.count('unjudged'):12}"
               f"{kinds.count('unaware'):9}").rstrip()


def told(session, results):
    """Prints it; the findings."""
    evidence = Evidence(session)
    for result in results:
        for verdict in result.verdicts:
            excuse_unaware(verdict, evidence.relay_log, session.relay.relay.lives)
    findings = [*ends(session), *stuck(evidence), *(finding for result in results for finding in of_round(result))]
    for name, log in (*evidence.logs.items(), ("relay", evidence.relay_log)):
        findings += [f"{name} logs what only its source explains: {event['message']} {event['metadata']}" for event in code_names(log)]
    for result in results:
        for note in result.notes:
            print(f"round {result.number}: {note}")
    print()
    for line in table(session, results):
        print(line)
    holds, _ = floors.history(evidence.relay_log, session.relay.relay.lives, evidence.until)
    verdicts = [verdict for result in results for verdict in result.verdicts]
    heard = [verdict.figures for verdict in verdicts if verdict.figures and "lost" not in verdict.figures]
    presses = sum(len(machine.button.presses) for machine in session.machines.values())
    captures = sum(len(microphones.captures(evidence.logs[name], machine.pttd.lives, evidence.until)) for name, machine in session.machines.items())
    print(f"\n{presses} presses, microphones opened {captures} times, {len(holds)} bursts with the floor, "
          f"{sum(program.asked for target in session.targets.values() for program in target.programs.values())} programs killed")
    if heard:
        print(f"judged presses, ms: press to ear {statistics.median(f['press_to_ear'] for f in heard):.0f} (median), start lost at most "
              f"{max(f['start_lost'] for f in heard):.0f}, silence within at most {max(f['holes'] for f in heard):.0f}")
    for target in session.targets.values():
        for program in target.programs.values():
            for at, status in program.unasked:
                print(f"at {(at - session.began) / 1e9:.2f} s {program.name} ended by itself: "
                      + (f"status {status}" if status >= 0 else f"signal {-status}"))
    late = [max(verdict.late_ms[:2]) for verdict in verdicts]
    if late:
        print(f"this machine let threads wake late by {statistics.median(late):.0f} ms (median of judged presses), {max(late):.0f} at most; "
              f"more than {LATE_MS} ms excuses samples, more than {HALTED_MS} ms, or {BUSY_SHARE:.0%} of the time, sound")
    if deaf := [verdict for verdict in verdicts if verdict.kind == "unaware"]:
        print(f"{len(deaf)} of {len(verdicts)} were not heard whole by or from machines that did not know yet of a killed relay")
    if kinds := [verdict for verdict in verdicts if verdict.kind in ("excused", "unjudged")]:
        print(f"{len(kinds)} of {len(verdicts)} were not whole while this machine was late:")
        for verdict in kinds[:10]:
            print(f"    {verdict.talker} to {verdict.listener}: {verdict.why}; late by {late_by(verdict)}")
    return findings
