"""Starts the whole line on one host: private buses, a fake BlueZ with a button, a relay, a talker and a listener.

Used by the demonstration and by the latency benchmark. Everything runs in one folder and ends with it.
"""
import json, os, pathlib, re, signal, socket, subprocess, threading, time

from align import align, rounded
from logevents import read_log
from speech import speech
from stages import frame_ms
from timeline import burst_milestones, draw
from wavefile import Recording, write_wav

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHANNEL = "Local"
BUTTON = "PTT-Z"
BUTTON_ADDRESS = "C4:11:11:11:11:11"


class Failed(SystemExit):
    """Something did not start or answer; the message says what and where its log is."""


class Process:
    def __init__(self, name, command, folder, environment=None):
        self.name, self.log = name, folder / f"{name}.log"
        self.output = open(self.log, "wb")
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.output,
            env={**os.environ, **(environment or {})})
        self.lines, self.changed = [], threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()

    def wait_line(self, pattern, seconds=10):
        """The first line on standard output that matches."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while True:
                for line in self.lines:
                    if match := re.search(pattern, line):
                        return match
                left = deadline - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self.changed.wait(0.2)):
                    raise Failed(f"{self.name} did not say /{pattern}/ within {seconds} s; its log is {self.log}:\n"
                                 + self.log.read_text(errors="replace")[-1500:])
                self.changed.wait(min(left, 0.5))

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()


class Line:
    """Talker and listener on one relay. A context manager: leaving it ends every process that it started."""

    def __init__(self, folder, build=None):
        self.environment, self.environments = {}, {}
        self.folder = pathlib.Path(folder).resolve()
        self.build = pathlib.Path(build) if build else ROOT / ".build" / "release"
        self.processes, self.presses, self.channel_extra, self.relay_arguments = {}, [], "", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # -- set-up

    def speak(self, seconds, seed=1):
        """A file of espeak-ng's speech: the microphone."""
        path = self.folder / "speech.wav"
        write_wav(str(path), speech(seconds, seed))
        return path

    def bus(self, name):
        path = self.folder / f"{name}.bus"
        process = self.run(f"{name}-bus", ["dbus-daemon", "--session", "--nofork", "--nopidfile",
                                           f"--address=unix:path={path}", "--print-address=1"])
        return process.wait_line(r"(unix:path=\S+)").group(1).split(",")[0]

    def run(self, name, command, environment=None):
        process = Process(name, command, self.folder, environment)
        self.processes[name] = process
        return process

    def start(self, microphone, speaker=None, talker_extra="", listener_extra="", environment=None, talker_speaker=None,
              listener_microphone=None, environments=None, talker_port=None, accessory_extra=""):
        """`environment` is for all, `environments` by name; `talker_port`: given the relay's address, the port of a
        way there that only the talker takes; `accessory_extra`: more lines for the talker's button."""
        self.environment, self.environments = environment or {}, environments or {}
        self.buses = {"talker": self.bus("talker"), "listener": self.bus("listener")}
        self.button = self.folder / "button.sock"
        self.run("bluez", [self.build / "fake-bluez", "--bus", self.buses["talker"], "--socket", self.button,
                           f"{BUTTON}=ptt-z,{BUTTON_ADDRESS}"]).wait_line("ready")
        self.start_relay("127.0.0.1:0")
        speaker = speaker or f"wav:{self.folder / 'heard.wav'}"
        microphone = f"wav:{microphone}" if isinstance(microphone, pathlib.Path) else microphone
        link = self.link
        if talker_port:
            link = link.replace(self.relay_address, f"127.0.0.1:{talker_port(self.relay_address)}", 1)
        self.start_pttd("talker", microphone, talker_speaker or f"wav:{self.folder / 'talker-heard.wav'}",
                        talker_extra + f'\n[accessory.button]\naddress = "{BUTTON_ADDRESS}"\n{accessory_extra}\n', link)
        self.start_pttd("listener", listener_microphone or f"wav:{self.folder / 'silence.wav'}", speaker, listener_extra)
        self.wait_status("talker", lambda s: s["channels"] and s["channels"][0]["serviceStatus"] == "ready"
                         and any(a["ready"] for a in s["accessories"]))
        self.wait_status("listener", lambda s: s["channels"] and s["channels"][0]["serviceStatus"] == "ready")

    def start_relay(self, listen):
        # As its unit has it; without the permission it runs all the same.
        relay = self.run("relay", ["nice", "-n", "-11", self.build / "pttrelay", "run", "--listen", listen, "--state", self.folder / "relay-state",
                                   "--channel", CHANNEL, "--log-level", "debug", *self.relay_arguments])
        self.link = relay.wait_line(r"(ptt://\S+)").group(1)
        self.relay_address = re.match(r"ptt://([^/]+)/", self.link).group(1)

    def start_pttd(self, name, microphone, speaker, extra="", link=None):
        silence = self.folder / "silence.wav"
        if not silence.exists():
            write_wav(str(silence), [0.0] * 4800)
        config = self.folder / f"{name}.toml"
        config.write_text(f'[daemon]\nname = "{name.title()}"\nbus = "{self.buses[name]}"\n'
                          f'bluez-bus = "{self.buses[name]}"\n\n[channel]\nlink = "{link or self.link}"\n{self.channel_extra}\n'
                          f'[audio]\nmicrophone = "{microphone}"\nspeaker = "{speaker}"\n{extra}')
        self.run(name, [self.build / "pttd", "--config", config, "--state", self.folder / f"{name}-state",
                        "--log-level", "debug"], {**self.environment, **self.environments.get(name, {})})

    # -- use

    def ctl(self, name, *arguments):
        return subprocess.run([str(self.build / "pttctl"), *arguments, "--bus", self.buses[name]],
                              capture_output=True, text=True, timeout=20)

    def json_status(self, name):
        answer = self.ctl(name, "status", "--json")
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def wait_status(self, name, condition, seconds=15):
        deadline = time.monotonic() + seconds
        status = None
        while time.monotonic() < deadline:
            status = self.json_status(name)
            if status and condition(status):
                return status
            time.sleep(0.05)
        raise Failed(f"{name} did not get ready within {seconds} s; it says {status}; its log is "
                     f"{self.processes[name].log}:\n" + self.processes[name].log.read_text(errors='replace')[-1500:])

    def wait_log(self, name, message, times=1, seconds=15):
        """Waits until a program's log has had the message so often."""
        deadline = time.monotonic() + seconds
        while sum(event["message"] == message for event in read_log(self.processes[name].log)) < times:
            if time.monotonic() > deadline:
                raise Failed(f"{name} did not log '{message}' {times} times within {seconds} s; its log is {self.processes[name].log}")
            time.sleep(0.05)

    def status(self, name):
        status = self.json_status(name)
        channel = status["channels"][0]
        doing = "transmitting" if channel["transmitting"] else (
            f"hearing {channel['activeRemoteParticipant']}" if channel["activeRemoteParticipant"] else "idle")
        return f"{channel['name']}, {channel['serviceStatus']}, {doing}"

    def ask_button(self, *words):
        """One request to the fake BlueZ; returns the instant (ns, CLOCK_MONOTONIC) at which it was carried out."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.button))
            connection.sendall((" ".join(words) + "\n").encode())
            answer = connection.makefile().readline().strip()
        if not answer.startswith("ok"):
            raise Failed(f"fake-bluez answered '{answer}' to '{' '.join(words)}'")
        match = re.search(r"t=(\d+)", answer)
        return int(match.group(1)) if match else time.monotonic_ns()

    def press(self):
        return self.ask_button(BUTTON, "press")

    def release(self):
        return self.ask_button(BUTTON, "release")

    def hold(self, seconds):
        """Presses the button, holds it, releases it; returns (pressed, released) in ns."""
        pressed = self.press()
        time.sleep(max(0, pressed / 1e9 + seconds - time.monotonic()))
        released = self.release()
        self.presses.append((pressed, released))
        return pressed, released

    def stop(self):
        for name in sorted(self.processes, key=lambda name: (name.endswith("-bus"), name in ("bluez", "relay"))):
            self.processes.pop(name).stop()

    # -- what came of it, once stopped

    def result(self, press, picture=None):
        """Latencies and losses of one burst, from the logs and the recordings; draws the timeline into `picture`."""
        pressed, released = press
        talker = read_log(self.folder / "talker.log")
        listener = read_log(self.folder / "listener.log")
        found = burst_milestones(talker + read_log(self.folder / "relay.log"), listener, pressed, released)
        # The WAV microphone begins with its file at every press; the WAV loudspeaker is one recording since it was opened.
        began = next(int(e["metadata"]["first_sample"]) for e in talker
                     if e["message"] == "capture started" and e.get("t", 0) >= pressed)
        opened = next(e["t"] for e in listener if e["message"].startswith("recording to"))
        mouth = Recording.read(str(self.folder / "speech.wav")).start_at(began)
        ear = Recording.read(str(self.folder / "heard.wav")).start_at(opened)
        # Lost is what was said between press and release; the tail behind it is a gift that fades.
        alignment = align(mouth, ear, pressed, released)
        if picture:
            draw(str(picture), mouth, ear, pressed, released, found, alignment, "From the button to the ear")

        def since_press(milestone):
            return (found[milestone] - pressed) / 1e6 if milestone in found else float("nan")

        return {**rounded(alignment), "frame_ms": frame_ms(talker, pressed), "press_to_begin_ms": since_press("begin request"),
                "press_to_packet_ms": since_press("first packet sent"),
                "press_to_relay_ms": since_press("first packet at relay")}
