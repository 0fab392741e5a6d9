"""A small disk for one program's state: a tmpfs that fills and becomes read-only."""
import os
import subprocess

SIZE_KB = 4096
FILLER = "filler"
BLOCK = 64 * 1024


class Disk:
    def __init__(self, folder):
        self.folder, self.state = folder, folder / "state"
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_KB}k,mode=700", "tmpfs", folder], check=True)
        self.state.mkdir(mode=0o700)

    def fill(self):
        """To the last byte."""
        with open(self.folder / FILLER, "wb", buffering=0) as file:      # OSError: it is read-only now
            size = BLOCK
            while size:
                try:
                    file.write(os.urandom(size))
                except OSError:
                    size //= 2

    def empty(self):
        (self.folder / FILLER).unlink(missing_ok=True)

    def remount(self, how):
        """"ro" or "rw"; False where the kernel refuses: a file is open for writing."""
        return subprocess.run(["mount", "-o", f"remount,{how}", self.folder], capture_output=True).returncode == 0
