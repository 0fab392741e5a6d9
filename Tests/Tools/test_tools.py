#!/usr/bin/python3
"""Tests of the tools that judge what a listener heard, on signals whose delay, clipping and distortion are known.

    python3 Tests/Tools/test_tools.py
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from align import NotFound, align  # noqa: E402
from halts import Halts, joined_ms  # noqa: E402
from logevents import milestones, parse_line  # noqa: E402
from speech import loud_moments, resampled  # noqa: E402
from timeline import burst_milestones, draw  # noqa: E402
from wavefile import RATE, Recording, read_wav, write_wav  # noqa: E402

SECOND = 1e9
PRESS, RELEASE = 6 * SECOND, 9 * SECOND
MIC_START, EAR_START = 1 * SECOND, 4 * SECOND


def babble(seconds, seed=7):
    """Speech-like sound: voiced syllables of changing pitch and timbre, hissing, short pauses."""
    r, parts, length = np.random.default_rng(seed), [], 0
    while length < seconds * RATE:
        n = int(r.uniform(0.06, 0.2) * RATE)
        t = np.arange(n) / RATE
        if r.random() < 0.75:
            pitch = r.uniform(90, 200) * (1 + r.uniform(-0.15, 0.15) * t / t[-1])
            phase = 2 * np.pi * np.cumsum(pitch) / RATE
            formants = r.uniform(300, 900), r.uniform(1000, 2600)
            part = sum(np.sin(k * phase + r.uniform(0, 6.28)) * sum(np.exp(-((k * 140 - f) / 250) ** 2) + 0.02 for f in formants)
                       for k in range(1, 22))
        else:
            part = r.normal(0, 0.25, n)
        part = part * np.hanning(n) ** 0.5
        parts += [part, np.zeros(int(r.uniform(0, 0.05) * RATE))]
        length += sum(map(len, parts[-2:]))
    x = np.concatenate(parts)[:int(seconds * RATE)]
    return x / np.abs(x).max() * 0.7


def coded(x, seed=3):
    """Distorted about as much as by a speech codec: noise 12 dB below each 20 ms, nothing above 8 kHz, another phase at the top."""
    r, frame, out = np.random.default_rng(seed), RATE // 50, x.copy()
    for i in range(0, len(x), frame):
        part = out[i:i + frame]
        part += r.normal(0, 1, len(part)) * np.sqrt((part ** 2).mean()) * 0.25
    spectrum = np.fft.rfft(out)
    spectrum[np.fft.rfftfreq(len(out), 1 / RATE) > 8000] = 0
    return np.fft.irfft(spectrum, len(out))


def compressed(x, speed, overlap=480):
    """Faster at the same pitch: pieces of 20 ms laid over one another where they fit best."""
    out, current, source, ramp = [x[:overlap]], x[overlap:2 * overlap], overlap, np.linspace(0, 1, overlap)
    for k in range(1, len(x)):
        wanted = int(k * overlap * speed)
        low, high = max(0, wanted - overlap // 2), wanted + overlap // 2
        if high + 2 * overlap >= len(x):
            return np.concatenate((*out, x[source:]))
        piece = x[low:high + overlap]
        energy = np.convolve(piece ** 2, np.ones(overlap), 'valid') + 1e-9
        at = low + int((np.correlate(piece, current, 'valid') / np.sqrt(energy)).argmax())
        out.append(current * (1 - ramp) + x[at:at + overlap] * ramp)
        current, source = x[at + overlap:at + 2 * overlap], at + overlap
    return x


def by_opus(x, bitrate):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'x')
        write_wav(path + '.wav', x)
        subprocess.run(['opusenc', '--quiet', '--bitrate', str(bitrate), '--speech', path + '.wav', path + '.opus'], check=True)
        subprocess.run(['opusdec', '--quiet', '--rate', str(RATE), path + '.opus', path + '.out.wav'], check=True)
        return read_wav(path + '.out.wav')[0]


SPEECH = babble(14)
MIC = Recording(SPEECH).start_at(MIC_START)


def heard(delay_ms, change=lambda x: x, from_ms=0.0, to_ms=200.0, gain=0.5, noise=1e-4):
    """An ear recording of what lies between the press + from_ms and the release + to_ms, `delay_ms` later."""
    ear = np.random.default_rng(5).normal(0, noise, 10 * RATE)
    first = int(MIC.frame_at(PRESS + from_ms * 1e6))
    last = int(MIC.frame_at(RELEASE + to_ms * 1e6))
    part = change(SPEECH[first:last])
    at = first + round(delay_ms * RATE / 1000) - int((EAR_START - MIC_START) * RATE / SECOND)
    ear[at:at + len(part)] += gain * part
    return Recording(ear).start_at(EAR_START)


class Alignment(unittest.TestCase):
    def test_a_known_delay_is_found_to_a_tenth_of_a_millisecond(self):
        for delay in (0.0, 12.3, 61.7, 250.0, 998.4):
            a = align(MIC, heard(delay), PRESS, RELEASE)
            self.assertAlmostEqual(a.mouth_to_ear_ms, delay, delta=0.1)
            self.assertGreater(a.correlation, 0.98)

    def test_a_codec_changes_the_correlation_but_not_the_delay(self):
        a = align(MIC, heard(73.2, coded), PRESS, RELEASE)
        self.assertAlmostEqual(a.mouth_to_ear_ms, 73.2, delta=0.5)
        self.assertTrue(0.85 < a.correlation < 0.998, a.correlation)

    @unittest.skipUnless(shutil.which('opusenc'), 'opus-tools are not installed')
    def test_opus_at_the_bit_rates_in_use(self):
        for bitrate, least in ((12, 0.85), (24, 0.9), (32, 0.9)):
            a = align(MIC, heard(73.2, lambda x: by_opus(x, bitrate)), PRESS, RELEASE)
            self.assertAlmostEqual(a.mouth_to_ear_ms, 73.2, delta=0.5)
            self.assertGreater(a.correlation, least)
            self.assertEqual((a.start_lost_ms, a.end_lost_ms), (0, 0))

    def test_nothing_is_lost_when_everything_between_press_and_release_arrives(self):
        a = align(MIC, heard(50), PRESS, RELEASE)
        self.assertEqual((a.start_lost_ms, a.end_lost_ms, a.lost_inside_ms), (0, 0, 0))
        self.assertEqual(a.before_press_ms, 0)

    def test_a_clipped_start_and_end_are_measured(self):
        # the moments are put where the speech is loud, so that every millisecond counts
        loud = [m for m in loud_moments(SPEECH) if 4.5 < m < 5.5][0]
        press = MIC_START + loud * SECOND - 0.03 * SECOND
        for clipped in (10, 20, 40):
            first = int(MIC.frame_at(press + clipped * 1e6))
            ear = np.zeros(10 * RATE)
            at = first + RATE // 20 - 3 * RATE
            ear[at:at + 2 * RATE] = SPEECH[first:first + 2 * RATE]
            a = align(MIC, Recording(ear).start_at(EAR_START), press, press + 1.9 * SECOND)
            self.assertAlmostEqual(a.start_lost_ms, clipped, delta=5)
        end = align(MIC, heard(50, to_ms=-300), PRESS, RELEASE)
        self.assertTrue(200 < end.end_lost_ms <= 300, end.end_lost_ms)

    def test_sound_from_before_the_press_is_noticed(self):
        a = align(MIC, heard(50, from_ms=-80), PRESS, RELEASE)
        self.assertTrue(50 < a.before_press_ms <= 80, a.before_press_ms)

    def test_the_tail_is_measured(self):
        a = align(MIC, heard(50, to_ms=200), PRESS, RELEASE)
        self.assertTrue(150 < a.after_release_ms <= 200, a.after_release_ms)
        self.assertAlmostEqual(a.release_to_silence_ms, a.after_release_ms + 50, delta=6)

    def test_the_next_burst_is_no_part_of_this_one(self):
        # Let go for 0.6 s, and heard again.
        def pause(x):
            x = x.copy()
            x[RATE:RATE + RATE * 6 // 10] = 0
            return x
        release, again = PRESS + 1 * SECOND, PRESS + 1.6 * SECOND
        whole = align(MIC, heard(50, pause), PRESS, release)
        self.assertGreater(whole.release_to_silence_ms, 500)
        a = align(MIC, heard(50, pause), PRESS, release, until=again)
        self.assertLess(a.release_to_silence_ms, 60)
        self.assertEqual(a.lost_inside_ms, 0)

    def test_a_hole_is_lost_inside(self):
        def hole(x):
            x = x.copy()
            x[RATE:RATE + RATE // 5] = 0
            return x
        a = align(MIC, heard(50, hole), PRESS, RELEASE)
        self.assertTrue(100 < a.lost_inside_ms <= 200, a.lost_inside_ms)

    def test_a_listener_who_catches_up_is_followed(self):
        def catching_up(x):
            parts = [x[i:i + RATE // 10] for i in range(0, len(x), RATE // 10)]
            return np.concatenate([p[RATE // 50:] if 8 <= i < 13 else p for i, p in enumerate(parts)])
        a = align(MIC, heard(300, catching_up), PRESS, RELEASE)
        self.assertAlmostEqual(a.mouth_to_ear_first_ms, 300, delta=1)
        self.assertAlmostEqual(a.mouth_to_ear_last_ms, 200, delta=1)
        self.assertEqual(a.start_lost_ms, 0)

    def test_a_listener_who_catches_up_by_compression_is_followed(self):
        for speed, seconds in ((1.1, 1.0), (1.5, 0.3)):
            def catching_up(x):
                n = int(seconds * RATE)
                return np.concatenate((compressed(x[:n], speed), x[n:]))
            a = align(MIC, heard(300, catching_up), PRESS, RELEASE)
            self.assertEqual((a.start_lost_ms, a.end_lost_ms), (0, 0), speed)
            self.assertLess(a.lost_inside_ms, 80)
            self.assertAlmostEqual(a.press_to_ear_ms, 300, delta=12)
            self.assertAlmostEqual(a.mouth_to_ear_last_ms, 300 - 1000 * seconds * (1 - 1 / speed), delta=20)

    def test_other_sound_is_not_the_same_speech(self):
        def other(x):
            return babble(len(x) / RATE, seed=99)[:len(x)]
        for change in (other, lambda x: x[::-1], lambda x: np.random.default_rng(1).normal(0, 0.1, len(x))):
            try:
                self.assertLess(align(MIC, heard(50, change), PRESS, RELEASE).correlation, 0.7)
            except NotFound:
                pass

    def test_silence_is_not_found(self):
        with self.assertRaises(NotFound):
            align(MIC, heard(50, gain=0), PRESS, RELEASE)
        with self.assertRaises(NotFound):
            align(MIC, heard(50, gain=0, noise=0), PRESS, RELEASE)

    def test_a_repeated_microphone_is_unrolled(self):
        once = Recording(SPEECH[:5 * RATE], loops=True).start_at(MIC_START)
        unrolled = np.tile(SPEECH[:5 * RATE], 3)
        ear = np.zeros(10 * RATE)
        first = 5 * RATE
        ear[first + 2880 - 3 * RATE:first + 2880] = unrolled[first:first + 3 * RATE]
        a = align(once, Recording(ear).start_at(EAR_START), PRESS, RELEASE - 0.2 * SECOND)
        self.assertAlmostEqual(a.mouth_to_ear_ms, 60, delta=0.1)

    def test_without_clocks_the_offset_is_found_anywhere(self):
        a = align(Recording(SPEECH), Recording(np.concatenate((np.zeros(RATE), SPEECH[3 * RATE:6 * RATE]))))
        self.assertAlmostEqual(a.mouth_to_ear_ms, -2000, delta=0.1)
        self.assertIsNone(a.press_to_ear_ms)


class MachineHalts(unittest.TestCase):
    def test_halts_of_several_processors_count_once(self):
        halts = [(10e6, 30e6), (20e6, 40e6), (50e6, 60e6), (95e6, 200e6)]
        self.assertEqual(joined_ms(halts, 0, 300e6), 30 + 10 + 105)
        self.assertEqual(joined_ms(halts, 25e6, 100e6), 15 + 10 + 5)
        self.assertEqual(joined_ms(halts, 40e6, 50e6), 0)

    def test_a_processor_that_runs_nothing_for_a_while_is_noticed(self):
        halts = Halts()
        try:
            deadline, halted = time.monotonic() + 60, 0
            # A busy machine takes its time until they watch, and until what they see is read.
            while halted < 100 and time.monotonic() < deadline:
                time.sleep(0.3)
                began = time.monotonic_ns()
                halts.watchers[0].send_signal(signal.SIGSTOP)
                time.sleep(0.12)
                halts.watchers[0].send_signal(signal.SIGCONT)
                ended = time.monotonic_ns()
                time.sleep(0.3)
                halted = halts.between(began, ended)
            self.assertGreaterEqual(halted, 100)
            self.assertEqual(halts.between(began - 10**12, began - 10**11), 0)
        finally:
            halts.end()


class Recordings(unittest.TestCase):
    def test_a_clock_that_drifts_is_followed(self):
        clock = [[k * RATE, 5e9 + k * 1e9 * 1.0001] for k in range(20)]
        r = Recording(np.zeros(RATE), clock=clock)
        self.assertAlmostEqual(r.time_of(10 * RATE), 5e9 + 10e9 * 1.0001, delta=1e3)
        self.assertAlmostEqual(r.frame_at(r.time_of(123456)), 123456, delta=0.1)

    def test_resampling_keeps_a_tone(self):
        tone = np.sin(2 * np.pi * 440 * np.arange(22050) / 22050)
        wanted = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
        self.assertLess(np.abs(resampled(tone, 22050, RATE) - wanted)[2000:-2000].max(), 0.01)

    def test_wav_files_are_read_as_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'a.wav')
            write_wav(path, SPEECH[:RATE])
            got, rate = read_wav(path)
            self.assertEqual(rate, RATE)
            self.assertLess(np.abs(got - SPEECH[:RATE]).max(), 1 / 32000)


class Logs(unittest.TestCase):
    def test_a_journal_line_and_a_terminal_line_are_the_same_event(self):
        for line in ('<6>pttd: floor granted channel="Local One" request=7 t=12345\n',
                     '12.345678 info pttd: floor granted channel="Local One" request=7 t=12345\n',
                     'Nov 21 06:00:00 box pttd[12]: floor granted channel="Local One" request=7 t=12345\n',
                     '[   12.345678] box pttd[12]: floor granted channel="Local One" request=7 t=12345\n'):
            event = parse_line(line.replace('pttd[12]:', 'pttd[12]: pttd:') if '[12]' in line else line)
            self.assertEqual((event['label'], event['message'], event['t']), ('pttd', 'floor granted', 12345), line)
            self.assertEqual(event['metadata']['channel'], 'Local One')

    def test_escaped_values_are_undone_and_cannot_forge_metadata(self):
        event = parse_line('pttd: bad name name="x\\n t=5 \\x1b\\"q" t=9')
        self.assertEqual(event['t'], 9)
        self.assertEqual(event['metadata']['name'], 'x\n t=5 \x1b"q')

    def test_an_equals_sign_in_a_message_is_no_metadata(self):
        event = parse_line('pttd: key a=b is unknown in the file line=3')
        self.assertEqual((event['message'], event['metadata']), ('key a=b is unknown in the file', {'line': '3'}))

    def test_other_lines_are_nothing(self):
        self.assertIsNone(parse_line('-- Boot 1234 --'))

    def test_milestones_are_the_first_after_the_press(self):
        events = [parse_line(f'{label}: {message} t={t}') for label, message, t in (
            ('pttd', 'press handled', 5), ('pttd', 'press handled', 100), ('pttrelay', 'floor granted', 105),
            ('pttd', 'floor granted', 110), ('pttd', 'first packet sent', 120), ('pttrelay', 'first packet', 130),
            ('pttd', 'press handled', 500), ('pttrelay', 'floor released', 300))]
        self.assertEqual(milestones(events, 50, 400), {
            'begin request': 100, 'floor granted': 110, 'first packet sent': 120, 'first packet at relay': 130,
            'floor released at relay': 300})


class Picture(unittest.TestCase):
    def test_the_timeline_is_drawn(self):
        events = [parse_line(f'pttd: {m} t={int(t)}') for m, t in (
            ('press handled', PRESS + 3e6), ('first packet sent', PRESS + 24e6), ('last frame', RELEASE + 220e6))]
        heard_events = [parse_line(f'pttd: playback began t={int(PRESS + 60e6)}')]
        found = burst_milestones(events, heard_events, int(PRESS), int(RELEASE))
        self.assertEqual(set(found), {'begin request', 'first packet sent', 'last frame sent', 'playback began'})
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 't.png')
            draw(path, MIC, heard(60, coded), PRESS, RELEASE, found)
            with open(path, 'rb') as f:
                self.assertEqual(f.read(8), b'\x89PNG\r\n\x1a\n')
            self.assertGreater(os.path.getsize(path), 30_000)


class CommandLine(unittest.TestCase):
    def test_align_prints_json_and_judges(self):
        with tempfile.TemporaryDirectory() as folder:
            mic, ear, silent = (os.path.join(folder, n) for n in ('mic.wav', 'ear.wav', 'silent.wav'))
            write_wav(mic, SPEECH)
            write_wav(ear, heard(60).samples)
            write_wav(silent, np.zeros(RATE * 10))
            for path, start in ((mic, MIC_START), (ear, EAR_START), (silent, EAR_START)):
                with open(path + '.clock', 'w') as f:
                    f.write(f'0 {start:.0f}\n')
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'align.py')
            command = [sys.executable, script, mic, ear, '--press', str(PRESS), '--release', str(RELEASE)]
            good = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(good.returncode, 0, good.stderr)
            self.assertAlmostEqual(json.loads(good.stdout)['bursts'][0]['mouth_to_ear_ms'], 60, delta=0.1)
            command[3] = silent
            bad = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(bad.returncode, 1)
            self.assertIn('silent', json.loads(bad.stdout)['bursts'][0]['error'])


if __name__ == '__main__':
    unittest.main()
