"""Mumble 1.3 to compare with: a server and clients on private displays and devices, set up without a dialogue.

1.3 can neither be told to talk by D-Bus nor by its command line, so presses are XTEST keys on a private X server. No dialogue
appears when the client finds a certificate to import, a configuration of its own version, and the server's certificate among
those that were accepted before. Voice goes by UDP only after a round of pings: wait `UDP_AFTER_S`.
"""
import ctypes
import hashlib
import os
import pathlib
import re
import select
import shutil
import socket
import sqlite3
import ssl
import subprocess
import tempfile
import time

from pulse import ended

PACKAGES = ["mumble", "mumble-server", "xvfb", "libxtst6", "openssl"]
UDP_AFTER_S = 12
JOIN_S = 90                     # of a busy machine
KEY_CODE = 105                  # right Ctrl, which nothing else uses
# As Mumble 1.3.4 comes: 40 kbit/s, packets of 20 ms, 50 ms of output delay. And with the lowest that its dialogue offers.
DEFAULT = {}
TUNNEL = {"net": {"tcponly": "true"}}        # "Force TCP mode"
LOWEST = {"net": {"framesperpacket": 1, "jitterbuffer": 1}, "audio": {"outputdelay": 1, "quality": 24000}}


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"Mumble: {what} did not happen within {seconds} s")
        time.sleep(0.1)


def free_port():
    """A port that is free for TCP and UDP alike."""
    while True:
        with socket.socket() as stream, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            stream.bind(("127.0.0.1", 0))
            try:
                datagrams.bind(stream.getsockname())
            except OSError:
                continue
            return stream.getsockname()[1]


def make_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}",
                    "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"], check=True, stderr=subprocess.DEVNULL)


class Key:
    """The push-to-talk key of every client on the display."""

    def __init__(self, display):
        self.x11, self.xtest = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXtst.so.6")
        self.x11.XOpenDisplay.restype = ctypes.c_void_p
        self.display = ctypes.c_void_p(self.x11.XOpenDisplay(display.encode()))
        if not self.display:
            raise SystemExit(f"the X server at {display} does not answer")

    def _event(self, is_down):
        at = time.monotonic_ns()
        self.xtest.XTestFakeKeyEvent(self.display, KEY_CODE, is_down, 0)
        self.x11.XFlush(self.display)
        return at

    def press(self):
        """Returns the instant (ns) just before the key goes down."""
        return self._event(1)

    def release(self):
        return self._event(0)


