#!/usr/bin/python3
"""Tests of what the benchmarks measure with, on sound whose delay and losses are known.

    python3 Tests/Tools/test_measuring.py
"""
import contextlib
import io
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import badlink  # noqa: E402
from chirps import CHIRP_S, chirps, delay_of, measure  # noqa: E402
from clipped import EDGE_SAMPLES, clipped  # noqa: E402
from cost import Meter, memory_kilobytes  # noqa: E402
from logevents import parse_line  # noqa: E402
from scripts import benchmark  # noqa: E402
from stages import fields_table, stages_of  # noqa: E402
from udpproxy import DelayingProxy  # noqa: E402
from wavefile import RATE, Recording  # noqa: E402
from worn import GO_AHEAD_HZ, NOTE_S, go_ahead_at  # noqa: E402

MS = 1_000_000
START = 1000 * MS               # of both recordings
PRESS, RELEASE, UNTIL = 3000 * MS, 4000 * MS, 5200 * MS
SOUND = chirps(6, 3)
MIC = Recording(SOUND).start_at(START)


def at(nanoseconds):
    return round((nanoseconds - START) * RATE / 1e9)


def ear(delay_ms, from_ms=0.0, to_ms=0.0, change=lambda x: x, gain=0.4):
    """What lies between press + from_ms and release + to_ms, `delay_ms` later."""
    first, last = at(PRESS + from_ms * MS), at(RELEASE + to_ms * MS)
    samples = np.random.default_rng(2).normal(0, 2e-5, 6 * RATE)
    part = gain * change(SOUND[first:last])
    place = first + round(delay_ms * RATE / 1000)
    samples[place:place + len(part)] += part
    return Recording(samples).start_at(START)


class Chirps(unittest.TestCase):
    def test_every_piece_of_the_sound_is_another_one(self):
        for place in np.arange(2000 * MS, 4000 * MS, 330 * MS):
            delay, likeness = delay_of(MIC, MIC, place, place + 60 * MS, (-0.02, 0.9))
            self.assertAlmostEqual(delay, 0, delta=1000)
            self.assertGreater(likeness, 0.99)

    def test_a_press_is_measured_to_a_fraction_of_a_millisecond(self):
        for delay in (4.0, 47.3, 311.0):
            r = measure(MIC, ear(delay, to_ms=200), PRESS, RELEASE, UNTIL)
            for key, value in (("mouth_to_ear", delay), ("first", delay), ("last", delay), ("press_to_ear", delay),
                               ("release_to_silence", delay + 200), ("start_lost", 0), ("after_release", 200)):
                self.assertAlmostEqual(r[key], value, delta=1.2, msg=key)
            self.assertEqual(r["rejected"], 0)

    def test_a_clipped_start_and_sound_of_before_the_press_are_told_apart(self):
        self.assertAlmostEqual(measure(MIC, ear(50, from_ms=30), PRESS, RELEASE, UNTIL)["start_lost"], 30, delta=1.2)
        self.assertAlmostEqual(measure(MIC, ear(50, from_ms=-30), PRESS, RELEASE, UNTIL)["start_lost"], -30, delta=1.2)

    def test_silence_and_other_sound_are_lost_presses_and_no_figures(self):
        self.assertIn("lost", measure(MIC, ear(50, gain=0), PRESS, RELEASE, UNTIL))
        self.assertIn("lost", measure(MIC, ear(50, change=lambda x: chirps(len(x) / RATE, 9)[:len(x)]), PRESS, RELEASE, UNTIL))


