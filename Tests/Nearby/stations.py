"""Machines with pttd on a network, for the tests of channels nearby."""
import argparse
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from machines import LOST_IN_HALTS, ROOT, Machine, Missed, Report, begin, now, told, wait
# Found where `machines` has them looked for.
from align import NotFound, align
from logevents import read_log
from speech import speech
from wavefile import Recording, write_wav

TALK_S = 2.0
LOST_MS = 30.0          # of a burst of two seconds, in pieces of 5 ms, on a machine that is never halted
VEST = "C4:00:00:00:00:01"
SOFT_KEY = "08"         # of an AINA PTT Voice Responder (V2)


class Station(Machine):
    """A machine with pttd: a speech file is its microphone, a recording its loudspeaker, a simulated button what is worn."""

    def __init__(self, name, number, folder, build):
        super().__init__(name, number, folder)
        self.build, self.pttd = build, None
        write_wav(str(self.folder / "mouth.wav"), speech(12, number))
        address = f"unix:path={self.folder}/bus"
        (self.folder / "pttd.toml").write_text(
            f'[daemon]\nname = "{name.title()}"\nbus = "{address}"\nbluez-bus = "{address}"\n\n'
            f'[audio]\nmicrophone = "wav:{self.folder}/mouth.wav"\nspeaker = "wav:{self.folder}/ear.wav"\n\n'
            f'[accessory.vest]\naddress = "{VEST}"\n\n[accessory.vest.bind]\nsoft1 = "nearby-next"\n')
        self.button = f"{self.folder}/button.sock"
        self.bluez = self.run("bluez", [
            str(self.build / "fake-bluez"), "--bus", address, "--socket", self.button, f"vest=aina-v2,{VEST}"])

    def start_pttd(self):
        self.pttd = self.run("pttd", [
            str(self.build / "pttd"), "--config", f"{self.folder}/pttd.toml", "--state", f"{self.folder}/state",
            "--log-level", "debug"])
        wait(lambda: self.ctl("status", check=False).returncode == 0, 15, f"{self.name}: pttd answers")

    def command(self, *words):
        return [str(self.build / "pttctl"), "--bus", f"unix:path={self.folder}/bus", *words]

    def ctl(self, *words, check=True):
        done = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.name}", *self.command(*words)], capture_output=True, text=True, timeout=30)
        if check and done.returncode:
            raise Missed(f"{self.name}: pttctl {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def press_soft_key(self):
        wait(lambda: any(one["ready"] for one in json.loads(self.ctl("status", "--json").stdout)["accessories"]), 15,
             f"{self.name}'s vest is ready")
        for value in (SOFT_KEY, "00"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(self.button)
                connection.sendall(f"vest notify {value}\n".encode())
                answer = connection.makefile().readline().strip()
            if not answer.startswith("ok"):
                raise Missed(f"fake-bluez answered '{answer}'")

    def browse(self):
        """Has somebody look at the list, so that `listed` tells what is there at once."""
        self.browser = self.run("browser", self.command("nearby", "--seconds", "3600"))

    def listed(self):
        return json.loads(self.ctl("nearby", "--json", "--seconds", "0.02").stdout)

    def appears(self, name, seconds):
        wait(lambda: any(one["name"] == name for one in self.listed()), seconds, f"{self.name} sees {name}")

    def disappears(self, name, seconds):
        wait(lambda: not any(one["name"] == name for one in self.listed()), seconds, f"{self.name} sees {name} no more")

    def status(self):
        channels = json.loads(self.ctl("status", "--json").stdout)["channels"]
        return channels[0] if channels else None

    def is_ready(self, name):
        channel = self.status()
        return channel is not None and channel["name"] == name and channel["serviceStatus"] == "ready"

    def member_count(self, name):
        """What the channel's host tells, in the list of this machine."""
        return next((one["members"] for one in self.listed() if one["name"] == name), 0)

    def events(self):
        return read_log(self.folder / "pttd.log")

    def heard(self, burst, count):
        """Waits until a burst has been played to its end; the ear's recording since the loudspeaker was opened last."""
        wait(lambda: sum(event["message"] == "playback ended" for event in self.events()) >= count, 15,
             f"{self.name} has heard the burst")
        return self.folder / "ear.wav"


def talk(report, talker, listeners, bursts):
    """Two seconds of speech; all listeners have to hear them."""
    before = {one.name: sum(event["message"] == "playback ended" for event in one.events()) for one in listeners}
    pressed = now()
    talker.ctl("talk", "--for", str(TALK_S))
    released = now()
    for one in listeners:
        one.heard(bursts, before[one.name] + 1)
        time.sleep(0.3)
        ear = Recording.read(str(one.folder / "ear.wav"))
        began = [event for event in talker.events() if event["message"] == "capture started" and event["t"] >= pressed]
        mouth = Recording.read(str(talker.folder / "mouth.wav")).start_at(int(began[0]["metadata"]["first_sample"]))
        opened = [event["t"] for event in one.events() if event["message"].startswith("recording to")]
        try:
            found = align(mouth, ear.start_at(opened[-1]), began[0]["t"], released)
        except NotFound as problem:
            report.hold(f"{talker.name} → {one.name}: {problem}", False)
            continue
        halted = report.halts.between(pressed, released + 500_000_000)
        report.hold(
            f"{talker.name} → {one.name}: {found.heard_ms:.0f} ms heard, {found.lost_inside_ms:.0f} ms lost inside, "
            f"{found.mouth_to_ear_ms:.0f} ms from mouth to ear{told(halted)}",
            found.heard_ms > 1000 * TALK_S * 0.7 and found.lost_inside_ms <= LOST_MS + LOST_IN_HALTS * halted)


def run(prove, names, extra=lambda parser: None):
    """Makes the machines, has them proved, and ends the program with what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / ".build/release", type=pathlib.Path)
    extra(parser)
    options = parser.parse_args()
    build = options.build.resolve()
    for program in ("pttd", "pttctl", "fake-bluez"):
        if not (build / program).exists():
            sys.exit(f"{build / program} is missing: make release")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pttd-nearby-"))
    report = Report()
    stations = []
    try:
        begin()
        for number, name in enumerate(names, 1):
            station = Station(name, number, folder, build)
            stations.append(station)
            station.join("p", "lan")
            station.start_avahi()
        for station in stations:
            station.start_pttd()
        time.sleep(1)   # the hosts' names are established
        prove(report, stations, options)
    except (Missed, RuntimeError, OSError, subprocess.TimeoutExpired) as problem:
        report.failed = True
        print(f"FAIL {problem}")
    finally:
        end(report, stations)
        report.halts.end()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if report.failed else 0)


def end(report, stations):
    """Shows what the programs said, if anything has failed, and ends them."""
    if report.failed:
        for station in stations:
            for log in sorted(station.folder.glob("*.log")):
                print(f"--- {station.name} {log.name}\n{log.read_text(errors='replace')[-2500:]}")
    for station in stations:
        for one in (station.pttd, station.bluez, station.avahi, station.bus):
            if one is not None and one.process.poll() is None:
                one.end(kill=True)
