"""Runs the rounds of a plan, and has them judged."""
import pathlib
import subprocess
import threading
import time

import faults
import network
import plan as plans
import report
from groups import Groups
from heard import judge
from lateness import Lateness
from machine import Machine, Place, RelayMachine, what_is_missing

READY_S = 30                    # the first start of everything, on a busy machine
POLL_S = 0.5
SETTLE_S = 1.3                  # after the last judged press its end is heard,
IDLE_S = 3.0                    # on a busy machine so much later at the latest


class Session:
    def __init__(self, folder, build, seed, minutes, has_spare=False):
        self.began = time.monotonic_ns()
        self.folder = folder
        clock = folder / "wallclock.so"
        subprocess.run(["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", clock, pathlib.Path(__file__).with_name("wallclock.c"), "-ldl"], check=True)
        network.begin()
        self.groups = Groups()
        if not self.groups.is_there:
            print(f"Not run: memory pressure; no control groups here ({self.groups.why})")
        self.place = place = Place(build, folder, self.groups, clock)
        self.relay = RelayMachine(place)
        self.machines = {name: Machine(name, number, place, self.relay.link, seed, minutes, has_spare)
                         for number, name in enumerate(plans.MACHINES)}
        self.lateness = Lateness(folder)

    @property
    def targets(self):
        return {**self.machines, plans.RELAY: self.relay}

    def wait_ready(self):
        deadline = time.monotonic() + READY_S
        for machine in self.machines.values():
            while missing := what_is_missing(machine.status()):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{machine.name} did not get ready: {missing}; its log is {machine.log}")
                time.sleep(0.1)
        for machine in self.machines.values():
            machine.network.way.set(**faults.HEALTHY)

    # -- one round

    def run(self, number, plan):
        result = report.RoundResult(number, plan)
        self.run_steps(plan, result)
        began = time.monotonic()
        polls = [threading.Thread(target=self.poll, args=(machine, began, result)) for machine in self.machines.values()]
        for poll in polls:
            poll.start()
        self.until(began + plans.RECORD_S)
        for machine in self.machines.values():
            machine.sound.record()
        self.finish_presses()
        for poll in polls:
            poll.join()
        self.until(began + plans.BACK_S)
        for name, machine in self.machines.items():
            if name not in result.back_after:
                result.missing[name] = what_is_missing(machine.status()) or None
        presses = [self.judged_press(machine) for machine in self.machines.values()]
        time.sleep(SETTLE_S)
        deadline = time.monotonic() + IDLE_S
        self.look(result)
        while (result.busy or any(result.open.values())) and time.monotonic() < deadline:
            time.sleep(POLL_S)
            self.look(result)
        recordings = {name: machine.sound.recorded() for name, machine in self.machines.items()}
        return result, presses, recordings

    def run_steps(self, plan, result):
        """Faults and presses at their times; returns when the last fault has ended."""
        began, todo = time.monotonic(), []
        for step in plan.faults:
            todo.append((step.at, 0, step, None))
        self.fingers = [threading.Thread(target=self.finger, args=(began, machine, [s for s in plan.steps
                                         if s.action == "press" and s.who == name]), daemon=True) for name, machine in self.machines.items()]
        for finger in self.fingers:
            finger.start()
        order = 0
        while todo:
            todo.sort(key=lambda entry: entry[:2])
            at, _, step, end = todo.pop(0)
            self.until(began + at)
            order += 1
            if end:
                end()
                continue
            try:
                if end := faults.begin(step, self.targets[step.who]):
                    todo.append((step.at + step.lasts, order, step, end))
            except faults.Impossible as error:
                result.notes.append(f"{str(step).strip()}: not done, {error}")

    def finger(self, began, machine, steps):
        for step in steps:
            self.until(began + step.at)
            machine.button.press()
            self.until(began + step.at + step.lasts)
            machine.button.release()

    def finish_presses(self):
        for finger in self.fingers:
            finger.join()

    def poll(self, machine, began, result):
        while time.monotonic() < began + plans.BACK_S - POLL_S:
            asked = time.monotonic()
            if not what_is_missing(machine.status()):
                result.back_after[machine.name] = asked - began
                return
            time.sleep(POLL_S)

    def judged_press(self, machine):
        press = machine.button.press(judged=True)
        time.sleep(plans.JUDGED_HOLD_S)
        machine.button.release()
        time.sleep(plans.JUDGED_PAUSE_S)
        return press

    def look(self, result):
        """Nothing is pressed now: no microphone is open, nobody speaks."""
        result.open, result.busy = {}, {}
        for name, machine in self.machines.items():
            result.open[name] = machine.sound.open_microphones()
            status = machine.status()
            for channel in (status or {}).get("channels", ()):
                if channel["transmitting"] or channel["activeRemoteParticipant"]:
                    result.busy[name] = "it transmits" if channel["transmitting"] else f"it hears {channel['activeRemoteParticipant']}"

    @staticmethod
    def until(instant):
        time.sleep(max(0, instant - time.monotonic()))

    def end(self):
        for machine in self.machines.values():
            machine.end()
        self.relay.end()
        self.lateness.finish([machine.network.traffic for machine in self.machines.values()])


def run(rounds, seed, folder, build):
    minutes = sum(each.lasts for each in rounds) / 60 + 1
    session = Session(folder, build, seed, minutes)
    session.wait_ready()
    results = []
    for number, each in enumerate(rounds, 1):
        print(f"round {number} of {len(rounds)} …", flush=True)
        results.append(session.run(number, each))
        if any(program.gave_up for target in session.targets.values() for program in target.programs.values()):
            print("a program stays down: the rounds that are left would say nothing else")
            break
    session.end()
    for result, presses, recordings in results:
        for press in presses:
            for listener in session.machines:
                if listener != press.machine:
                    result.verdicts.append(judge(press, listener, recordings[press.machine][0], recordings[listener][1], session.lateness))
    return report.told(session, [result for result, _, _ in results])
