"""The worked example of docs/relay-protocol.md, computed by this client's code from the document's values."""

import hashlib
import os
import re

import relay_pb2
import webwire
import wire
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

DOCUMENT = os.path.join(os.path.dirname(__file__), "../../docs/relay-protocol.md")


def link_over_tls(values, expect):
    """Section 21.7, as the client and as the relay compute it."""
    def ephemeral(end):
        return X25519PrivateKey.from_private_bytes(values[f"web_{end}_ephemeral"])

    def identity(end):
        return ec.derive_private_key(int.from_bytes(values[f"web_{end}_identity"], "big"), ec.SECP256R1())

    client, relay = ephemeral("client"), ephemeral("relay")
    client_public, relay_public = webwire.raw_public(client), webwire.raw_public(relay)
    expect("web_client_hello", b"\x01" + client_public)
    expect("web_relay_public", relay_public)
    th = webwire.transcript(client_public, relay_public)
    expect("web_th", th)
    expect("web_secret", client.exchange(relay.public_key()))
    expect("web_secret", relay.exchange(client.public_key()))
    up, down = webwire.key_schedule(values["web_secret"], th)
    for name, direction in (("up", up), ("down", down)):
        expect(f"web_{name}_key", direction[0])
        expect(f"web_{name}_iv", direction[1])
    up, down = webwire.Direction(*up), webwire.Direction(*down)

    pins = {}
    for end in ("client", "relay"):
        spki = webwire.spki_of(identity(end))
        expect(f"web_{end}_spki", spki)
        pins[end] = hashlib.sha256(spki).digest()
        expect(f"web_{end}_pin", pins[end])
    statements = {
        "relay": webwire.relay_statement(th, pins["relay"]),
        "client": webwire.client_statement(th, pins["client"], pins["relay"]),
    }
    for end, direction, head in (("relay", down, b"\x02" + relay_public), ("client", up, b"\x03")):
        expect(f"web_{end}_statement", statements[end])
        proof = webwire.proof(values[f"web_{end}_spki"], values[f"web_{end}_signature"])
        # Raises when the signature is not valid.
        expect(f"web_{end}_pin", webwire.check_proof(proof, lambda pin: statements[end]))
        expect("web_relay_hello" if end == "relay" else "web_client_proof", head + direction.seal(proof))
    expect("web_sealed_join", b"\x10" + up.seal(b"\x01" + values["join_message"][4:]))
    expect("web_sealed_ping", b"\x10" + up.seal(b"\x03" + bytes(range(1, 9))))
    expect("web_sealed_pong", b"\x10" + down.seal(b"\x04" + bytes(range(1, 9))))
    expect("web_sealed_acknowledgement", b"\x10" + down.seal(b"\x02" + (2).to_bytes(4, "big")))
    expect("web_sealed_answer", b"\x10" + down.seal(b"\x05" + (1).to_bytes(4, "big") + b"\x01" + values["repair_stream"]))

    # The client itself, from the document's messages.
    handshake = webwire.ClientHandshake(pins["relay"], client)
    expect("web_client_hello", handshake.hello())
    handshake.receive(values["web_relay_hello"])
    expect("web_th", handshake.th)
    for name, content in (
        ("pong", b"\x04" + bytes(range(1, 9))), ("acknowledgement", b"\x02\0\0\0\x02"), ("answer", b"\x05\0\0\0\x01\x01" + values["repair_stream"])
    ):
        if handshake.down.open(values[f"web_sealed_{name}"][1:]) != content:
            expect(f"web_sealed_{name}", b"")


