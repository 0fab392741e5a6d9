"""The cases of the QUIC interop runner that a relay has, with aioquic as the client: what happens on the way between the two is made here.

Each case joins through a path of its own, says something, and a listener that goes straight to the relay says what came of it.
"""

import asyncio
import dataclasses
import json
import os
import random
import sys
import time

import relay_pb2
import session
import wire
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite, Epoch
from probe import SILENCE, packet

UP, DOWN = "up", "down"
FRAMES = 60
FRAME = 0.02
AFTER = 25              # the last frames, half a second, which come long after whatever happened
UNKNOWN_VERSION = 0x1A2A3A4A


class Failed(Exception):
    """What has to be so is not."""


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Path(asyncio.DatagramProtocol):
    """A NAT of one client, towards the relay. `rule` takes direction and packet, and gives the packets that go on; `delay` is each way."""

    class Outside(asyncio.DatagramProtocol):
        def __init__(self, path):
            self.path = path

        def datagram_received(self, data, address):
            self.path.passed(DOWN, data)

        def error_received(self, error):
            pass

    def __init__(self, relay):
        self.relay = relay
        self.rule = lambda direction, data: [data]
        self.delay = 0.0
        self.bytes = {UP: 0, DOWN: 0}
        self.packets = {UP: 0, DOWN: 0}
        self.client = self.outside = None

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self.inside, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        self.port = self.inside.get_extra_info("sockname")[1]
        await self.rebind()
        return self

    async def __aexit__(self, *_):
        self.inside.close()
        self.outside.close()

    async def rebind(self, host="127.0.0.1"):
        """From now on the client comes from another port, or another address."""
        before = self.outside
        self.outside, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Path.Outside(self), local_addr=(host, 0), remote_addr=self.relay)
        if before:
            before.close()

    def datagram_received(self, data, address):
        self.client = address
        self.passed(UP, data)

    def passed(self, direction, data):
        """Counts what goes on, and hands it over."""
        for each in self.rule(direction, data):
            self.bytes[direction] += len(each)
            self.packets[direction] += 1
            if self.delay:
                asyncio.get_running_loop().call_later(self.delay, self.hand_over, direction, each)
            else:
                self.hand_over(direction, each)

    def hand_over(self, direction, data):
        if direction == UP:
            if not self.outside.is_closing():
                self.outside.sendto(data)
        elif not self.inside.is_closing():
            self.inside.sendto(data, self.client)


async def hear(link, ready):
    """The counters of the frames that come, until the floor is idle again."""
    async def body(member):
        counters, idle = [], asyncio.Event()
        member.on_frame = lambda rtp, key_id, counter, opus: counters.append(counter)
        member.on_message = lambda kind, message: idle.set() if kind == "floor_idle" else None
        ready.set()
        await asyncio.wait_for(idle.wait(), 25)
        await asyncio.sleep(0.3)
        return sorted(counters)

    return await session.Session(link, "Listener", session.make_identity()).run(body)


async def burst(member, frames, meanwhile=None):
    """Takes the floor and says `frames`; `meanwhile` is started with the 20th."""
    granted, idle = asyncio.Event(), asyncio.Event()
    member.on_message = lambda kind, message: {"floor_granted": granted, "floor_idle": idle}.get(kind, asyncio.Event()).set()
    key = member.key(wire.fresh_key_id(member.epoch))
    member.send("floor_request", relay_pb2.FloorRequest(request_id=1, key_id=key.key_id))
    await asyncio.wait_for(granted.wait(), 8)
    event, due = None, time.monotonic()
    for counter in range(frames):
        if counter == 20 and meanwhile:
            event = asyncio.ensure_future(meanwhile())
        member.send_media(packet(key, counter, wire.RTP(counter == 0, counter, 960 * counter, member.welcome.ssrc)))
        due += FRAME
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    if event:
        await event
    member.send("floor_release", relay_pb2.FloorRelease(request_id=1, last_sequence=frames - 1))
    await asyncio.wait_for(idle.wait(), 8)


