"""Somebody in between who ends TLS: an inspecting firewall, a reverse proxy, an attacker. Section 21: what it sees, and what it can do."""

import asyncio
import base64
import hashlib
import os
import ssl
import struct
import tempfile
from collections import Counter

import probe
import relay_pb2
import session
import webwire
import wire
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from websession import ACCEPT, BINARY, CLOSE, Closed, WebSession, WebSocket, frame

FRAMES = 60


class Inside(WebSocket):
    """The end that the client sees: frames come with a mask, and go without."""

    def send(self, message):
        self.write(frame(BINARY, message, masked=False))

    async def _frame(self):
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        mask = await self.reader.readexactly(4)
        payload = await self.reader.readexactly(size)
        return bool(first & 0x80), first & 15, bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


class Middle:
    """Ends TLS with a certificate of its own. `change(is_up, message)` gives the messages to pass on in its place. A context manager."""

    def __init__(self, at, change=lambda is_up, message: [message]):
        self.at, self.change = at, change
        self.seen = {True: [], False: []}
        self.closing = None

    async def __aenter__(self):
        certificate, key = session.make_identity()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
            file.flush()
            context.load_cert_chain(file.name)
        self.server = await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=context)
        self.place = self.server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def _client(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
        accept = base64.b64encode(hashlib.sha1(key.encode() + ACCEPT).digest()).decode()
        writer.write((f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n"
                      f"Sec-WebSocket-Protocol: {webwire.SUBPROTOCOL}\r\n\r\n").encode())
        inside, outside = Inside(reader, writer), await WebSocket.connect(*self.at)
        ways = [asyncio.ensure_future(self._pass(True, inside, outside)), asyncio.ensure_future(self._pass(False, outside, inside))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.2)
        for way in ways:
            way.cancel()
        inside.abort(), outside.abort()

    async def _pass(self, is_up, source, target):
        try:
            while True:
                message = await source.receive()
                self.seen[is_up].append(message)
                for each in self.change(is_up, message):
                    target.send(each)
        except Closed as closed:
            if not is_up:
                self.closing = closed.args[0]
            target.write(frame(CLOSE, struct.pack(">H", closed.args[0] or 1000), masked=is_up))


def is_sealed(message):
    return message[0] == webwire.SEALED


def is_media(message):
    return message[0] == webwire.MEDIA


async def talk(link, place, rests=0.005):
    """A short burst from one client to another, both through `place`: the packets that are heard, those dropped, those acknowledged."""
    ready, over = asyncio.Event(), asyncio.Event()
    heard = []

    async def listener(member):
        member.on_frame = lambda rtp, key_id, counter, opus: heard.append((counter, opus))
        ready.set()
        await asyncio.wait_for(over.wait(), 10)
        await asyncio.sleep(0.3)
        return dict(member.drops)

    async def talker(member):
        granted, idle = asyncio.Event(), asyncio.Event()
        kinds = {"floor_granted": granted, "floor_idle": idle}
        member.on_message = lambda kind, message: kinds[kind].set() if kind in kinds else None
        await asyncio.wait_for(ready.wait(), 5)
        key = member.key(wire.fresh_key_id(member.epoch))
        member.send("floor_request", relay_pb2.FloorRequest(request_id=1, key_id=key.key_id))
        await asyncio.wait_for(granted.wait(), 3)
        for counter in range(FRAMES):
            rtp = wire.RTP(counter == 0, counter, 960 * counter, member.welcome.ssrc)
            member.send_media(probe.packet(key, counter, rtp))
            await asyncio.sleep(rests)
        member.send("floor_release", relay_pb2.FloorRelease(request_id=1, last_sequence=FRAMES - 1))
        await asyncio.wait_for(idle.wait(), 5)
        over.set()
        return member.acknowledged

    ear = asyncio.ensure_future(WebSession(link, "Ear", session.make_identity(), at=place).run(listener))
    acknowledged = await WebSession(link, "Mouth", session.make_identity(), at=place).run(talker)
    drops = await ear
    return [counter for counter, opus in heard if opus == probe.SILENCE], drops, acknowledged


async def joining(link, at, change, body=None):
    """What a client through such a middle sees of it, and the code with which the relay ends it."""
    async def stay(member):
        for _ in range(5):
            member.ping()
            await asyncio.sleep(0.1)

    async with Middle(at, change) as middle:
        try:
            await asyncio.wait_for(WebSession(link, "Victim", session.make_identity(), at=middle.place).run(body or stay), 10)
            return "no error", middle.closing
        except (wire.ProtocolError, Closed, OSError) as error:
            await asyncio.sleep(0.3)
            return str(error), middle.closing


def counted(when, then):
    """A change of the nth sealed message up, or down, by `then`; n from 0."""
    counts = Counter()

    def change(is_up, message):
        if is_sealed(message):
            counts[is_up] += 1
            if (is_up, counts[is_up] - 1) == when:
                return then(message)
        return [message]

    return change


def flipped(message):
    return [message[:-1] + bytes([message[-1] ^ 1])]


async def run(report, link, at):
    expected = list(range(FRAMES))
    async with Middle(at) as middle:
        heard, drops, _ = await talk(link, middle.place)
        seen = b"".join(middle.seen[True] + middle.seen[False])
    async def look(member):
        return member.welcome

    welcome = await WebSession(link, "Looker", session.make_identity()).run(look)
    secrets = {"the token": link.token, "a name": b"Mouth", "the channel": link.channel.bytes, "the channel's name": link.name.encode(),
               "the media key": welcome.media_key.base_key, "what is said": probe.SILENCE * 2}
    found = [name for name, secret in secrets.items() if secret and secret in seen]
    report.line("in between: a burst", f"{len(heard)} of {FRAMES} packets; it reads {', '.join(found) or 'no secret'}",
                sorted(heard) == expected and not found)
    # A key id that begins with a zero byte takes a byte less.
    headers = {(message[8:12], wire.parse_sframe_header(message[wire.RTP_SIZE :])[0]) for message in middle.seen[False] if is_media(message)}
    report.line("in between: headers of media", f"{len(headers)} source and key id in clear, as the document says", len(headers) == 1)

    for name, change, client, code in [
        ("a message up changed", counted((True, 1), flipped), None, webwire.CLOSE_BASE + 1),
        ("a message up twice", counted((True, 1), lambda message: [message, message]), None, webwire.CLOSE_BASE + 1),
        ("a message up left out", counted((True, 1), lambda message: []), None, webwire.CLOSE_BASE + 1),
        ("a message down changed", counted((False, 1), flipped), "does not decrypt", None),
        ("a message down twice", counted((False, 1), lambda message: [message, message]), "does not decrypt", None),
        ("Welcome changed", counted((False, 0), flipped), "does not decrypt", None),
    ]:
        said, closing = await joining(link, at, change)
        right = (client is None or client in said) and (code is None or closing == code) and said != "no error"
        report.line(f"in between: {name}", f"the client: {said}; the relay: {closing}", right)

    # Its own ephemeral keys towards both ends: it can open the relay's proof, and seal it anew for the client.
    towards_relay, towards_client = webwire.ClientHandshake(link.pin), webwire.ClientHandshake(link.pin)
    client_key = []

    def own_keys(is_up, message):
        if is_up and message[0] == webwire.CLIENT_HELLO:
            client_key.append(message[1:])
            return [towards_relay.hello()]
        if not is_up and message[0] == webwire.RELAY_HELLO:
            proof = sealed_by(towards_relay, message[1:33], is_client=True).open(message[33:])
            return [message[:1] + towards_client.public + sealed_by(towards_client, client_key[0], is_client=False).seal(proof)]
        return [message]

    said, _ = await joining(link, at, own_keys)
    report.line("in between: keys of its own towards both", f"the client: {said}", "wrong signature" in said)
    said, _ = await joining(link, at, lambda is_up, message: [own_answer(message)] if not is_up and message[0] == 2 else [message])
    report.line("in between: a relay of its own", f"the client: {said}", "decrypt" in said or "not that of the link" in said)

    def noisy(is_up, message):
        if is_up or not is_media(message):
            return [message]
        return [bytes([0x90]) + message[1:], message, message, message[:20] + os.urandom(len(message) - 20), bytes([128, 111]) + os.urandom(40)]

    async with Middle(at, noisy) as middle:
        heard, drops, _ = await talk(link, middle.place)
    right = set(heard) <= set(expected) and len(heard) == len(set(heard)) and len(heard) == FRAMES
    report.line("in between: media down repeated, changed and made up", f"{len(heard)} of {FRAMES} packets heard, each once; dropped {drops}", right)

    async def many(member):
        key = member.key(wire.fresh_key_id(member.epoch))
        for counter in range(20):
            member.send_media(probe.packet(key, counter, wire.RTP(counter == 0, counter, 960 * counter, member.welcome.ssrc)))
            await asyncio.sleep(0.02)

    said, closing = await joining(link, at, counted((True, 12), flipped), many)
    report.line("in between: one packet of a talker changed", f"the relay: {closing}", closing == webwire.CLOSE_BASE + 1)
    said, closing = await joining(
        link, at, lambda is_up, message: [message, bytes([128, 111]) + os.urandom(40)] if is_up and is_sealed(message) else [message])
    report.line("in between: media up made up", f"the relay: {closing}", closing == webwire.CLOSE_BASE + 1)


def sealed_by(handshake, other, is_client):
    """The direction down of a handshake with that public key."""
    th = webwire.transcript(handshake.public, other) if is_client else webwire.transcript(other, handshake.public)
    secret = handshake.private.exchange(X25519PublicKey.from_public_bytes(other))
    return webwire.Direction(*webwire.key_schedule(secret, th)[1])


def own_answer(message):
    """A hello of a relay with other keys."""
    return message[:1] + os.urandom(32) + message[33:]
