"""Bytes of the link over TLS: docs/relay-protocol.md, section 21."""

import hashlib
import hmac
import re
import struct

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from wire import ProtocolError

PATH = "/pttd/1"
SUBPROTOCOL = "pttd.1"
MESSAGE_MAXIMUM = 16640
CLOSE_BASE = 4000

# Section 21.1: the first byte of a message
CLIENT_HELLO, RELAY_HELLO, CLIENT_PROOF, SEALED, MEDIA = 1, 2, 3, 16, 128
# Section 21.3: the first byte of what is sealed
CONTROL, ACKNOWLEDGEMENT, PING, PONG, ANSWER, SEALED_MEDIA = 1, 2, 3, 4, 5, 6


def place(text, host):
    """Section 2: where the link's `web` leads, for a link that names `host`."""
    if text is None:
        raise ProtocolError("the link does not say where the relay takes links over TLS")
    if re.fullmatch(r"\d+", text):
        return host, int(text)
    found = re.fullmatch(r"(?:\[([^]]+)\]|([^:]+)):(\d+)", text)
    if not found:
        raise ProtocolError(f"{text!r} is neither PORT nor HOST:PORT")
    return found[1] or found[2], int(found[3])


# Section 21.2


def raw_public(private):
    return private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def spki_of(key):
    """The SubjectPublicKeyInfo of a private key, in DER."""
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def transcript(client, relay):
    return hashlib.sha256(b"pttd web 1" + client + relay).digest()


def key_schedule(secret, th):
    """(up key, up iv), (down key, down iv)."""
    if secret == bytes(32):
        raise ProtocolError("a secret of zeros")
    extracted = hmac.digest(th, secret, "sha256")
    keys = HKDFExpand(hashes.SHA256(), 56, b"pttd web 1 keys").derive(extracted)
    return (keys[0:16], keys[32:44]), (keys[16:32], keys[44:56])


class Direction:
    """One direction: the counter is not sent, so both ends count."""

    def __init__(self, key, iv):
        self.key, self.iv, self.counter = key, iv, 0

    def _nonce(self):
        if self.counter == 1 << 32:
            raise ProtocolError("the counter is used up")
        nonce = bytes(a ^ b for a, b in zip(self.iv, self.counter.to_bytes(12, "big")))
        self.counter += 1
        return nonce

    def seal(self, plaintext):
        return AESGCM(self.key).encrypt(self._nonce(), plaintext, None)

    def open(self, ciphertext):
        try:
            return AESGCM(self.key).decrypt(self._nonce(), ciphertext, None)
        except InvalidTag:
            raise ProtocolError("a sealed message does not decrypt") from None


def relay_statement(th, relay_pin):
    return b"pttd web 1 relay" + b"\0" + th + relay_pin


def client_statement(th, client_pin, relay_pin):
    return b"pttd web 1 client" + b"\0" + th + client_pin + relay_pin


def sign(key, statement):
    """r ‖ s."""
    r, s = decode_dss_signature(key.sign(statement, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def proof(spki, signature):
    return struct.pack(">H", len(spki)) + spki + signature


def check_proof(plaintext, statement):
    """The pin whose key signed `statement(pin)`, or ProtocolError."""
    if len(plaintext) < 2:
        raise ProtocolError("a proof that is cut off")
    (size,) = struct.unpack(">H", plaintext[:2])
    if not 1 <= size <= 512 or len(plaintext) != 2 + size + 64:
        raise ProtocolError(f"a proof of {len(plaintext)} bytes")
    spki, signature = plaintext[2 : 2 + size], plaintext[2 + size :]
    pin = hashlib.sha256(spki).digest()
    signed = statement(pin)
    key = serialization.load_der_public_key(spki)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ProtocolError("a key that is not on P-256")
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise ProtocolError("a proof with a wrong signature") from None
    return pin


class ClientHandshake:
    """The client's end, up to its proof."""

    def __init__(self, relay_pin, private=None):
        self.relay_pin = relay_pin
        self.private = private or X25519PrivateKey.generate()
        self.public = raw_public(self.private)
        self.up = self.down = self.th = None

    def hello(self):
        return bytes([CLIENT_HELLO]) + self.public

    def receive(self, message):
        """The relay's hello with its proof; its pin is that of the link."""
        if message[:1] != bytes([RELAY_HELLO]) or len(message) < 33:
            raise ProtocolError("no hello of a relay")
        theirs = message[1:33]
        self.th = transcript(self.public, theirs)
        secret = self.private.exchange(X25519PublicKey.from_public_bytes(theirs))
        up, down = key_schedule(secret, self.th)
        self.up, self.down = Direction(*up), Direction(*down)

        def statement(pin):
            if pin != self.relay_pin:
                raise ProtocolError(f"the relay's key is {pin.hex()}, not that of the link")
            return relay_statement(self.th, pin)

        check_proof(self.down.open(message[33:]), statement)

    def proof(self, key):
        """The client's proof, as a message."""
        spki = spki_of(key)
        signature = sign(key, client_statement(self.th, hashlib.sha256(spki).digest(), self.relay_pin))
        return bytes([CLIENT_PROOF]) + self.up.seal(proof(spki, signature))


def seal_control(up, message):
    """A control message, without the length of section 5."""
    return bytes([SEALED]) + up.seal(bytes([CONTROL]) + message.SerializeToString())
