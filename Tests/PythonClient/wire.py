"""Bytes of the relay protocol: docs/relay-protocol.md, sections 2, 5 and 8."""

import base64
import hmac
import os
import struct
import uuid
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

MESSAGE_MAXIMUM = 16384
PACKET_MAXIMUM = 1160
TRAILER_SIZE = 16
RTP_SIZE = 12
TAG_SIZE = 16
WINDOW = 1024


class ProtocolError(Exception):
    """Something that the document does not allow."""


class Dropped(Exception):
    """A media packet that is not taken; the argument says at which step."""


# Section 2: the invitation


def from_base64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class Link:
    host: str
    port: int
    name: str
    channel: uuid.UUID
    token: bytes
    pin: bytes
    key: bytes | None
    web: str | None = None  # section 21

    @classmethod
    def parse(cls, text):
        parts = urlsplit(text.strip())
        if parts.fragment and "key=" in parts.fragment:
            parts = parts._replace(query=parts.query + "&" + parts.fragment)
        if parts.scheme != "ptt" or not parts.hostname or not parts.port:
            raise ProtocolError("not an invitation: ptt://HOST:PORT/NAME?… is wanted")
        pairs = parse_qsl(parts.query, strict_parsing=True)
        values = dict(pairs)
        if len(values) != len(pairs):
            raise ProtocolError("a parameter of the link is there twice")
        missing = {"channel", "token", "pin"} - values.keys()
        if missing:
            raise ProtocolError(f"the link has no {', '.join(sorted(missing))}")
        link = cls(
            host=unquote(parts.hostname),
            port=parts.port,
            name=unquote(parts.path[1:], errors="strict"),
            channel=uuid.UUID(values["channel"]),
            token=from_base64url(values["token"]),
            pin=from_base64url(values["pin"]),
            key=from_base64url(values["key"]) if "key" in values else None,
            web=values.get("web"),
        )
        if len(link.pin) != 32 or not 16 <= len(link.token) <= 64:
            raise ProtocolError("the link's token or pin has the wrong size")
        return link


def pin_of(certificate):
    """Section 4: SHA-256 of the certificate's SubjectPublicKeyInfo."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(
        certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return digest.finalize()


# Section 5: framing


def frame(message):
    body = message.SerializeToString()
    if not 1 <= len(body) <= MESSAGE_MAXIMUM:
        raise ProtocolError(f"a message of {len(body)} bytes")
    return struct.pack(">I", len(body)) + body


# Section 8.1: RTP


@dataclass
class RTP:
    marker: bool
    sequence: int
    timestamp: int
    ssrc: int

    def pack(self):
        second = 0x80 * self.marker | 111
        return struct.pack(">BBHII", 0x80, second, self.sequence, self.timestamp, self.ssrc)

    @classmethod
    def parse(cls, packet):
        if len(packet) < RTP_SIZE:
            raise Dropped("rtp")
        first, second, sequence, timestamp, ssrc = struct.unpack(">BBHII", packet[:RTP_SIZE])
        if first != 0x80 or second & 0x7F != 111:
            raise Dropped("rtp")
        return cls(bool(second & 0x80), sequence, timestamp, ssrc)


# Section 8.2: SFrame, cipher suite 4


def number_bytes(value):
    return b"" if value < 8 else value.to_bytes((value.bit_length() + 7) // 8, "big")


def sframe_header(key_id, counter):
    key_bytes, counter_bytes = number_bytes(key_id), number_bytes(counter)
    high = 8 | len(key_bytes) - 1 if key_bytes else key_id
    low = 8 | len(counter_bytes) - 1 if counter_bytes else counter
    return bytes([high << 4 | low]) + key_bytes + counter_bytes


def parse_sframe_header(data):
    """Key id, counter and the header's size."""
    if not data:
        raise Dropped("sframe header")
    position = 1
    values = []
    for nibble in (data[0] >> 4, data[0] & 15):
        if nibble & 8:
            size = (nibble & 7) + 1
            value = int.from_bytes(data[position : position + size], "big")
            if len(data) < position + size or len(number_bytes(value)) != size:
                raise Dropped("sframe header")
            position += size
        else:
            value = nibble
        values.append(value)
    return values[0], values[1], position


class SFrameKey:
    """What is derived from a base key for one key id."""

    def __init__(self, base_key, key_id):
        self.key_id = key_id
        self.secret = hmac.digest(bytes(32), base_key, "sha256")
        self.key = self._expand(b"SFrame 1.0 Secret key ", 16)
        self.salt = self._expand(b"SFrame 1.0 Secret salt ", 12)

    def _expand(self, purpose, size):
        info = purpose + self.key_id.to_bytes(8, "big") + b"\x00\x04"
        return HKDFExpand(hashes.SHA256(), size, info).derive(self.secret)

    def nonce(self, counter):
        return bytes(a ^ b for a, b in zip(self.salt, counter.to_bytes(12, "big")))

    def seal(self, counter, opus, metadata):
        header = sframe_header(self.key_id, counter)
        return header + AESGCM(self.key).encrypt(self.nonce(counter), opus, header + metadata)

    def open(self, ciphertext, metadata):
        _, counter, size = parse_sframe_header(ciphertext)
        try:
            return AESGCM(self.key).decrypt(
                self.nonce(counter), ciphertext[size:], ciphertext[:size] + metadata
            )
        except InvalidTag:
            raise Dropped("sframe tag") from None


def fresh_key_id(epoch):
    return epoch << 48 | int.from_bytes(os.urandom(6), "big")


# Section 8.3: the trailer


class ReplayWindow:
    """Which counters of the last 1024 were accepted."""

    def __init__(self):
        self.highest = -1
        self.seen = set()

    def allows(self, counter):
        return counter > self.highest - WINDOW and counter not in self.seen

    def accept(self, counter):
        self.seen.add(counter)
        if counter > self.highest:
            self.highest = counter
            self.seen = {each for each in self.seen if each > counter - WINDOW}


def siphash128(key, message):
    """SipHash-2-4 with 128 bits of output, by the formulas of its paper."""
    mask = 2**64 - 1
    k0, k1 = struct.unpack("<2Q", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(value, bits):
        return (value << bits | value >> (64 - bits)) & mask

    def half(a, b, c, d, bits_b, bits_d):
        v[a] = (v[a] + v[b]) & mask
        v[c] = (v[c] + v[d]) & mask
        v[b] = rotated(v[b], bits_b) ^ v[a]
        v[d] = rotated(v[d], bits_d) ^ v[c]
        v[a] = rotated(v[a], 32)

    def rounds(count):
        for _ in range(count):
            half(0, 1, 2, 3, 13, 16)
            half(2, 1, 0, 3, 17, 21)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    tag = b""
    for place, constant in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= constant
        rounds(4)
        tag += struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
    return tag


def check_trailer(key, window, datagram):
    """The packet without its trailer, or Dropped. Steps 1 to 3."""
    if len(datagram) <= TRAILER_SIZE:
        raise Dropped("too short")
    packet, trailer = datagram[:-TRAILER_SIZE], datagram[-TRAILER_SIZE:]
    (counter,) = struct.unpack(">I", trailer[:4])
    if not window.allows(counter):
        raise Dropped("replayed")
    if not hmac.compare_digest(siphash128(key, datagram[:-12])[:12], trailer[4:]):
        raise Dropped("mac")
    window.accept(counter)
    return packet
