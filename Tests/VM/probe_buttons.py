"""Reads the virtual buttons as a D-Bus client of bluetoothd: finds, connects and subscribes to each family, and checks that
a press and a release arrive as the bytes that the family is known for. No part of pttd takes part."""
import asyncio
import statistics
import sys
import time

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

BLUEZ, ADAPTER = 'org.bluez', '/org/bluez/hci0'
DEVICE, CHARACTERISTIC = 'org.bluez.Device1', 'org.bluez.GattCharacteristic1'
BASE = '-0000-1000-8000-00805f9b34fb'
# name of the button, advertised name, characteristic, bytes of a press, bytes of a release
EXPECTED = [
    ('ptt-z', 'PTT-Z', '0000ffe1' + BASE, '01', '00'),
    ('aina', 'APTT0042', '127fbeef-cb21-11e5-93d0-0002a5d5c51b', '01', '00'),
    ('anytone', 'ELET-PTT60B02A', '0000ff02' + BASE, '454c455431', '454c455432'),
    ('td-q2l', 'TID-MIC-Q2L-0042', '894c8042-e841-461c-a5c9-5a73d25db08e', '01', '00'),
    ('microbit', 'BBC micro:bit [zotut]', 'e95dda90-251d-470a-a062-fa1922dfa9a8', '01', '00'),
]


class BlueZ:
    async def open(self):
        self.bus = await MessageBus(bus_type=BusType.SYSTEM, negotiate_unix_fd=True).connect()
        self.notified = asyncio.Queue()
        self.bus.add_message_handler(self.on_message)
        await self.call('org.freedesktop.DBus', '/org/freedesktop/DBus', 'org.freedesktop.DBus', 'AddMatch', 's',
                        ["type='signal',sender='org.bluez',interface='org.freedesktop.DBus.Properties'"])
        return self

    def on_message(self, m):
        if m.message_type == MessageType.SIGNAL and m.member == 'PropertiesChanged' and m.body[0] == CHARACTERISTIC:
            if 'Value' in m.body[1]:
                self.notified.put_nowait((time.clock_gettime_ns(time.CLOCK_MONOTONIC), m.path, bytes(m.body[1]['Value'].value)))

    async def call(self, destination, path, interface, member, signature='', body=(), seconds=30):
        reply = await asyncio.wait_for(self.bus.call(Message(
            destination=destination, path=path, interface=interface, member=member, signature=signature, body=list(body))), seconds)
        if reply.message_type == MessageType.ERROR:
            raise RuntimeError(f'{interface}.{member}: {reply.error_name} {reply.body}')
        return reply.body[0] if reply.body else None

    async def objects(self):
        return await self.call(BLUEZ, '/', 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')

    async def find(self, interface, **properties):
        for path, interfaces in (await self.objects()).items():
            found = interfaces.get(interface)
            if found is not None and all(k in found and found[k].value == v for k, v in properties.items()):
                return path

    async def wait_for(self, interface, seconds=30, under='', **properties):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            path = await self.find(interface, **properties)
            if path and path.startswith(under):
                return path
            await asyncio.sleep(0.1)
        raise TimeoutError(f'no {interface} with {properties}')


async def vbt(*words):
    reader, writer = await asyncio.open_unix_connection('/run/vbt.sock')
    writer.write((' '.join(words) + '\n').encode())
    answer = (await reader.readline()).decode().strip()
    writer.close()
    if not answer.startswith('ok'):
        raise RuntimeError(answer)
    return dict(word.partition('=')[::2] for word in answer.split()[1:])


async def next_value(bluez, path, value):
    """When this value of this characteristic arrived."""
    while True:
        t, at, got = await asyncio.wait_for(bluez.notified.get(), 10)
        if at == path and got.hex() == value:
            return t


async def main():
    bluez = await BlueZ().open()
    await bluez.wait_for('org.bluez.Adapter1')
    await bluez.call(BLUEZ, ADAPTER, 'org.freedesktop.DBus.Properties', 'Set', 'ssv',
                     ['org.bluez.Adapter1', 'Powered', Variant('b', True)])
    await bluez.call(BLUEZ, ADAPTER, 'org.bluez.Adapter1', 'SetDiscoveryFilter', 'a{sv}', [{'Transport': Variant('s', 'le')}])
    failures = 0
    for button, name, uuid, press, release in EXPECTED:
        try:
            await bluez.call(BLUEZ, ADAPTER, 'org.bluez.Adapter1', 'StartDiscovery')
            device = await bluez.wait_for(DEVICE, Name=name)
            advertised = (await bluez.objects())[device][DEVICE]
            await bluez.call(BLUEZ, ADAPTER, 'org.bluez.Adapter1', 'StopDiscovery')
            await bluez.call(BLUEZ, device, DEVICE, 'Connect')
            await bluez.wait_for(DEVICE, Name=name, ServicesResolved=True)
            characteristic = await bluez.wait_for(CHARACTERISTIC, under=device, UUID=uuid)
            await bluez.call(BLUEZ, characteristic, CHARACTERISTIC, 'StartNotify')
            delays = []
            for _ in range(5):
                t = int((await vbt(button, 'press'))['t'])
                delays.append((await next_value(bluez, characteristic, press) - t) / 1e6)
                await vbt(button, 'release')
                await next_value(bluez, characteristic, release)
            state = await vbt(button, 'state')
            print(f'ok   {name}: advertised {[u[4:8] if u.endswith(BASE) else u for u in advertised.get("UUIDs", Variant("as", [])).value]}, '
                  f'press to PropertiesChanged median {statistics.median(delays):.1f} ms, max {max(delays):.1f} ms; {state}', flush=True)
            timeout = int((await vbt(button, 'vanish'))['supervision_ms'])
            await bluez.wait_for(DEVICE, Name=name, Connected=False, seconds=timeout / 1000 + 3)
        except Exception as error:
            failures += 1
            print(f'FAIL {name}: {error!r}', flush=True)
    sys.exit(failures)

if __name__ == '__main__':
    asyncio.run(main())