class Mumble:
    """One server, one display, and clients. A context manager. `namespace`: the network namespace of the server, of all addresses there."""

    def __init__(self, folder, environment, namespace=None):
        self.folder, self.environment, self.namespace = folder / "mumble", environment, namespace
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.server_folder = pathlib.Path(tempfile.mkdtemp(prefix="mumble-server-"))
        self.processes, self.port = {}, free_port()
        try:
            self._start_display()
            self._start_server()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in reversed(list(self.processes)):
            self.stop(name)
        shutil.rmtree(self.server_folder, ignore_errors=True)

    def stop(self, name):
        ended(self.processes.pop(name))

    def _run(self, name, command, environment=None, namespace=None, **more):
        command = [*(["ip", "netns", "exec", namespace] if namespace else []), *command]
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen([str(word) for word in command], env=environment or self.environment,
                                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)
        return self.processes[name]

    def _start_display(self):
        reader, writer = os.pipe()
        self._run("display", ["Xvfb", "-displayfd", writer, "-screen", "0", "1024x768x24", "-nolisten", "tcp"], pass_fds=[writer])
        os.close(writer)
        number = b""
        while not number.endswith(b"\n"):       # it writes in pieces, and ends when nobody reads them
            more = os.read(reader, 16) if select.select([reader], [], [], 30)[0] else b""
            if not more:
                raise SystemExit(f"Xvfb did not start; its log is {self.folder / 'display.log'}")
            number += more
        os.close(reader)
        self.display = ":" + number.decode().strip()

    def _start_server(self):
        folder = self.server_folder     # not within ours, which the server's user may not enter
        make_certificate(folder, "localhost")
        self.digest = hashlib.sha1(ssl.PEM_cert_to_DER_cert((folder / "certificate.pem").read_text())).hexdigest()
        settings = {"database": folder / "server.sqlite", "ice": "", "welcometext": '""', "port": self.port,
                    "host": "" if self.namespace else "127.0.0.1", "bandwidth": 558000, "users": 20, "opusthreshold": 0,
                    "sslCert": folder / "certificate.pem", "sslKey": folder / "key.pem", "autobanAttempts": 0, "bonjour": "false"}
        (folder / "server.ini").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [shutil.which("murmurd") or "/usr/sbin/murmurd", "-fg", "-ini", folder / "server.ini"]
        if os.getuid() == 0:    # It refuses to be root.
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, "mumble-server")
            command = ["setpriv", "--reuid=mumble-server", "--regid=mumble-server", "--init-groups", *command]
        self._run("server", command, namespace=self.namespace)
        self.log = self.folder / "server.log"
        wait_until(lambda: "listening on" in self.log.read_text(errors="replace"), 20, f"the start of the server ({self.log})")

    def client(self, name, microphone, speaker, settings=DEFAULT, has_key=False, port=None, host="127.0.0.1", namespace=None):
        """Starts a client on these PulseAudio devices; it has joined when this returns. `host`, `port`: those of a way to the server,
        from a network namespace."""
        home, port = self.folder / name, port or self.port
        for part in ("Documents", ".config/Mumble", ".local/share/Mumble/Mumble", "run"):
            (home / part).mkdir(parents=True, exist_ok=True)
        (home / "run").chmod(0o700)
        make_certificate(home, name)
        subprocess.run(["openssl", "pkcs12", "-export", "-passout", "pass:", "-in", home / "certificate.pem", "-inkey", home / "key.pem",
                        "-out", home / "Documents" / "MumbleAutomaticCertificateBackup.p12"], check=True, stderr=subprocess.DEVNULL)
        database_path = home / ".local/share/Mumble/Mumble/mumble.sqlite"
        database_path.unlink(missing_ok=True)
        database = sqlite3.connect(database_path)
        database.execute("CREATE TABLE cert (id INTEGER PRIMARY KEY AUTOINCREMENT, hostname TEXT, port INTEGER, digest TEXT)")
        database.execute("CREATE UNIQUE INDEX cert_host_port ON cert (hostname, port)")
        database.execute("INSERT INTO cert (hostname, port, digest) VALUES (?, ?, ?)", (host, port, self.digest))
        database.commit()
        database.close()
        sections = {
            "General": {"lastupdate": 2},
            "audio": {"input": "PulseAudio", "output": "PulseAudio", "transmit": 2, "pushclick": "false", "echo": "false",
                      "attenuateothers": "false"},
            "net": {"autoconnect": "false"},
            "pulseaudio": {"input": microphone, "output": speaker},
            "ui": {"updatecheck": "false", "plugincheck": "false", "usage": "false", "askonquit": "false", "hidetray": "false",
                   "disablepubliclist": "true"},
            "tts": {"enable": "false"}, "overlay": {"enable": "false"}, "shortcut": {"enable": "true"}}
        if has_key:
            # A QVariant of a list of one number: the key code. Index 1 is push to talk.
            keys = f'"@Variant(\\0\\0\\0\\t\\0\\0\\0\\x1\\0\\0\\0\\x2\\0\\0\\0\\x{KEY_CODE:x})"'
            sections["shortcuts"] = {r"1\index": 1, r"1\keys": keys, r"1\suppress": "false", "size": 1}
        for section, values in settings.items():
            sections[section].update(values)
        (home / ".config/Mumble/Mumble.conf").write_text("".join(
            f"[{section}]\n" + "".join(f"{key}={value}\n" for key, value in values.items()) for section, values in sections.items()))
        environment = {**self.environment, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "DISPLAY": self.display,
                       "DBUS_SESSION_BUS_ADDRESS": f"unix:path={home}/run/none", "QT_X11_NO_MITSHM": "1"}
        environment.setdefault("PATH", os.environ["PATH"])
        joined = re.compile(rf"{re.escape(name)}\(-1\)> Authenticated")
        before = len(joined.findall(self.log.read_text(errors="replace")))
        process = self._run(name, ["mumble", "-m", f"mumble://{name}@{host}:{port}/?version=1.2.0"], environment, namespace)
        wait_until(lambda: process.poll() is not None or len(joined.findall(self.log.read_text(errors="replace"))) > before,
                   JOIN_S, f"{name}'s joining ({self.log})")
        if process.poll() is not None:
            raise SystemExit(f"Mumble's client ended at once:\n{(self.folder / f'{name}.log').read_text(errors='replace')[-1000:]}")
        return process
