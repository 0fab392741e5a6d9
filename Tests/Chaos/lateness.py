"""How late this machine lets threads wake meanwhile, at the highest and at an ordinary priority: what spoils sound in real time."""
import os
import subprocess
import threading

import numpy as np

from packages import ROOT
from pulse import ended


class Lateness:
    """Runs until `finish`; then `latest_ms` and `halted_ms` tell of any spell."""

    def __init__(self, folder):
        program = folder / "late-wakeups"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", program, ROOT / "Benchmarks" / "late-wakeups.c", "-pthread"], check=True)
        self.watches = [self._watch(program), self._watch(program, "ordinary")]
        self.found, self.ways = None, None

    def _watch(self, *command):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
        reader.start()
        return process, reader, lines

    def finish(self, traffic):
        """`traffic`: the files of the ways."""
        self.found, self.ways = [], read_lateness(traffic)
        for process, reader, lines in self.watches:
            ended(process)
            reader.join(5)
            self.found.append(np.array([[int(w) for w in line.split()] for line in lines if line.endswith("\n")]).reshape(-1, 2))

    def _between(self, late, first, last):
        return late[(late.sum(axis=1) > first) & (late[:, 0] < last)][:, 1]

    def latest_ms(self, first, last):
        """The latest wake-up between two instants (ns): (of the highest priority, of an ordinary one)."""
        return tuple(float(max(self._between(late, first, last), default=0)) / 1e6 for late in self.found)

    def ways_late_ms(self, first, last):
        """By how much a way was late itself between two instants: datagrams came that much later than its plan says."""
        return float(max(self._between(self.ways, first, last), default=0)) / 1e6

    def halted_ms(self, first, last):
        """For how long in all ordinary threads did not wake, a mean of the processors: what is added to every bound."""
        return float(self._between(self.found[1], first, last).sum()) / 1e6 / (os.cpu_count() or 1)


def read_lateness(paths):
    """When ways got their turn too late: rows of (due, late) in ns."""
    lines = (line.split() for path in paths for line in path.read_text().splitlines() if line.endswith(" way late"))
    return np.array([[int(word) for word in line[:2]] for line in lines]).reshape(-1, 2)