class GoAhead(unittest.TestCase):
    @staticmethod
    def tone(hertz, after_ms):
        samples = np.random.default_rng(2).normal(0, 2e-5, 6 * RATE)
        first, count = at(PRESS + after_ms * MS), int(2 * NOTE_S * RATE)
        samples[first:first + count] += 0.2 * np.sin(2 * np.pi * hertz * np.arange(count) / RATE)
        return Recording(samples).start_at(START)

    def test_the_tone_is_found_where_it_begins(self):
        for after in (1, 240.5, 900):
            self.assertAlmostEqual((go_ahead_at(self.tone(GO_AHEAD_HZ, after), PRESS, RELEASE) - PRESS) / MS, after, delta=0.5)

    def test_another_tone_and_silence_are_none(self):
        self.assertIsNone(go_ahead_at(self.tone(1320, 100), PRESS, RELEASE))
        self.assertIsNone(go_ahead_at(self.tone(GO_AHEAD_HZ, 1200), PRESS, RELEASE))


class Clipped(unittest.TestCase):
    """The microphone begins with the press, so its file is the sound from there on."""

    file = SOUND[at(PRESS):]
    released = at(RELEASE) - at(PRESS)

    def setUp(self):
        # Full strength from the first sample on, as the microphone's file has it.
        self.file = chirps(3, 11)

    def hear(self, cut_start, end, delay_ms=80, change=lambda x: x):
        samples = np.zeros(6 * RATE)
        part = 0.5 * change(self.file[cut_start:end])
        place = at(PRESS) + round(delay_ms * RATE / 1000) + cut_start
        samples[place:place + len(part)] = part
        return clipped(self.file, self.released, Recording(samples).start_at(START), PRESS, UNTIL)

    def test_a_whole_burst_misses_nothing(self):
        r = self.hear(0, self.released + 9600)
        self.assertEqual((r["start"], r["end"], r["unlike"]), (0, 0, 0))
        self.assertAlmostEqual(r["tail"], 9600, delta=EDGE_SAMPLES)

    def test_missing_samples_are_counted(self):
        for cut_start, cut_end in ((120, 0), (960, 960), (5000, 300)):
            r = self.hear(cut_start, self.released - cut_end)
            self.assertAlmostEqual(r["start"], cut_start, delta=60)
            self.assertAlmostEqual(r["end"], cut_end if cut_end else 0, delta=60)

    def test_catching_up_is_no_loss_at_the_ends(self):
        def catching_up(x):
            step = int(CHIRP_S * RATE)
            return np.concatenate([x[i:i + step - 240] if 10 <= i // step < 20 else x[i:i + step] for i in range(0, len(x), step)])
        r = self.hear(0, self.released + 4800, 400, catching_up)
        self.assertEqual((r["start"], r["end"]), (0, 0))
        self.assertGreater(r["way_first"], r["way_last"])

    def test_silence_is_told(self):
        self.assertIn("lost", self.hear(0, 0))


class BadLink(unittest.TestCase):
    mouth = Recording(chirps(12, 5)).start_at(START)
    released = PRESS + 2000 * MS

    def hear(self, *pieces):
        """What heard_of() says of pieces of what was said: (ms after the press from, to, delay in ms)."""
        samples = np.random.default_rng(2).normal(0, 2e-5, 12 * RATE)
        for first, last, delay in pieces:
            from_frame, count = at(PRESS + first * MS), round((last - first) * RATE / 1000)
            place = at(PRESS + (first + delay) * MS)
            samples[place:place + count] += 0.4 * self.mouth.samples[from_frame:from_frame + count]
        return badlink.heard_of(self.mouth, Recording(samples).start_at(START), PRESS, self.released, self.released + 3000 * MS)

    def test_a_whole_burst(self):
        burst = self.hear((0, 2200, 90))
        self.assertAlmostEqual(burst["press_to_ear"], 90, delta=1.5)
        self.assertAlmostEqual(float(np.median(burst["delays"])), 90, delta=1)
        self.assertEqual((burst["start"], burst["end"]), (0, 0))
        self.assertGreater(burst["heard"], 0.98)

    def test_an_ear_that_stood_still_lost_nothing_and_is_later(self):
        burst = self.hear((0, 1000, 90), (1000, 2200, 890))
        self.assertAlmostEqual(burst["delays"][0], 90, delta=1)
        self.assertAlmostEqual(burst["delays"][-1], 890, delta=1)
        self.assertEqual((burst["start"], burst["end"]), (0, 0))
        self.assertGreater(burst["heard"], 0.96)

    def test_what_is_missing_is_told(self):
        burst = self.hear((300, 900, 90), (1200, 1800, 90))
        self.assertAlmostEqual(burst["press_to_ear"], 390, delta=1.5)
        self.assertAlmostEqual(burst["start"], 0.3 * RATE, delta=60)
        self.assertAlmostEqual(burst["end"], 0.2 * RATE, delta=60)
        self.assertAlmostEqual(burst["heard"], 0.6, delta=0.05)

    def test_a_burst_that_was_not_heard_counts_as_nothing_heard(self):
        whole, lost = self.hear((0, 2200, 90)), self.hear()
        self.assertIn("lost", lost)
        of = badlink.summary([whole, lost])
        self.assertEqual((of["bursts"], of["not_heard"]), (2, 1))
        self.assertAlmostEqual(of["heard"], whole["heard"] / 2, delta=0.001)
        lines = list(badlink.table([("pttd → page", 3, [whole, lost]), ("none", 3, [lost])]))
        self.assertEqual(len({line.count("|") for line in lines}), 1, lines)
        self.assertIn("1 of 2", lines[2])


class Stages(unittest.TestCase):
    talker = [parse_line(line) for line in (
        "pttd: Press t=10001000000", "pttd: floor granted t=10003000000", "pttd: first frame captured=10001500000 t=10014000000",
        "pttd: first packet sent t=10014200000", "pttd: last frame captured=10991500000 t=11003500000", "pttd: burst ended sent=100 t=11004000000",
        "pttd: capture ended encode_us=310 t=11000000000")]
    relay = [parse_line("pttrelay: first packet t=10014500000")]
    listener = [parse_line("pttd: talker begins t=10014900000"), parse_line("pttd: playback began device_delay_ms=8 t=10040000000")]

    def test_every_stage_from_the_press_to_the_ear_adds_up(self):
        stages = stages_of(self.talker, self.relay, self.listener, 10_000_000_000, 11_000_000_000, 10_042_000_000)
        whole = stages.pop("all: press → ear")
        self.assertAlmostEqual(whole, 42)
        self.assertAlmostEqual(sum(stages.values()), whole)
        self.assertAlmostEqual(stages["playback: the device's queue"], 8)
        self.assertAlmostEqual(stages["capture: the first frame fills"], 10)

    def test_lines_that_a_build_does_not_write_take_only_their_stages_away(self):
        stages = stages_of(self.talker, [], [self.listener[0]], 10_000_000_000, 11_000_000_000)
        self.assertNotIn("network: talker to relay", stages)
        self.assertIn("capture: the device's blocks; encode", stages_of(self.talker[:3], [], [], 10_000_000_000, 11_000_000_000))
        self.assertEqual(stages_of([], [], [], 0, 1), {})

    def test_fields_in_milliseconds_and_microseconds_are_listed(self):
        table = dict(fields_table(self.talker, self.relay, self.listener, [(10_000_000_000, 11_000_000_000)]))
        self.assertEqual(table["talker: capture ended encode_us"], [310])
        self.assertEqual(table["listener: playback began device_delay_ms"], [8])


class Proxy(unittest.TestCase):
    def test_datagrams_pass_late_and_in_order(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            server.bind(("127.0.0.1", 0))
            server.settimeout(20)
            client.settimeout(20)
            with DelayingProxy(server.getsockname()) as proxy:
                client.connect(("127.0.0.1", proxy.port))
                proxy.up = 0.2
                began = time.monotonic()
                client.send(b"1")
                first, back = server.recvfrom(100)
                self.assertGreaterEqual(time.monotonic() - began, 0.19)
                client.send(b"2")
                proxy.up = 0
                client.send(b"3")
                self.assertEqual([first, server.recv(100), server.recv(100)], [b"1", b"2", b"3"])
                server.sendto(b"answer", back)
                self.assertEqual(client.recv(100), b"answer")


class Curves(unittest.TestCase):
    growth, turns = benchmark("growth"), benchmark("turns")

    def test_the_exponent_is_that_of_the_power(self):
        for power in (0, 0.5, 1, 2):
            self.assertAlmostEqual(self.growth.slope([(x, 3 * x ** power) for x in (1, 10, 50, 1000)]), power)

    def test_turns_with_the_same_calls_are_told_together_and_what_is_beside_the_calls_is_own_code(self):
        def turn(begin, receive):
            return [(begin - 20_000_000, "e", 0), (begin, "e", 1), (begin + 1000, "r", 0), (begin + 1000 + receive, "r", 1)]
        notes = [*turn(50_000_000, 2000), *turn(90_000_000, 4000), *turn(130_000_000, 6000), (131_000_000, "e", 0)]
        lines = [f"{at} {call} {is_end} 1" for at, call, is_end in notes]
        ((is_cold, names, count, times),) = self.turns.told(self.turns.turns(lines))
        self.assertEqual((is_cold, names, count), (True, ("own", "r", "own"), 3))
        self.assertEqual(times[:2], [1, 4])


class Verdicts(unittest.TestCase):
    voice, clipping = benchmark("voice"), benchmark("clipping")

    @staticmethod
    def press(mouth_to_ear=30.0, press_to_ear=35.0, release_to_silence=230.0, start_lost=0.4):
        return {"mouth_to_ear": mouth_to_ear, "press_to_ear": press_to_ear, "release_to_silence": release_to_silence,
                "start_lost": start_lost, "pieces": [mouth_to_ear, mouth_to_ear + 1]}

    def run_of(self, *ours):
        return {"pttd": list(ours), "mumble": [self.press(mouth_to_ear=100.0)] * 3, "mumble-lowest": [self.press(mouth_to_ear=54.0)] * 3}

    def bars(self, results):
        return {title: is_met for title, _, _, is_met in self.voice.bars_of(results)}

    def test_a_good_run_meets_every_bar(self):
        self.assertEqual(len(self.bars(self.run_of(self.press()))), 6)
        self.assertTrue(all(self.bars(self.run_of(self.press(), self.press())).values()))

    def test_no_bar_is_met_when_one_press_of_ours_was_not_heard(self):
        self.assertFalse(any(self.bars(self.run_of(self.press(), {"lost": "nothing was heard"})).values()))
        self.assertFalse(any(self.bars(self.run_of({"lost": "nothing was heard"})).values()))

    def test_presses_that_mumble_lost_are_no_fault_of_ours(self):
        results = self.run_of(self.press())
        results["mumble"].append({"lost": "nothing was heard"})
        self.assertTrue(all(self.bars(results).values()))

    def test_each_bar_is_missed_for_its_own_sake(self):
        for change, titles in (({"press_to_ear": 41}, ["press → ear p95"]), ({"release_to_silence": 241}, ["release → silence p95"]),
                               ({"start_lost": 6}, ["start of speech lost p95"]), ({"mouth_to_ear": 51}, ["mouth → ear p95"]),
                               ({"mouth_to_ear": 55}, ["mouth → ear p95"] * 2)):
            missed = [title.split(",")[0] for title, is_met in self.bars(self.run_of(self.press(**change))).items() if not is_met]
            self.assertEqual(missed, titles)

    def test_without_ours_nothing_is_judged_and_the_bars_are_printed(self):
        self.assertEqual(self.voice.bars_of({"mumble": [self.press()]}), [])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.voice.judge(self.run_of(self.press(), {"lost": "nothing was heard"}))
            self.voice.judge({})
        self.assertEqual(out.getvalue().count("missed"), 6)
        self.assertNotIn(" met", out.getvalue().replace("no bar is met", ""))

    def test_presses_around_which_the_machine_was_late_are_judged_apart(self):
        results = self.run_of(*[self.press()] * 3, {**self.press(press_to_ear=90.0), "late_ms": 30.0})
        self.assertFalse(self.bars(results)["press → ear p95, microphone stopped before"])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.voice.judge(results)
        first, second = out.getvalue().split("Bars while the machine was in time")
        self.assertIn("missed", first)
        self.assertNotIn("missed", second)
        self.assertEqual(second.count("met"), 6)

    def test_each_of_ours_is_judged_by_its_own_server(self):
        alone = {"pulse": [self.press(mouth_to_ear=20.5, press_to_ear=24.0)], "pipewire-alone": [self.press(mouth_to_ear=30.0)]}
        bars = self.bars({**self.run_of(self.press()), **alone, "pipewire": [self.press(mouth_to_ear=46.0)]})
        self.assertEqual(len(bars), 6 + 3 + 3)
        self.assertEqual([title for title, is_met in bars.items() if not is_met],
                         ["mouth → ear p95, 1.5 times PipeWire alone: pipewire"])

    def test_a_wake_up_is_late_for_the_press_it_reaches(self):
        session = self.voice.Session("pttd", None, MIC, MIC, [], np.array([[500 * MS, 2_000_000], [2600 * MS, 200 * MS], [4299 * MS, 7 * MS]]))
        self.assertEqual(session.latest_ms(PRESS, RELEASE), 200)        # ends within 300 ms before the press
        self.assertEqual(session.latest_ms(PRESS + 200 * MS, RELEASE), 7)
        self.assertEqual(session.latest_ms(5000 * MS, 6000 * MS), 0)

    def test_the_tables_of_the_documentation_have_as_many_columns_as_their_heads(self):
        results = self.run_of(self.press(), {"lost": "nothing was heard"})
        text = "\n".join(self.voice.markdown(results, self.voice.bars_of(results), {"sending": [0.1, 0.2]}))
        for table in text.split("\n\n"):
            self.assertEqual(len({line.count("|") for line in table.split("\n")}), 1, table)
        self.assertIn("| pttd, default settings | 1 of 2 | 30.0 / 30.0 |", text)
        late = self.run_of(self.press(), {**self.press(), "late_ms": 9.0})
        none = self.run_of({**self.press(), "late_ms": 9.0})
        for results, line in ((late, "| – machine in time | 1 | 30.0 / 30.0 |"), (none, "| – machine in time | 0 | – |")):
            text = "\n".join(self.voice.markdown(results, self.voice.bars_of(results), {}))
            for table in text.split("\n\n"):
                self.assertEqual(len({line.count("|") for line in table.split("\n")}), 1, table)
            self.assertIn(line, text)

    def test_words_are_clipped_when_a_press_lost_samples_or_was_not_heard(self):
        whole = {"press": 1, "delay_ms": 100, "held_ms": 700, "granted_after_ms": 102, "start": 0, "end": 0, "opened_after": 20,
                 "tail": 9600, "unlike": 0, "chirps": 35}
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertTrue(self.clipping.report([whole, whole]))
            self.assertFalse(self.clipping.report([whole, {**whole, "start": 60}]))
            self.assertFalse(self.clipping.report([whole, {**whole, "end": 60}]))
            lost = {"press": 2, "delay_ms": 100, "held_ms": 700, "granted_after_ms": None, "lost": "nothing was heard"}
            self.assertFalse(self.clipping.report([whole, lost]))
            self.assertFalse(self.clipping.report([lost]))
            self.assertFalse(self.clipping.report([]))


class Tunnel(unittest.TestCase):
    tunnel = benchmark("tunnel")
    seconds, spoken = 2.0, chirps(3, 11)

    def hear(self, *pieces):
        """What judged() says of pieces of the speech: (from s, to s, delay in s)."""
        samples = np.random.default_rng(2).normal(0, 2e-5, 10 * RATE)
        for first, last, delay in pieces:
            part = 0.4 * self.spoken[round(first * RATE):round(last * RATE)]
            place = round((PRESS - START) / 1e9 * RATE + (first + delay) * RATE)
            samples[place:place + len(part)] += part
        return self.tunnel.judged(self.spoken, PRESS, self.seconds, Recording(samples).start_at(START), PRESS + 7000 * MS)

    def test_a_whole_burst_is_heard_with_its_delay(self):
        burst = self.hear((0, 2.2, 0.15))
        self.assertGreater(burst["heard"], 0.99)
        self.assertAlmostEqual(float(np.median(burst["delays"])), 150, delta=1)
        self.assertEqual((burst["start"], burst["end"]), (0, 0))

    def test_a_listener_that_stood_still_is_later_and_has_lost_nothing(self):
        burst = self.hear((0, 1, 0.15), (1, 2.2, 1.35))
        self.assertGreater(burst["heard"], 0.97)
        self.assertAlmostEqual(burst["delays"][0], 150, delta=1)
        self.assertAlmostEqual(burst["delays"][-1], 1350, delta=1)
        self.assertLessEqual(burst["inside"], 40)

    def test_what_is_missing_is_told_where_it_is(self):
        burst = self.hear((0.2, 0.8, 0.15), (1.2, 1.6, 0.15))
        self.assertAlmostEqual(burst["start"], 200, delta=21)
        self.assertAlmostEqual(burst["inside"], 400, delta=41)
        self.assertAlmostEqual(burst["end"], 400, delta=41)

    def test_silence_is_a_burst_that_was_not_heard(self):
        self.assertEqual(self.hear()["heard"], 0)

    @unittest.skipUnless(os.getuid() == 0 and shutil.which("ip") and shutil.which("gcc") and os.access("/dev/net/tun", os.W_OK), "makes namespaces")
    def test_a_link_delays_and_loses_as_told(self):
        with tempfile.TemporaryDirectory() as folder, self.tunnel.Network("test", pathlib.Path(folder)) as network:
            def inside(who, program, *words):
                return subprocess.Popen(["ip", "netns", "exec", network.namespace(who), sys.executable, "-c", program, *words],
                                        stdout=subprocess.PIPE, text=True)
            echo = inside("server", "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7)); print('ready', flush=True)\n"
                          "while True: s.sendto(*s.recvfrom(99))")
            try:
                self.assertEqual(echo.stdout.readline().strip(), "ready")
                ask = ("import socket, sys, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)\n"
                       "came, took = [], []\n"
                       "for i in range(250): s.sendto(b'%d' % i, (sys.argv[1], 7)); time.sleep(0.001)\n"
                       "try:\n"
                       "    while len(came) < 250: came.append(s.recv(99))\n"
                       "except TimeoutError: pass\n"
                       "try:\n"
                       "    for i in range(3):\n"
                       "        start = time.monotonic()\n"
                       "        s.sendto(b'last', (sys.argv[1], 7)); s.recv(99)\n"
                       "        took.append(time.monotonic() - start)\n"
                       "except TimeoutError: pass\n"
                       "print(len(came), min(took, default=9))")

                def asked(loss, udp):
                    network.set("talker", loss, 40, udp)
                    count, took = inside("talker", ask, network.server("talker")).communicate()[0].split()
                    return int(count), float(took), network.set("talker")
                count, took, carried = asked(0, "both")
                self.assertEqual((count, carried["up"][2], carried["down"][2]), (250, 253, 253))
                self.assertTrue(0.08 <= took < 0.2, took)
                count, _, _ = asked(0.1, "both")
                self.assertAlmostEqual(count, 202, delta=30)
                count, _, carried = asked(0, "up")
                self.assertEqual((count, carried["up"][2], carried["down"][2]), (0, 251, 0))
            finally:
                echo.kill()
                echo.communicate()


class Cost(unittest.TestCase):
    def test_work_and_memory_of_a_process_are_seen(self):
        meter = Meter({"own": os.getpid()})
        until = time.process_time() + 0.15
        while time.process_time() < until:
            pass
        _, processor, wakes, _ = meter.stop()
        self.assertGreaterEqual(processor["own"], 0.1)
        self.assertGreaterEqual(wakes["own"], 0)
        self.assertGreater(memory_kilobytes(os.getpid())["Anonymous"], 1000)


if __name__ == "__main__":
    unittest.main()
