"""Machines in network namespaces: a relay, a talker and a listener, whose networks the tests of this folder change."""
import os, pathlib, shutil, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Tests" / "Tools"))
from align import NotFound, align  # noqa: E402
from line import Line  # noqa: E402
from logevents import read_log  # noqa: E402
from wavefile import Recording  # noqa: E402

SKIPPED = 77
RELAY = "10.77.0.1"
RELAY_SIX = "fd77::1"
NAME = "relay.test"      # what the invitation calls the relay: both of its addresses
HOLD_S = 4.0            # how long each burst is
CHANGE_S = 1.0          # when in it the network changes


HOSTS = pathlib.Path("/etc/netns")

# What tells that a burst is over: for the talker, and for the listener's ear.
END = {"talker": "burst ended", "listener": "playback ended"}


class NotPermitted(Exception):
    pass


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Network:
    """Relay, talker and listener, each in a namespace; talker and listener have two links to the relay's."""

    def __init__(self):
        self.has_six = pathlib.Path("/proc/net/if_inet6").exists()
        self.relay, self.talker, self.listener = (f"ptt{os.getpid()}{name}" for name in "rtl")

    def __enter__(self):
        try:
            self.make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise NotPermitted(error.stderr.strip() or str(error)) from error
        except OSError as error:
            raise NotPermitted(str(error)) from error
        return self

    def __exit__(self, *_):
        for name in (self.relay, self.talker, self.listener):
            ip("netns", "del", name, check=False)
            shutil.rmtree(self.files(name), ignore_errors=True)
        try:
            HOSTS.rmdir()
        except OSError:
            pass        # others have theirs there, or there is none

    def files(self, name):
        """What is here hides the file of the same name in /etc for what runs in the namespace (ip-netns(8))."""
        return HOSTS / name

    def make(self):
        for name in (self.relay, self.talker, self.listener):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            self.files(name).mkdir(parents=True)
            addresses = [RELAY, RELAY_SIX] if self.has_six else [RELAY]
            (self.files(name) / "hosts").write_text("".join(f"{address} {NAME}\n" for address in addresses))
        ip("-n", self.relay, "address", "add", f"{RELAY}/32", "dev", "lo")
        if self.has_six:
            ip("-n", self.relay, "address", "add", f"{RELAY_SIX}/128", "dev", "lo", "nodad")
        for end, number in ((self.talker, 1), (self.listener, 3)):
            for link in (0, 1):
                self.join(end, f"p{link}", number + link)

    def join(self, end, link, number):
        """One link: 10.77.NUMBER.2 at the end, .1 at the relay."""
        ip("link", "add", link, "netns", end, "type", "veth", "peer", "name", f"r{number}", "netns", self.relay)
        ip("-n", self.relay, "address", "add", f"10.77.{number}.1/24", "dev", f"r{number}")
        if self.has_six:
            ip("-n", self.relay, "address", "add", f"fd77:{number}::1/64", "dev", f"r{number}", "nodad")
        ip("-n", self.relay, "link", "set", f"r{number}", "up")
        self.number = {**getattr(self, "number", {}), (end, link): number}

    def up(self, end, link, metric):
        """The link gets an address and a route, as a network's manager would give it."""
        number = self.number[end, link]
        ip("-n", end, "link", "set", link, "up")
        ip("-n", end, "address", "add", f"10.77.{number}.2/24", "dev", link)
        ip("-n", end, "route", "add", "default", "via", f"10.77.{number}.1", "metric", str(metric))

    def up_six(self, end, link):
        """The same with an address of IPv6, and none of IPv4."""
        number = self.number[end, link]
        ip("-n", end, "link", "set", link, "up")
        ip("-n", end, "address", "add", f"fd77:{number}::2/64", "dev", link, "nodad")
        ip("-n", end, "route", "add", "default", "via", f"fd77:{number}::1", "dev", link)

    def down(self, end, link):
        """The link is gone, its address too."""
        ip("-n", end, "link", "set", link, "down")
        ip("-n", end, "address", "flush", "dev", link)


class RoamingLine(Line):
    """The line, with each machine in its own namespace."""

    def __init__(self, network, *arguments):
        super().__init__(*arguments)
        self.has_six = network.has_six
        self.places = {"relay": network.relay, "talker": network.talker, "listener": network.listener}

    def run(self, name, command, environment=None):
        if place := self.places.get(name):
            # The packaged services may not configure networks or sockets either.
            command = ["ip", "netns", "exec", place, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *command]
        return super().run(name, command, environment)

    def start_relay(self, listen):
        every = "[::]" if self.has_six else "0.0.0.0"
        super().start_relay(f"{every}:{getattr(self, 'port', 0)}")
        self.port = self.relay_address.rpartition(":")[2]
        self.link = self.link.replace(self.relay_address, f"{NAME}:{self.port}", 1)

    def restart_relay(self, how):
        """Ends the relay and starts it again; when it listened again, ns."""
        self.processes["relay"].stop(how)
        self.start_relay(None)
        self.processes["relay"].wait_line("ready")
        return time.monotonic_ns()

    def events(self, name, message):
        return [event for event in read_log(self.processes[name].log) if event["message"] == message]


def burst(line, change):
    """One press with `change` in the middle of it; when that was, ns. Waits until all of it has been heard."""
    ended = {name: len(line.events(name, message)) for name, message in END.items()}
    pressed = line.ask_button("PTT-Z", "press")
    time.sleep(max(0, pressed / 1e9 + CHANGE_S - time.monotonic()))
    changed = time.monotonic_ns()
    change()
    time.sleep(max(0, pressed / 1e9 + HOLD_S - time.monotonic()))
    released = line.ask_button("PTT-Z", "release")
    for name, message in END.items():
        line.wait_log(name, message, ended[name] + 1)
    time.sleep(0.5)         # what would be one end too many
    return pressed, changed, released


def between(events, start, end=float("inf")):
    return [event for event in events if start <= event.get("t", 0) <= end]


def gap(line, times, log="talker.log"):
    """Sound of the burst that the ear cannot find, ms: missing, or played faster to catch up. None when it finds nothing."""
    pressed, _, released = times
    talker, listener = read_log(line.folder / log), read_log(line.folder / "listener.log")
    began = next(int(e["metadata"]["first_sample"]) for e in talker
                 if e["message"] == "capture started" and e.get("t", 0) >= pressed)
    opened = next(e["t"] for e in listener if e["message"].startswith("recording to"))
    mouth = Recording.read(str(line.folder / "speech.wav")).start_at(began)
    ear = Recording.read(str(line.folder / "heard.wav")).start_at(opened)
    try:
        found = align(mouth, ear, pressed, released)
    except NotFound:
        return None
    return found.lost_inside_ms + (found.start_lost_ms or 0) + (found.end_lost_ms or 0)