class Case:
    """One connection through a path, and a listener. `talk` gives the frames that were heard."""

    def __init__(self, link, path):
        self.link, self.path = link, path
        self.by_path = dataclasses.replace(link, host="127.0.0.1", port=path.port)

    def member(self, quic=None, identity=None, **connecting):
        return session.Session(self.by_path, "Talker", identity or session.make_identity(), quic, **connecting)

    async def talk(self, meanwhile=None, frames=FRAMES, member=None, look=None):
        ready = asyncio.Event()
        listener = asyncio.ensure_future(hear(self.link, ready))
        await asyncio.wait_for(ready.wait(), 10)
        member = member or self.member()

        async def body(joined):
            await burst(joined, frames, meanwhile and (lambda: meanwhile(joined)))
            return look(joined) if look else None

        try:
            self.found = await member.run(body)
        except BaseException:
            listener.cancel()
            raise
        return await listener

    async def heard_all(self, *arguments, **named):
        heard = await self.talk(*arguments, **named)
        frames = named.get("frames", FRAMES)
        expect(heard == list(range(frames)), f"{len(heard)} of {frames} frames were heard")
        return f"all {frames} frames heard"


# The cases, by the runner's names. Each gives what was seen.


async def handshake(case):
    return await case.heard_all()


async def chacha20(case):
    suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    member = case.member({"cipher_suites": suites})
    heard = await case.heard_all(member=member, look=lambda joined: joined.connection.tls.key_schedule.cipher_suite)
    expect(case.found == suites[0], f"it is {case.found}")
    return heard


async def versionnegotiation(case):
    member = case.member({
        "original_version": UNKNOWN_VERSION, "supported_versions": [UNKNOWN_VERSION, QuicProtocolVersion.VERSION_1]})
    heard = await case.heard_all(member=member, look=lambda joined: joined.connection._version)
    expect(case.found == QuicProtocolVersion.VERSION_1, f"version {case.found:#x}")
    return heard + ", in version 1, after one that nobody knows"


async def longrtt(case):
    case.path.delay = 0.375
    return await case.heard_all() + ", 750 ms there and back"


async def keyupdate(case):
    updates = 3

    async def update(joined):
        pair = joined.connection._cryptos[Epoch.ONE_RTT]
        for _ in range(updates):
            phase = pair.recv.key_phase
            joined.connection.request_key_update()
            await joined._protocol.ping()         # its acknowledgement is readable with the new keys only
            expect(pair.recv.key_phase != phase and pair.send.key_phase == pair.recv.key_phase, "the keys are the old ones")
            await asyncio.sleep(0.2)

    return await case.heard_all(update) + f", {updates} updates of keys meanwhile"


async def handshakeloss(case):
    return await spoiled(case, lambda data, chance: [])


async def handshakecorruption(case):
    def flip(data, chance):
        at = chance.randrange(len(data))
        return [data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1:]]

    return await spoiled(case, flip)


async def spoiled(case, what, times=5):
    """Three of ten packets are spoiled. Handshakes and control streams survive it; of the speech the rest is heard, and nothing else."""
    chance, count = random.Random(20261125), 0

    def rule(direction, data):
        nonlocal count
        if chance.random() >= 0.3:
            return [data]
        count += 1
        return what(data, chance)

    case.path.rule = rule
    took = []
    for _ in range(times):
        began = time.monotonic()
        await case.member().run(lambda joined: asyncio.sleep(0))
        took.append(time.monotonic() - began)
    expect(count >= times, f"only {count} packets of the handshakes were spoiled")
    handshakes = count
    heard = await case.talk()
    expect(len(set(heard)) == len(heard) and set(heard) <= set(range(FRAMES)), f"false frames: {heard}")
    expect(len(heard) >= FRAMES * 0.4, f"only {len(heard)} of {FRAMES} frames")
    return f"{times} joins in {max(took):.1f} s at most, {handshakes} packets spoiled; then {len(heard)} of {FRAMES} frames"


async def blackhole(case):
    gap = 2.0
    frames = FRAMES + int(gap / FRAME)

    async def vanish(joined):
        rule, case.path.rule = case.path.rule, lambda direction, data: []
        await asyncio.sleep(gap)
        case.path.rule = rule

    heard = await case.talk(vanish, frames)
    expect(set(range(frames - AFTER, frames)) <= set(heard), f"after the gap {len([n for n in heard if n >= frames - AFTER])} of {AFTER}")
    expect(set(range(20)) <= set(heard), "frames of before the gap are missing")
    return f"{len(heard)} of {frames} frames with a gap of {gap:.0f} s, all {AFTER} of the end"


