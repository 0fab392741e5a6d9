"""How each fault of a plan begins and ends. Each returns what ends it, or None; a fault that is impossible here says so."""
import pathlib
import resource
import subprocess

HEALTHY = {"loss": 0.0, "jitter_ms": 5.0}      # what the ways do when nothing is wrong; `--loss` makes it worse
SPARE_DESCRIPTORS = 1


class Impossible(Exception):
    pass


def kill(target, program):
    target.kill(program) if hasattr(target, "kill") else target.programs[program].kill()


def stop(target, program, _):
    found = target.programs[program]
    found.freeze()
    return found.thaw


def full(target, _):
    target.disk.fill()
    return target.disk.empty


def readonly(target, _):
    if not target.disk.remount("ro"):
        raise Impossible("a file is open for writing")
    return lambda: target.disk.remount("rw")


def descriptors(target, program, _):
    """The program may open one more file than it has open now."""
    pid = target.programs[program].pid
    try:
        used = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + SPARE_DESCRIPTORS, hard))
    except (ProcessLookupError, FileNotFoundError) as error:
        raise Impossible("it is not running") from error

    def end():
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        except ProcessLookupError:
            pass
    return end


def memory(target, _):
    if target.group is None:
        raise Impossible("no control groups for memory")
    try:
        target.group.squeeze()
    except OSError as error:
        target.group.ease()
        raise Impossible(f"the control group: {error.strerror}") from error
    return target.group.ease


def clock(target, seconds, _):
    target.clock.jump(float(seconds))
    return lambda: target.clock.jump(0)


def suspend(target, _):
    target.suspend()
    return lambda: target.resume(HEALTHY)


def move(target):
    target.network.move()


def handover(target):
    target.network.hand_over()


def outage(target, _):
    target.network.down()
    return target.network.up


def network(target, loss, kind, jitter, _):
    target.network.way.set(loss=float(loss.rstrip("%")) / 100, is_bursty=kind == "bursty", jitter_ms=float(jitter.removesuffix("ms")))
    return lambda: target.network.way.set(**HEALTHY)


ACTIONS = {"kill": kill, "stop": stop, "full": full, "readonly": readonly, "descriptors": descriptors, "memory": memory, "clock": clock,
           "suspend": suspend, "move": move, "handover": handover, "outage": outage, "network": network}


def begin(step, target):
    """Begins a fault; what ends it, or None."""
    try:
        return ACTIONS[step.action](target, *step.words)
    except (subprocess.SubprocessError, OSError, RuntimeError) as error:
        raise Impossible(str(error)) from error
