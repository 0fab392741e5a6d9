#!/usr/bin/python3
"""Tests of what judges chaos, on logs with known faults, and of the plans.

    python3 -m unittest discover -s Tests/Chaos -p 'test_*.py'
"""
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "Tools")]
import floors  # noqa: E402
import microphones  # noqa: E402
import plan  # noqa: E402
import report  # noqa: E402
from bounds import CLOSED_S, SENDS_S  # noqa: E402
from button import Press  # noqa: E402
from heard import Verdict, excuse_unaware, judge, wrong_with  # noqa: E402
from lateness import read_lateness  # noqa: E402
from logevents import parse_line  # noqa: E402
from unitfile import RestartPolicy, seconds  # noqa: E402

SECOND = 1_000_000_000
END = 100 * SECOND


def log(*lines):
    return [parse_line(f"1.0 info {line}") for line in lines]


def pressed(down, up, told=None):
    """A press of seconds; `told`: when BlueZ told of press and release, where that was later."""
    press = Press("a")
    press.finger_down, press.finger_up = int(down * SECOND), int(up * SECOND)
    press.pressed, press.released = (int(at * SECOND) for at in told or (down, up))
    return press


def capture(begin, end=None):
    lines = [f"pttd.channel: capture began burst=1 t={int(begin * SECOND)}"]
    return lines + ([f"pttd.channel: capture ended burst=1 t={int(end * SECOND)}"] if end else [])


def open_too_long(lines, presses, lives=((0, None),), frozen=()):
    return microphones.open_too_long(log(*lines), presses, lives, frozen, END, lambda *_: 0)


class Messages(unittest.TestCase):
    def test_names_of_the_source_are_found_above_debug(self):
        lines = ["info pttd.relay: burst ended end=denied(RelayClient.FloorDenial.taken) sent=0", "warning pttd: it ended why=CancellationError()",
                 "debug pttd: refused command=probe(Accessories.PressCarrier.bluetoothd)", "info pttd.relay: burst ended end=completed",
                 'notice pttd.bus: refused why="org.freedesktop.DBus.Error.AccessDenied: no (Rule.Set)"',
                 'info pttd: joined channel="Tor.Nord" version="0.1.0 (commit 509c28abbeb3)"']
        self.assertEqual([event["message"] for event in report.code_names(map(parse_line, lines))], ["burst ended", "it ended"])


class Microphones(unittest.TestCase):
    def test_a_burst_with_its_tail_is_as_it_should_be(self):
        self.assertEqual(open_too_long(capture(1.005, 2.2), [pressed(1, 2)]), [])

    def test_a_microphone_that_stays_open_is_found_with_its_length(self):
        (begin, end), = open_too_long(capture(1, 6), [pressed(1, 2)])
        self.assertAlmostEqual((end - begin) / SECOND, 4 - CLOSED_S)

    def test_one_that_opens_by_itself_is_found(self):
        self.assertEqual(len(open_too_long(capture(8, 8.3), [pressed(1, 2)])), 1)

    def test_one_that_is_never_shut_is_found(self):
        self.assertEqual(len(open_too_long(capture(1), [pressed(1, 2)])), 1)

    def test_a_program_that_is_killed_takes_its_microphone_along(self):
        lines = [*capture(1), "pttd: pttd starts version=1"]
        self.assertEqual(open_too_long(lines, [pressed(1, 20)], lives=((0, 2 * SECOND), (3 * SECOND, None))), [])

    def test_one_that_goes_on_after_a_restart_is_found(self):
        lines = [*capture(1), "pttd: pttd starts version=1", *capture(6, 7)]
        self.assertEqual(len(open_too_long(lines, [pressed(1, 2.5)], lives=((0, 2 * SECOND), (3 * SECOND, None)))), 1)

    def test_time_in_which_the_program_was_stopped_does_not_count(self):
        stopped = [(int(1.5 * SECOND), 6 * SECOND)]
        self.assertEqual(open_too_long(capture(1, 6.3), [pressed(1, 2)], frozen=stopped), [])
        self.assertEqual(len(open_too_long(capture(1, 9), [pressed(1, 2)], frozen=stopped)), 1)

    def test_what_a_stopped_bluez_tells_late_may_open_it_for_a_moment(self):
        self.assertEqual(open_too_long(capture(5, 5.3), [pressed(1, 2, told=(5, 5))]), [])

    def test_a_release_that_a_stopped_bluez_hides_is_found(self):
        self.assertEqual(len(open_too_long(capture(1, 6.2), [pressed(1, 2, told=(1, 6))])), 1)

    def test_speech_on_the_wire_after_the_release_is_found(self):
        def traffic(begin, end, each=10):
            return [(int(at / 10 * SECOND), each, 0) for at in range(int(begin * 10), int(end * 10))]
        presses = [pressed(1, 2)]
        self.assertEqual(microphones.sent_too_long(traffic(1, 2 + SENDS_S), presses, (), END, lambda *_: 0), [])
        self.assertEqual(len(microphones.sent_too_long(traffic(1, 8), presses, (), END, lambda *_: 0)), 1)
        self.assertEqual(microphones.sent_too_long(traffic(1, 8, each=2), presses, (), END, lambda *_: 0), [])
        self.assertEqual(microphones.sent_too_long(traffic(0.9, 2.2), presses, (), END, lambda *_: 0), [], "a connection just before")


