"""SIGKILLs of each program while somebody talks: nothing stays stuck, and nothing that was confirmed is lost."""
import collections
import random
import re
import statistics
import subprocess
import threading
import time

import floors
import plan as plans
import report
from button import SPARE_ADDRESS
from logevents import parse_line
from machine import CHANNEL, what_is_missing
from session import Session

PROGRAMS = ("pttd", "relay", "bluez", "bus", "sound")
BACK_S = 5.0
FLOOR_S = 1.5                   # a press on a free channel has the floor by then
CONFIRM_S = 8
QUIET_S = 0.6
KEPT_EVENTS = 200
CONTROL, ACTIONS = "soft1", ("channel-up", "channel-down", "replay-last", "none")


class Growing:
    """A log that grows, and what it has had since a while ago."""

    def __init__(self, path):
        self.file, self.last, self.rest = open(path, errors="replace"), [], ""

    def new(self):
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        self.last = (self.last + [event for event in map(parse_line, lines) if event])[-KEPT_EVENTS:]
        return self.last


class Kills:
    def __init__(self, session, seed):
        self.session, self.random = session, random.Random(seed)
        self.machines = list(session.machines.values())
        self.counts, self.back, self.findings = collections.Counter(), collections.defaultdict(list), []
        self.bound = {machine.name: {None} for machine in self.machines}    # what each control may do now, by what was confirmed
        self.invitations, self.confirmed, self.turn, self.presses = set(), 0, 0, []
        self.relay_log = Growing(session.relay.log)
        self.logs = {machine.name: Growing(machine.log) for machine in self.machines}
        self.unaware = 0

    def say(self, text):
        line = f"turn {self.turn}, {(time.monotonic_ns() - self.session.began) / 1e9:.2f} s: {text}"
        self.findings.append(line)
        print(line, flush=True)

    def prepare(self):
        """Each machine gets an accessory by a command, which is to be there after every kill."""
        for machine in self.machines:
            done = machine.command("accessory", "add", SPARE_ADDRESS, "--name", "spare", seconds=60)
            if done is None or done.returncode:
                raise SystemExit(f"{machine.name}: no accessory could be added: {done and done.stderr}")

    def run(self, program, count):
        for number in range(count):
            self.turn += 1
            talker = self.machines[self.turn % len(self.machines)]
            killed = talker
            if program in ("pttd", "sound") and self.random.random() < 0.3:
                killed = self.machines[(self.turn + 1) % len(self.machines)]
            target = self.session.relay if program == "relay" else killed
            change = threading.Thread(target=self.change, args=(program, target))
            self.presses.append(talker.button.press())
            time.sleep(self.random.uniform(0, 0.3))
            change.start()
            time.sleep(self.random.uniform(0, 0.5))
            if program == "relay":
                target.programs["relay"].kill()
            else:
                target.kill(program)
            at, killed_at = time.monotonic(), time.monotonic_ns()
            time.sleep(self.random.uniform(0, 0.3))
            talker.button.release()
            released_at = time.monotonic()
            change.join()
            self.counts[program] += 1
            if program == "relay":
                self.wait_joined(talker, at, killed_at)
            self.wait_back(program, [talker if program == "relay" else killed], at)
            self.check(program, target)
            # The tail is over, and everybody has been told that nobody speaks.
            Session.until(released_at + QUIET_S)

    def change(self, program, target):
        """One change by a command: it is confirmed, or may have been made."""
        if program == "relay":
            done = self.ask_relay("invite", CHANNEL, "--uses", "1")
            if done is not None and done.returncode == 0:
                self.invitations.add(int(re.search(r"invitation (\d+)", done.stdout + done.stderr)[1]))
                self.confirmed += 1
        elif program == "pttd":
            action = self.random.choice(ACTIONS)
            done = target.command("accessory", "bind", "spare", CONTROL, action, seconds=CONFIRM_S)
            if done is not None and done.returncode == 0:
                self.bound[target.name] = {action}
                self.confirmed += 1
            else:
                self.bound[target.name] |= {action}

    def ask_relay(self, *words):
        place = self.session.place
        try:
            return subprocess.run([place.build / "pttrelay", *words, "--state", self.session.relay.disk.state], capture_output=True,
                                  text=True, timeout=CONFIRM_S)
        except subprocess.TimeoutExpired:
            return None

    def wait_back(self, program, machines, at):
        for machine in machines:
            while missing := what_is_missing(machine.status()):
                if time.monotonic() > at + BACK_S:
                    self.say(f"{program} was killed, and {machine.name} is not back after {BACK_S:.0f} s: {missing}")
                    break
                time.sleep(0.02)
        self.back[program].append(time.monotonic() - at)

    def wait_joined(self, talker, at, killed_at):
        """Who talked has noticed, and is a member of the relay that was started again."""
        name, press = talker.name, self.presses[-1]
        if any(event["message"].startswith("transmission refused") and press.finger_down < event.get("t", 0) < killed_at
               for event in self.logs[name].new()):
            # It did not know of the kill before yet, and took somebody to be talking still. It has said nothing, so that it cannot know of
            # this one either.
            self.unaware += 1
            return
        while not any(event["message"] == "member joined" and event["metadata"]["name"] == name and event.get("t", 0) > killed_at
                      for event in self.relay_log.new()):
            if time.monotonic() > at + BACK_S:
                self.say(f"the relay was killed, and {name}, who talked, has not joined again after {BACK_S:.0f} s")
                return
            time.sleep(0.02)

    def check(self, program, target):
        if program == "relay":
            listed = self.ask_relay("invite", CHANNEL, "--list")
            known = {int(line.split()[0]) for line in listed.stdout.splitlines() if line.split()[0].isdigit()} if listed else None
            if known is None or listed.returncode:
                return self.say(f"the relay does not list its invitations: {listed and listed.stderr}")
            # The list is cut: the newest are in it.
            if lost := {number for number in self.invitations if number >= min(known)} - known:
                self.say(f"invitations {sorted(lost)} were confirmed and are lost")
            members = self.ask_relay("members", CHANNEL)
            if members is None or sum(f" {name} " in members.stdout for name in plans.MACHINES) < len(self.machines):
                self.say(f"not all members are known: {members and members.stdout}")
        elif program == "pttd":
            status = target.status() or {}
            spare = next((a for a in status.get("accessories", ()) if a["id"] == "spare"), None)
            if spare is None:
                return self.say(f"{target.name} has lost an accessory that was added")
            if (now := spare["bindings"].get(CONTROL)) not in self.bound[target.name] and None not in self.bound[target.name]:
                self.say(f"{target.name}'s control does '{now}'; confirmed was one of {self.bound[target.name]}")
            self.bound[target.name] = {now}

    def heard_by_relay(self, holds):
        """Each press after a kill has the floor in time: none is held by the dead. Presses in which the relay itself died do not count."""
        dead = [life[1] for life in self.session.relay.relay.lives if life[1]]
        for press in self.presses:
            if press.pressed is None or any(press.pressed - 2e9 < at < press.pressed + FLOOR_S * 1e9 for at in dead):
                continue
            own = [life[1] for life in self.session.machines[press.machine].pttd.lives if life[1]]
            if (press.finger_up or 0) - press.pressed < 0.2e9 or any(press.pressed < at < press.pressed + 0.2e9 for at in own):
                continue
            if not any(hold.name == press.machine and press.pressed <= hold.begin <= press.pressed + FLOOR_S * 1e9 for hold in holds):
                yield f"at {(press.pressed - self.session.began) / 1e9:.2f} s: the press of {press.machine} did not get the floor"


