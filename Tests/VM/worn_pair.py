#!/usr/bin/env python3
"""worn_pair.py NAME: finds, pairs, trusts and connects the classic device of that name, as a desktop does. Prints the path of its adapter
and its own, below org.bluez."""
import asyncio
import sys

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus

from accessory_agent import BLUEZ, DEVICE, Agent, pair


class System:
    """The system bus."""

    async def open(self):
        self.bus = await MessageBus(bus_type=BusType.SYSTEM).connect()
        return self

    async def call(self, destination, path, interface, member, signature='', arguments=(), seconds=30):
        reply = await asyncio.wait_for(self.bus.call(Message(
            destination=destination, path=path, interface=interface, member=member, signature=signature, body=list(arguments))), seconds)
        if reply.message_type is MessageType.ERROR:
            raise RuntimeError(f'{member}: {reply.error_name} {reply.body}')
        return reply.body[0] if reply.body else None


async def main():
    system = await System().open()
    await Agent.register(system)
    objects = await system.call(BLUEZ, '/', 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')
    # btvirt's controllers are 00:AA:01…, and the other one knows Low Energy alone.
    adapter = next(path for path, interfaces in objects.items()
                   if (a := interfaces.get('org.bluez.Adapter1')) and a['Address'].value.startswith('00:AA:01'))
    path = await pair(system, adapter, sys.argv[1])
    if len(sys.argv) < 3:
        await system.call(BLUEZ, path, DEVICE, 'Connect', seconds=60)
    print(adapter, path)


asyncio.run(main())
