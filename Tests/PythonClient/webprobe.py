"""What a relay must withstand on its link over TLS, while an honest burst goes on. Section 21."""

import argparse
import asyncio
import base64
import json
import logging
import os
import resource
import ssl
import struct
import sys
import time

import probe
import relay_pb2
import session
import webmiddle
import webwire
import wire
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from websession import BINARY, CLOSE, PING, PONG, TEXT, Closed, Refused, WebSession, WebSocket, frame, open_stream, request

VIOLATION = webwire.CLOSE_BASE + 1
FRAME_TIME = 0.02
BURST_FRAMES = 1000
# A frame of the honest talker: 20 ms at 80 kbit/s.
SPEECH = bytes.fromhex("f8") + bytes(199)
SLOW_READERS = 8
FLOOD = 5000
FLOODER = session.make_identity()
# What all connections that a relay takes by default may use: 64 KiB each.
MEMORY_MAXIMUM = 2304 << 16
JOINED_S = 8        # until a newcomer is a member, beside a flood and on a slow machine
OPEN = "open"
SMALL_ORDER = {
    "of zeros": bytes(32),
    "of order 1": (1).to_bytes(32, "little"),
    "of order 8": bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    "of another order 8": bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    "p - 1": (2**255 - 20).to_bytes(32, "little"),
    "p": (2**255 - 19).to_bytes(32, "little"),
    "p + 1": (2**255 - 18).to_bytes(32, "little"),
}


def add_arguments(parser):
    parser.add_argument("--pid", type=int, help="the relay's process: its memory is bounded")
    parser.add_argument("--log", help="the relay's log, of level trace: no secret is in it")
    parser.add_argument("--quick", action="store_true", help="without what takes a minute")
    parser.add_argument("--only", nargs="+", metavar="PHASE", help="these only: middle requests frames hellos proofs sealed regular media "
                        "answers timeouts floods readers")
    parser.add_argument("--speak", action="store_true", help=argparse.SUPPRESS)


class Report:
    def __init__(self):
        self.failures = []
        self.count = 0

    def line(self, name, result, is_right=True):
        self.count += 1
        if not is_right:
            self.failures.append(name)
        print(f"{'ok    ' if is_right else 'FAILED'}  {name}: {result}", flush=True)

    def equal(self, name, found, expected):
        wanted = expected if isinstance(expected, tuple) else (expected,)
        said = "ends without a Close frame" if found is None else found
        self.line(name, said if found in wanted else f"{said}, not {expected}", found in wanted)


# What is sent, and how the relay ends it


async def ended(socket, seconds=3.0):
    """The code of the relay's Close frame, None for an end without one, OPEN while there is none."""
    async def read():
        while True:
            await socket.receive()

    try:
        await asyncio.wait_for(read(), seconds)
    except Closed as closed:
        return closed.args[0]
    except asyncio.TimeoutError:
        return OPEN
    except (ConnectionError, ssl.SSLError):
        return None


async def after_frames(at, *frames, seconds=3.0):
    """What becomes of an upgraded connection after these frames."""
    socket = await WebSocket.connect(*at)
    try:
        for each in frames:
            socket.write(each)
        return await ended(socket, seconds)
    finally:
        socket.abort()


async def after_messages(at, *messages, seconds=3.0):
    return await after_frames(at, *[frame(BINARY, each) for each in messages], seconds=seconds)


async def status(at, **headers):
    """The HTTP status of an answer to a request; 101 for an upgrade."""
    try:
        (await WebSocket.connect(*at, headers=headers)).abort()
        return 101
    except Refused as refused:
        return refused.args[0]


async def after_bytes(at, data, tls, seconds=15.0):
    """The first line of the answer to bytes that are no request, or how the connection ends."""
    reader, writer = await open_stream(*at, tls=tls)
    try:
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(4096), seconds)
        return answer.split(b"\r\n")[0].decode("latin-1") if answer[:5] == b"HTTP/" else "closed"
    except asyncio.TimeoutError:
        return OPEN
    except (ConnectionError, ssl.SSLError):
        return "closed"
    finally:
        writer.transport.abort()


async def twice(at, first):
    """A link on a connection that another request was answered on, unless that answer ends the connection; what comes, and whether it may."""
    reader, writer = await open_stream(*at)
    try:
        writer.write(request(*at, **first)[0])
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode("latin-1").lower()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length"))
        await reader.readexactly(length)
        if "connection: close" in head:
            return "the first answer ends the connection", await asyncio.wait_for(reader.read(1), 5) == b""
        writer.write(request(*at)[0])
        head = await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
        return head.decode("latin-1").strip(), b" 101 " in head
    except asyncio.TimeoutError:
        return "no answer", False
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        return "closed without saying so", False
    finally:
        writer.transport.abort()


