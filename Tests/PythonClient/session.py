"""A member's connection to a relay: docs/relay-protocol.md, sections 3 to 6, and the way media take through 8 and 9."""

import asyncio
import os
import struct
import time
from collections import Counter
from datetime import datetime, timezone

import relay_pb2
import wire
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KEEP_ALIVE = 20
HELD_PACKETS = 64
HELD_TIME = 1.0
PREVIOUS_EPOCH = 10.0


def make_identity():
    """Section 4: a key pair and a certificate that carries it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "python client")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=timezone.utc))
        .not_valid_after(datetime(9999, 12, 31, tzinfo=timezone.utc))
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def load_identity(path):
    """The identity in a PEM file, which is made when it is not there."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        certificate, key = make_identity()
        pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(pem)
        return certificate, key
    return x509.load_pem_x509_certificate(data), serialization.load_pem_private_key(data, None)


class RelayProtocol(QuicConnectionProtocol):
    """Section 3: QUIC and RTP on one socket, told apart by the first byte."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.on_media = None
        self.closing = None

    def datagram_received(self, data, addr):
        if data and 128 <= data[0] <= 191:
            if self.on_media:
                self.on_media(data)
        else:
            super().datagram_received(data, addr)

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.closing = (event.error_code, event.reason_phrase)
        super().quic_event_received(event)


class Session:
    """One connection, joined. Give handlers before `run`; they are called in order, one at a time."""

    def __init__(self, link, name, identity, quic=None, **connecting):
        """`quic`: settings of the connection besides the usual ones; `connecting`: what aioquic's `connect` takes."""
        self.quic, self.connecting = quic or {}, connecting
        self.link = link
        self.name = name
        self.identity = identity
        self.welcome = None
        self.members = {}
        self.drops = Counter()
        self.on_message = lambda kind, message: None
        self.on_frame = lambda rtp, key_id, counter, opus: None
        self._protocol = None
        self._writer = None
        self._keys = []  # (epoch, base key, when it ends or None), the current one last
        self._derived = {}  # key id: (SFrameKey, replay window)
        self._bound = None  # (ssrc, key id) of the one who talks
        self._held = []
        self._window = wire.ReplayWindow()

    async def run(self, body):
        """Connects, joins, runs `body(self)`, leaves. Returns what `body` returns."""
        certificate, key = self.identity
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=["pttd/1"],
            idle_timeout=45,
            max_datagram_frame_size=65536,
            certificate=certificate,
            private_key=key,
            verify_mode=0,
            **self.quic,
        )
        async with connect(
            self.link.host, self.link.port, configuration=configuration, create_protocol=RelayProtocol, **self.connecting
        ) as protocol:
            self._protocol = protocol
            if self.connecting.get("wait_connected", True):
                self._check_pin()
            reader, self._writer = await protocol.create_stream()
            protocol.on_media = self._media
            await self._join(reader)
            tasks = [
                asyncio.ensure_future(each)
                for each in (self._read(reader), self._keep_alive(), body(self))
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if not tasks[2].done():
                    raise wire.ProtocolError(f"the relay closed the connection: {self.closing}")
                self.send("leave", relay_pb2.Leave())
                await asyncio.sleep(0.05)
                return tasks[2].result()
            finally:
                for task in tasks:
                    task.cancel()

    @property
    def connection(self):
        """aioquic's, for who looks below."""
        return self._protocol._quic

    @property
    def closing(self):
        """Code and reason, once the relay has closed."""
        return self._protocol.closing

    def _check_pin(self):
        # A resumed connection shows no certificate: its ticket is of one that did.
        if self.connection.tls.session_resumed:
            return
        pin = wire.pin_of(self.connection.tls._peer_certificate)
        if pin != self.link.pin:
            raise wire.ProtocolError(f"the relay's key is {pin.hex()}, not that of the link")

    # Control

    def send(self, kind, message):
        wrapped = relay_pb2.ClientMessage()
        getattr(wrapped, kind).CopyFrom(message)
        getattr(wrapped, kind).SetInParent()
        self._writer.write(wire.frame(wrapped))

    async def _join(self, reader):
        self.send(
            "join",
            relay_pb2.Join(
                channel_id=self.link.channel.bytes,
                invitation_token=self.link.token,
                display_name=self.name,
                protocol_version=1,
            ),
        )
        answer = await asyncio.wait_for(self._next(reader), 10)
        if answer is None:
            raise wire.ProtocolError(f"the relay closed the connection: {self.closing}")
        self._check_pin()
        if answer.WhichOneof("kind") == "join_refused":
            cause = relay_pb2.JoinRefusal.Name(answer.join_refused.cause)
            raise wire.ProtocolError(f"not let in: {cause}: {answer.join_refused.phrase}")
        if answer.WhichOneof("kind") != "welcome":
            raise wire.ProtocolError(f"{answer.WhichOneof('kind')} instead of welcome")
        self.welcome = answer.welcome
        for member in self.welcome.members:
            self.members[member.member_id] = member.display_name
        if self.welcome.HasField("media_key"):
            self._set_key(self.welcome.media_key.epoch, self.welcome.media_key.base_key)
        elif self.link.key:
            self._set_key(0, self.link.key)
        else:
            raise wire.ProtocolError("neither the relay nor the link has a media key")
        if self.welcome.HasField("floor"):
            self._handle("floor_taken", self.welcome.floor)

    async def _next(self, reader):
        """The next message of a kind we know, None at the end of the stream."""
        while True:
            try:
                (size,) = struct.unpack(">I", await reader.readexactly(4))
                if not 1 <= size <= wire.MESSAGE_MAXIMUM:
                    raise wire.ProtocolError(f"a control message of {size} bytes")
                message = relay_pb2.ServerMessage.FromString(await reader.readexactly(size))
            except asyncio.IncompleteReadError:
                return None
            if message.WhichOneof("kind"):
                return message

    async def _read(self, reader):
        while (message := await self._next(reader)) is not None:
            kind = message.WhichOneof("kind")
            self._handle(kind, getattr(message, kind))

    def _handle(self, kind, message):
        if kind == "member_joined":
            self.members[message.member.member_id] = message.member.display_name
        elif kind == "member_left":
            self.members.pop(message.member_id, None)
        elif kind == "media_key":
            self._set_key(message.epoch, message.base_key)
        elif kind == "floor_taken":
            self._bound = (message.ssrc, message.key_id)
        self.on_message(kind, message)
        if kind == "floor_taken":
            held, self._held = self._held, []
            for when, packet in held:
                if time.monotonic() - when <= HELD_TIME:
                    self._take(packet)

    async def _keep_alive(self):
        while True:
            await asyncio.sleep(KEEP_ALIVE - 5)
            await self._protocol.ping()

    # Media

    @property
    def epoch(self):
        return self._keys[-1][0]

    def key(self, key_id):
        return wire.SFrameKey(self._keys[-1][1], key_id)

    def send_media(self, packet):
        if len(packet) > wire.PACKET_MAXIMUM:
            raise wire.ProtocolError(f"a packet of {len(packet)} bytes")
        self._protocol._quic.send_datagram_frame(packet)
        self._protocol.transmit()

    def _set_key(self, epoch, base_key):
        """Section 9: the epoch before lives 10 s more; the same epoch anew replaces itself."""
        now = time.monotonic()
        kept = [each for each in self._keys[-1:] if each[0] != epoch]
        self._keys = [(number, key, now + PREVIOUS_EPOCH) for number, key, _ in kept]
        self._keys.append((epoch, base_key, None))
        self._derived = {
            key_id: each for key_id, each in self._derived.items() if kept and key_id >> 48 == kept[0][0]
        }

    def _media(self, datagram):
        try:
            packet = wire.check_trailer(self.welcome.downlink_key, self._window, datagram) if self.welcome else None
            if packet is None:
                raise wire.Dropped("before welcome")
            self._take(packet)
        except wire.Dropped as reason:
            self.drops[str(reason)] += 1

    def _take(self, packet):
        try:
            rtp = wire.RTP.parse(packet)
            key_id, counter, _ = wire.parse_sframe_header(packet[wire.RTP_SIZE :])
            if self._bound != (rtp.ssrc, key_id):
                if len(self._held) >= HELD_PACKETS:
                    raise wire.Dropped("not bound to the floor")
                self._held.append((time.monotonic(), packet))
                return
            key, window = self._derived.get(key_id) or (self._derive(key_id), wire.ReplayWindow())
            if not window.allows(counter):
                raise wire.Dropped("sframe replayed")
            opus = key.open(packet[wire.RTP_SIZE :], packet[: wire.RTP_SIZE])
            window.accept(counter)
            self._derived[key_id] = (key, window)
            self.on_frame(rtp, key_id, counter, opus)
        except wire.Dropped as reason:
            self.drops[str(reason)] += 1

    def _derive(self, key_id):
        for epoch, base_key, end in self._keys:
            if epoch == key_id >> 48 and (end is None or time.monotonic() < end):
                return wire.SFrameKey(base_key, key_id)
        raise wire.Dropped("unknown epoch")