JOINED = [f"pttrelay: member joined channel=L member=m{who} name={who} ssrc=0{who} replaced=false t=5" for who in "ab"]


def granted(who, at):
    return f"pttrelay: floor granted channel=L member=m{who} request=1 t={int(at * SECOND)}"


def released(who, at):
    return f"pttrelay: floor released channel=L ssrc=0{who} reason=released t={int(at * SECOND)}"


def windows_of(*presses):
    def found(name, bound, spell):
        return microphones.windows([press for press in presses if press.machine == name], (), END, bound)
    return found


class Floors(unittest.TestCase):
    def history(self, *lines, lives=((0, None),)):
        return floors.history(log(*JOINED, *lines), lives, END)

    def test_one_after_the_other_is_as_it_should_be(self):
        holds, problems = self.history(granted("a", 1), released("a", 2), granted("b", 2.1), released("b", 3))
        self.assertEqual(([(hold.name, hold.how) for hold in holds], problems), ([("a", "released"), ("b", "released")], []))

    def test_two_at_once_are_found(self):
        self.assertEqual(len(self.history(granted("a", 1), granted("b", 1.5), released("a", 2), released("b", 3))[1]), 1)

    def test_a_floor_that_is_never_released_is_found(self):
        holds, _ = self.history(granted("a", 1))
        self.assertEqual(len(floors.held_too_long(holds, windows_of(pressed(1, 2)), END)), 1)

    def test_a_relay_that_is_killed_takes_its_floors_along(self):
        holds, problems = self.history(granted("a", 1), granted("b", 4), released("b", 5),
                                       lives=((0, 2 * SECOND), (3 * SECOND, None)))
        self.assertEqual((problems, holds[0].how, holds[0].end), ([], "the relay ended", 2 * SECOND))

    def test_a_talker_that_a_machine_is_told_of_for_ever_is_found(self):
        spells = floors.hearing(log(f"pttd.relay: talker begins talker=a t={SECOND}"), ((0, None),), END)
        self.assertEqual(len(floors.told_too_long(spells, windows_of(pressed(1, 2)))), 1)
        ended = floors.hearing(log(f"pttd.relay: talker begins talker=a t={SECOND}", f"pttd.relay: talker ended talker=a t={2 * SECOND}"),
                               ((0, None),), END)
        self.assertEqual(floors.told_too_long(ended, windows_of(pressed(1, 2))), [])


class Hearing(unittest.TestCase):
    figures = {"start_lost": 5, "after_release": 190, "holes": 0, "pieces": [50] * 40, "rejected": 1}

    def test_what_is_missing_is_named(self):
        self.assertEqual(wrong_with(self.figures), "")
        for key, value, word in (("start_lost", 200, "beginning"), ("after_release", -100, "end"), ("holes", 300, "silence"),
                                 ("rejected", 30, "not what was said")):
            self.assertIn(word, wrong_with({**self.figures, key: value}))

    def test_who_cannot_know_of_a_killed_relay_is_excused_for_a_while(self):
        lives, joined = ((0, 10 * SECOND), (11 * SECOND, None)), log(f"pttrelay: member joined member=ma name=a ssrc=0a t={12 * SECOND}")

        def kind(at, listener="b"):
            verdict = Verdict("a", listener, at * SECOND, {}, (0, 0), "unheard")
            excuse_unaware(verdict, joined, lives)
            return verdict.kind
        self.assertEqual((kind(15), kind(60), kind(8)), ("unaware", "unheard", "unheard"))
        joined += log(f"pttrelay: member joined member=mb name=b ssrc=0b t={13 * SECOND}")
        self.assertEqual(kind(15), "unheard")