async def requests(report, at):
    own = f"https://{at[0]}:{at[1]}"
    for name, expected, headers in [
        ("a regular request", 101, {}),
        ("another path", 404, {"path": "/pttd/2"}),
        ("a path that leads up", 404, {"path": "/page/../pttd/1"}),
        ("no subprotocol", 400, {"Sec_WebSocket_Protocol": None}),
        ("another subprotocol", 400, {"Sec_WebSocket_Protocol": "pttd.2"}),
        ("the subprotocol among others", 101, {"Sec_WebSocket_Protocol": "chat, pttd.1"}),
        ("a foreign origin", 403, {"Origin": "https://evil.example"}),
        ("an opaque origin", 403, {"Origin": "null"}),
        ("an origin that begins like the relay's", 403, {"Origin": own + ".evil.example"}),
        ("the origin of the relay's page", 101, {"Origin": own}),
        ("the relay's host at another port", 403, {"Origin": f"https://{at[0]}"}),
        ("no upgrade", 426, {"Upgrade": None, "Connection": None}),
        ("an upgrade to something else", 426, {"Upgrade": "h2c"}),
        ("no Connection: upgrade", (400, 426), {"Connection": "keep-alive"}),
        ("no key", 400, {"Sec_WebSocket_Key": None}),
        ("no version", (400, 426), {"Sec_WebSocket_Version": None}),
        ("version 8", (400, 426), {"Sec_WebSocket_Version": "8"}),
        ("another method", (400, 426), {"method": "POST"}),
    ]:
        report.equal(f"request, {name}", await status(at, **headers), expected)
    for name, first in [
        ("a link after another request", {"path": "/nothing", "Upgrade": None, "Connection": None}),
        ("a link after a refused one", {"path": "/nothing"}),
    ]:
        said, is_right = await twice(at, first)
        report.line(f"request, {name} on the same connection, as proxies do", said, is_right)
    head, _ = request(*at)
    for name, data, tls, expected in [
        ("random bytes instead of TLS", os.urandom(2000), False, ("closed",)),
        ("HTTP without TLS", head, False, ("closed",)),
        ("random bytes in TLS", os.urandom(2000), True, ("closed", "HTTP/1.1 400 Bad Request")),
        ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", True, ("closed", "HTTP/1.1 400 Bad Request")),
        ("a head of 200 kB", head[:-2] + b"X: " + b"a" * 200_000 + b"\r\n\r\n", True,
         ("closed", "HTTP/1.1 400 Bad Request", "HTTP/1.1 431 Request Header Fields Too Large")),
        ("a body of 200 kB", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000), True, ("closed",)),
        ("an empty line", b"\r\n\r\n", True, ("closed", "HTTP/1.1 400 Bad Request")),
    ]:
        report.equal(f"request, {name}", await after_bytes(at, data, tls), expected)


async def frames(report, at):
    """RFC 6455 and section 21.1, before the handshake."""
    hello = webwire.ClientHandshake(bytes(32)).hello()
    big = webwire.MESSAGE_MAXIMUM
    for name, expected, sent in [
        ("a text message", 1003, [frame(TEXT, b"hello")]),
        ("a text in fragments", 1003, [frame(TEXT, b"hi", fin=False), frame(0, b"!")]),
        ("an empty message", 1007, [frame(BINARY, b"")]),
        ("a message that is too long", 1009, [frame(BINARY, bytes(big + 1))]),
        ("a length of 2^63 - 1", (1009, 1002), [b"\x82\xff" + struct.pack(">Q", 2**63 - 1) + bytes(4)]),
        ("fragments that are too long together", 1009,
         [frame(BINARY, bytes(big), fin=False), frame(0, b"a")]),
        ("a message in 65 fragments", (1009, 1002, 1008),
         [frame(BINARY, b"\x01", fin=False)] + [frame(0, b"a", fin=False) for _ in range(63)] + [frame(0, b"a")]),
        ("empty fragments without end", (1009, 1002, 1008),
         [frame(BINARY, b"\x01", fin=False)] + [frame(0, b"", fin=False) for _ in range(100)]),
        ("a frame without a mask", 1002, [frame(BINARY, hello, masked=False)]),
        ("a ping without a mask", 1002, [frame(PING, b"a", masked=False)]),
        ("the first reserved bit", 1002, [frame(BINARY, hello, reserved=4)]),
        ("the last reserved bit", 1002, [frame(BINARY, hello, reserved=1)]),
        ("a reserved kind of data", 1002, [frame(3, hello)]),
        ("a reserved kind of control", 1002, [frame(11, b"")]),
        ("a continuation without a start", 1002, [frame(0, hello)]),
        ("a start within a message", 1002, [frame(BINARY, hello[:9], fin=False), frame(BINARY, hello)]),
        ("a ping of 126 bytes", 1002, [frame(PING, bytes(126))]),
        ("a ping in fragments", 1002, [frame(PING, b"a", fin=False)]),
        ("an unasked pong", OPEN, [frame(PONG, b"a")]),
        ("a close", 1000, [frame(CLOSE, struct.pack(">H", 1000))]),
        ("a close of one byte", (1002, 1000), [frame(CLOSE, b"\x03")]),
        ("a close with a code that must not be sent", 1002, [frame(CLOSE, struct.pack(">H", 1006))]),
    ]:
        report.equal(f"frame, {name}", await after_frames(at, *sent, seconds=2), expected)


async def hellos(report, link, at):
    good = webwire.ClientHandshake(link.pin).hello()
    cases = {
        "of 31 bytes": good[:32], "of 33 bytes": good + b"a", "without a key": good[:1], "of another kind": b"\x02" + good[1:],
        "that is media": bytes([0x80]) + good[1:], "that is sealed": bytes([16]) + bytes(40), "of an unknown kind": bytes([99]) + good[1:],
        "that is a proof": bytes([3]) + bytes(200),
    }
    cases |= {f"with a key {name}": good[:1] + key for name, key in SMALL_ORDER.items()}
    for name, message in cases.items():
        report.equal(f"hello, {name}", await after_messages(at, message), VIOLATION)
    report.equal("hello, twice", await after_messages(at, good, good), VIOLATION)
    # The highest bit of a public key is ignored (RFC 7748, section 5), but it is in th.
    handshake = webwire.ClientHandshake(link.pin)
    handshake.public = handshake.public[:31] + bytes([handshake.public[31] | 0x80])
    socket = await WebSocket.connect(*at)
    socket.send(handshake.hello())
    handshake.receive(await asyncio.wait_for(socket.receive(), 3))
    socket.abort()
    report.line("hello, with the highest bit of the key set", "answered under the hash of the bytes as sent")


