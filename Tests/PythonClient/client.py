"""A push-to-talk client for the command line. See README.md."""

import argparse
import asyncio
import json
import os
import random
import sys
import time

import interop
import oggopus
import probe
import relay_pb2
import selftest
import session
import webprobe
import websession
import wire

REPORT_INTERVAL = 2.0
STRAGGLERS = 0.2
SILENCE = 6.0
ANSWER = 2.0
LATE = 0.75


def base_summary(member):
    welcome = member.welcome
    summary = {"web": welcome.web} if welcome.web else {}
    return summary | {
        "channel": welcome.channel_name,
        "member_id": welcome.member_id.hex(),
        "ssrc": f"{welcome.ssrc:08x}",
        "members": sorted(member.members.values()),
        "epoch": member.epoch,
    }


class Burst:
    """What is heard of one talker, and the reports on it (section 10)."""

    def __init__(self, taken, talker):
        self.ssrc, self.key_id, self.talker = taken.ssrc, taken.key_id, talker
        self.frames = {}  # extended sequence: (timestamp, opus)
        self.counters = []
        self.marker_sequence = None
        self.jitter = 0.0
        self._transit = None
        self._transits = []
        self.last_packet = time.monotonic()
        self.idle = None  # last sequence, once the floor is idle
        self.is_over = False

    def add(self, rtp, counter, opus):
        now = time.monotonic()
        number = rtp.sequence
        if self.frames:
            highest = max(self.frames)
            number = highest + ((rtp.sequence - highest + 0x8000) % 0x10000) - 0x8000
        if number in self.frames:
            return False
        self.frames[number] = (rtp.timestamp, opus)
        self.counters.append(counter)
        if rtp.marker:
            self.marker_sequence = rtp.sequence
        transit = now * 48000 - rtp.timestamp
        if self._transit is not None:
            self.jitter += (abs(transit - self._transit) - self.jitter) / 16
        self._transit = transit
        self._transits.append(transit)
        self.last_packet = now
        return True

    @property
    def expected(self):
        if not self.frames:
            return 0
        last = max(self.frames)
        if self.idle is not None:
            last = max(last, last + ((self.idle - last + 0x8000) % 0x10000) - 0x8000)
        return last - min(self.frames) + 1

    @property
    def is_complete(self):
        return self.idle is not None and bool(self.frames) and max(self.frames) & 0xFFFF == self.idle and (
            len(self.frames) == self.expected
        )

    def report(self):
        return relay_pb2.ReceptionReport(
            ssrc=self.ssrc,
            received=len(self.frames),
            lost=self.expected - len(self.frames),
            highest_sequence=max(self.frames, default=0) & 0xFFFFFFFF,
            jitter=int(self.jitter),
        )

    def packets(self):
        """In order, with an empty packet for each that was lost."""
        packets = []
        for number in range(min(self.frames), max(self.frames) + 1):
            packets.append(self.frames[number][1] if number in self.frames else oggopus.lost(packets[-1]))
        return packets

    def summary(self):
        first, last = (min(self.frames), max(self.frames)) if self.frames else (0, 0)
        samples = sum(oggopus.duration(opus) for _, opus in self.frames.values())
        return {
            "talker": self.talker,
            "ssrc": f"{self.ssrc:08x}",
            "key_id": f"{self.key_id:016x}",
            "packets": len(self.frames),
            "lost": self.expected - len(self.frames),
            "first_sequence": first & 0xFFFF,
            "last_sequence": last & 0xFFFF,
            "idle_last_sequence": self.idle,
            "marker_on_first": self.marker_sequence == first & 0xFFFF and bool(self.frames),
            "counters_from_zero": sorted(self.counters)[:1] == [0],
            "opus_bytes": sum(len(opus) for _, opus in self.frames.values()),
            "audio_ms": round(samples / 48),
            "jitter_ms": round(self.jitter / 48, 2),
            "late_packets": sum(each - min(self._transits) > LATE * 48000 for each in self._transits),
        }


