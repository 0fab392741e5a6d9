"""Three machines with pttd on a network: one creates a channel, the others find it, join, talk and hear. Run by Tests/Nearby/talk."""
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time

from machines import now, wait
from stations import run, talk


def locked(report, stations):
    """A channel with a code: who does not know it stays outside."""
    crane, gate, tower = stations
    created = json.loads(crane.ctl("nearby", "create", "Locked", "--code", "--json").stdout)
    code = created["code"]
    report.hold(f"its creator is shown a code of {len(code)} digits", len(code) == 6 and code.isdigit())
    gate.appears("Locked", 5)
    seen = next(one for one in gate.listed() if one["name"] == "Locked")
    report.hold(f"others see that it is locked, and no code: {seen['admission']}",
                seen["admission"] == "code" and not seen["code"])
    wrong = f"{(int(code) + 1) % 1_000_000:06}"
    for words in (["--code", wrong], []):
        refused = gate.ctl("nearby", "join", "Locked", *words, check=False)
        report.hold(f"{'a wrong code' if words else 'no code'}: {refused.stderr.strip()}", refused.returncode == 1)
    began = now()
    gate.ctl("nearby", "join", "Locked", "--code", f"{code[:3]} {code[3:]}")
    report.time("'pttctl nearby join --code' → ready", (now() - began) / 1e6, 2.0)
    talk(report, gate, [crane], 1)
    # The host is gone: a member hosts the channel, with the same code.
    crane.pttd.end(kill=True)
    wait(lambda: gate.is_ready("Locked"), 20, "gate hosts the locked channel")
    wait(lambda: any(one["name"] == "Locked" for one in tower.listed()), 20, "tower sees it")
    # The old host may be listed for a moment.
    wait(lambda: "another code" in tower.ctl("nearby", "join", "Locked", "--code", wrong, check=False).stderr, 20,
         "the next host knows the code")
    report.hold("the next host knows the code", True)
    tower.ctl("nearby", "join", "Locked", "--code", code)
    wait(lambda: tower.is_ready("Locked"), 10, "tower is on the locked channel")
    crane.start_pttd()
    for one in stations:
        wait(lambda one=one: one.is_ready("Locked"), 30, f"{one.name} is on the locked channel again")
    report.hold("its creator is back on it", True)
    crane.ctl("nearby", "delete", "Locked")


def asked(report, stations):
    """A channel whose creator is asked about each newcomer."""
    crane, gate, tower = stations
    crane.ctl("nearby", "create", "Asked", "--ask")
    gate.appears("Asked", 5)

    def waiting():
        return json.loads(crane.ctl("nearby", "waiting", "--json").stdout)

    def joins(station):
        return subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{station.name}", *station.command("nearby", "join", "Asked")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    first = joins(gate)
    wait(lambda: waiting(), 10, "the creator is asked")
    report.hold(f"the creator is asked about {waiting()[0]['name']}", waiting()[0]["name"] == "Gate")
    began = now()
    crane.ctl("nearby", "admit", "Gate")
    first.communicate(timeout=20)
    report.time("'pttctl nearby admit' → joined", (now() - began) / 1e6, 2.0)
    report.hold("who is admitted joins", first.returncode == 0 and gate.is_ready("Asked"))
    second = joins(tower)
    wait(lambda: waiting(), 10, "the creator is asked again")
    crane.ctl("nearby", "refuse")
    words = second.communicate(timeout=20)[1].strip().splitlines()[-1]
    report.hold(f"who is refused does not: {words}", second.returncode == 1)
    third = joins(tower)
    wait(lambda: waiting(), 10, "the creator is asked a third time")
    third.kill()
    third.wait()
    wait(lambda: not waiting(), 10, "who gives up waits no more")
    report.hold("who gives up waits no more", True)
    talk(report, crane, [gate], 1)
    crane.ctl("nearby", "delete", "Asked")


def chosen(report, stations):
    """The list on a terminal, on a machine that looks for channels only while it shows them: Enter joins the channel."""
    crane, _, tower = stations
    tower.ctl("nearby", "create", "Listed")
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    shown_by = subprocess.Popen(
        ["nsenter", f"--net=/run/netns/{crane.name}", *crane.command("nearby")],
        stdin=terminal, stdout=terminal, stderr=terminal,
        env={**os.environ, "TERM": "xterm"}, start_new_session=True)
    os.close(terminal)
    shown = b""

    def shows(text):
        nonlocal shown
        while select.select([screen], [], [], 0)[0]:
            try:
                shown += os.read(screen, 4096)
            except OSError:     # the program has ended
                break
        return text in shown

    try:
        wait(lambda: shows(b"> Listed "), 10, "the list on a terminal shows the channel, chosen")
        os.write(screen, b"\r")
        wait(lambda: shows(b"joined Listed") or shown_by.poll() is not None, 10, "Enter does something")
        report.hold("Enter in the list joins the channel", shows(b"joined Listed"))
        wait(lambda: crane.is_ready("Listed"), 10, "crane is on the channel")
    finally:
        shown_by.kill()
        shown_by.wait()
        os.close(screen)
    tower.ctl("nearby", "delete", "Listed")


def prove(report, stations, _):
    crane, gate, tower = stations
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
    tower.press_soft_key()
    wait(lambda: tower.is_ready("Crane 2"), 5, "tower is on the channel")
    report.time("a press of 'nearby-next' → ready, on a machine that has not looked before", (now() - began) / 1e6, 5.0)
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
    tower.press_soft_key()
    wait(lambda: tower.is_ready("Crane 2"), 5, "tower is on the next channel")
    tower.press_soft_key()
    wait(lambda: tower.is_ready("Gate"), 5, "tower is on its own channel again")
    report.hold("'nearby-next' joins one after the other", True)
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
    over = [event for event in gate.events() if event["message"] == "channel ended"]
    report.hold(f"they are told why: {over[-1]['metadata']['why'] if over else None}", bool(over))

    locked(report, stations)
    asked(report, stations)
    chosen(report, stations)

    missing = gate.ctl("nearby", "join", "Crane 2", check=False)
    report.hold(f"a channel that is not there: {missing.stderr.strip()}", missing.returncode == 1)
    gate.avahi.end()
    time.sleep(0.5)
    none = gate.ctl("nearby", "--seconds", "1", check=False)
    report.hold(f"without avahi-daemon: {none.stderr.strip()}", "avahi-daemon" in none.stderr)


run(prove, ("crane", "gate", "tower"))