class Attacker:
    """A connection as far as the relay's hello, that proves what it is told to."""

    def __init__(self, link, at, key=None, private=None):
        self.link, self.at, self.private = link, at, private
        self.key = key or ec.generate_private_key(ec.SECP256R1())

    async def __aenter__(self):
        self.socket = await WebSocket.connect(*self.at)
        self.handshake = webwire.ClientHandshake(self.link.pin, self.private)
        self.socket.send(self.handshake.hello())
        self.handshake.receive(await asyncio.wait_for(self.socket.receive(), 3))
        return self

    async def __aexit__(self, *_):
        self.socket.abort()

    def statement(self, **changed):
        values = {"th": self.handshake.th, "client": wire_pin(self.key), "relay": self.link.pin} | changed
        return webwire.client_statement(values["th"], values["client"], values["relay"])

    def plaintext(self, statement=None):
        return webwire.proof(webwire.spki_of(self.key), webwire.sign(self.key, statement or self.statement()))

    def seal(self, plaintext):
        return bytes([webwire.CLIENT_PROOF]) + self.handshake.up.seal(plaintext)

    async def after(self, *messages, seconds=3.0):
        for message in messages:
            self.socket.send(message)
        return await ended(self.socket, seconds)


def wire_pin(key):
    return webwire.hashlib.sha256(webwire.spki_of(key)).digest()


async def proofs(report, link, at):
    async def case(name, make, expected=VIOLATION, key=None, **named):
        async with Attacker(link, at, key) as attacker:
            made = make(attacker)
            report.equal(f"proof, {name}", await attacker.after(*(made if isinstance(made, list) else [made]), **named), expected)

    await case("a right one", lambda a: a.seal(a.plaintext()), OPEN, seconds=1)
    await case("random bytes", lambda a: bytes([3]) + os.urandom(171))
    await case("empty", lambda a: bytes([3]))
    await case("sealed and empty", lambda a: a.seal(b""))
    await case("of another kind", lambda a: bytes([16]) + a.seal(a.plaintext())[1:])
    await case("one bit of it changed", lambda a: flipped(a.seal(a.plaintext()), 40))
    await case("one bit of the signature changed", lambda a: a.seal(flipped(a.plaintext(), -5)))
    await case("a signature of zeros", lambda a: a.seal(a.plaintext()[:-64] + bytes(64)))
    await case("for another handshake", lambda a: a.seal(a.plaintext(a.statement(th=os.urandom(32)))))
    await case("for another relay", lambda a: a.seal(a.plaintext(a.statement(relay=os.urandom(32)))))
    await case("for another client", lambda a: a.seal(a.plaintext(a.statement(client=os.urandom(32)))))
    await case("the relay's statement", lambda a: a.seal(a.plaintext(webwire.relay_statement(a.handshake.th, wire_pin(a.key)))))
    await case("the key of somebody else", lambda a: a.seal(webwire.proof(
        webwire.spki_of(ec.generate_private_key(ec.SECP256R1())), a.plaintext()[-64:])))
    await case("a key on P-384", lambda a: a.seal(webwire.proof(webwire.spki_of(a.key), bytes(64))), key=ec.generate_private_key(ec.SECP384R1()))
    await case("an Ed25519 key", lambda a: a.seal(
        webwire.proof(webwire.spki_of(a.key), a.key.sign(a.statement()))), key=ed25519.Ed25519PrivateKey.generate())
    await case("a key of 0 bytes", lambda a: a.seal(webwire.proof(b"", bytes(64))))
    await case("a key of 513 bytes", lambda a: a.seal(webwire.proof(bytes(513), bytes(64))))
    await case("a key that is none", lambda a: a.seal(webwire.proof(os.urandom(91), bytes(64))))
    await case("a length beyond its end", lambda a: a.seal(b"\x01\xff" + a.plaintext()[2:]))
    await case("bytes behind it", lambda a: a.seal(a.plaintext() + b"a"))
    await case("the relay's own proof, back", lambda a: a.seal(b"\x00\x5b" + os.urandom(155)))
    await case("twice", lambda a: [(one := a.seal(a.plaintext())), one], OPEN, seconds=1)
    await case("media before it", lambda a: [bytes([0x80, 0x6F]) + bytes(60)])
    await case("a control message before it", lambda a: [webwire.seal_control(a.handshake.up, join(link))])
    # The same hello twice, and the proof of the first connection on the second: as it was sent, and sealed anew.
    for name, anew in [("of another connection, as it was sent", False), ("of another connection, sealed anew", True)]:
        async with Attacker(link, at) as first:
            plaintext = first.plaintext()
            sealed = first.seal(plaintext)
            async with Attacker(link, at, first.key, first.handshake.private) as second:
                report.equal(f"proof, {name}", await second.after(second.seal(plaintext) if anew else sealed), VIOLATION)
    # The relay's hello of one connection is refused by a client on another.
    first = webwire.ClientHandshake(link.pin)
    socket = await WebSocket.connect(*at)
    socket.send(first.hello())
    hello = await asyncio.wait_for(socket.receive(), 3)
    socket.abort()
    try:
        webwire.ClientHandshake(link.pin).receive(hello)
        report.line("the relay's hello on another connection", "accepted", False)
    except wire.ProtocolError:
        report.line("the relay's hello on another connection", "refused by this client")
    try:
        webwire.ClientHandshake(os.urandom(32), first.private).receive(hello)
        report.line("a relay with another key", "accepted", False)
    except wire.ProtocolError:
        report.line("a relay with another key", "refused by this client, which proves nothing to it")


def flipped(data, place):
    data = bytearray(data)
    data[place] ^= 1
    return bytes(data)


def join(link):
    return relay_pb2.ClientMessage(join=probe.good_join(link))


def unframed(data):
    """The messages of a control stream, without their lengths; None for one that cannot be without."""
    messages = []
    while data:
        (size,) = struct.unpack(">I", data[:4])
        if not 1 <= size <= wire.MESSAGE_MAXIMUM:
            return None
        messages.append(data[4 : 4 + size])
        data = data[4 + size :]
    return messages


