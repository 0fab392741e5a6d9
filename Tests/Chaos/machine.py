"""One machine: its bus, its BlueZ with a button, its sound, its network, its disk and its pttd. And the relay's machine."""
import json
import pathlib
import re
import struct
import subprocess
import threading
import time

import logind
from button import ADDRESS, NAME, SPARE, SPARE_ADDRESS, Button
from disk import Disk
from groups import entering
from network import RELAY, MachineNetwork
from sound import Sound
from supervisor import Supervised
from unitfile import RestartPolicy

RELAY_PORT = 4433
CHANNEL = "Local"
ENOUGH = RestartPolicy(limit_interval=0)
ASK_S = 4


class Place:
    """What a run's programs share: where they are built, where logs go, groups, and the clock to preload."""

    def __init__(self, build, folder, groups, clock):
        self.build, self.folder, self.groups, self.clock = build, folder, groups, clock
        self.disks = folder / "disks"
        self.disks.mkdir()


class WallClock:
    """The wall clock of one machine, as its programs see it."""

    def __init__(self, place, name):
        self.path = place.folder / f"{name}-wallclock"
        self.jump(0)
        self.environment = {"LD_PRELOAD": str(place.clock), "PTT_WALLCLOCK": str(self.path)} if place.clock else {}

    def jump(self, seconds):
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))


class RelayMachine:
    def __init__(self, place):
        self.name = "relay"
        self.disk, self.clock = Disk(place.disks / "relay"), WallClock(place, "relay")
        self.group = place.groups.make("relay")
        self.log, self.printed = place.folder / "relay.log", place.folder / "relay.out"
        command = [place.build / "pttrelay", "run", "--listen", f"127.0.0.1:{RELAY_PORT}", "--state", self.disk.state,
                   "--channel", CHANNEL, "--log-level", "debug"]
        self.output = open(self.printed, "ab")
        self.relay = Supervised("relay", entering(self.group, with_clock(self.clock, command)), self.log,
                                RestartPolicy.of("pttrelay.service"), runtime_directory(place, "relay"), output=self.output)
        self.programs = {"relay": self.relay}
        self.link = self._link()

    def _link(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if found := re.search(r"ptt://\S+", self.printed.read_text()):
                return found[0]
            time.sleep(0.05)
        raise SystemExit(f"the relay did not start; its log is {self.log}")

    def end(self):
        self.relay.end()
        self.output.close()


def runtime_directory(place, name):
    """What systemd makes of `RuntimeDirectory=`."""
    folder = place.folder / f"{name}-runtime"
    folder.mkdir(mode=0o700)
    return {"RUNTIME_DIRECTORY": str(folder)}


def with_clock(clock, command):
    """The command with a wall clock of its own; `env`, so that nothing that leads there has it."""
    return ["/usr/bin/env", *(f"{key}={value}" for key, value in clock.environment.items()), *command]


class Machine:
    def __init__(self, name, number, place, link, seed, minutes, has_spare=False):
        self.name, self.place = name, place
        folder = place.folder
        self.disk, self.clock = Disk(place.disks / name), WallClock(place, name)
        self.group = place.groups.make(name)
        self.network = MachineNetwork(name, number, RELAY_PORT, folder, seed * 16 + number)
        self.socket = folder / f"{name}.bus"
        self.bus = f"unix:path={self.socket}"
        self.log = folder / f"{name}.log"
        self.sound = Sound(name, folder, seed * 16 + number, minutes)
        self.dbus = Supervised(f"{name}-bus", ["dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address={self.bus}"],
                               folder / f"{name}-bus.log", ENOUGH, before=lambda: self.socket.unlink(missing_ok=True))
        self.button = Button(name, folder / f"{name}-button.sock")
        wait_for(self.socket)
        buttons = [f"{NAME}=ptt-z,{ADDRESS}"] + ([f"{SPARE}=aina-v2,{SPARE_ADDRESS}"] if has_spare else [])
        self.bluez = Supervised(f"{name}-bluez", [place.build / "fake-bluez", "--bus", self.bus, "--socket", self.button.path,
                                                  *buttons], folder / f"{name}-bluez.log", ENOUGH)
        wait_for(self.button.path)
        here = link.replace(f"127.0.0.1:{RELAY_PORT}", f"{RELAY}:{self.network.port}", 1)
        config = folder / f"{name}.toml"
        config.write_text(f'[daemon]\nname = "{name}"\nbus = "{self.bus}"\nbluez-bus = "{self.bus}"\n\n[channel]\nlink = "{here}"\n\n'
                          f'[audio]\nmicrophone = "alsa:pulse"\nspeaker = "alsa:pulse"\n\n[accessory.button]\naddress = "{ADDRESS}"\n')
        command = [place.build / "pttd", "--config", config, "--state", self.disk.state, "--log-level", "debug"]
        self.pttd = Supervised(f"{name}-pttd", entering(self.group, [*self.network.entering, *with_clock(self.clock, command)]),
                               self.log, RestartPolicy.of("pttd.service"), {**self.sound.devices, **runtime_directory(place, name)})
        self.programs = {"pttd": self.pttd, "bus": self.dbus, "bluez": self.bluez, "sound": self.sound.server}

    def kill(self, program):
        """SIGKILL. bluetoothd ends when its bus does, and its buttons' links with it."""
        self.programs[program].kill()
        if program == "bus":
            self.bluez.kill()
        if program in ("bus", "bluez"):
            self.button.forget()

    def suspend(self):
        """logind tells, then nothing of the machine runs, and nothing reaches it."""
        logind.tell(self.bus, True)
        time.sleep(0.1)
        for program in self.programs.values():
            program.freeze()
        self.network.way.set(is_dark=True)

    def resume(self, network):
        for program in self.programs.values():
            program.thaw()
        self.network.way.set(**network)
        threading.Thread(target=logind.tell, args=(self.bus, False), daemon=True).start()

    def command(self, *words, seconds=ASK_S):
        """`pttctl` with these words; None when it does not end in time."""
        try:
            return subprocess.run([self.place.build / "pttctl", *words, "--bus", self.bus], capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def status(self):
        """What `pttctl status --json` says; None when it says nothing in time."""
        told = self.command("status", "--json")
        try:
            return json.loads(told.stdout) if told and told.returncode == 0 else None
        except ValueError:
            return None

    def end(self):
        self.pttd.end()
        self.bluez.end(1)
        self.sound.end()
        self.dbus.end(1)
        self.network.way.end()


def what_is_missing(status):
    """Why a machine is not ready, by its status; empty: it is, and nothing of it goes on."""
    if status is None:
        return "pttctl gets no answer"
    channel = next((c for c in status["channels"] if c["uuid"] == status.get("activeChannel")), None)
    if channel is None:
        return "no channel is joined"
    if channel["serviceStatus"] != "ready":
        return f"the channel is {channel['serviceStatus']}" + (f" ({channel['serviceStatusDetail']})" if channel["serviceStatusDetail"] else "")
    if not any(accessory["ready"] for accessory in status["accessories"]):
        return "the button is not ready"
    return ""


def wait_for(path, seconds=10):
    deadline = time.monotonic() + seconds
    while not pathlib.Path(path).exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"{path} is not there after {seconds} s; the logs are beside it")
        time.sleep(0.02)
