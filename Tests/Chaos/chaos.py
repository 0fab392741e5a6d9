"""Chaos with the real programs: three machines and a relay, faults from a seed while buttons are pressed, and what came of it.

Three pttd, each with a bus, a fake BlueZ with a button and a PulseAudio of its own, and a relay, in network namespaces joined by
lossy ways. In each round programs are killed and frozen, disks fill, descriptors and memory run short, clocks jump, machines sleep,
addresses change. 5 s after its last fault everything has to be back without help: each machine's press is heard by all others.

    Tests/Chaos/run [--minutes 1] [--seed N] [--plan FILE] [--build DIR] [--out DIR]
    Tests/Chaos/run --kills 200 [--seed N]      SIGKILLs of each program while somebody talks
    Tests/Chaos/run --print [--seed N]          the plan, and nothing else

It ends with 1 and the plan when something is wrong. README.md tells how it judges.
"""
import argparse
import pathlib
import random
import shutil
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Tests" / "Tools"))
import plan as plans  # noqa: E402


def parsed():
    parser = argparse.ArgumentParser(prog="Tests/Chaos/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, help="by default a new one")
    parser.add_argument("--plan", help="run this plan again, from plan.txt of an earlier run")
    parser.add_argument("--kills", type=int, help="only SIGKILLs, so many of each program, while somebody talks")
    parser.add_argument("--loss", type=float, default=0, help="percent that the ways lose also when nothing is wrong (default: 0)")
    parser.add_argument("--programs", help="which, of pttd,relay,bluez,bus,sound (default: all)")
    parser.add_argument("--print", action="store_true", help="only print the plan")
    parser.add_argument("--build", default=str(ROOT / ".build" / "release"), help="where the programs are (default: the release build)")
    parser.add_argument("--out", help="where logs and recordings go (default: recordings/chaos/SEED)")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10 ** 6)
    return options


def main():
    options = parsed()
    rounds = plans.read(pathlib.Path(options.plan).read_text()) if options.plan else plans.made(options.seed, options.minutes * 60)
    if options.print:
        print(plans.text(options.seed, rounds), end="")
        return
    # The first process of its namespace has no other way to be ended gently.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # They need what `run` has installed, and namespaces.
    import faults
    import kills
    import session
    faults.HEALTHY["loss"] = options.loss / 100
    out = pathlib.Path(options.out or ROOT / "recordings" / "chaos" / str(options.seed)).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build = pathlib.Path(options.build).resolve()
    for program in ("pttd", "pttrelay", "pttctl", "fake-bluez"):
        if not (build / program).exists():
            sys.exit(f"{build / program} is not there; `make release` builds it")
    if options.kills:
        sys.exit(kills.run(options, out, build))
    text = plans.text(options.seed, rounds)
    (out / "plan.txt").write_text(text)
    print(text, flush=True)
    began = time.monotonic()
    findings = session.run(rounds, options.seed, out, build)
    print(f"\n{time.monotonic() - began:.0f} s; logs, plan and recordings are in {out}")
    if findings:
        sys.exit("\n".join(["What should not have been:", *findings,
                            f"Again: Tests/Chaos/run --seed {options.seed} --minutes {options.minutes:g}, or --plan {out / 'plan.txt'}"]))


if __name__ == "__main__":
    main()
