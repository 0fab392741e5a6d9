"""Control groups for memory pressure: version 2 (memory.high), or version 1 (memory.limit_in_bytes), whichever the machine has."""
import os
import pathlib

ROOT = pathlib.Path("/sys/fs/cgroup")
SLACK = 256 * 1024              # what a program under pressure may still take


def write(path, text):
    path.write_text(str(text))


class Groups:
    """The folder of all groups of a run; `is_there` is False where the machine permits none."""

    def __init__(self):
        name = os.environ.get("PTT_CHAOS_GROUP", f"ptt-chaos-{os.getpid()}")
        self.version, self.folder, self.why = 0, None, ""
        try:
            if "memory" in (ROOT / "cgroup.controllers").read_text().split():
                self.version, self.folder = 2, ROOT / name
                write(ROOT / "cgroup.subtree_control", "+memory")
                self.folder.mkdir()
                write(self.folder / "cgroup.subtree_control", "+memory")
                return
        except OSError as error:
            self.why = str(error)
        try:
            self.version, self.folder = 1, ROOT / "memory" / name
            self.folder.mkdir()
        except OSError as error:
            self.version, self.folder, self.why = 0, None, self.why or str(error)

    @property
    def is_there(self):
        return self.folder is not None

    def make(self, name):
        """A group for one program, or None; what `entering` makes of a command runs in it."""
        if not self.is_there:
            return None
        (self.folder / name).mkdir()
        return Group(self.folder / name, self.version)


class Group:
    def __init__(self, folder, version):
        self.folder, self.version = folder, version
        self.used, self.limit, self.none = (
            ("memory.current", "memory.high", "max") if version == 2 else ("memory.usage_in_bytes", "memory.limit_in_bytes", -1))

    def squeeze(self):
        """No more than it has now. Whether the kernel then ends it is the kernel's."""
        write(self.folder / self.limit, int((self.folder / self.used).read_text()) + SLACK)

    def ease(self):
        write(self.folder / self.limit, self.none)


def entering(group, command):
    """The command, run in the group."""
    if group is None:
        return command
    return ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', group.folder / "cgroup.procs", *command]
