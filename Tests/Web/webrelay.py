"""A relay with [web] on loopback, certificates of an authority of its own, and the independent client through it."""
import json, os, pathlib, re, signal, socket, subprocess, sys, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "Tests" / "PythonClient" / "run"
HOST = "relay.example"

# 20 ms of Opus at 48 kbit/s: as much as pttd sends in two packets.
FRAME = bytes.fromhex("f8") + bytes(119)


class Failed(SystemExit):
    """Something did not start or answer; the message says what."""


class Process:
    """A program with its output by lines, and what it says on standard error in NAME.log."""

    def __init__(self, name, command, folder, environment=None):
        self.name, self.log = name, pathlib.Path(folder) / f"{name}.log"
        self.output = open(self.log, "wb")
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.output,
            env={**os.environ, **(environment or {})})
        self.lines = []
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    def wait_line(self, pattern, seconds=20):
        """The first line on standard output that matches."""
        def found():
            has_ended = self.process.poll() is not None
            match = next((match for line in list(self.lines) if (match := re.search(pattern, line))), None)
            if match is None and has_ended:
                raise Failed(f"{self.name} ended: {self.log.read_text(errors='replace')[-1500:]}")
            return match

        return until(f"{self.name} to say /{pattern}/", found, seconds)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()


def program(build=None):
    """pttrelay: of `build` or of $BUILD, else the newest build."""
    named = build or os.environ.get("BUILD")
    folders = [pathlib.Path(named)] if named else [ROOT / ".build" / kind for kind in ("release", "debug")]
    found = [folder / "pttrelay" for folder in folders if (folder / "pttrelay").exists()]
    if not found:
        raise SystemExit(f"there is no pttrelay in {' or '.join(map(str, folders))}: build it, or give --build FOLDER")
    return max(found, key=lambda path: path.stat().st_mtime)


def free_port():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def until(what, condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.05)
    return value


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Authority:
    """An authority made for a test, which makes certificates for `HOST`."""

    def __init__(self, folder, name):
        self.folder, self.name = pathlib.Path(folder), name
        self.certificate = self.folder / f"{name}.pem"
        self._openssl("req", "-x509", *self._new_key(self.folder / f"{name}.key"), "-out", self.certificate, "-days", "30",
                      "-subj", f"/CN={name}")

    @staticmethod
    def _new_key(path):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path]

    @staticmethod
    def _openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    def issue(self, certificate, key):
        """A certificate for `HOST`, with its key beside it, put in place of earlier ones."""
        request, extensions = self.folder / "request.pem", self.folder / "extensions"
        extensions.write_text(f"subjectAltName=DNS:{HOST},IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        made, made_key = f"{certificate}.new", f"{key}.new"
        self._openssl("req", *self._new_key(made_key), "-out", request, "-subj", f"/CN={HOST}")
        self._openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.folder / f"{self.name}.key",
                      "-CAcreateserial", "-days", "30", "-extfile", extensions, "-out", made)
        os.replace(made_key, key)
        os.replace(made, certificate)


class Relay:
    """pttrelay with one channel and these lines in [web]. A context manager."""

    def __init__(self, folder, web="", build=None, extra="", level="debug"):
        self.folder, self.port = pathlib.Path(folder), free_port()
        self.config = self.folder / "pttrelay.toml"
        self.config.write_text(
            f'[relay]\nlisten = "127.0.0.1:{free_port()}"\nhost = "127.0.0.1"\n{extra}\n'
            f'[web]\nlisten = "127.0.0.1:{self.port}"\n{web}\n[[channel]]\nname = "Team"\n')
        self.command = [program(build), "run", "--config", self.config, "--state", self.folder / "state", "--log-level", level]

    def __enter__(self):
        self.process = Process("relay", self.command, self.folder)
        self.link = self.process.wait_line(r"(ptt://\S+)").group(1)
        self.process.wait_line("ready")
        until("the relay's port", lambda: listens(self.port))
        return self

    def __exit__(self, *_):
        self.process.stop()

    @property
    def pid(self):
        return self.process.process.pid

    @property
    def log(self):
        return self.process.log

    def reload(self):
        self.process.process.send_signal(signal.SIGHUP)


class Client(Process):
    """The independent client; `finish` gives its summary."""

    def __init__(self, folder, name, link, *arguments):
        super().__init__(name, [CLIENT, link, *arguments], pathlib.Path(folder))

    def joined(self):
        return self._said("joined")

    def talks(self):
        return self._said("talks")

    def _said(self, word):
        until(f"{self.name}: {word}", lambda: word in self.log.read_text() or self.process.poll() is not None, 20)
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended: {' '.join(self.lines)} {self.log.read_text()[-800:]}")
        return self

    def finish(self, seconds=40):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise Failed(f"{self.name} does not end") from None
        self.reading.join(2)
        self.output.close()
        try:
            return json.loads("\n".join(self.lines))
        except ValueError:
            raise Failed(f"{self.name}: {self.lines} {self.log.read_text()[-800:]}") from None


def speech(folder, seconds):
    """An Ogg Opus file of that length, by the independent client's own writer."""
    path = pathlib.Path(folder) / f"speech-{seconds}.opus"
    if not path.exists():
        sys.path.insert(0, str(CLIENT.parent))
        import oggopus
        oggopus.write(str(path), [FRAME] * int(seconds * 50))
    return path


def burst(folder, name, link, through, seconds=3, talker=(), listener=()):
    """A burst from one client to another, both `through` these arguments. Nothing may be missing."""
    ear = Client(folder, f"{name}-listener", link, "listen", "--tls", "--name", "Listener", *through, *listener).joined()
    mouth = Client(folder, f"{name}-talker", link, "talk", "--tls", "--name", "Talker", "--input", speech(folder, seconds),
                   *through, *talker)
    said, heard = mouth.finish(), ear.finish()
    if not said["ok"] or not heard["ok"] or [each["packets"] for each in heard["bursts"]] != [said["sent"]] or heard["dropped"]:
        raise Failed(f"{name}: {json.dumps(said)} {json.dumps(heard)}")
    return heard["bursts"][0]


def status(url, authority, *headers):
    """The HTTP status of an answer, by curl."""
    words = ["curl", "--silent", "--http1.1", "--max-time", "5", "--output", "/dev/null", "--write-out", "%{http_code}"]
    port = re.search(r":(\d+)", url)[1]
    words += ["--resolve", f"{HOST}:{port}:127.0.0.1"] + (["--cacert", authority] if authority else [])
    words += [word for header in headers for word in ("--header", header)]
    return subprocess.run([str(word) for word in [*words, url]], capture_output=True, text=True).stdout


UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
           "Sec-WebSocket-Protocol: pttd.1")
