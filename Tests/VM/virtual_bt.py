#!/usr/bin/env python3
"""A virtual radio for the guest: a controller for the kernel (through /dev/vhci) and virtual LE talk buttons in its reach.

    virtual_bt.py [--socket /run/vbt.sock] [--debug] NAME[=FAMILY][,ADDRESS][,secure]...

FAMILY is ptt-z, aina, anytone, td-q2l or microbit (the NAME itself by default). `secure` makes the button characteristics
ask for encryption. Requests are lines on the socket (see `vbt`), each answered by one line, `ok KEY=VALUE...` or `err WHY`;
t is CLOCK_MONOTONIC in nanoseconds at the instant the thing was done:

    NAME press [CONTROL]    hold a control down (the first one of the family by default)
    NAME release [CONTROL]
    NAME notify HEX [CHARACTERISTIC]    notify these bytes, whatever they mean
    NAME state              connected, advertising, subscribed, held, what was written, connection parameters
    NAME drop               the button ends the connection, and advertises again
    NAME vanish             out of reach: silence at once, both ends notice after the supervision time-out; no advertising
    NAME adv on|off         advertise, or not
    NAME battery PERCENT
    NAME forget             lose all bonds
    quit
"""
import argparse
import asyncio
import logging
import os
import sys

from bumble import hci
from bumble.transport import open_transport

from virtual_buttons import FAMILIES
from virtual_radio import Air, Radio, log


def make(specification, air, radio):
    names, *options = specification.split(',')
    name, _, family = names.partition('=')
    if (family or name) not in FAMILIES:
        sys.exit(f'virtual_bt: {family or name} is no family; there are {", ".join(FAMILIES)}')
    addresses = [o for o in options if o != 'secure']
    return name, FAMILIES[family or name](air, radio, addresses[0] if addresses else None, 'secure' in options)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--socket', default='/run/vbt.sock')
    parser.add_argument('--debug', action='store_true')
    parser.add_argument('--address', default='00:AA:01:00:00:01', help='of the controller that the kernel gets')
    parser.add_argument('button', nargs='+')
    options = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if options.debug else logging.WARNING)
    transport = await open_transport('vhci')
    air = Air()
    radio = Radio('kernel', host_source=transport.source, host_sink=transport.sink, link=air,
                  public_address=hci.Address(options.address, hci.Address.PUBLIC_DEVICE_ADDRESS))
    buttons = dict(make(b, air, radio) for b in options.button)
    for button in buttons.values():
        await button.start()
    done = asyncio.Event()

    async def serve(reader, writer):
        while words := (await reader.readline()).decode().split():
            try:
                if words[0] == 'quit':
                    done.set()
                    answer = 'ok'
                elif words[0] not in buttons:
                    answer = f'err no button {words[0]}; there are {", ".join(buttons)}'
                elif len(words) < 2:
                    answer = 'err say what to do'
                else:
                    answer = await buttons[words[0]].do(words[1], words[2:])
            except Exception as error:      # a wrong request must not end the radio
                answer = f'err {error!r}'
            writer.write((answer + '\n').encode())
            await writer.drain()
        writer.close()
    if os.path.exists(options.socket):
        os.unlink(options.socket)
    await asyncio.start_unix_server(serve, options.socket)
    log('ready: ' + ', '.join(f'{n} ({b.name}, {b.own_address})' for n, b in buttons.items()))
    await done.wait()


asyncio.run(main())
