"""The worked example of docs/relay-protocol.md, computed by this client's code from the document's values."""

import os
import re

import relay_pb2
import wire

DOCUMENT = os.path.join(os.path.dirname(__file__), "../../docs/relay-protocol.md")


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
    print(f"{len(values)} values in the document, {len(failures)} failures {failures or ''}")
    return 1 if failures else 0
