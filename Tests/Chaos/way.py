"""way.py HOST PORT RELAY_PORT SEED FILE: a lossy way from HOST:PORT to the relay on loopback, as a process of its own.

Standard input sets it: a line `LOSS IS_BURSTY JITTER_MS IS_DARK`. FILE gets a line `T UP DOWN` for each tenth of a second in which
something passed: CLOCK_MONOTONIC in ns, and how many datagrams came from the machine and from the relay. And a line `T LATE way late` when
this process itself got its turn too late, for so many ns after T: datagrams waited for it that long.
"""
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "Tools"))
from lossyproxy import LossyProxy, Network  # noqa: E402

EVERY_S = 0.1
LATE_NS = 20_000_000


def count(proxy, path):
    with open(path, "w", buffering=1) as file:
        up = down = 0
        while True:
            due = time.monotonic_ns() + int(EVERY_S * 1e9)
            time.sleep(EVERY_S)
            if (late := time.monotonic_ns() - due) > LATE_NS:
                file.write(f"{due} {late} way late\n")
            seen_up, seen_down = proxy.up.seen, proxy.down.seen
            if (seen_up, seen_down) != (up, down):
                file.write(f"{time.monotonic_ns()} {seen_up - up} {seen_down - down}\n")
                up, down = seen_up, seen_down


def main():
    host, port, relay_port, seed, path = sys.argv[1:]
    with LossyProxy(("127.0.0.1", int(relay_port)), int(port), int(seed), host) as proxy:
        threading.Thread(target=count, args=(proxy, path), daemon=True).start()
        print("ready", flush=True)
        for line in sys.stdin:
            loss, is_bursty, jitter_ms, is_dark = line.split()
            proxy.network = Network(float(loss), is_bursty == "1", float(jitter_ms), is_dark == "1")


if __name__ == "__main__":
    main()
