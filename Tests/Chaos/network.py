"""The network: a namespace for each machine, joined to the relay's by two links, and a lossy way to the relay for each."""
import pathlib
import subprocess
import sys
import threading

RELAY = "10.77.0.1"             # on the relay's loopback: where the ways listen
WAY_PORT = 9001                 # of the first machine's way
PREFIX = 24


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def begin():
    """This process's own network namespace becomes the relay's."""
    ip("link", "set", "lo", "up")
    ip("address", "add", f"{RELAY}/32", "dev", "lo")
    names = pathlib.Path("/run/netns")
    names.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", names], check=True)


class MachineNetwork:
    """One machine's namespace, its two links and its way. The address on the link in use changes by `move` and `hand_over`."""

    def __init__(self, name, number, relay_port, folder, seed):
        self.name, self.number, self.host = name, number, 2
        self.link, self.is_up = 0, False
        # Not `ip netns exec`, whose own mounts would stay read-only when the disk is writable again.
        self.entering = ["nsenter", f"--net=/run/netns/{name}"]
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        for link in (0, 1):
            subnet = self._subnet(link)
            ip("link", "add", f"p{link}", "netns", name, "type", "veth", "peer", "name", f"r{subnet}")
            ip("address", "add", f"10.77.{subnet}.1/{PREFIX}", "dev", f"r{subnet}")
            ip("link", "set", f"r{subnet}", "up")
        self.up()
        self.port = WAY_PORT + number
        self.traffic = folder / f"{name}-traffic"
        self.way = Way(self.port, relay_port, seed, self.traffic)

    def _subnet(self, link):
        return 1 + 2 * self.number + link

    def _address(self):
        return f"10.77.{self._subnet(self.link)}.{self.host}/{PREFIX}"

    def up(self):
        """The link in use gets an address and a route, as a network's manager would give it."""
        if self.is_up:
            return
        ip("-n", self.name, "link", "set", f"p{self.link}", "up")
        ip("-n", self.name, "address", "add", self._address(), "dev", f"p{self.link}")
        ip("-n", self.name, "route", "add", "default", "via", f"10.77.{self._subnet(self.link)}.1")
        self.is_up = True

    def down(self):
        """The link is gone, its address too."""
        if not self.is_up:
            return
        ip("-n", self.name, "address", "flush", "dev", f"p{self.link}")
        ip("-n", self.name, "link", "set", f"p{self.link}", "down")
        self.is_up = False

    def move(self):
        """Another address on the same link."""
        if not self.is_up:
            return
        link, old = f"p{self.link}", self._address()
        self.host = 2 + (self.host - 1) % 200
        # The old one first: the new one would be its secondary, and go with it.
        ip("-n", self.name, "address", "del", old, "dev", link)
        ip("-n", self.name, "address", "add", self._address(), "dev", link)
        ip("-n", self.name, "route", "replace", "default", "via", f"10.77.{self._subnet(self.link)}.1")

    def hand_over(self):
        """The other link, and its address."""
        self.down()
        self.link = 1 - self.link
        self.up()


class Way:
    """The process of way.py."""

    def __init__(self, port, relay_port, seed, traffic):
        self.lock = threading.Lock()
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("way.py"), RELAY, str(port), str(relay_port), str(seed), traffic],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("a way did not start")

    def set(self, loss=0.0, is_bursty=False, jitter_ms=0.0, is_dark=False):
        with self.lock:
            self.process.stdin.write(f"{loss} {int(is_bursty)} {jitter_ms} {int(is_dark)}\n")
            self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()
