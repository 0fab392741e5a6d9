"""A pttrelay of one's own, with a state directory that goes with it, and its API."""
import base64, hashlib, json, os, pathlib, shutil, signal, socket, sqlite3, subprocess, tempfile, time, uuid
import urllib.error, urllib.request


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Relay:
    """`pttrelay run` on loopback."""

    def __init__(self, program, settings="", name="pttrelay-provisioning-"):
        self.program = pathlib.Path(program)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=name))
        self.state, self.config = self.folder / "state", self.folder / "pttrelay.toml"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = self.folder / "log"
        self.configure(settings)
        self.process = None

    def configure(self, settings):
        self.config.write_text(f'[relay]\nlisten = "127.0.0.1:0"\n[api]\nlisten = "127.0.0.1:{self.port}"\n{settings}')

    def start(self):
        """Starts it, and gives the seconds until it is ready, and what it printed before."""
        began = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.program, "run", "--config", self.config, "--state", self.state],
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        lines = []
        for line in self.process.stdout:
            if line == "ready\n":
                return time.monotonic() - began, lines
            lines.append(line)
        raise SystemExit(f"the relay did not start:\n{self.log.read_text()[-4000:]}")

    @property
    def processor_time(self):
        """Seconds that it has used so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self):
        """Bytes of memory."""
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(timeout=30) == 0, self.log.read_text()[-4000:]
            self.process.stdout.close()
            self.process = None

    def hang_up(self):
        self.process.send_signal(signal.SIGHUP)

    def command(self, *words):
        done = subprocess.run([self.program, *words, "--config", self.config, "--state", self.state],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    @property
    def token(self):
        return self.command("api-token").strip()

    def ask(self, method, path, body=None, **fields):
        """The status and the object of an answer."""
        request = urllib.request.Request(self.url + path, method=method, data=None if body is None else json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {self.token_text}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in fields.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    @property
    def token_text(self):
        return (self.state / "api.token").read_text().strip()

    def records(self):
        """The records, while the relay does not have them."""
        assert self.process is None
        return sqlite3.connect(self.state / "relay.sqlite")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def fill(database, channels, members, first=0):
    """Adds channels, numbered from `first`, with members spread over them, as commands and devices do: for a relay that does not run."""
    now, per = int(time.time()), members // channels
    for number in range(first, first + channels):
        channel = str(uuid.UUID(bytes=hashlib.sha256(b"channel %d" % number).digest()[:16]))
        secret = hashlib.sha256(b"secret %d" % number).digest()[:16]
        text = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
        database.execute("INSERT INTO channel (id, name, endToEnd, added, served) VALUES (?, ?, 0, 1, 1)",
                         (channel, f"Group {number}"))
        invitation = database.execute(
            "INSERT INTO invitation (channel, digest, standing, used, priority, listenOnly, madeAt) VALUES (?, ?, ?, ?, 0, 0, ?)",
            (channel, hashlib.sha256(secret).hexdigest(), text, per, now)).lastrowid
        database.executemany(
            "INSERT INTO member VALUES (?, ?, ?, ?, 0, 0, ?, NULL)",
            [(channel, hashlib.sha256(b"member %d %d" % (number, member)).hexdigest()[:32], f"Member {member}", invitation, now)
             for member in range(per)])
    database.commit()
