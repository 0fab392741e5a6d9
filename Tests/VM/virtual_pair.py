#!/usr/bin/env python3
"""Two Low Energy adapters of the kernel, in reach of each other: two machines in one guest.

    virtual_pair.py [--socket /run/pair.sock]

Requests are lines on the socket, each answered by `ok`: `vanish N` takes adapter N (0 or 1) out of reach, `return N` brings it back, `quit` ends."""
import argparse
import asyncio
import os

from bumble import hci
from bumble.transport import open_transport

from virtual_radio import Air, KernelSink, Radio, log

ADDRESSES = ('00:AA:02:00:00:01', '00:AA:02:00:00:02')


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--socket', default='/run/pair.sock')
    options = parser.parse_args()
    air = Air()
    addresses = [hci.Address(a, hci.Address.PUBLIC_DEVICE_ADDRESS) for a in ADDRESSES]
    radios = []
    for number, address in enumerate(addresses):
        transport = await open_transport('vhci')
        radios.append(Radio(f'kernel-{number}', host_source=transport.source, host_sink=KernelSink(transport), link=air, public_address=address))
    done = asyncio.Event()

    async def serve(reader, writer):
        while words := (await reader.readline()).decode().split():
            answer = 'ok'
            match words:
                case ['vanish', number]:
                    air.unreachable.add(addresses[int(number)])
                    for radio in radios:
                        for connection in list(radio.le_connections.values()):
                            radio.lose(connection)
                case ['return', number]:
                    air.unreachable.discard(addresses[int(number)])
                case ['quit']:
                    done.set()
                case _:
                    answer = 'err vanish N, return N or quit'
            log(' '.join(words))
            writer.write((answer + '\n').encode())
            await writer.drain()
        writer.close()
    if os.path.exists(options.socket):
        os.unlink(options.socket)
    await asyncio.start_unix_server(serve, options.socket)
    log('ready')
    await done.wait()


asyncio.run(main())
