#!/usr/bin/python3
"""Tests of the lossy way, and of finding what was heard behind it.

    python3 Tests/Tools/test_loss.py
"""
import os
import socket
import sys
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lossyproxy import Direction, LossyProxy, Network  # noqa: E402
from speechscore import HEARD_CORRELATION, THIN, banded, laid, padded, places  # noqa: E402
from test_tools import babble  # noqa: E402
from wavefile import RATE  # noqa: E402


class Ways(unittest.TestCase):
    def setUp(self):
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.server.bind(("127.0.0.1", 0))
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for each in (self.server, self.client):
            each.settimeout(20)

    def tearDown(self):
        self.server.close()
        self.client.close()

    def test_datagrams_pass_in_both_directions_unless_it_is_dark(self):
        with LossyProxy(self.server.getsockname()) as way:
            self.client.connect(("127.0.0.1", way.port))
            self.client.send(b"there")
            datagram, back = self.server.recvfrom(100)
            self.assertEqual(datagram, b"there")
            way.network = Network(jitter_ms=20)
            self.server.sendto(b"back", back)
            self.assertEqual(self.client.recv(100), b"back")
            way.network = Network(is_dark=True)
            self.client.send(b"lost")
            while way.up.seen < 2:
                time.sleep(0.01)
            way.network = Network()
            self.client.send(b"again")
            self.assertEqual(self.server.recv(100), b"again")

    def test_as_many_are_lost_as_wanted(self):
        direction = Direction(seed=3)
        lost = sum(direction.delay(Network(loss=0.2)) is None for _ in range(20_000))
        self.assertAlmostEqual(lost / 20_000, 0.2, delta=0.02)

    def test_bursts_lose_as_many_in_a_row(self):
        direction, now, fates = Direction(seed=5), 1_000.0, []
        clock, time.monotonic = time.monotonic, lambda: now
        try:
            for _ in range(60_000):
                fates.append(direction.delay(Network(loss=0.2, is_bursty=True)) is None)
                now += 0.01
        finally:
            time.monotonic = clock
        runs = sum(a and not b for a, b in zip(fates, fates[1:]))
        self.assertAlmostEqual(np.mean(fates), 0.2, delta=0.03)
        self.assertGreater(sum(fates) / runs, 4, "60 ms are six datagrams")


class Places(unittest.TestCase):
    def test_what_is_late_but_whole_is_found_and_laid_in_its_place(self):
        said = padded(babble(4))
        silence = np.zeros(RATE // 2)
        cut = int(2.03 * RATE)
        ear = padded(np.concatenate((silence, said[:cut], np.zeros(2 * RATE), said[cut:], silence)))
        path = places(banded(said), banded(ear))
        found = [(delay * THIN / RATE, c) for _, delay, c, audible in path if audible]
        self.assertGreater(np.mean([c >= HEARD_CORRELATION for _, c in found]), 0.93)
        self.assertAlmostEqual(found[0][0], 0.5, delta=0.002)
        self.assertAlmostEqual(found[-1][0], 2.5, delta=0.002)
        heard = laid(said, ear, path)
        alike = (said * heard).sum() / np.sqrt((said ** 2).sum() * (heard ** 2).sum())
        self.assertGreater(alike, 0.97)

    def test_noise_is_not_what_was_said(self):
        said = padded(babble(3))
        ear = padded(np.random.default_rng(2).normal(size=len(said) + RATE) * 0.1)
        path = places(banded(said), banded(ear))
        self.assertLess(np.mean([c >= HEARD_CORRELATION for _, _, c, audible in path if audible]), 0.1)


if __name__ == "__main__":
    unittest.main()
