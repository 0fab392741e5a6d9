"""Machines of a test on one host: namespaces, joined by bridges, each with a dbus-daemon and an avahi-daemon of its own."""
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Tests" / "Tools"))
from halts import LOST_IN_HALTS, Halts  # noqa: E402

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


class Missed(Exception):
    pass


def wait(holds, seconds, what):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Missed(f"{what}: not within {seconds} s")
        time.sleep(0.01)


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
    def __init__(self, name, number, folder):
        self.name, self.number = name, number
        self.folder = folder / name
        self.folder.mkdir()
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.folder}/bus"}
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        (self.folder / "bus.conf").write_text(BUS.format(folder=self.folder))
        (self.folder / "avahi.conf").write_text(AVAHI.format(name=name))
        self.bus = self.run(
            "bus", ["dbus-daemon", f"--config-file={self.folder}/bus.conf", "--nofork", "--nopidfile", "--nosyslog"])
        wait(lambda: (self.folder / "bus").exists(), 10, "the bus listens")
        self.avahi = None

    def run(self, what, command):
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

    def plug(self, link, bridge):
        """Plugs the cable into another bridge; the addresses stay."""
        ip("link", "set", f"{self.name}{link}", "master", bridge)

    def bridge_of(self, link):
        return "lan" if link == "p" else "site"

    def start_avahi(self):
        # Each has a place of its own for what an avahi-daemon has once on a machine.
        self.avahi = self.run("avahi", [
            "unshare", "--mount", "--propagation", "private", "sh", "-c",
            f"mkdir -p /run/avahi-daemon && mount -t tmpfs tmpfs /run/avahi-daemon && exec avahi-daemon "
            f"--no-drop-root --no-chroot --no-rlimits -f {self.folder}/avahi.conf"])


def told(halted):
    """What is said of halts."""
    return f"; machine halted for {halted:.0f} ms" if halted else ""


class Report:
    """What was found. A machine that was halted meanwhile may take longer."""

    def __init__(self):
        self.failed, self.halts = False, Halts()

    def time(self, what, milliseconds, most=None, end=None):
        """What took so long until `end` (ns), by default now; `most`: seconds."""
        end = end or now()
        halted = self.halts.between(end - milliseconds * 1e6, end)
        is_late = most is not None and milliseconds > most * 1000 + LOST_IN_HALTS * halted
        self.failed |= is_late
        bounds = f" (at most {most * 1000:.0f} ms{told(halted)})" if most is not None else ""
        print(f"{'LATE' if is_late else 'ok':4} {milliseconds:8.0f} ms  {what}{bounds}", flush=True)

    def hold(self, what, holds):
        self.failed |= not holds
        print(f"{'ok' if holds else 'FAIL':4} {'':11}  {what}", flush=True)
