"""A machine's button: lines to its fake BlueZ that never wait for the answer, which may be frozen or killed."""
import re
import socket
import threading
import time

NAME, ADDRESS = "PTT-Z", "C4:11:11:11:11:11"
SPARE, SPARE_ADDRESS = "Spare", "C4:22:22:22:22:22"     # a second one, of another kind
KEPT_S = 2.0                    # connecting anew is tried for so long


class Press:
    """One press: when finger and button said so (ns, CLOCK_MONOTONIC). `pressed` and `released` are None while BlueZ has not told."""

    def __init__(self, machine, judged=False):
        self.machine, self.judged = machine, judged
        self.finger_down = self.finger_up = self.pressed = self.released = None
        self.subscribers = 0

    def __repr__(self):
        return f"{self.machine} {self.finger_down}…{self.finger_up} ({self.pressed}…{self.released})"


class Button:
    def __init__(self, machine, path):
        self.machine, self.path, self.presses, self.lock = machine, path, [], threading.Lock()
        self.connection, self.held = None, None

    def press(self, judged=False):
        with self.lock:
            press = Press(self.machine, judged)
            self.presses.append(press)
            self.held = press
        press.finger_down = time.monotonic_ns()
        self._ask("press", lambda at, subscribers: self._told(press, at, subscribers))
        return press

    def release(self):
        with self.lock:
            press, self.held = self.held, None
        if press:
            press.finger_up = time.monotonic_ns()
            self._ask("release", lambda at, _: setattr(press, "released", at))
        return press

    def _told(self, press, at, subscribers):
        press.pressed, press.subscribers = at, subscribers

    def _ask(self, word, answered):
        with self.lock:
            for _ in range(2):
                if self.connection is None:
                    self.connection = Connection.to(self.path)
                if self.connection is None:
                    return
                if self.connection.ask(f"{NAME} {word}", answered):
                    return
                self.connection = None

    def forget(self):
        """BlueZ ended: the next line goes to the next one."""
        with self.lock:
            if self.connection:
                self.connection.close()
            self.connection = None


class Connection:
    """To one life of a fake BlueZ; answers come in the order of the questions."""

    @classmethod
    def to(cls, path):
        end = socket.socket(socket.AF_UNIX)
        try:
            end.settimeout(0.2)
            end.connect(str(path))
        except OSError:
            end.close()
            return None
        end.settimeout(None)
        return cls(end)

    def __init__(self, end):
        self.end, self.waiting, self.is_open = end, [], True
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, line, answered):
        self.waiting.append(answered)
        try:
            self.end.sendall((line + "\n").encode())
        except OSError:
            self.is_open = False
        return self.is_open

    def _read(self):
        try:
            for line in self.end.makefile():
                answered = self.waiting.pop(0)
                at, subscribers = re.search(r"\bt=(\d+)", line), re.search(r"subscribers=(\d+)", line)
                if line.startswith("ok") and at:
                    answered(int(at[1]), int(subscribers[1]) if subscribers else 0)
        except (OSError, IndexError):
            pass
        self.is_open = False

    def close(self):
        try:
            self.end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.end.close()
