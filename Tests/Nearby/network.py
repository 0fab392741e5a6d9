"""Three machines on a network, each with a dbus-daemon, an avahi-daemon and nearby-prove. Run by Tests/Nearby/network."""
import argparse
import pathlib
import shutil
import sys
import tempfile
import time
import uuid

from machines import ROOT, Machine, Missed, Report, begin, ip, now

ANNOUNCED_S = 0.3
APPEARS_S = 2.0
DISAPPEARS_S = 2.0
VANISHES_S = 15.0
CHANGES_S = 6.0


class Prover(Machine):
    """A machine on which nearby-prove announces and lists channels."""

    def __init__(self, name, number, folder, program):
        super().__init__(name, number, folder)
        self.program, self.prove = program, None

    def start_prove(self):
        self.prove = self.run("prove", [str(self.program)])
        self.seen(lambda lines: any(line[1] == "ready" for line in lines), 10, "nearby-prove is ready")

    def say(self, *fields):
        self.prove.say(*fields)

    def seen(self, holds, seconds, what):
        """Waits until something holds for what the program has said; when, ns."""
        deadline = time.monotonic() + seconds
        with self.prove.changed:
            while not holds(self.prove.lines):
                left = deadline - time.monotonic()
                if left <= 0 or self.prove.process.poll() is not None:
                    raise Missed(f"{self.name}: {what}: not within {seconds} s; last: {self.prove.lines[-4:]}")
                self.prove.changed.wait(left)
            return int(self.prove.lines[-1][0])

    def since(self):
        with self.prove.changed:
            return len(self.prove.lines)

    def lists(self, holds, seconds, what):
        """Waits until the newest list is such; when, ns."""
        return self.seen(lambda lines: (one := newest(lines)) is not None and holds(one), seconds, what)

    def announced(self, channel, seconds=10, since=0):
        """The time from the wish to Avahi's word that others know of it, ms."""
        self.seen(lambda lines: any(line[1:] == ["announced", channel] for line in lines[since:]), seconds, "announced")
        with self.prove.changed:
            times = {line[1]: int(line[0]) for line in self.prove.lines[since:] if line[2:] == [channel]}
        return (times["announced"] - times["asked"]) / 1e6