async def proven(link, at, *plaintexts, joined=True, seconds=3.0, raw=()):
    """What becomes of a connection after its proof, these sealed plaintexts and `raw` messages."""
    async with Attacker(link, at) as attacker:
        up = attacker.handshake.up
        messages = [attacker.seal(attacker.plaintext())]
        if joined:
            messages.append(webwire.seal_control(up, join(link)))
        messages += [bytes([webwire.SEALED]) + up.seal(each) for each in plaintexts] + list(raw)
        return await attacker.after(*messages, seconds=seconds)


async def sealed(report, link, at):
    big = relay_pb2.ClientMessage(leave=relay_pb2.Leave()).SerializeToString()
    for name, expected, plaintexts in [
        ("nothing in it", VIOLATION, [b""]),
        ("an unknown byte", OPEN, [b"\x63abc"]),
        ("a control message of 0 bytes", VIOLATION, [b"\x01"]),
        ("a control message of 16385 bytes", VIOLATION, [b"\x01" + big + bytes(16385 - len(big))]),
        ("an acknowledgement", VIOLATION, [b"\x02" + bytes(4)]),
        ("an acknowledgement of 3 bytes", VIOLATION, [b"\x02" + bytes(3)]),
        ("a part of an answer", VIOLATION, [b"\x05" + bytes(4) + b"\x01abc"]),
        ("a ping of 7 bytes", VIOLATION, [b"\x03" + bytes(7)]),
        ("a ping of 9 bytes", VIOLATION, [b"\x03" + bytes(9)]),
        ("a pong that nobody asked for", OPEN, [b"\x04" + bytes(8)]),
        ("a leave", webwire.CLOSE_BASE, [b"\x01" + big]),
    ]:
        seconds = 1 if expected == OPEN else 3
        report.equal(f"sealed, {name}", await proven(link, at, *plaintexts, seconds=seconds), expected)
    for name, raw, expected in [
        ("random bytes", bytes([16]) + os.urandom(80), VIOLATION),
        ("only the kind", bytes([16]), VIOLATION),
        ("a tag only", bytes([16]) + os.urandom(16), VIOLATION),
        ("a second hello", b"\x01" + os.urandom(32), OPEN),
        ("an unknown kind of 16640 bytes", bytes([17]) + bytes(16639), OPEN),
        ("a kind above media", bytes([200]) + bytes(20), OPEN),
        ("media that are too long", bytes([0x80, 0x6F]) + bytes(16000), VIOLATION),
        ("media of one byte", b"\x80", VIOLATION),
        ("what begins like media", bytes([0xBF]) + os.urandom(40), VIOLATION),
    ]:
        report.equal(f"after the join, {name}", await proven(link, at, raw=[raw], seconds=1 if expected == OPEN else 3), expected)
    async with Attacker(link, at) as attacker:
        one = webwire.seal_control(attacker.handshake.up, join(link))
        report.equal("sealed, the join twice as it was", await attacker.after(
            attacker.seal(attacker.plaintext()), one, one), VIOLATION)
    async with Attacker(link, at) as attacker:
        proof_message = attacker.seal(attacker.plaintext())
        first, second = (webwire.seal_control(attacker.handshake.up, join(link)) for _ in range(2))
        report.equal("sealed, a message left out", await attacker.after(proof_message, second), VIOLATION)
    for name, data in probe.violations(link).items():
        if (messages := unframed(data)) is not None:
            plaintexts = [b"\x01" + each for each in messages]
            report.equal(f"control, {name}", await proven(link, at, *plaintexts, joined=False), VIOLATION)
    # Nobody may close members by bits of others: section 11's kinds of refusal are those of QUIC.
    async with Attacker(link, at) as attacker:
        bad = probe.good_join(link)
        bad.invitation_token = os.urandom(16)
        code = await attacker.after(
            attacker.seal(attacker.plaintext()), webwire.seal_control(attacker.handshake.up, relay_pb2.ClientMessage(join=bad)))
        report.equal("control, a join with another token", code, webwire.CLOSE_BASE + 2)


async def regular(report, link):
    """What is allowed, however odd."""
    async def body(member):
        for _ in range(2000):
            member.socket.write(frame(PING, b"12345678"))
        for _ in range(200):
            member.ping()
            await asyncio.sleep(0.002)
        member.ping()
        began = time.monotonic()
        while member._pings and time.monotonic() - began < 5:
            await asyncio.sleep(0.05)
        return member.socket.pongs, len(member.round_trips), min(member.round_trips), member._pings

    member = WebSession(link, "Odd", session.make_identity(), fragments=7)
    pongs, answered, trip, missing = await member.run(body)
    report.line("messages in fragments of 7 bytes", "joined")
    report.line("2000 WebSocket pings at once", f"{pongs} pongs, still a member", pongs > 0)
    last = "answered" if answered and len(missing) < 201 else "unanswered"
    report.line("201 sealed pings", f"{answered} answered, the fastest after {trip * 1000:.1f} ms", last == "answered")

    socket = await WebSocket.connect(*webwire.place(link.web, link.host))
    handshake = webwire.ClientHandshake(link.pin)
    hello = handshake.hello()
    for index, byte in enumerate(hello):  # each byte a fragment and a packet, a ping between them
        socket.write(frame(BINARY if index == 0 else 0, bytes([byte]), fin=index == len(hello) - 1))
        socket.write(frame(PING, b""))
        await asyncio.sleep(0.005)
    handshake.receive(await asyncio.wait_for(socket.receive(), 3))
    socket.abort()
    report.line("a hello of 33 fragments with pings between them", "answered")


# Media


