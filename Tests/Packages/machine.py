"""A Debian machine in a container of systemd's, with a real systemd and D-Bus and without a network, for tests of packages."""
import pathlib
import subprocess
import time


class CannotBoot(Exception):
    """Containers of systemd's do not run here."""


class Machine:
    """A context manager: leaving it ends the machine. Its root is a tmpfs of limited size, so that its disk can be full."""

    def __init__(self, tarball, folder, shared, size="2G"):
        self.tarball, self.root, self.shared, self.size = tarball, pathlib.Path(folder), pathlib.Path(shared), size

    def __enter__(self):
        self.root.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.root], check=True)
        try:
            subprocess.run(["tar", "-xf", self.tarball, "-C", self.root], check=True)
            (self.root / "shared").mkdir()
            self.process = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--directory", self.root, "--boot", "--register=no", "--keep-unit", "--private-network",
                 "--link-journal=no", "--console=pipe", f"--bind-ro={self.shared}:/shared", "--machine=packages"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                self.wait("systemctl is-system-running | grep -qE 'running|degraded'", "it does not boot")
            except AssertionError as error:
                raise CannotBoot(error) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        process = getattr(self, "process", None)
        if process and process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        subprocess.run(["umount", "--lazy", self.root], check=False)
        self.root.rmdir()

    @property
    def leader(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return children[0] if children else None

    def command(self, text):
        """The command line that runs a shell's text in the machine."""
        return ["nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wdns=/",
                "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "/bin/sh", "-c", text]

    def start(self, text):
        return subprocess.Popen(self.command(text), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, text, succeeds=True):
        """What it prints. `succeeds`: whether it has to (None: either)."""
        done = subprocess.run(self.command(text), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        if succeeds is not None and (done.returncode == 0) != succeeds:
            raise AssertionError(f"{text}\nended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def wait(self, text, otherwise, seconds=20):
        deadline = time.monotonic() + seconds
        while True:
            if self.leader and subprocess.run(self.command(text), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                return
            if self.process.poll() is not None:
                raise AssertionError(f"the machine has ended: {self.process.stderr.read().decode(errors='replace')}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{otherwise}; {text} says:\n{self.run(text, succeeds=None)}")
            time.sleep(0.1)
