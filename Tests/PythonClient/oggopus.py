"""Ogg Opus files (RFC 3533, RFC 7845), as far as this client needs them: one stream, whole packets."""

import os
import struct

PRE_SKIP = 312
PACKETS_PER_PAGE = 50


def _crc_table():
    table = []
    for index in range(256):
        value = index << 24
        for _ in range(8):
            value = value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)
        table.append(value & 0xFFFFFFFF)
    return table


_TABLE = _crc_table()


def _crc(data):
    value = 0
    for byte in data:
        value = value << 8 & 0xFFFFFFFF ^ _TABLE[value >> 24 ^ byte]
    return value


def duration(packet):
    """Samples at 48 kHz in an Opus packet (RFC 6716, section 3.1)."""
    toc = packet[0]
    configuration = toc >> 3
    if configuration < 12:
        samples = (480, 960, 1920, 2880)[configuration & 3]
    elif configuration < 16:
        samples = (480, 960)[configuration & 1]
    else:
        samples = (120, 240, 480, 960)[configuration & 3]
    code = toc & 3
    frames = (1, 2, 2)[code] if code < 3 else (packet[1] & 0x3F if len(packet) > 1 else 0)
    return samples * frames


def lost(previous):
    """A packet that makes a decoder conceal as much as it lasts: the previous one's mode with an empty frame."""
    return bytes([previous[0] & 0xFC])


def _page(packets, flags, granule, serial, number):
    lacing = b"".join(b"\xff" * (len(each) // 255) + bytes([len(each) % 255]) for each in packets)
    head = struct.pack("<4sBBqIII", b"OggS", 0, flags, granule, serial, number, 0)
    page = head + bytes([len(lacing)]) + lacing + b"".join(packets)
    return page[:22] + struct.pack("<I", _crc(page)) + page[26:]


def write(path, packets):
    """Writes Opus packets, in order, as a playable file."""
    serial = int.from_bytes(os.urandom(4), "little")
    channels = 2 if packets and packets[0][0] & 4 else 1
    head = struct.pack("<8sBBHIhB", b"OpusHead", 1, channels, PRE_SKIP, 48000, 0, 0)
    vendor = b"pttd test"
    tags = b"OpusTags" + struct.pack("<I", len(vendor)) + vendor + struct.pack("<I", 0)
    pages = [_page([head], 2, 0, serial, 0), _page([tags], 0, 0, serial, 1)]
    granule = PRE_SKIP
    # A page has at most 255 lacing values, so few packets of usual size go on one.
    groups = []
    for packet in packets:
        size = len(packet) // 255 + 1
        if not groups or groups[-1][1] + size > 255 or len(groups[-1][0]) == PACKETS_PER_PAGE:
            groups.append([[], 0])
        groups[-1][0].append(packet)
        groups[-1][1] += size
    for index, (group, _) in enumerate(groups):
        granule += sum(duration(packet) for packet in group)
        last = 4 if index == len(groups) - 1 else 0
        pages.append(_page(group, last, granule, serial, index + 2))
    with open(path, "wb") as file:
        file.write(b"".join(pages))


def read(path):
    """The Opus packets of a file."""
    with open(path, "rb") as file:
        data = file.read()
    packets, partial, position = [], b"", 0
    while position < len(data):
        if data[position : position + 4] != b"OggS" or len(data) < position + 27:
            raise ValueError(f"{path} is no Ogg file")
        count = data[position + 26]
        lacing = data[position + 27 : position + 27 + count]
        position += 27 + count
        for size in lacing:
            partial += data[position : position + size]
            position += size
            if size < 255:
                packets.append(partial)
                partial = b""
    if not packets or not packets[0].startswith(b"OpusHead"):
        raise ValueError(f"{path} is no Ogg Opus file")
    return packets[2:]