async def media(report, link):
    """A member without the floor sends what it may not. The honest burst shows that nothing was forwarded."""
    async def body(member):
        revoked = asyncio.Event()
        denied = asyncio.get_running_loop().create_future()

        def on_message(kind, message):
            if kind == "floor_revoke":
                revoked.set()
            elif kind == "floor_deny" and not denied.done():
                denied.set_result(message.cause)

        member.on_message = on_message
        while member._bound is None:
            await asyncio.sleep(0.02)
        ssrc, key_id = member._bound
        sent = 0
        for _ in range(5):
            for data in probe.foreign_media(member, ssrc, key_id).values():
                member.send_sealed(bytes([webwire.SEALED_MEDIA]) + data)
                member.media_sent += 1
                sent += 1
            await asyncio.sleep(0.05)
        member.send("floor_request", relay_pb2.FloorRequest(request_id=1, key_id=wire.fresh_key_id(member.epoch)))
        cause = await asyncio.wait_for(denied, 3)
        flood = probe.packet(member.key(wire.fresh_key_id(member.epoch)), 0, wire.RTP(True, 1, 1, member.welcome.ssrc))
        began, counted = time.monotonic(), member.media_sent
        for _ in range(FLOOD):
            member.send_sealed(bytes([webwire.SEALED_MEDIA]) + flood)
            member.media_sent += 1
        while member.acknowledged < member.media_sent and time.monotonic() - began < 10:
            await asyncio.sleep(0.02)
        took = time.monotonic() - began
        await asyncio.sleep(2)
        began = time.monotonic()
        member.send_sealed(bytes([webwire.SEALED_MEDIA]) + flood)
        member.media_sent += 1
        while member.acknowledged < member.media_sent and time.monotonic() - began < 2:
            await asyncio.sleep(0.001)
        one = time.monotonic() - began
        return sent, cause, revoked.is_set(), took, member.acknowledged - counted, one

    sent, cause, revoked, took, acknowledged, one = await WebSession(link, "Attacker", session.make_identity()).run(body)
    report.line("a request for the floor while another talks", f"denied with cause {cause}", cause == 1)
    report.line("media without the floor, of another source, malformed",
                f"{sent} packets; {'told not to talk' if revoked else 'not told not to talk'}", revoked)
    report.line(f"{FLOOD} packets of media at once", f"{acknowledged - 1} acknowledged within {took:.2f} s, still a member",
                acknowledged == FLOOD + 1)
    report.line("one packet of media", f"acknowledged after {one * 1000:.0f} ms", 0.02 < one < 1)


def packets_of(data):
    """The packets of an answer (sections 17.2 and 18.1) after its number, and whether the relay says that there are no more."""
    packets, is_end = [], False
    while data and not is_end:
        (size,) = struct.unpack(">H", data[:2])
        is_end = size == 0
        packet, data = data[2 : 2 + size], data[2 + size :]
        if packet:
            packets.append(packet)
        if len(packet) != size or is_end and data:
            raise wire.ProtocolError("an answer that is cut off")
    return packets, is_end


async def answers(report, link):
    """Lost packets and a whole burst, in parts (sections 17, 18 and 21.3)."""
    async def body(member):
        came, bursts = asyncio.Queue(), {}  # key id: sequence numbers
        member.on_answer = lambda number, data: came.put_nowait((number, data))
        member.on_frame = lambda rtp, key_id, counter, opus: bursts.setdefault(key_id, []).append(rtp.sequence)
        while len(live := bursts.get(member._bound and member._bound[1], [])) < 300:
            await asyncio.sleep(0.1)
        ssrc, key_id = member._bound
        missing = live[100:120]
        request = relay_pb2.RepairRequest(repair_id=1, ssrc=ssrc, key_id=key_id)
        request.ranges.add(first=missing[0], last=missing[-1])
        member.send("repair_request", request)
        number, data = await asyncio.wait_for(came.get(), 5)
        repaired, _ = packets_of(data[4:])
        right = data[:4] == struct.pack(">I", 1) and [wire.RTP.parse(each).sequence for each in repaired] == missing
        member.send("burst_request", relay_pb2.BurstRequest(request_id=1, ssrc=ssrc, key_id=key_id))
        following, data = await asyncio.wait_for(came.get(), 5)
        burst, _ = packets_of(data[8:])
        key = member._derive(key_id)
        whole = all(key.open(each[wire.RTP_SIZE :], each[: wire.RTP_SIZE]) == SPEECH for each in burst)
        is_answer = data[:8] == struct.pack(">II", 0, 1) and following > number
        return right, len(repaired), whole and is_answer and len(data) > 16384, len(burst), len(data)

    right, repaired, whole, burst, size = await WebSession(link, "Asker", session.make_identity()).run(body)
    report.line("lost packets", f"{repaired} in an answer", right)
    report.line("a burst from its beginning", f"{burst} packets in parts of {size} bytes together", whole)


# Floods


async def half_open(link, at, source, until, opened):
    """One connection that goes as far as `until` and stays: tcp, tls, upgraded or proven."""
    try:
        if until == "proven":
            member = WebSession(link, "Half", FLOODER, source=source)
            await member.open()
            opened.append(member.socket.writer.transport)
        elif until == "upgraded":
            opened.append((await WebSocket.connect(*at, source=source)).writer.transport)
        else:
            opened.append((await open_stream(*at, tls=until == "tls", source=source))[1].transport)
        return True
    except (OSError, ssl.SSLError, Refused, Closed, asyncio.TimeoutError, asyncio.IncompleteReadError):
        return False


async def flood(link, at, count, until, addresses, opened, parallel=16):
    """`count` connections in turn from `addresses`; how many came about."""
    numbers = iter(range(count))
    done = 0

    async def opener():
        nonlocal done
        for number in numbers:
            came = await half_open(link, at, addresses[number % len(addresses)], until, opened)
            done += came

    await asyncio.gather(*[opener() for _ in range(parallel)])
    return done


