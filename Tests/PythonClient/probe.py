"""What a relay must withstand: members that break the protocol, while an honest burst goes on. Sections 7, 8 and 11."""

import asyncio
import json
import os

import relay_pb2
import session
import wire
from aioquic.asyncio.client import connect
from aioquic.quic.configuration import QuicConfiguration

VIOLATION = 1
SILENCE = bytes.fromhex("f8fffe")
FRAMES = 60


def wrapped(**kinds):
    return wire.frame(relay_pb2.ClientMessage(**kinds))


def good_join(link):
    return relay_pb2.Join(
        channel_id=link.channel.bytes, invitation_token=link.token, display_name="probe", protocol_version=1
    )


def violations(link):
    """What may not be sent on the control stream, by name."""
    join = wrapped(join=good_join(link))
    request = wrapped(floor_request=relay_pb2.FloorRequest(request_id=1, key_id=1))
    short = good_join(link)
    short.channel_id = short.channel_id[:15]
    control = good_join(link)
    control.display_name = "a\x1b[2J"
    zero = wrapped(floor_request=relay_pb2.FloorRequest(request_id=0, key_id=1))
    high = wrapped(floor_request=relay_pb2.FloorRequest(request_id=1, priority=256, key_id=1))
    wide = wrapped(floor_release=relay_pb2.FloorRelease(request_id=1, last_sequence=65536))
    report = wrapped(reception_report=relay_pb2.ReceptionReport(ssrc=1))
    return {
        "a message before the join": request,
        "a second join": join + join,
        "a length of 0": join + bytes(4),
        "a length above the limit": join + (16385).to_bytes(4, "big") + bytes(100),
        "bytes that are no protobuf": join + b"\x00\x00\x00\x03\x0a\x7f\x00",
        "a channel id of 15 bytes": wrapped(join=short),
        "a name with control characters": wrapped(join=control),
        "a request numbered 0": join + zero,
        "a priority of 256": join + high,
        "a last sequence of 65536": join + wide,
        "a request number that was used": join
        + request
        + wrapped(floor_request=relay_pb2.FloorRequest(request_id=1, key_id=2)),
        "far too many messages": join + report * 500,
    }


async def closing_code(link, data):
    """Sends `data` on the control stream; the application error code of the relay's close, None if it does not close."""
    certificate, key = session.make_identity()
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["pttd/1"], idle_timeout=45, max_datagram_frame_size=65536,
        certificate=certificate, private_key=key, verify_mode=0,
    )
    async with connect(
        link.host, link.port, configuration=configuration, create_protocol=session.RelayProtocol
    ) as protocol:
        _, writer = await protocol.create_stream()
        writer.write(data)
        try:
            await asyncio.wait_for(protocol.wait_closed(), 2)
        except asyncio.TimeoutError:
            return None
        return protocol.closing and protocol.closing[0]


def packet(key, counter, rtp):
    return rtp.pack() + key.seal(counter, SILENCE, rtp.pack())


def foreign_media(attacker, talker_ssrc, talker_key_id):
    """Packets that a member may not send, floor or not."""
    own = attacker.welcome.ssrc
    fresh = attacker.key(wire.fresh_key_id(attacker.epoch))
    stolen = attacker.key(talker_key_id)
    good = packet(fresh, 0, wire.RTP(True, 1, 1, own))
    return {
        "without the floor": good,
        "another's source": packet(fresh, 1, wire.RTP(False, 2, 2, talker_ssrc)),
        "another's source and key id": packet(stolen, 1 << 20, wire.RTP(False, 60000, 3, talker_ssrc)),
        "another's key id": packet(stolen, 1 << 21, wire.RTP(False, 4, 4, own)),
        "contributing sources": bytes([good[0] | 1]) + good[1:],
        "another payload type": good[:1] + b"\x00" + good[2:],
        "no RTP": b"\x00" + good[1:],
        "only a header": good[:12],
        "too long": good + bytes(40),
        "random bytes": os.urandom(60),
    }


