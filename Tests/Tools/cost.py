"""What a process costs: processor time, wake-ups, memory. Read from /proc, which asks nothing of the process."""
import os
import pathlib
import re
import time

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Who wakes a process up shows in its system calls; a wake-up is a voluntary switch of any of its threads.


def processor_seconds(process):
    """User and system time of all threads, ended ones too; exact to a tick of 10 ms."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def wake_ups(process):
    """{thread: voluntary context switches}."""
    counts = {}
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            counts[task.name] = int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.M)[1])
        except FileNotFoundError:       # it has just ended
            continue
    return counts


def thread_names(process):
    names = {}
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            names[task.name] = (task / "comm").read_text().strip()
        except FileNotFoundError:
            continue
    return names


def memory_kilobytes(process):
    """{"Rss", "Pss", "Anonymous"} in KiB."""
    rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
    return {key: int(re.search(rf"^{key}:\s*(\d+) kB", rollup, re.M)[1]) for key in ("Rss", "Pss", "Anonymous")}


class Meter:
    """Processor time and wake-ups of some processes ({name: pid}) over a while."""

    def __init__(self, processes):
        self.processes = processes
        self.began = time.monotonic()
        self.seconds = {name: processor_seconds(pid) for name, pid in processes.items()}
        self.wakes = {name: wake_ups(pid) for name, pid in processes.items()}

    def stop(self):
        """(seconds, {name: processor seconds}, {name: wake-ups}, {name: {thread's name: wake-ups}})"""
        elapsed = time.monotonic() - self.began
        processor, wakes, threads = {}, {}, {}
        for name, pid in self.processes.items():
            processor[name] = processor_seconds(pid) - self.seconds[name]
            now, names = wake_ups(pid), thread_names(pid)
            # A thread that is new has only woken up since.
            each = {thread: count - self.wakes[name].get(thread, 0) for thread, count in now.items()}
            wakes[name] = sum(each.values())
            threads[name] = {f"{names.get(thread, 'ended')} ({thread})": count for thread, count in each.items() if count}
        return elapsed, processor, wakes, threads