async def joins(link, source):
    """How long a client from `source` takes to be a member, or None."""
    began = time.monotonic()

    async def body(member):
        return time.monotonic() - began

    try:
        return await asyncio.wait_for(WebSession(link, "Newcomer", session.make_identity(), source=source).run(body), 20)
    except (OSError, wire.ProtocolError, Refused, Closed, asyncio.TimeoutError, ssl.SSLError, asyncio.IncompleteReadError):
        return None


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def floods(report, link, at, pid, quick):
    share = 4 if quick else 1
    addresses = [f"127.0.0.{number}" for number in range(2, 14)]
    before = resident(pid) if pid else 0
    opened = []
    for until, count in [("tcp", 3000), ("tls", 1000), ("upgraded", 1000), ("proven", 1000)]:
        began = time.monotonic()
        running = asyncio.ensure_future(flood(link, at, count // share, until, addresses, opened))
        await asyncio.sleep(0.3)
        meanwhile = [await joins(link, source) for source in ("127.0.0.1", addresses[0])]
        done = await running
        took = time.monotonic() - began
        after = [await joins(link, source) for source in ("127.0.0.1", addresses[0])]
        times = [each if each is None else round(each, 2) for each in meanwhile + after]
        is_right = all(each is not None and each < JOINED_S for each in times)
        report.line(
            f"{count // share} connections from {len(addresses)} addresses, {until} only",
            f"{done} in {took:.1f} s; newcomers join meanwhile after {times[:2]} s, "
            f"afterwards after {times[2:]} s (from another address, from one of theirs)", is_right)
    # As many as one address may have, none of which joins.
    began = time.monotonic()
    done = await flood(link, at, 600, "proven", addresses[-1:], opened)
    took = time.monotonic() - began
    joined = [await joins(link, source) for source in ("127.0.0.1", addresses[-1])]
    times = [each if each is None else round(each, 2) for each in joined]
    report.line("600 connections from one address, proven and never joined",
                f"{done} in {took:.1f} s; newcomers join after {times} s (from another address, from theirs)",
                all(each is not None and each < JOINED_S for each in joined))
    if pid:
        more = resident(pid) - before
        report.line("the relay's memory with all of them", f"{more / 2**20:+.1f} MiB", more < MEMORY_MAXIMUM)
    for transport in opened:
        transport.abort()
    await asyncio.sleep(1)


async def timeouts(report, link, at):
    """What takes ten seconds each, side by side."""
    async def ends(name, coroutine, expected, low, high):
        began = time.monotonic()
        code = await coroutine
        took = time.monotonic() - began
        right = code == expected and low <= took <= high
        report.line(f"time, {name}", f"{code if code is not None else 'closed'} after {took:.1f} s", right)

    async def silent(tls, data=b""):
        reader, writer = await open_stream(*at, tls=tls)
        try:
            for index in range(1000 if data else 1):
                writer.write(data[index : index + 1])
                try:
                    if not await asyncio.wait_for(reader.read(100), 0.25 if data else 20):
                        return None
                except asyncio.TimeoutError:
                    if not data:
                        return OPEN
            return OPEN
        except (ConnectionError, ssl.SSLError):
            return None
        finally:
            writer.transport.abort()

    head, _ = request(*at)
    hello = webwire.ClientHandshake(link.pin).hello()
    await asyncio.gather(
        ends("TCP and nothing more", silent(False), None, 8, 13),
        ends("TLS and nothing more", silent(True), None, 8, 13),
        ends("a request byte by byte", silent(True, head), None, 8, 13),
        ends("an upgrade and nothing more", after_frames(at, seconds=20), VIOLATION, 8, 13),
        ends("a hello and nothing more", after_messages(at, hello, seconds=20), VIOLATION, 8, 13),
        ends("pings instead of a hello", pinging(at), VIOLATION, 8, 13),
        ends("a proof and no join", proven(link, at, joined=False, seconds=20), VIOLATION, 8, 13),
        ends("half a message", after_frames(at, frame(BINARY, hello[:9], fin=False), seconds=20), VIOLATION, 8, 13),
    )


async def pinging(at):
    socket = await WebSocket.connect(*at)
    reading = asyncio.ensure_future(ended(socket, 20))
    try:
        while not reading.done():
            socket.write(frame(PING, b"a"))
            await asyncio.wait([reading], timeout=0.5)
        return await reading
    finally:
        socket.abort()


# Readers that do not read


async def silence(report, link, name, pings):
    """Section 21.3: the relay closes after 45 s."""
    member = WebSession(link, "Silent", session.make_identity())
    await member.open()
    member.send("join", probe.good_join(link))
    reading = asyncio.ensure_future(ended(member.socket, 60))
    began = time.monotonic()
    while not reading.done():
        if pings:
            member.socket.write(frame(PING, b"a"))
        await asyncio.wait([reading], timeout=5)
    took = time.monotonic() - began
    member.socket.abort()
    report.line(f"time, {name}", f"{await reading} after {took:.1f} s", await reading == webwire.CLOSE_BASE and 44 < took < 52)


class SlowReader:
    """A member that takes nothing from its socket any more, but goes on reporting. A greedy one asks for as much as it can."""

    def __init__(self, link, is_greedy=False):
        self.is_greedy = is_greedy
        self.member = WebSession(link, "Slow", session.make_identity(), receive_buffer=4096)
        self.frames = []
        self.lasted = None
        self.asked = 0

    async def run(self, stop, seconds=None):
        """Reads nothing for `seconds`, or until the relay ends it."""
        async def body(member):
            began = time.monotonic()
            member.on_frame = lambda rtp, key_id, counter, opus: self.frames.append((time.monotonic(), rtp))
            member.socket.read_nothing(True)
            while not stop.is_set() and (seconds is None or time.monotonic() - began < seconds):
                await asyncio.sleep(1)
                if member._bound:
                    member.send("reception_report", relay_pb2.ReceptionReport(ssrc=member._bound[0]))
                    member.ping()
                    if self.is_greedy:
                        self.ask(member)
                if member.socket.writer.transport.is_closing():
                    break
                if tcp_state(member.socket.writer) != ESTABLISHED:
                    self.lasted = time.monotonic() - began
                    break
            member.socket.read_nothing(False)
            if seconds is not None:
                await asyncio.sleep(3)

        try:
            await self.member.run(body)
        except (wire.ProtocolError, OSError, Closed, ssl.SSLError):
            pass

    def ask(self, member):
        """Answers that it will not read: pongs of both kinds, and the burst that is under way."""
        if member.socket.writer.transport.get_write_buffer_size() > 1 << 16:
            return
        for _ in range(300):
            member.send_sealed(bytes([webwire.PING]) + bytes(8))
            member.socket.write(frame(PING, bytes(100)))
        self.asked += 1
        member.send("burst_request", relay_pb2.BurstRequest(
            request_id=self.asked, ssrc=member._bound[0], key_id=member._bound[1]))


ESTABLISHED = 1


def tcp_state(writer):
    plain = writer.get_extra_info("socket")
    try:
        return plain.getsockopt(6, 11, 1)[0]  # TCP_INFO: its first byte
    except OSError:
        return 0


async def slow_readers(report, link, pid, quick):
    stop = asyncio.Event()
    seconds = 15 if quick else 70
    before = resident(pid) if pid else 0
    most = before
    readers = [SlowReader(link, is_greedy=number % 2 == 1) for number in range(SLOW_READERS)]
    pausing = SlowReader(link)
    tasks = [asyncio.ensure_future(reader.run(stop)) for reader in readers]
    if not quick:
        tasks += [asyncio.ensure_future(each) for each in (
            silence(report, link, "a member that sends nothing", False),
            silence(report, link, "a member that sends only pings of WebSocket", True))]
    pause = asyncio.ensure_future(pausing.run(stop, 8))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(0.5)
        most = max(most, resident(pid)) if pid else 0
    stop.set()
    await asyncio.gather(*tasks, pause)
    if pid:
        report.line(f"{SLOW_READERS} readers that do not read for {seconds} s",
                    f"half of them ask for all they can; memory {(most - before) / 2**20:+.1f} MiB at most", most - before < SLOW_READERS * (1 << 20))
    lasted = [reader.lasted for reader in readers]
    if not quick:
        right = all(each is not None and 40 < each < 65 for each in lasted)
        report.line("they are closed", f"after {[each and round(each, 1) for each in lasted]} s", right)
    ages = speech_ages(pausing)
    got = len(pausing.frames)
    late = [number for number, age in ages if age > 0.75]
    right = bool(ages) and ages[-1][1] < 0.25 and got < 11 / FRAME_TIME * 0.95
    report.line("a reader that reads again after 8 s",
                f"{got} packets, {len(late)} of them older than 0.75 s, the last one {ages[-1][1] * 1000 if ages else 0:.0f} ms", right)


def speech_ages(reader):
    """By packet, in order of arrival: its age above the youngest, by RTP timestamps."""
    transits = [(rtp.sequence, when - rtp.timestamp / 48000) for when, rtp in reader.frames]
    youngest = min((transit for _, transit in transits), default=0)
    return [(number, transit - youngest) for number, transit in transits]


# The honest ones, in a process of their own


class Honest:
    """A talker over TLS and two listeners, one over TLS and one over QUIC, in another process."""

    def __init__(self, link_text):
        self.link_text = link_text

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.py"), self.link_text, "web-probe", "--speak",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        line = await asyncio.wait_for(self.process.stdout.readline(), 20)
        if line.strip() != b"talking":
            raise wire.ProtocolError("the honest talker does not get the floor")
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def finish(self):
        self.process.stdin.close()
        return json.loads(await asyncio.wait_for(self.process.stdout.read(), 60))


async def speak(link):
    """Bursts one after the other until standard input ends; what both listeners heard of each."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    asyncio.ensure_future(reader.read()).add_done_callback(lambda _: stop.set())
    sent, sent_at = {}, {}  # key id: frames; (key id, counter): when
    late, revoked = [0.0], []
    heard = {"tls": {}, "quic": {}}  # key id: {counter: when}
    drops = {}
    over = asyncio.Event()
    here = {"tls": asyncio.Event(), "quic": asyncio.Event()}

    async def listener(name, member):
        async def body(joined):
            def on_frame(rtp, key_id, counter, opus):
                if opus == SPEECH:
                    heard[name].setdefault(key_id, {})[counter] = time.monotonic()

            joined.on_frame = on_frame
            here[name].set()
            while not over.is_set():
                if joined._bound:
                    joined.send("reception_report", relay_pb2.ReceptionReport(ssrc=joined._bound[0], received=1))
                try:
                    await asyncio.wait_for(over.wait(), 3)
                except asyncio.TimeoutError:
                    pass
            drops[name] = dict(joined.drops)

        await member.run(body)

    async def talker(joined):
        granted, idle = asyncio.Event(), asyncio.Event()
        kinds = {"floor_granted": granted, "floor_idle": idle}
        def on_message(kind, message):
            if kind in kinds:
                kinds[kind].set()
            elif kind == "floor_revoke":
                revoked.append(message.cause)

        joined.on_message = on_message
        timestamp = sequence = number = 0
        while not stop.is_set():
            number += 1
            granted.clear(), idle.clear()
            key = joined.key(wire.fresh_key_id(joined.epoch))
            joined.send("floor_request", relay_pb2.FloorRequest(request_id=number, key_id=key.key_id))
            await asyncio.wait_for(granted.wait(), 5)
            if number == 1:
                print("talking", flush=True)
            due = time.monotonic()
            timestamp = int(due * 48000) & 0xFFFFFFFF
            counter = 0
            while counter < BURST_FRAMES and not stop.is_set():
                sequence = (sequence + 1) & 0xFFFF
                rtp = wire.RTP(counter == 0, sequence, timestamp, joined.welcome.ssrc).pack()
                late[0] = max(late[0], time.monotonic() - due)
                sent_at[key.key_id, counter] = time.monotonic()
                joined.send_media(rtp + key.seal(counter, SPEECH, rtp))
                counter += 1
                sent[key.key_id] = counter
                timestamp = (timestamp + 960) & 0xFFFFFFFF
                due += FRAME_TIME
                await asyncio.sleep(max(0, due - time.monotonic()))
            joined.send("floor_release", relay_pb2.FloorRelease(request_id=number, last_sequence=sequence))
            await asyncio.wait_for(idle.wait(), 5)
        await asyncio.sleep(0.5)
        drops["talker"] = dict(joined.drops)
        over.set()
        return joined.acknowledged, joined.media_sent

    listeners = [
        asyncio.ensure_future(listener("tls", WebSession(link, "Listener", session.make_identity()))),
        asyncio.ensure_future(listener("quic", session.Session(link, "Listener over QUIC", session.make_identity()))),
    ]
    await asyncio.gather(*[each.wait() for each in here.values()])
    acknowledged, media_sent = await WebSession(link, "Talker", session.make_identity()).run(talker)
    await asyncio.gather(*listeners)
    total = sum(sent.values())
    summary = {"bursts": len(sent), "sent": total, "acknowledged": acknowledged, "media_sent": media_sent, "drops": drops}
    summary["revoked"] = revoked
    summary["late_ms"] = round(late[0] * 1000)
    for name, bursts in heard.items():
        delays = sorted(when - sent_at[key_id, counter] for key_id, each in bursts.items() for counter, when in each.items())
        summary[name] = {"heard": len(delays)} | {
            f"{part}_ms": round(delays[int(len(delays) * place)] * 1000, 1) if delays else None
            for part, place in (("median", 0.5), ("99th", 0.99), ("longest", 1 - 1e-9))
        }
    print(json.dumps(summary))
    return 0


# Secrets


def secrets(link, text, welcome):
    """Every form in which a secret may have come to the log."""
    forms = set()
    for secret in (link.token, welcome.media_key.base_key, welcome.downlink_key):
        if secret:
            forms |= {secret.hex(), secret.hex().upper(), base64.b64encode(secret).decode().rstrip("="),
                      base64.urlsafe_b64encode(secret).decode().rstrip("="), ", ".join(map(str, secret[:8]))}
    return forms


async def welcome_of(link):
    async def body(member):
        return member.welcome

    return await WebSession(link, "Looker", session.make_identity()).run(body)


async def run(options):
    link = wire.Link.parse(options.link)
    at = webwire.place(link.web, link.host)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    report = Report()
    welcome = await welcome_of(link)
    report.line("the place in Welcome", welcome.web, welcome.web == link.web)
    phases = {
        "requests": lambda: requests(report, at), "frames": lambda: frames(report, at), "hellos": lambda: hellos(report, link, at),
        "proofs": lambda: proofs(report, link, at), "sealed": lambda: sealed(report, link, at), "regular": lambda: regular(report, link),
        "media": lambda: media(report, link), "answers": lambda: answers(report, link), "timeouts": lambda: timeouts(report, link, at),
        "floods": lambda: floods(report, link, at, options.pid, options.quick),
        "readers": lambda: slow_readers(report, link, options.pid, options.quick),
    }
    if not options.only or "middle" in options.only:
        # Its talkers need the floor, so it comes before the honest burst.
        await webmiddle.run(report, link, at)
    async with Honest(options.link) as honest:
        for name, phase in phases.items():
            if not options.only or name in options.only:
                await phase()
        heard = await honest.finish()
    for name in ("tls", "quic"):
        # UDP may lose some where the machine is busy: this listener asks for none again.
        right = heard[name]["heard"] >= heard["sent"] * (1 if name == "tls" else 0.99)
        report.line(f"the honest listener over {name.upper()}",
                    f"{heard[name]['heard']} of {heard['sent']} packets in {heard['bursts']} bursts, "
                    f"delay {heard[name]['median_ms']} ms, of 99 % at most {heard[name]['99th_ms']}, longest {heard[name]['longest_ms']}",
                    right)
    report.line("the honest talker", f"{heard['acknowledged']} of {heard['media_sent']} packets acknowledged; dropped {heard['drops']}; "
                f"itself late by {heard['late_ms']} ms at most; revoked {heard['revoked']}",
                not heard["revoked"] and heard["media_sent"] == heard["sent"] and not any(heard["drops"].values()))
    if options.log:
        with open(options.log, encoding="utf-8", errors="replace") as file:
            log = file.read()
        found = [form for form in secrets(link, options.link, welcome) if form in log]
        report.line("secrets in the relay's log", f"{len(found)} in {log.count(chr(10))} lines", not found and bool(log))
    if options.pid:
        alive = os.path.exists(f"/proc/{options.pid}")
        report.line("the relay afterwards", f"{resident(options.pid) / 2**20:.0f} MiB resident" if alive else "gone", alive)
    print(f"{report.count - len(report.failures)} passed, {len(report.failures)} failed", flush=True)
    return 1 if report.failures else 0


def main(options):
    if options.speak:
        return asyncio.run(speak(wire.Link.parse(options.link)))
    # asyncio counts each byte that is written to a connection which the relay has closed.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    return asyncio.run(run(options))
