"""A program that is started again when it ends, as systemd would start it: with its unit's pauses, and no other help."""
import os
import signal
import subprocess
import threading
import time


class Supervised:
    """One program. `before` is called before each start.

    `lives` are [started, ended] in CLOCK_MONOTONIC ns, `frozen` spells of SIGSTOP alike; the last of each may lack an end.
    """

    def __init__(self, name, command, log, policy, environment=None, before=None, output=subprocess.DEVNULL):
        self.name, self.command, self.log, self.policy = name, [str(word) for word in command], log, policy
        self.environment, self.before, self.output = environment, before, output
        self.lives, self.frozen, self.gave_up = [], [], None
        self.asked, self.unasked = 0, []        # ends that we caused; (when, status) of the others
        self.process, self.wanted, self.lock = None, True, threading.RLock()
        self.woken = threading.Event()
        self._start()
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.thread.start()

    def _start(self):
        if self.before:
            self.before()
        with self.lock, open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=log,
                                            env={**os.environ, **(self.environment or {})})
            self.policy.may_start(time.monotonic())
            self.lives.append([time.monotonic_ns(), None])
            self.killed = False

    def _keep(self):
        while True:
            status = self.process.wait()
            now = time.monotonic_ns()
            with self.lock:
                self.lives[-1][1] = now
                if self.frozen and self.frozen[-1][1] is None:
                    self.frozen[-1][1] = now
                if not self.wanted:
                    return
                if not self.killed:
                    self.unasked.append((now, status))
            pause, why = self.policy.pause_after(status, time.monotonic())
            if why:
                self.gave_up = why
                return
            self.woken.wait(pause)
            if not self.wanted:
                return
            if not self.policy.may_start(time.monotonic()):
                self.gave_up = "it was started too often: its unit's start limit is reached"
                return
            self._start()

    @property
    def pid(self):
        return self.process.pid

    @property
    def is_running(self):
        return self.process.poll() is None

    def send(self, number):
        with self.lock:
            if self.process.poll() is not None:
                return False
            if number in (signal.SIGKILL, signal.SIGTERM):
                self.killed = True
                self.asked += self.wanted
            try:
                self.process.send_signal(number)
            except ProcessLookupError:
                return False
            return True

    def kill(self):
        return self.send(signal.SIGKILL)

    def freeze(self):
        with self.lock:
            if self.send(signal.SIGSTOP):
                self.frozen.append([time.monotonic_ns(), None])

    def thaw(self):
        with self.lock:
            if self.frozen and self.frozen[-1][1] is None:
                self.frozen[-1][1] = time.monotonic_ns()
                self.send(signal.SIGCONT)

    def end(self, limit=5):
        """For good: gently, then not."""
        with self.lock:
            self.wanted = False
            self.woken.set()
        self.thaw()
        self.send(signal.SIGTERM)
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait()
        self.thread.join(2)
