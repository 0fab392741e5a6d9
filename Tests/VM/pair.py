#!/usr/bin/env python3
"""What two people do with `bluetoothctl` to pair their machines, each at an adapter of the same bluetoothd: pair, and trust each other.

    pair.py OWN OTHER      addresses of classic adapters; OWN looks for OTHER and pairs. Prints the end of OTHER's path as OWN has it."""
import asyncio
import sys

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.service import ServiceInterface, method

PROPERTIES = 'org.freedesktop.DBus.Properties'


class Agent(ServiceInterface):
    """Says yes to everything."""

    def __init__(self):
        super().__init__('org.bluez.Agent1')

    @method()
    def Release(self):
        pass

    @method()
    def RequestConfirmation(self, device: 'o', passkey: 'u'):
        pass

    @method()
    def RequestAuthorization(self, device: 'o'):
        pass

    @method()
    def AuthorizeService(self, device: 'o', uuid: 's'):
        pass

    @method()
    def Cancel(self):
        pass


async def main(own, other):
    bus = await MessageBus(bus_type=BusType.SYSTEM).connect()

    async def call(path, interface, member, signature='', *body):
        answer = await asyncio.wait_for(bus.call(Message(
            destination='org.bluez', path=path, interface=interface, member=member, signature=signature, body=list(body))), 30)
        if answer.message_type == MessageType.ERROR:
            raise RuntimeError(f'{member} of {path}: {answer.error_name} {answer.body}')
        return answer.body

    async def objects(interface):
        (everything,) = await call('/', 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')
        return {path: interfaces[interface] for path, interfaces in everything.items() if interface in interfaces}

    async def device(adapter, address):
        return next((p for p, d in (await objects('org.bluez.Device1')).items()
                     if d['Adapter'].value == adapter and d['Address'].value == address), None)

    async def trust(path):
        await call(path, PROPERTIES, 'Set', 'ssv', 'org.bluez.Device1', 'Trusted', Variant('b', True))

    bus.export('/agent', Agent())
    await call('/org/bluez', 'org.bluez.AgentManager1', 'RegisterAgent', 'os', '/agent', 'NoInputNoOutput')
    await call('/org/bluez', 'org.bluez.AgentManager1', 'RequestDefaultAgent', 'o', '/agent')
    adapters = {a['Address'].value: path for path, a in (await objects('org.bluez.Adapter1')).items()}
    await call(adapters[other], PROPERTIES, 'Set', 'ssv', 'org.bluez.Adapter1', 'Discoverable', Variant('b', True))
    await call(adapters[own], 'org.bluez.Adapter1', 'SetDiscoveryFilter', 'a{sv}', {'Transport': Variant('s', 'bredr')})
    await call(adapters[own], 'org.bluez.Adapter1', 'StartDiscovery')
    found = None
    for _ in range(100):
        found = await device(adapters[own], other)
        if found is not None:
            break
        await asyncio.sleep(0.2)
    await call(adapters[own], 'org.bluez.Adapter1', 'StopDiscovery')
    if found is None:
        raise RuntimeError(f'{own} does not see {other}')
    await call(found, 'org.bluez.Device1', 'Pair')
    await trust(found)
    await trust(await device(adapters[other], own))
    print('/'.join(found.split('/')[3:]))


asyncio.run(main(*sys.argv[1:]))
