#!/usr/bin/env python3
"""Virtual talk buttons for the guest: LE ones in reach of a controller that the kernel gets through /dev/vhci, classic ones in reach
of a second controller (btvirt), and wired ones through /dev/uinput.

    virtual_bt.py [--socket /run/vbt.sock] [--debug] NAME[=FAMILY][,ADDRESS][,secure][,off]...

FAMILY (the NAME itself by default) is one of
    LE       ptt-z aina anytone td-q2l microbit b01 itag unknown hid-remote
    classic  headset (AVRCP) aina-v1 b02 hands-free; with sound: speaker-mic music-headset; bluetoothd must not run yet, for it would
             take their controllers
    wired    wired-headset foot-switch keyboard
`secure` makes an LE button ask for encryption, `off` starts it without advertising, or unplugged. Requests are lines on the socket
(see `vbt`), each answered by one line, `ok KEY=VALUE...` or `err WHY`; t is CLOCK_MONOTONIC in nanoseconds at the instant the thing
was done; receivers=0: nobody was there to hear it:

    NAME press [CONTROL]    hold a control down (the first one of the family by default); aina-v1 also `press ptt split`
    NAME release [CONTROL]
    NAME state              connected, advertising, subscribed, held, what was written, connection parameters
    NAME drop               the button ends the connection, and advertises again
    LE, and some of it classic:
    NAME notify HEX [CHARACTERISTIC]    notify these bytes, whatever they mean; aina-v1: send them
    NAME vanish             out of reach: silence at once, both ends notice after the supervision time-out; no advertising
    NAME adv on|off         advertise, or not
    NAME battery PERCENT
    NAME forget             lose all bonds
    classic:
    NAME connect            the device connects to the machine; headset: avrcp connects its keys; aina-v1, b02: dial opens its port
    NAME close              end the channel, keep the link
    NAME hide N             the next N searches find no service record
    speaker-mic, music-headset:
    NAME speak FILE|tone|noise|zeros|stop   what is said into the microphone from now on, again and again
    NAME delay MS [nothing] of each link for sound, until what is said comes: zeros before, or no packets at all
    NAME sco [close]        whether the link for sound is up, and how often it was; close it
    NAME heard FILE         writes what the speaker played since the last time, and FILE.clock
    NAME dial               the device opens the machine's line, as when it is switched on
    NAME at WORDS           any AT command; `answer` of the next state is the machine's
    wired:
    NAME plug | unplug | repeat [CONTROL]
    all:
    quit
"""
import argparse
import asyncio
import logging
import os
import signal
import sys

from bumble import hci
from bumble.transport import open_transport

from virtual_buttons import FAMILIES
from virtual_keys import WIRED
from virtual_radio import Air, KernelSink, Radio, log


def make(specification, air, radio):
    """The name and the device; classic ones still have to be given a controller."""
    names, *options = specification.split(',')
    name, _, family = names.partition('=')
    family = family or name
    if family in WIRED:
        return name, WIRED[family](), 'off' not in options
    if family in FAMILIES:
        address = next((o for o in options if ':' in o), None)
        return name, FAMILIES[family](air, radio, address, 'secure' in options), 'off' not in options
    if family in classic().CLASSIC:
        return name, classic().CLASSIC[family](), True
    if family in headsets():
        return name, headsets()[family](), True
    sys.exit(f'virtual_bt: {family} is no family; there are {", ".join([*FAMILIES, *classic().CLASSIC, *headsets(), *WIRED])}')


def classic():
    """The module of the classic devices: slow to load, and not needed by most."""
    import virtual_classic
    return virtual_classic


def headsets():
    """Those with sound."""
    import virtual_headset
    return virtual_headset.HEADSETS


async def open_classic(devices):
    """Controllers for the classic devices: the first one is the machine's own adapter. Answers btvirt's process."""
    (host, *others), process = await classic().controllers(len(devices) + 1)
    for device, index in zip(devices, others):
        await device.open(index, classic().address_of(host))
    return process


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--socket', default='/run/vbt.sock')
    parser.add_argument('--debug', action='store_true')
    parser.add_argument('--address', default='00:AA:02:00:00:01', help='of the controller that the kernel gets')
    parser.add_argument('button', nargs='+')
    options = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if options.debug else logging.WARNING)
    known = {**FAMILIES, **WIRED}
    # Before there is a controller, whose commands the kernel wants answered at once.
    others = [f for b in options.button if (f := b.split(',')[0].rpartition('=')[2]) not in known]
    if others and any(f not in classic().CLASSIC for f in others):
        headsets()
    transport = await open_transport('vhci')
    air = Air()
    radio = Radio('kernel', host_source=transport.source, host_sink=KernelSink(transport), link=air,
                  public_address=hci.Address(options.address, hci.Address.PUBLIC_DEVICE_ADDRESS))
    made = [make(b, air, radio) for b in options.button]
    buttons = {name: button for name, button, _ in made}
    on_btvirt = [b for b in buttons.values() if hasattr(b, 'open')]
    btvirt = await open_classic(on_btvirt) if on_btvirt else None
    for name, button, is_on in made:
        if is_on:
            await button.start()
        elif hasattr(button, 'advertise'):
            await button.start(advertising=False)
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
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    await done.wait()
    if btvirt is not None:
        btvirt.terminate()
        await btvirt.wait()


asyncio.run(main())