def run(options, out, build):
    programs = options.programs.split(",") if options.programs else PROGRAMS
    session = Session(out, build, options.seed, 1 + options.kills * len(programs) / 20, has_spare=True)
    session.wait_ready()
    kills = Kills(session, options.seed)
    kills.prepare()
    print(f"seed {options.seed}: {options.kills} kills of each of {', '.join(programs)}", flush=True)
    for program in programs:
        kills.run(program, options.kills)
        taken = sorted(kills.back[program])
        p95 = taken[min(len(taken) - 1, int(len(taken) * 0.95))]
        print(f"{program:6} {kills.counts[program]:4} kills; back after {statistics.median(taken):.2f} s (median), {p95:.2f} s (p95), "
              f"{taken[-1]:.2f} s at most; "
              f"{kills.confirmed} changes confirmed so far", flush=True)
    time.sleep(2)
    result = session_end(session)
    evidence = report.Evidence(session)
    holds, _ = floors.history(evidence.relay_log, session.relay.relay.lives, evidence.until)
    findings = [*kills.findings, *result, *report.ends(session), *report.stuck(evidence), *kills.heard_by_relay(holds)]
    print(f"{len(kills.presses)} presses, {len(holds)} bursts with the floor, {kills.confirmed} changes confirmed; logs are in {out}")
    if kills.unaware:
        print(f"{kills.unaware} presses were refused because their machines did not know yet of the kill before")
    if findings:
        print("What should not have been:", *findings, sep="\n")
    else:
        print("nothing stuck, nothing that was confirmed is lost")
    return 1 if findings else 0


def session_end(session):
    """Nothing goes on at the end; then everything ends."""
    found = []
    for name, machine in session.machines.items():
        if machine.sound.open_microphones():
            found.append(f"at the end {name}'s microphone is open")
    session.end()
    return found
