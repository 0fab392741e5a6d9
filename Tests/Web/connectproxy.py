#!/usr/bin/python3
"""An HTTP proxy for clients on loopback, as a strict network has one: CONNECT to port 443 and nothing else. It is tinyproxy.

In a test:
    with ConnectProxy(folder) as proxy:      # ports={443, …}, user="name:password", listen="127.0.0.1"
        … proxy.port …
        proxy.connections()                  # what was asked for: ["relay.example:443", …]
From a shell, until it is told to end (SIGTERM to the pid that it prints, or to this program):
    Tests/Web/connectproxy.py [--listen ADDRESS] [--port PORT] [--allow PORT]… [--user NAME:PASSWORD]
"""
import argparse, pathlib, re, signal, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from webrelay import ROOT, Failed, Process, free_port, until  # noqa: E402

# Where there is no ConnectPort line, tinyproxy allows every port; Allow is for who may use it.
CONFIGURATION = """Port {port}
Listen {listen}
Timeout {timeout}
MaxClients 100
LogFile "{folder}/tinyproxy.log"
LogLevel Info
DisableViaHeader Yes
{ports}
{rest}
"""


def program():
    """An installed one, or the package's, unpacked only: an installed one would start a server."""
    unpacked = pathlib.Path("/var/tmp/pttd-tests/tinyproxy-bin/usr/bin/tinyproxy")
    for path in (pathlib.Path("/usr/bin/tinyproxy"), unpacked):
        if path.exists():
            return path
    subprocess.run([ROOT / "Tests" / "unpack-package", "tinyproxy-bin"], check=True)
    return unpacked


class ConnectProxy:
    """tinyproxy on `listen`; `ports` are those that CONNECT may lead to. A context manager."""

    def __init__(self, folder, ports=(443,), user=None, listen="127.0.0.1", port=None, timeout=600, command=()):
        """`command`: words before tinyproxy's own, such as `ip netns exec NAME`."""
        self.folder, self.listen, self.port, self.user = pathlib.Path(folder).resolve(), listen, port or free_port(), user
        self.log = self.folder / "tinyproxy.log"
        rest = "BasicAuth {} {}".format(*user.split(":", 1)) if user else ""
        text = CONFIGURATION.format(
            port=self.port, listen=listen, timeout=timeout, folder=self.folder, rest=rest,
            ports="\n".join(f"ConnectPort {number}" for number in ports) or "ConnectPort 0")
        self.configuration = self.folder / "tinyproxy.conf"
        self.configuration.write_text(text)
        self.command = [*command, program(), "-d", "-c", self.configuration]

    @property
    def address(self):
        """As $https_proxy has it."""
        return f"http://{self.user + '@' if self.user else ''}{self.listen}:{self.port}"

    def __enter__(self):
        self.process = Process("tinyproxy", self.command, self.folder)
        try:
            until("tinyproxy to listen", lambda: self.process.process.poll() is not None or (
                self.log.exists() and "Accepting connections" in self.log.read_text()))
            if self.process.process.poll() is not None:
                raise Failed(f"tinyproxy ended: {self.process.log.read_text()}")
        except BaseException:
            self.process.stop()
            raise
        return self

    def __exit__(self, *_):
        self.process.stop()

    @property
    def pid(self):
        return self.process.process.pid

    def connections(self):
        """Where CONNECT was to lead, in order, also where it was refused."""
        return re.findall(r"Request \(file descriptor \d+\): CONNECT (\S+) HTTP", self.log.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--allow", type=int, action="append", help="a port that CONNECT may lead to (443)")
    parser.add_argument("--user", help="NAME:PASSWORD")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="pttd-connect-") as folder:
        with ConnectProxy(folder, options.allow or (443,), options.user, options.listen, options.port) as proxy:
            print(f"{proxy.address} pid {proxy.pid}", flush=True)
            proxy.process.process.wait()


if __name__ == "__main__":
    main()
