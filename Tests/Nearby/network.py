"""Three machines on a network, each with a dbus-daemon, an avahi-daemon and nearby-prove. Run by Tests/Nearby/network."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
APPEARS_S = 2.0
DISAPPEARS_S = 2.0
VANISHES_S = 15.0
CHANGES_S = 2.5

BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={folder}/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow send_type="signal"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
"""

AVAHI = """[server]
host-name={name}
use-ipv4=yes
use-ipv6=yes
[publish]
publish-hinfo=no
publish-workstation=no
"""


def now():
    return time.monotonic_ns()


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def begin():
    """This process's network namespace holds the bridges."""
    ip("link", "set", "lo", "up")
    names = pathlib.Path("/run/netns")
    names.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", names], check=True)
    for bridge in ("lan", "site"):
        ip("link", "add", bridge, "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
        ip("link", "set", bridge, "up")


class Program:
    """A program whose lines are kept. It is ended with the script, or before."""

    def __init__(self, command, log, environment=None):
        self.lines, self.changed = [], threading.Condition()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(log, "ab"), text=True, env=environment)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                words = line.rstrip("\n").split("\t")
                self.lines += [words] if len(words) > 1 else []
                self.changed.notify_all()

    def say(self, *fields):
        self.process.stdin.write("\t".join(str(field) for field in fields) + "\n")
        self.process.stdin.flush()

    def end(self, kill=False):
        (self.process.kill if kill else self.process.terminate)()
        self.process.wait(20)


class Machine:
    def __init__(self, name, number, folder, program):
        self.name, self.number, self.program = name, number, program
        self.folder = folder / name
        self.folder.mkdir()
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.folder}/bus"}
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        (self.folder / "bus.conf").write_text(BUS.format(folder=self.folder))
        (self.folder / "avahi.conf").write_text(AVAHI.format(name=name))
        self.bus = self._run(
            "bus", ["dbus-daemon", f"--config-file={self.folder}/bus.conf", "--nofork", "--nopidfile", "--nosyslog"])
        wait(lambda: (self.folder / "bus").exists(), 10, "the bus listens")
        self.avahi = self.prove = None

    def _run(self, what, command):
        return Program(
            ["nsenter", f"--net=/run/netns/{self.name}", *command], self.folder / f"{what}.log", self.environment)

    def join(self, link, bridge, four=True, up=True):
        """A link to a bridge. The machine's end has a letter, the bridge's the machine's name too."""
        ip("link", "add", link, "netns", self.name, "type", "veth", "peer", "name", f"{self.name}{link}")
        ip("link", "set", f"{self.name}{link}", "master", bridge, "up")
        # No time is spent on looking for a second owner of a link-local address.
        pathlib.Path(f"/proc/sys/net/ipv6/conf/{self.name}{link}/disable_ipv6").write_text("1")
        subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.name}", "sh", "-c",
             f"echo 0 > /proc/sys/net/ipv6/conf/{link}/accept_dad"], check=True)
        if four:
            net = 1 if bridge == "lan" else 2
            ip("-n", self.name, "address", "add", f"10.78.{net}.{self.number}/24", "dev", link)
        if up:
            ip("-n", self.name, "link", "set", link, "up")

    def cable(self, link, is_in):
        """Whether the link's cable is plugged in at the bridge; the machine sees its own end up all the same."""
        ip("link", "set", f"{self.name}{link}", *(["master", self.bridge_of(link)] if is_in else ["nomaster"]))

    def bridge_of(self, link):
        return "lan" if link == "p" else "site"

    def start_avahi(self):
        # Each has a place of its own for what an avahi-daemon has once on a machine.
        self.avahi = self._run("avahi", [
            "unshare", "--mount", "--propagation", "private", "sh", "-c",
            f"mkdir -p /run/avahi-daemon && mount -t tmpfs tmpfs /run/avahi-daemon && exec avahi-daemon "
            f"--no-drop-root --no-chroot --no-rlimits -f {self.folder}/avahi.conf"])

    def start_prove(self):
        self.prove = self._run("prove", [str(self.program)])
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


class Missed(Exception):
    pass


def newest(lines):
    """The newest list that has come whole: {channel: (name, members, whose, places)}; None: there is none yet."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index][1] == "list":
            items = [line for line in lines[index + 1:] if line[1] == "item"]
            if len(items) < int(lines[index][2]):
                continue
            return {line[3]: (line[2], int(line[4]), line[5], [one for one in line[6:] if one]) for line in items}
    return None


def wait(holds, seconds, what):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Missed(f"{what}: not within {seconds} s")
        time.sleep(0.01)


class Report:
    def __init__(self):
        self.failed = False

    def time(self, what, milliseconds, most=None, wanted=None):
        is_late = most is not None and milliseconds > most * 1000
        self.failed |= is_late
        bounds = f" (at most {most * 1000:.0f} ms)" if most is not None else ""
        bounds += f" (wanted: {wanted} ms)" if wanted is not None else ""
        print(f"{'LATE' if is_late else 'ok':4} {milliseconds:8.0f} ms  {what}{bounds}", flush=True)

    def hold(self, what, holds):
        self.failed |= not holds
        print(f"{'ok' if holds else 'FAIL':4} {'':11}  {what}", flush=True)


def new_channel():
    return str(uuid.uuid4())


def ms(begin, end):
    return (end - begin) / 1e6


def prove(report, a, b, c):
    crane = new_channel()
    for machine in (b, c):
        machine.say("browse", "on")

    # Announced, seen, withdrawn, three times.
    for turn in range(3):
        mark, began = a.since(), now()
        a.say("announce", "Crane 2", crane, 1)
        seen = b.lists(lambda one: crane in one, 10, "the channel appears")
        report.time("created → seen by another machine", ms(began, seen), APPEARS_S)
        report.time("created → announced", a.announced(crane, since=mark), wanted=300)
        if turn < 2:
            time.sleep(1.2)
            began = now()
            a.say("withdraw", crane)
            report.time(
                "withdrawn → gone", ms(began, b.lists(lambda one: crane not in one, 10, "withdrawn")), DISAPPEARS_S)

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
            machine = Machine(name, number, folder, program)
            machines.append(machine)
            machine.join("p", "lan")
            machine.start_avahi()
            machine.start_prove()
        time.sleep(2)   # the hosts' names are established
        prove(report, *machines)
    except (Missed, RuntimeError, OSError) as problem:
        report.failed = True
        print(f"FAIL {problem}")
    if report.failed:
        for machine in machines:
            for log in sorted(machine.folder.glob("*.log")):
                print(f"--- {machine.name} {log.name}\n{log.read_text()[-3000:]}")
    for machine in machines:
        for one in (machine.prove, machine.avahi, machine.bus):
            if one is not None and one.process.poll() is None:
                one.end(kill=True)
    shutil.rmtree(folder)
    sys.exit(1 if report.failed else 0)


main()