async def attack(link, talking):
    """Joins as a member and sends what it may not, while another talks."""
    async def body(member):
        ssrc, key_id = await talking
        for _ in range(5):
            for data in foreign_media(member, ssrc, key_id).values():
                member.send_media(data)
            await asyncio.sleep(0.05)
        denied = asyncio.get_running_loop().create_future()

        def on_message(kind, message):
            if kind == "floor_deny" and not denied.done():
                denied.set_result(message.cause)

        member.on_message = on_message
        member.send("floor_request", relay_pb2.FloorRequest(request_id=1, key_id=wire.fresh_key_id(member.epoch)))
        return await asyncio.wait_for(denied, 2)

    return await session.Session(link, "Attacker", session.make_identity()).run(body)


async def speak(link, talking):
    """An honest burst of `FRAMES` frames of silence, the first sequence number near the wrap."""
    async def body(member):
        granted, idle = asyncio.Event(), asyncio.Event()
        member.on_message = lambda kind, message: {
            "floor_granted": granted, "floor_idle": idle,
        }.get(kind, asyncio.Event()).set()
        key = member.key(wire.fresh_key_id(member.epoch))
        member.send("floor_request", relay_pb2.FloorRequest(request_id=1, key_id=key.key_id))
        await asyncio.wait_for(granted.wait(), 2)
        talking.set_result((member.welcome.ssrc, key.key_id))
        for counter in range(FRAMES):
            rtp = wire.RTP(counter == 0, (65530 + counter) & 0xFFFF, 960 * counter, member.welcome.ssrc)
            data = packet(key, counter, rtp)
            member.send_media(data)
            member.send_media(data)  # a duplicate, which the relay drops
            await asyncio.sleep(0.02)
        last = (65530 + FRAMES - 1) & 0xFFFF
        member.send("floor_release", relay_pb2.FloorRelease(request_id=1, last_sequence=last))
        await asyncio.wait_for(idle.wait(), 2)

    await session.Session(link, "Talker", session.make_identity()).run(body)


async def hear(link, ready):
    """What an honest listener gets: sequence numbers in order of arrival, and what it had to drop."""
    async def body(member):
        heard, idle = [], asyncio.Event()
        member.on_frame = lambda rtp, key_id, counter, opus: heard.append((rtp.sequence, counter, opus))
        member.on_message = lambda kind, message: idle.set() if kind == "floor_idle" else None
        ready.set()
        await asyncio.wait_for(idle.wait(), 20)
        await asyncio.sleep(0.3)
        return heard, dict(member.drops), len(member._held)

    return await session.Session(link, "Listener", session.make_identity()).run(body)


async def run(link):
    results = {}
    for name, data in violations(link).items():
        code = await closing_code(link, data)
        results[name] = "closed with 1" if code == VIOLATION else f"FAILED: close code {code}"
    unknown = b"\x00\x00\x00\x04\x9a\x06\x01\x00"
    code = await closing_code(link, unknown + wrapped(join=good_join(link)) + unknown + wrapped(leave=relay_pb2.Leave()))
    results["a message of an unknown kind"] = "ignored" if code == 0 else f"FAILED: close code {code}"

    ready, talking = asyncio.Event(), asyncio.get_running_loop().create_future()
    listener = asyncio.ensure_future(hear(link, ready))
    await asyncio.wait_for(ready.wait(), 10)
    attacker = asyncio.ensure_future(attack(link, talking))
    await asyncio.sleep(0.2)
    await speak(link, talking)
    cause = await attacker
    heard, drops, held = await listener
    results["a request while another talks"] = "denied" if cause == 1 else f"FAILED: cause {cause}"
    expected = [((65530 + counter) & 0xFFFF, counter, SILENCE) for counter in range(FRAMES)]
    intact = sorted(heard, key=lambda each: each[1]) == expected and not drops and not held
    results["an honest burst beside false packets"] = (
        f"{FRAMES} of {FRAMES} frames, nothing else" if intact else f"FAILED: {len(heard)} frames, dropped {drops}, {held} unexplained"
    )
    return results


def main(text):
    results = asyncio.run(run(wire.Link.parse(text)))
    failures = [name for name, result in results.items() if result.startswith("FAILED")]
    print(json.dumps({"probe": results, "ok": not failures}, ensure_ascii=False, indent=2))
    return 1 if failures else 0