class Quiet:
    """A machine of which only the ways were late, or all threads now and then."""

    def __init__(self, ways_ms=0.0, halted=0.0):
        self.ways_ms, self.halted = ways_ms, halted

    def latest_ms(self, *_):
        return 1.0, 2.0

    def ways_late_ms(self, *_):
        return self.ways_ms

    def halted_ms(self, first, last):
        return self.halted * (last - first) / 1e6


class Judged(unittest.TestCase):
    def kind(self, *late):
        return judge(pressed(1, 2), "b", None, None, Quiet(*late)).kind

    def test_what_nobody_hears_is_a_fault(self):
        self.assertEqual(self.kind(30), "unheard")

    def test_but_not_while_a_way_of_this_test_was_late_itself(self):
        self.assertEqual(self.kind(300), "unjudged")

    def test_nor_while_the_machine_has_too_little_time_for_everything(self):
        self.assertEqual((self.kind(0, 0.05), self.kind(0, 0.2)), ("unheard", "unjudged"))

    def test_the_lateness_of_ways_stands_among_the_counts_of_what_passed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "traffic"
            path.write_text("100 1 2\n200 50000000 way late\n300 4 5\n90")
            self.assertEqual(microphones.read_traffic(path), [(100, 1, 2), (300, 4, 5)])
            self.assertEqual(read_lateness([path]).tolist(), [[200, 50_000_000]])

    def test_a_machine_that_is_not_back_in_time_is_a_fault(self):
        result = report.RoundResult(3, None)
        result.missing = {"a": None, "b": "the button is not ready"}
        self.assertEqual(list(report.of_round(result)), ["round 3: 5 s after the last fault b is not back: the button is not ready"])


class Plans(unittest.TestCase):
    def test_every_kind_of_fault_has_its_turn_in_ten_minutes(self):
        dealt = {(step.action, step.words[0] if step.action in ("kill", "stop", "descriptors") else "", step.who == plan.RELAY)
                 for each in plan.made(5, 600) for step in each.faults}
        programs = {(action, program, False) for action in ("kill", "stop") for program in ("pttd", "bus", "bluez", "sound")}
        wanted = programs | {("kill", "relay", True), ("stop", "relay", True), ("descriptors", "pttd", False), ("descriptors", "relay", True)}
        wanted |= {(action, "", is_relay) for action in ("full", "memory", "clock") for is_relay in (False, True)}
        wanted |= {(action, "", False) for action in ("readonly", "suspend", "move", "handover", "outage", "network")}
        self.assertEqual(dealt, wanted)

    def test_a_plan_reads_as_it_was_written(self):
        for seed in range(50):
            rounds = plan.made(seed, 90)
            text = plan.text(seed, rounds)
            self.assertEqual(plan.text(seed, plan.read(text)), text)

    def test_three_minutes_have_every_kind_of_fault(self):
        for seed in range(20):
            steps = [step for each in plan.made(seed, 200) for step in each.faults]
            self.assertEqual({step.action for step in steps}, {action for action, _, _ in plan.kinds()})

    def test_what_says_nothing_is_refused_with_its_line(self):
        for text in ("", "round 1\n 0.5 explode a", "round 1\n x press a 1", "0.5 press a 1", "round 1\n 0.5 press z 1", "round 1\n 0.5 press a"):
            with self.assertRaises(ValueError):
                plan.read(text)


class Units(unittest.TestCase):
    def test_times_of_systemd(self):
        self.assertEqual([seconds(text) for text in ("1", "100ms", "2min", "0")], [1, 0.1, 120, 0])

    def test_our_units_can_be_read_and_start_a_killed_program_again(self):
        for unit in ("pttd.service", "pttrelay.service"):
            pause, why = RestartPolicy.of(unit).pause_after(-9, 0)
            self.assertIsNone(why)
            self.assertLessEqual(pause, 2)

    def test_a_start_limit_is_kept(self):
        policy = RestartPolicy(limit_interval=1000, limit_burst=3)
        self.assertEqual([policy.may_start(at) for at in (0, 1, 2, 3)], [True, True, True, False])


if __name__ == "__main__":
    unittest.main()
