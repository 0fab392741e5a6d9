"""Three machines with pttd on a network: one creates a channel, the others find it, join, talk and hear. Run by Tests/Nearby/talk."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from machines import Machine, Missed, Report, begin, now, wait

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Tests" / "Tools"))
from align import NotFound, align  # noqa: E402
from logevents import read_log  # noqa: E402
from speech import speech  # noqa: E402
from wavefile import Recording, write_wav  # noqa: E402

TALK_S = 2.0
LOST_MS = 30.0          # of a burst of two seconds, in pieces of 5 ms


class Station(Machine):
    """A machine with pttd: a speech file is its microphone, a recording its loudspeaker."""

    def __init__(self, name, number, folder, build):
        super().__init__(name, number, folder)
        self.build, self.pttd = build, None
        write_wav(str(self.folder / "mouth.wav"), speech(12, number))
        address = f"unix:path={self.folder}/bus"
        (self.folder / "pttd.toml").write_text(
            f'[daemon]\nname = "{name.title()}"\nbus = "{address}"\nbluez-bus = "{address}"\n\n'
            f'[audio]\nmicrophone = "wav:{self.folder}/mouth.wav"\nspeaker = "wav:{self.folder}/ear.wav"\n')

    def start_pttd(self):
        self.pttd = self.run("pttd", [
            str(self.build / "pttd"), "--config", f"{self.folder}/pttd.toml", "--state", f"{self.folder}/state",
            "--log-level", "debug"])
        wait(lambda: self.ctl("status", check=False).returncode == 0, 15, f"{self.name}: pttd answers")

    def ctl(self, *words, check=True):
        done = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.name}", str(self.build / "pttctl"), "--bus",
             f"unix:path={self.folder}/bus", *words], capture_output=True, text=True, timeout=30)
        if check and done.returncode:
            raise Missed(f"{self.name}: pttctl {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def browse(self):
        """Has somebody look at the list, so that `listed` tells what is there at once."""
        self.browser = self.run("browser", [
            str(self.build / "pttctl"), "--bus", f"unix:path={self.folder}/bus", "nearby", "--seconds", "600"])

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
        report.hold(
            f"{talker.name} → {one.name}: {found.heard_ms:.0f} ms heard, {found.lost_inside_ms:.0f} ms lost inside, "
            f"{found.mouth_to_ear_ms:.0f} ms from mouth to ear",
            found.heard_ms > 1000 * TALK_S * 0.7 and found.lost_inside_ms <= LOST_MS)


def prove(report, crane, gate, tower):
    gate.browse()
    time.sleep(0.5)
    began = now()
    created = crane.ctl("nearby", "create", "Crane 2")
    report.time("'pttctl nearby create' is done", (now() - began) / 1e6, 2.0)
    report.hold(created.stdout.strip(), created.stdout.startswith("created and joined Crane 2"))
    gate.appears("Crane 2", 5)
    report.time("created → listed by another machine", (now() - began) / 1e6, 2.0)
    began = now()
    joined = gate.ctl("nearby", "join", "Crane 2")
    report.time("'pttctl nearby join' → ready, where a list is shown", (now() - began) / 1e6, 1.0)
    report.hold(joined.stdout.strip(), joined.stdout.strip() == "joined Crane 2, which Crane hosts")
    began = now()
    tower.ctl("nearby", "join", "Crane 2")
    report.time("the same on a machine that has not looked before", (now() - began) / 1e6, 3.0)
    wait(lambda: any(one["members"] == 3 for one in gate.listed()), 5, "three members are listed")
    report.hold("three members are listed", True)

    talk(report, gate, [crane, tower], 1)
    talk(report, crane, [gate, tower], 1)

    # The host is killed, and comes back by itself as systemd would start it.
    crane.pttd.end(kill=True)
    began = now()
    crane.start_pttd()
    for one in (crane, gate, tower):
        wait(lambda one=one: one.is_ready("Crane 2"), 20, f"{one.name} is back on the channel")
    wait(lambda: any(one["members"] == 3 for one in gate.listed()), 20, "three members are listed again")
    report.time("the host killed and started again → all are on the channel", (now() - began) / 1e6, 10.0)
    talk(report, tower, [gate], 2)

    # A second channel: whoever joins it leaves the first.
    tower.ctl("nearby", "create", "Gate")
    gate.appears("Gate", 5)
    gate.ctl("nearby", "join", "Gate")
    wait(lambda: gate.is_ready("Gate"), 5, "gate is on the second channel")
    report.hold("whoever joins a second channel has left the first", True)
    gate.ctl("nearby", "join", "Crane 2")
    tower.ctl("nearby", "delete", "Gate")
    gate.disappears("Gate", 5)

    refused = gate.ctl("nearby", "delete", "Crane 2", check=False)
    report.hold(f"only its creator deletes a channel: {refused.stderr.strip()}", refused.returncode == 1)
    began = now()
    crane.ctl("nearby", "delete", "Crane 2")
    gate.disappears("Crane 2", 5)
    report.time("deleted → gone from the list", (now() - began) / 1e6, 2.0)
    for one in (crane, gate):
        wait(lambda one=one: one.status()["name"] != "Crane 2", 5, f"{one.name} has left the deleted channel")
    report.time("deleted → members have left it", (now() - began) / 1e6, 2.0)
    over = [event for event in gate.events() if event["message"] == "the channel is over"]
    report.hold(f"they are told why: {over[-1]['metadata']['why'] if over else None}", bool(over))

    missing = gate.ctl("nearby", "join", "Crane 2", check=False)
    report.hold(f"a channel that is not there: {missing.stderr.strip()}", missing.returncode == 1)
    gate.avahi.end()
    time.sleep(0.5)
    none = gate.ctl("nearby", "--seconds", "1", check=False)
    report.hold(f"without avahi-daemon: {none.stderr.strip()}", "avahi-daemon" in none.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / ".build/release", type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    for program in ("pttd", "pttctl"):
        if not (build / program).exists():
            sys.exit(f"{build / program} is missing: make release")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pttd-nearby-"))
    report = Report()
    stations = []
    try:
        begin()
        for number, name in enumerate(("crane", "gate", "tower"), 1):
            station = Station(name, number, folder, build)
            stations.append(station)
            station.join("p", "lan")
            station.start_avahi()
        for station in stations:
            station.start_pttd()
        time.sleep(1)   # the hosts' names are established
        prove(report, *stations)
    except (Missed, RuntimeError, OSError, subprocess.TimeoutExpired) as problem:
        report.failed = True
        print(f"FAIL {problem}")
    finally:
        end(report, stations)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if report.failed else 0)


def end(report, stations):
    """Shows what the programs said, if anything has failed, and ends them."""
    if report.failed:
        for station in stations:
            for log in sorted(station.folder.glob("*.log")):
                print(f"--- {station.name} {log.name}\n{log.read_text(errors='replace')[-2500:]}")
    for station in stations:
        for one in (station.pttd, station.avahi, station.bus):
            if one is not None and one.process.poll() is None:
                one.end(kill=True)


main()