def main():
    with open(DOCUMENT, encoding="utf-8") as file:
        values = {name: bytes.fromhex(text) for name, text in re.findall(r"^(\w+) = ([0-9a-f]+)$", file.read(), re.M)}
    failures = []

    def expect(name, computed):
        if values.get(name) != computed:
            failures.append(name)
            print(f"{name}: the document says {values.get(name, b'').hex()}, computed {computed.hex()}")

    key_id = int.from_bytes(values["key_id"], "big")
    join = relay_pb2.ClientMessage()
    join.join.channel_id = bytes.fromhex("0f9b2c4e1a2b4c3d8e4f5a6b7c8d9e0f")
    join.join.invitation_token = bytes(range(16))
    join.join.display_name = "Radio 7"
    join.join.protocol_version = 1
    expect("join_message", wire.frame(join))
    request = relay_pb2.ClientMessage()
    request.floor_request.request_id = 1
    request.floor_request.key_id = key_id
    expect("floor_request_message", wire.frame(request))
    taken = relay_pb2.ServerMessage.FromString(values["floor_taken_message"][4:]).floor_taken
    if (taken.ssrc, taken.key_id, taken.member_id) != (0x12345678, key_id, bytes(range(0x20, 0x30))):
        failures.append("floor_taken_message")
    idle = relay_pb2.ServerMessage.FromString(values["floor_idle_message"][4:]).floor_idle
    if (idle.ssrc, idle.last_sequence) != (0x12345678, 1001):
        failures.append("floor_idle_message")

    token = bytes(range(0x80, 0xA0))
    register = relay_pb2.ClientMessage()
    register.push_register.token = token
    register.push_register.topic = "org.example.radio.voip-ptt"
    expect("push_register_message", wire.frame(register))
    push = relay_pb2.ServerMessage.FromString(values["push_message"][4:]).push
    if (push.push_id, push.token, push.payload, push.priority, push.lifetime_ms) != (
        0x0102030405060708, token, b'{"activeSpeaker":"Ann"}', 10, 0
    ):
        failures.append("push_message")
    receipt = relay_pb2.ClientMessage()
    receipt.push_receipt.push_id = push.push_id
    receipt.push_receipt.outcome = relay_pb2.PUSH_OUTCOME_TAKEN
    expect("push_receipt_message", wire.frame(receipt))
    unregister = relay_pb2.ClientMessage()
    unregister.push_unregister.token = token
    expect("push_unregister_message", wire.frame(unregister))

    repair = relay_pb2.ClientMessage()
    repair.media_repair.packet = values["uplink_packet_1"]
    expect("media_repair_message", wire.frame(repair))
    missing = relay_pb2.ClientMessage()
    missing.repair_request.repair_id = 1
    missing.repair_request.ssrc = 0x12345678
    missing.repair_request.key_id = key_id
    missing.repair_request.ranges.add(first=1001, last=1001)
    expect("repair_request_message", wire.frame(missing))
    packet = values["uplink_packet_1"]
    expect("repair_stream", (1).to_bytes(4, "big") + len(packet).to_bytes(2, "big") + packet)

    key = wire.SFrameKey(values["base_key"], key_id)
    expect("sframe_secret", key.secret)
    expect("sframe_key", key.key)
    expect("sframe_salt", key.salt)
    window = wire.ReplayWindow()
    for index in range(2):
        rtp = wire.RTP(index == 0, 1000 + index, 48000 + 960 * index, 0x12345678).pack()
        expect(f"rtp_header_{index}", rtp)
        expect(f"sframe_header_{index}", wire.sframe_header(key_id, index))
        expect(f"sframe_nonce_{index}", key.nonce(index))
        sealed = key.seal(index, values[f"opus_frame_{index}"], rtp)
        expect(f"sframe_ciphertext_{index}", sealed)
        expect(f"uplink_packet_{index}", rtp + sealed)
        counted = rtp + sealed + values[f"downlink_counter_{index}"]
        expect(f"siphash_tag_{index}", wire.siphash128(values["downlink_key"], counted))
        packet = wire.check_trailer(values["downlink_key"], window, values[f"downlink_packet_{index}"])
        expect(f"uplink_packet_{index}", packet)
        expect(f"opus_frame_{index}", key.open(packet[12:], packet[:12]))
    try:
        wire.check_trailer(values["downlink_key"], window, values["downlink_packet_0"])
        failures.append("a replayed packet was accepted")
    except wire.Dropped:
        pass
    link_over_tls(values, expect)
    print(f"{len(values)} values in the document, {len(failures)} failures {failures or ''}")
    return 1 if failures else 0
