"""What a systemd unit says about starting a service again, and what systemd makes of it."""
import pathlib
import re

UNITS = pathlib.Path(__file__).resolve().parents[2] / "systemd"
SECONDS = {"": 1, "s": 1, "ms": 0.001, "us": 1e-6, "min": 60}


def seconds(text):
    """A time of systemd.time(7), as units of ours write it."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([a-z]*)", text.strip()).groups()
    return float(number) * SECONDS[unit]


class RestartPolicy:
    """`Restart=` and its neighbours."""

    def __init__(self, restart="on-failure", pause=0.1, prevented=(), limit_interval=10.0, limit_burst=5):
        self.restart, self.pause, self.prevented = restart, pause, set(prevented)
        self.limit_interval, self.limit_burst = limit_interval, limit_burst
        self.starts = []

    @classmethod
    def of(cls, name, folder=UNITS):
        found = {}
        for line in (folder / name).read_text().splitlines():
            key, separator, value = line.partition("=")
            if separator and not line.startswith(("#", ";")):
                found[key.strip()] = value.strip()
        return cls(found.get("Restart", "no"), seconds(found.get("RestartSec", "100ms")),
                   [int(code) for code in found.get("RestartPreventExitStatus", "").split() if code.isdigit()],
                   seconds(found.get("StartLimitIntervalSec", "10s")), int(found.get("StartLimitBurst", "5")))

    def pause_after(self, status, now):
        """Seconds until the next start after an end with `status` (negative: by a signal), or why there is none."""
        if status in self.prevented:
            return None, f"it ended with {status}, after which its unit does not start it again"
        if self.restart == "no" or (self.restart == "on-failure" and status == 0):
            return None, f"it ended with {status}, after which Restart={self.restart} does nothing"
        return self.pause, None

    def may_start(self, now):
        """Counts a start; False: systemd gives up."""
        if self.limit_interval == 0:
            return True
        self.starts = [at for at in self.starts if at > now - self.limit_interval]
        if len(self.starts) >= self.limit_burst:
            return False
        self.starts.append(now)
        return True