def newest(lines):
    """The newest list that has come whole: {channel: (name, members, whose, places)}; None: there is none yet."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index][1] == "list":
            items = [line for line in lines[index + 1:] if line[1] == "item"]
            if len(items) < int(lines[index][2]):
                continue
            return {line[3]: (line[2], int(line[4]), line[5], [one for one in line[6:] if one]) for line in items}
    return None


def new_channel():
    return str(uuid.uuid4())


def ms(begin, end):
    return (end - begin) / 1e6


def prove(report, a, b, c):
    crane = new_channel()
    for machine in (b, c):
        machine.say("browse", "on")

    # Announced, seen, withdrawn, three times.
    announced = []
    for turn in range(3):
        mark, began = a.since(), now()
        a.say("announce", "Crane 2", crane, 1)
        seen = b.lists(lambda one: crane in one, 10, "the channel appears")
        report.time("created → seen by another machine", ms(began, seen), APPEARS_S, seen)
        announced.append(a.announced(crane, since=mark))
        if turn < 2:
            time.sleep(1.2)
            began = now()
            a.say("withdraw", crane)
            report.time(
                "withdrawn → gone", ms(began, b.lists(lambda one: crane not in one, 10, "withdrawn")), DISAPPEARS_S)
    report.time("created → announced, the fastest of three", min(announced), ANNOUNCED_S)

    began = now()
    a.say("announce", "Crane 2", crane, 2)
    report.time("members 1 → 2", ms(began, b.lists(lambda one: one[crane][1] == 2, 10, "two members")), CHANGES_S)
    for members in range(3, 23):
        a.say("announce", "Crane 2", crane, members)
        time.sleep(0.02)
    began = now()
    report.time(
        "twenty changes in 0.4 s → the last one seen",
        ms(began, b.lists(lambda one: one[crane][1] == 22, 10, "22 members")), CHANGES_S)
    report.hold("both protocols' places are known, IPv4 first", wait_places(b, crane))

    # The same name on another machine.
    other = new_channel()
    began, mark = now(), c.since()
    c.say("announce", "Crane 2", other, 5)
    seen = b.lists(lambda one: other in one and crane in one, 15, "two of one name")
    report.time("a second channel of the same name → both seen", ms(began, seen), 4.0)
    report.time("… announced", c.announced(other, since=mark))
    began = now()
    c.say("withdraw", other)
    gone = b.lists(lambda one: other not in one and crane in one, 10, "the second is withdrawn")
    report.time("the second withdrawn → gone, the first stays", ms(began, gone), DISAPPEARS_S)

    # The program that announced is killed.
    c.say("announce", "Gate", other, 1)
    b.lists(lambda one: other in one, 10, "the gate appears")
    began = now()
    c.prove.end(kill=True)
    gone = b.lists(lambda one: other not in one, 10, "the killed program's channel")
    report.time("program killed → gone", ms(began, gone), DISAPPEARS_S)
    c.start_prove()
    c.say("browse", "on")
    c.lists(lambda one: crane in one, 10, "listed again")

    # The machine vanishes, for its cable is pulled.
    began = now()
    a.cable("p", False)
    gone = b.lists(lambda one: crane not in one, 30, "the machine vanished")
    report.time("machine vanished → gone", ms(began, gone), VANISHES_S)
    began = now()
    a.cable("p", True)
    back = b.lists(lambda one: crane in one, 40, "the machine is back")
    report.time("machine back → seen again", ms(began, back), 17.0)

    # The avahi-daemon of the host, then that of the listener.
    for how, kill in (("ended", False), ("killed", True)):
        mark = a.since()
        a.avahi.end(kill)
        a.seen(lambda lines: any(line[1] == "problem" and len(line) > 2 for line in lines[mark:]), 5, "a problem told")
        began = now()
        a.start_avahi()
        a.seen(lambda lines: any(line[1:] == ["announced", crane] for line in lines[mark:]), 20, "announced again")
        report.time(f"the host's avahi-daemon {how} and started again → announced", ms(began, now()), 5.0)
        b.lists(lambda one: crane in one, 20, "listed again")
    b.avahi.end()
    b.lists(lambda one: not one, 5, "nothing without an avahi-daemon")
    began = now()
    b.start_avahi()
    back = b.lists(lambda one: crane in one, 20, "listed again")
    report.time("the listener's avahi-daemon started again → seen", ms(began, back), 5.0)

    # An interface that appears later: the site's network, which only A and C have.
    began = now()
    c.cable("p", False)
    c.lists(lambda one: crane not in one, 30, "C is alone")
    report.time("a listener whose own cable is pulled → gone", ms(began, now()), VANISHES_S)
    a.join("q", "site")
    began = now()
    c.join("q", "site")
    back = c.lists(lambda one: crane in one, 40, "found by the new interface")
    report.time("an interface appears → seen by it", ms(began, back), 17.0)
    c.cable("p", True)

    # Only link-local addresses of IPv6.
    a.say("withdraw", crane)
    b.lists(lambda one: crane not in one, 10, "withdrawn")
    for machine, links in ((a, "pq"), (b, "p"), (c, "pq")):
        for link in links:
            ip("-n", machine.name, "address", "flush", "dev", link, "scope", "global")
    time.sleep(2)
    began = now()
    a.say("announce", "Crane 2", crane, 1)
    seen = b.lists(lambda one: crane in one, 10, "seen without IPv4")
    report.time("IPv6 link-local only: created → seen", ms(began, seen), APPEARS_S + 1)
    places = newest(b.prove.lines)[crane][3]
    report.hold(f"… at {', '.join(places)}", bool(places) and all(one.startswith("[fe80:") for one in places))
    time.sleep(11)
    report.hold("… and it answers probes", crane in newest(b.prove.lines))


def wait_places(machine, channel):
    try:
        machine.lists(
            lambda one: any(place.startswith("10.") for place in one[channel][3][:1])
            and any(place.startswith("[fe80:") for place in one[channel][3]), 10, "both places")
        return True
    except Missed as missed:
        print(missed)
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / ".build/debug/nearby-prove", type=pathlib.Path)
    program = parser.parse_args().program.resolve()
    if not program.exists():
        sys.exit(f"{program} is missing: swift build --product nearby-prove")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pttd-nearby-"))
    report = Report()
    machines = []
    try:
        begin()
        for number, name in enumerate(("crane", "gate", "tower"), 1):
            machine = Prover(name, number, folder, program)
            machines.append(machine)
            machine.join("p", "lan")
            machine.start_avahi()
            machine.start_prove()
        time.sleep(2)   # the hosts' names are established
        prove(report, *machines)
    except (Missed, RuntimeError, OSError) as problem:
        report.failed = True
        print(f"FAIL {problem}")
    finally:
        end(report, machines)
        report.halts.end()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if report.failed else 0)


def end(report, machines):
    """Shows what the programs said, if anything has failed, and ends them."""
    if report.failed:
        for machine in machines:
            for log in sorted(machine.folder.glob("*.log")):
                print(f"--- {machine.name} {log.name}\n{log.read_text()[-3000:]}")
    for machine in machines:
        for one in (machine.prove, machine.avahi, machine.bus):
            if one is not None and one.process.poll() is None:
                one.end(kill=True)


main()
