"""Three machines with pttd on a network: one creates a channel, the others find it, join, talk and hear. Run by Tests/Nearby/talk."""
import time

from machines import now, wait
from stations import run, talk


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
    over = [event for event in gate.events() if event["message"] == "the channel is over"]
    report.hold(f"they are told why: {over[-1]['metadata']['why'] if over else None}", bool(over))

    missing = gate.ctl("nearby", "join", "Crane 2", check=False)
    report.hold(f"a channel that is not there: {missing.stderr.strip()}", missing.returncode == 1)
    gate.avahi.end()
    time.sleep(0.5)
    none = gate.ctl("nearby", "--seconds", "1", check=False)
    report.hold(f"without avahi-daemon: {none.stderr.strip()}", "avahi-daemon" in none.stderr)


run(prove, ("crane", "gate", "tower"))