def over_tls(member):
    """What only a link over TLS can tell."""
    if not isinstance(member, websession.WebSession):
        return {}
    trips = sorted(member.round_trips)
    return {"tls": {
        "media_sent": member.media_sent, "acknowledged": member.acknowledged,
        "round_trip_ms": round(trips[len(trips) // 2] * 1000, 2) if trips else None,
    }}


async def pause(member, seconds):
    """Reads nothing for a while, from a second after the first talker's beginning on."""
    while member._bound is None:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    member.socket.read_nothing(True)
    for _ in range(int(seconds)):
        await asyncio.sleep(1)
        member.send("reception_report", relay_pb2.ReceptionReport(ssrc=member._bound[0]))
    member.socket.read_nothing(False)


async def listen(member, options):
    bursts, current = [], None
    wake = asyncio.Event()

    def on_message(kind, message):
        nonlocal current
        if kind == "floor_taken":
            if current:
                current.is_over = True
            name = member.members.get(message.member_id, message.member_id.hex())
            current = Burst(message, name)
            bursts.append(current)
        elif kind == "floor_idle" and current and current.ssrc == message.ssrc:
            current.idle = message.last_sequence if message.HasField("last_sequence") else None
            current.is_over = current.idle is None or current.is_complete
            asyncio.get_running_loop().call_later(STRAGGLERS, finish, current)
        wake.set()

    def on_frame(rtp, key_id, counter, opus):
        if current and not current.is_over:
            if not current.add(rtp, counter, opus):
                member.drops["duplicate sequence"] += 1
            current.is_over = current.is_complete
            wake.set()

    def finish(burst):
        burst.is_over = True
        wake.set()

    member.on_message, member.on_frame = on_message, on_frame
    if member.welcome.HasField("floor"):
        on_message("floor_taken", member.welcome.floor)
    print(f"joined {member.welcome.channel_name}", file=sys.stderr, flush=True)
    if options.pause:
        asyncio.ensure_future(pause(member, options.pause))
    end = time.monotonic() + options.seconds
    report_at, reported = 0.0, 0
    while time.monotonic() < end:
        heard = [each for each in bursts if each.is_over and each.frames]
        for burst in heard[reported:]:
            member.send("reception_report", burst.report())
        reported = len(heard)
        if len(heard) >= options.bursts:
            break
        if current and not current.is_over and time.monotonic() - current.last_packet > SILENCE + options.pause:
            finish(current)
        if current and current.frames and not current.is_over and time.monotonic() >= report_at:
            member.send("reception_report", current.report())
            report_at = time.monotonic() + REPORT_INTERVAL
        wake.clear()
        try:
            await asyncio.wait_for(wake.wait(), 0.5)
        except asyncio.TimeoutError:
            pass
    heard = [each for each in bursts if each.frames]
    for index, burst in enumerate(heard if options.output else []):
        root, extension = os.path.splitext(options.output)
        oggopus.write(options.output if index == 0 else f"{root}-{index + 1}{extension}", burst.packets())
    summary = base_summary(member)
    summary["bursts"] = [each.summary() for each in heard]
    summary["dropped"] = dict(member.drops)
    bad = {"mac", "sframe tag", "unknown epoch", "rtp", "sframe header"} & member.drops.keys()
    summary["ok"] = len([each for each in heard if each.is_over]) >= options.bursts and not bad
    return summary


async def talk(member, options):
    packets = [each for each in oggopus.read(options.input) if each]
    await asyncio.sleep(options.idle)
    answer = asyncio.get_running_loop().create_future()
    idle = asyncio.Event()
    revoked = []

    def on_message(kind, message):
        if kind in ("floor_granted", "floor_deny") and message.request_id == 1 and not answer.done():
            answer.set_result((kind, message))
        elif kind == "floor_revoke" and message.request_id == 1:
            revoked.append(relay_pb2.FloorRevokeCause.Name(message.cause))
        elif kind == "floor_idle" and message.ssrc == member.welcome.ssrc:
            idle.last_sequence = message.last_sequence if message.HasField("last_sequence") else None
            idle.set()

    member.on_message = on_message
    key_id = wire.fresh_key_id(member.epoch)
    key = member.key(key_id)
    pressed = time.monotonic()
    member.send("floor_request", relay_pb2.FloorRequest(request_id=1, priority=options.priority, key_id=key_id))
    summary = base_summary(member)
    try:
        kind, message = await asyncio.wait_for(answer, ANSWER)
    except asyncio.TimeoutError:
        member.send("floor_release", relay_pb2.FloorRelease(request_id=1))
        return summary | {"ok": False, "error": "no answer to the floor request"}
    if kind == "floor_deny":
        cause = relay_pb2.FloorDenyCause.Name(message.cause)
        return summary | {"ok": False, "denied": cause, "phrase": message.phrase}
    summary["granted_after_ms"] = round((time.monotonic() - pressed) * 1000, 2)
    summary["granted_for_ms"] = message.duration_ms
    print("talks", file=sys.stderr, flush=True)
    sequence, timestamp = random.randrange(0x10000), random.randrange(1 << 32)
    due, sent = time.monotonic(), 0
    for counter, opus in enumerate(packets):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if revoked:
            break
        if counter:
            sequence = (sequence + 1) & 0xFFFF
        rtp = wire.RTP(counter == 0, sequence, timestamp, member.welcome.ssrc).pack()
        member.send_media(rtp + key.seal(counter, opus, rtp))
        sent += 1
        timestamp = (timestamp + oggopus.duration(opus)) & 0xFFFFFFFF
        due += oggopus.duration(opus) / 48000
    release = relay_pb2.FloorRelease(request_id=1)
    if sent:
        release.last_sequence = sequence
    member.send("floor_release", release)
    try:
        await asyncio.wait_for(idle.wait(), 3)
        summary["idle_last_sequence"] = idle.last_sequence
    except asyncio.TimeoutError:
        summary["error"] = "the floor was not idle 3 s after the release"
    summary |= {"key_id": f"{key_id:016x}", "sent": sent, "last_sequence": sequence, "revoked": revoked}
    summary["ok"] = sent == len(packets) and summary.get("idle_last_sequence") == sequence and not revoked
    return summary


def place(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def arguments(words):
    parser = argparse.ArgumentParser(prog="run", description="An independent push-to-talk client.")
    parser.add_argument("link", help="the invitation, ptt://…; or self-test")
    commands = parser.add_subparsers(dest="command", required=True)
    listening = commands.add_parser("listen", help="hear bursts")
    listening.add_argument("--output", help="write them here, as Ogg Opus (further ones: NAME-2.opus …)")
    listening.add_argument("--bursts", type=int, default=1, help="how many (1)")
    listening.add_argument("--seconds", type=float, default=30, help="how long to wait (30)")
    listening.add_argument("--pause", type=int, default=0, metavar="SECONDS", help="with --tls: read nothing for so long")
    commands.add_parser("probe", help="break the protocol in every way and see that the relay withstands it")
    crossing = commands.add_parser("interop", help="the QUIC interop runner's cases, on loopback")
    crossing.add_argument("cases", nargs="*", help="these only, by their names")
    talking = commands.add_parser("talk", help="say something")
    talking.add_argument("--input", required=True, help="an Ogg Opus file")
    talking.add_argument("--priority", type=int, default=0)
    breaking = commands.add_parser("web-probe", help="break the link over TLS in every way and see that the relay withstands it")
    webprobe.add_arguments(breaking)
    for command in (listening, talking):
        command.add_argument("--tls", "--web", action="store_true", help="over TLS (section 21) instead of QUIC")
        command.add_argument("--at", type=place, metavar="HOST:PORT", help="with --tls: there, not where the link says")
        command.add_argument("--connect", type=place, metavar="HOST:PORT", help="with --tls: by CONNECT of the HTTP proxy there")
        command.add_argument("--plain", action="store_true", help="with --tls: but without the TLS: behind a proxy")
        command.add_argument("--fragments", type=int, metavar="BYTES", help="with --tls: in WebSocket fragments of this size")
        command.add_argument("--server-name", metavar="NAME", help="with --tls: what the server is called")
        command.add_argument("--authority", metavar="FILE", help="with --tls: the certificate (PEM) by which the server's is checked")
        command.add_argument("--keep-alive", type=float, metavar="SECONDS", help="with --tls: a ping after so long a silence")
        command.add_argument("--idle", type=float, default=0, metavar="SECONDS", help="say nothing for so long before")
        command.add_argument("--name", default="Python client", help="what others read")
        command.add_argument("--identity", help="key and certificate (PEM), made when it is not there")
    return parser.parse_args(words)


def main():
    if sys.argv[1:] == ["self-test"]:
        return selftest.main()
    options = arguments(sys.argv[1:])
    if options.command == "probe":
        return probe.main(options.link)
    if options.command == "web-probe":
        return webprobe.main(options)
    if options.command == "interop":
        return interop.main(options.link, options.cases)
    identity = session.load_identity(options.identity) if options.identity else session.make_identity()
    body = listen if options.command == "listen" else talk
    try:
        link = wire.Link.parse(options.link)
        if options.tls:
            member = websession.WebSession(
                link, options.name, identity, at=options.at, tls=not options.plain, fragments=options.fragments,
                through=options.connect, server_name=options.server_name, authority=options.authority, keep_alive=options.keep_alive,
                receive_buffer=4096 if getattr(options, "pause", 0) else None)
        else:
            member = session.Session(link, options.name, identity)
        summary = asyncio.run(member.run(lambda joined: body(joined, options)))
        summary |= over_tls(member)
    except (wire.ProtocolError, websession.Refused, websession.Closed, OSError, ValueError, asyncio.TimeoutError) as error:
        summary = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    print(json.dumps(summary, ensure_ascii=False, indent=2))
    return 0 if summary["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
