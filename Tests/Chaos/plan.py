"""The plan of a run: rounds of faults and presses, made from a seed, as text that a person reads and that can be run again.

A line is `SECONDS ACTION WHO WORDS…`, the seconds counted from the beginning of its round. README.md lists the actions.
"""
import dataclasses
import random

MACHINES = ("a", "b", "c")
RELAY = "relay"
FAULTS_S = 3.5                  # faults of a round begin within this time
BACK_S = 5.0                    # after the last one everything has to be back
RECORD_S = 1.5                  # after the last one recordings begin
JUDGED_HOLD_S, JUDGED_PAUSE_S = 0.9, 0.8
FAULTS_A_ROUND = (3, 5)


@dataclasses.dataclass(frozen=True)
class Step:
    """One line: when, what, to whom, and what else it says."""

    at: float
    action: str
    who: str
    words: tuple = ()

    def __str__(self):
        return f"{self.at:7.2f}  {self.action:<11} {self.who:<6}{''.join(' ' + word for word in self.words)}".rstrip()

    @property
    def lasts(self):
        """Seconds from its beginning to its end."""
        return float(self.words[-1]) if self.action not in MOMENTS else 0.0


MOMENTS = ("kill", "move", "handover")      # faults without a duration
PTTD, RELAYS, BUS, BLUEZ, SOUND = "pttd", RELAY, "bus", "bluez", "sound"


def kinds():
    """Every kind of fault: (action, whose: a machine or the relay, a maker of its words)."""
    def for_(low, high):
        return lambda r: (f"{r.uniform(low, high):.2f}",)

    def with_(word, low, high):
        return lambda r: (word, f"{r.uniform(low, high):.2f}")

    def clock(r):
        jump = r.choice((-1, 1)) * r.choice((5, 3_600, 86_400 * 30, 86_400 * 3_650))
        return (f"{jump:+d}", f"{r.uniform(1, 3):.2f}")

    def network(r):
        return (f"{r.choice((3, 10, 30))}%", r.choice(("bursty", "random")), f"{r.choice((0, 20, 80))}ms", f"{r.uniform(1, 3):.2f}")
    found = []
    for program in (PTTD, BUS, BLUEZ, SOUND):
        found.append(("kill", False, lambda r, p=program: (p,)))
        found.append(("stop", False, with_(program, 0.3, 2.5)))
    found += [("kill", False, lambda r: (PTTD,)), ("kill", True, lambda r: (RELAYS,)), ("stop", True, with_(RELAYS, 0.3, 9))]
    for is_relay in (False, True):
        found += [("full", is_relay, for_(0.5, 2.5)), ("memory", is_relay, for_(0.5, 2)), ("clock", is_relay, clock)]
    found += [("descriptors", False, with_(PTTD, 0.5, 2)), ("descriptors", True, with_(RELAYS, 0.5, 2)),
              ("readonly", False, for_(0.5, 2.5)), ("suspend", False, for_(0.5, 2.5)), ("move", False, lambda r: ()),
              ("handover", False, lambda r: ()), ("outage", False, for_(0.5, 2)), ("network", False, network)]
    return found


class Round:
    def __init__(self, steps):
        self.steps = sorted(steps, key=lambda step: step.at)

    @property
    def faults(self):
        return [step for step in self.steps if step.action != "press"]

    @property
    def last_fault(self):
        """When the last fault has ended."""
        return max((step.at + step.lasts for step in self.faults), default=0.0)

    @property
    def lasts(self):
        return self.last_fault + BACK_S + len(MACHINES) * (JUDGED_HOLD_S + JUDGED_PAUSE_S) + 2


def made(seed, seconds):
    """Rounds that take about so long. Kinds are dealt like cards, so a longer run has had all of them."""
    r, deck, rounds, total = random.Random(seed), [], [], 0.0
    while not rounds or total + rounds[-1].lasts <= seconds:
        steps = []
        for _ in range(r.randint(*FAULTS_A_ROUND)):
            if not deck:
                deck = kinds()
                r.shuffle(deck)
            action, is_relay, words = deck.pop()
            steps.append(Step(round(r.uniform(0.3, FAULTS_S), 2), action, RELAY if is_relay else r.choice(MACHINES), words(r)))
        end = max(step.at + step.lasts for step in steps) + BACK_S - 1.2
        for machine in MACHINES:
            steps += presses(r, machine, end)
        rounds.append(Round(steps))
        total += rounds[-1].lasts
    return rounds


def presses(r, machine, end):
    """Presses of one finger, one after the other, until `end`. Some machines only listen for a round."""
    if r.random() < 0.1:
        return []
    found, at = [], r.uniform(0, 1.5)
    while True:
        hold = r.choice((r.uniform(0.05, 0.4), r.uniform(0.4, 2.5)))
        if at + hold > end:
            return found
        found.append(Step(round(at, 2), "press", machine, (f"{hold:.2f}",)))
        at += hold + r.uniform(0.15, 1.2)


def text(seed, rounds):
    lines = [f"# seed {seed}"]
    for number, each in enumerate(rounds, 1):
        lines += [f"round {number}"] + [str(step) for step in each.steps]
        lines.append(f"# {each.last_fault:5.2f}  the last fault has ended; {BACK_S:.0f} s later each machine's press is heard by all others")
    return "\n".join(lines) + "\n"


def read(told):
    """The rounds of such a text. ValueError names the line that says nothing."""
    rounds, known = [], {action for action, _, _ in kinds()} | {"press"}
    for number, line in enumerate(told.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0] == "round":
            rounds.append([])
            continue
        try:
            if not rounds or words[1] not in known or words[2] not in (*MACHINES, RELAY):
                raise ValueError(line)
            step = Step(float(words[0]), words[1], words[2], tuple(words[3:]))
            step.lasts          # a number, where one has to be
            rounds[-1].append(step)
        except (IndexError, ValueError) as error:
            raise ValueError(f"line {number} of the plan says nothing: '{line}'") from error
    if not rounds:
        raise ValueError("the plan has no round")
    return [Round(steps) for steps in rounds]
