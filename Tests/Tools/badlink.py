"""What an ear gets of bursts by a link that loses packets, in figures by which programs can be compared.

TCP repairs what is lost in order: the ear stands still and then catches up. The chirps are therefore sought each for itself, however
late they are, and every chirp has a delay of its own.
"""
import numpy as np

from clipped import clipped
from wavefile import RATE

STALL_S = 3.0           # the longest that an ear may stand still within a burst
SETTLE_S = 2.5          # what is late comes until then, and nobody speaks
MACHINE_LATE_MS = 25    # a burst in which an ordinary program woke so late is counted


def heard_of(mouth, ear, pressed, released, until, machine_late=0.0):
    """One burst (instants in ns): {"press_to_ear": ms, "delays": [ms of each chirp], "start", "end": samples clipped, "heard": share,
    "said": chirps}, or {"lost": why, "heard": 0, …}."""
    said = mouth.samples[round(mouth.frame_at(pressed)):round(mouth.frame_at(until))]
    got = clipped(said, round((released - pressed) * RATE / 1e9), ear, pressed, until, stall=int(STALL_S * RATE))
    if "lost" in got:
        return {"lost": got["lost"], "heard": 0.0, "machine_late": machine_late}
    to_ms = 1000 / RATE
    return {"press_to_ear": got["first_sound"] * to_ms, "delays": [way * to_ms for way in got["ways"]], "start": got["start"], "end": got["end"],
            "heard": 1 - got["unlike"] / max(1, got["chirps"]), "machine_late": machine_late}


def percentiles(values):
    return [float(np.percentile(values, share)) for share in (50, 95)] if len(values) else [float("nan")] * 2


def summary(bursts):
    """Of all bursts of one direction at one loss."""
    whole = [burst for burst in bursts if "lost" not in burst]
    return {"bursts": len(bursts), "not_heard": len(bursts) - len(whole), "press_to_ear": percentiles([burst["press_to_ear"] for burst in whole]),
            "mouth_to_ear": percentiles([delay for burst in whole for delay in burst["delays"]]),
            "heard": float(np.mean([burst["heard"] for burst in bursts])) if bursts else 0.0,
            "start": percentiles([burst["start"] for burst in whole]), "end": percentiles([burst["end"] for burst in whole]),
            "machine_late": sum(burst["machine_late"] > MACHINE_LATE_MS for burst in bursts)}


def table(rows):
    """Markdown lines. `rows`: [(direction, loss in %, bursts)]"""
    yield ("| direction | loss | press → ear ms p50 / p95 | mouth → ear ms p50 / p95 | heard % | clipped samples p50 / p95: start; end | "
           "bursts not heard | machine late |")
    yield "|---|---|---|---|---|---|---|---|"

    def pair(values):
        return " / ".join("–" if np.isnan(value) else f"{value:.0f}" for value in values)
    for direction, loss, bursts in rows:
        of = summary(bursts)
        yield (f"| {direction} | {loss} % | {pair(of['press_to_ear'])} | {pair(of['mouth_to_ear'])} | {100 * of['heard']:.1f} | "
               f"{pair(of['start'])}; {pair(of['end'])} | {of['not_heard']} of {of['bursts']} | {of['machine_late']} |")
