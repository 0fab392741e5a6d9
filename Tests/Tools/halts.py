#!/usr/bin/python3
"""When this machine gave no time to a program that wanted to run: its host ran something else, or it was busy itself.

    halts.py CPU        on this processor; prints the beginning and the end of each halt (CLOCK_MONOTONIC, ns)

Sound in real time cannot be better than the machine that plays it. So a test that limits what is missing of it allows for the halts.
"""
import os
import subprocess
import sys
import threading
import time

LOOK_S = 0.004
HALT_NS = 8_000_000     # a sleep that ends so much too late; usual are 0.1 ms, and some ms beside a build
LOST_IN_HALTS = 2       # what a halt may cost: sound that is not there when it has to be played, and the catching up


def watch(cpu):
    os.sched_setaffinity(0, {cpu})
    due = time.monotonic_ns() + int(LOOK_S * 1e9)
    while True:
        time.sleep(LOOK_S)
        woken = time.monotonic_ns()
        if woken - due > HALT_NS:
            print(due, woken, flush=True)
        due = time.monotonic_ns() + int(LOOK_S * 1e9)


def joined_ms(halts, first, last):
    """How long at least one processor was halted between two instants, in ms."""
    total, until = 0, first
    for begin, end in sorted(halts):
        begin, end = max(begin, until), min(end, last)
        if end > begin:
            total, until = total + end - begin, end
    return total / 1e6


class Halts:
    """Watches every processor until the program ends."""

    def __init__(self):
        self.halts = []
        self.watchers = [
            subprocess.Popen([sys.executable, __file__, str(cpu)], stdout=subprocess.PIPE, text=True)
            for cpu in sorted(os.sched_getaffinity(0))]
        for one in self.watchers:
            threading.Thread(target=self._read, args=(one,), daemon=True).start()

    def _read(self, watcher):
        for line in watcher.stdout:
            self.halts.append(tuple(int(word) for word in line.split()))

    def between(self, first, last):
        """How long at least one processor was halted between two instants (CLOCK_MONOTONIC, ns), in ms."""
        time.sleep(3 * LOOK_S)      # a halt is told when it has ended
        return joined_ms(list(self.halts), first, last)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for one in self.watchers:
            one.kill()
            one.wait()


if __name__ == "__main__":
    watch(int(sys.argv[1]))