async def rebinding(case, host):
    times = 3

    async def move(joined):
        for _ in range(times):
            await case.path.rebind(host())
            await asyncio.sleep(0.25)

    heard = await case.talk(move)
    expect(len(heard) >= FRAMES - 2 * times, f"{len(heard)} of {FRAMES} frames")
    return f"{len(heard)} of {FRAMES} frames, {times} times"


async def rebind_port(case):
    return await rebinding(case, lambda: "127.0.0.1")


async def rebind_addr(case):
    addresses = iter(("127.0.0.2", "127.0.0.3", "127.0.0.1"))
    return await rebinding(case, lambda: next(addresses))


async def connectionmigration(case):
    async def move(joined):
        before = joined.connection._peer_cid.cid
        joined.connection.change_connection_id()
        await case.path.rebind("127.0.0.4")
        await joined._protocol.ping()
        expect(joined.connection._peer_cid.cid != before, "the connection's name is the old one")

    heard = await case.talk(move)
    expect(len(heard) >= FRAMES - 2, f"{len(heard)} of {FRAMES} frames")
    return f"{len(heard)} of {FRAMES} frames, under another connection ID from another address"


async def amplificationlimit(case):
    path, held = case.path, 3.0
    seen = 0

    def first_only(direction, data):
        nonlocal seen
        if direction == DOWN:
            return [data]
        seen += 1
        return [data] if seen == 1 else []

    path.rule = first_only
    joining = asyncio.ensure_future(case.member().run(lambda joined: asyncio.sleep(0)))
    await asyncio.sleep(held)
    sent, received, packets = path.bytes[UP], path.bytes[DOWN], path.packets[DOWN]
    expect(packets >= 2, f"the relay said {packets} packets in {held} s")
    expect(received <= 3 * sent, f"{received} bytes for {sent}")
    path.rule = lambda direction, data: [data]
    await asyncio.wait_for(joining, 20)
    return f"{received} bytes for {sent} in {held:.0f} s, and a connection once more comes through"


async def resumption(case, early=False):
    tickets = []
    identity = session.make_identity()

    async def wait(joined):
        for _ in range(50):
            if tickets:
                return
            await asyncio.sleep(0.05)

    await case.member(identity=identity, session_ticket_handler=tickets.append).run(wait)
    expect(tickets, "the relay gives no ticket")
    member = case.member({"session_ticket": tickets[-1]}, identity, wait_connected=not early)
    heard = await case.heard_all(
        member=member, look=lambda joined: (joined.connection.tls.session_resumed, joined.connection.tls.early_data_accepted))
    expect(case.found[0], "the connection is not a resumed one")
    if early:
        expect(case.found[1], "the early data were not taken")
        return heard + ", the join came in early data"
    return heard


async def zerortt(case):
    return await resumption(case, early=True)


async def ipv6(case):
    if not os.path.exists("/proc/net/if_inet6"):
        return "SKIPPED: there is no IPv6 here"
    case.by_path = dataclasses.replace(case.link, host="::1")
    return await case.heard_all()


CASES = (handshake, chacha20, versionnegotiation, longrtt, resumption, zerortt, keyupdate, handshakeloss, handshakecorruption, blackhole,
         rebind_port, rebind_addr, connectionmigration, amplificationlimit, ipv6)


async def run(link, names):
    results = {}
    for case in CASES:
        if names and case.__name__ not in names:
            continue
        began = time.monotonic()
        try:
            async with Path((link.host, link.port)) as path:
                said = await asyncio.wait_for(case(Case(link, path)), 60)
        except (Failed, wire.ProtocolError, OSError, asyncio.TimeoutError) as error:
            said = f"FAILED: {type(error).__name__}: {error}"
        results[case.__name__] = said
        print(f"{case.__name__}: {said} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return results


def main(text, names):
    unknown = set(names) - {case.__name__ for case in CASES}
    if unknown:
        sys.exit(f"no such case: {', '.join(unknown)}; there are {', '.join(case.__name__ for case in CASES)}")
    results = asyncio.run(run(wire.Link.parse(text), names))
    failures = [name for name, said in results.items() if said.startswith("FAILED")]
    print(json.dumps({"interop": results, "ok": not failures}, ensure_ascii=False, indent=2))
    return 1 if failures else 0
