"""Pairing as a desktop does it, for devices that are not added by pttctl: an agent that agrees, discovery, Pair, Trusted."""
import asyncio
import time

from dbus_fast import Variant
from dbus_fast.service import ServiceInterface, method

BLUEZ, DEVICE, PROPERTIES = 'org.bluez', 'org.bluez.Device1', 'org.freedesktop.DBus.Properties'


class Agent(ServiceInterface):
    """Agrees to everything."""

    def __init__(self):
        super().__init__('org.bluez.Agent1')

    @method()
    def RequestAuthorization(self, device: 'o'):            # noqa: F821
        pass

    @method()
    def RequestConfirmation(self, device: 'o', key: 'u'):   # noqa: F821
        pass

    @method()
    def AuthorizeService(self, device: 'o', uuid: 's'):     # noqa: F821
        pass

    @method()
    def Release(self):
        pass

    @classmethod
    async def register(cls, daemon):
        """`daemon`: anything with a `bus` and a `call`. To be done again when bluetoothd was restarted."""
        agent = cls()
        daemon.bus.unexport('/agent')
        daemon.bus.export('/agent', agent)
        await daemon.call(BLUEZ, '/org/bluez', 'org.bluez.AgentManager1', 'RegisterAgent', 'os', ['/agent', 'NoInputNoOutput'])
        await daemon.call(BLUEZ, '/org/bluez', 'org.bluez.AgentManager1', 'RequestDefaultAgent', 'o', ['/agent'])
        return agent


async def pair(daemon, adapter, name, seconds=40):
    """Finds, pairs and trusts the device of this name; its path."""
    for key in ('Powered', 'Pairable', 'Discoverable'):
        await daemon.call(BLUEZ, adapter, PROPERTIES, 'Set', 'ssv', ['org.bluez.Adapter1', key, Variant('b', True)])

    async def find():
        objects = await daemon.call(BLUEZ, '/', 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')
        return next((p for p, i in objects.items() if p.startswith(adapter) and i.get(DEVICE, {}).get('Name', Variant('s', '')).value == name),
                    None)
    path = await find()
    if path is None:
        await daemon.call(BLUEZ, adapter, 'org.bluez.Adapter1', 'StartDiscovery')
        end = time.monotonic() + seconds
        while (path := await find()) is None and time.monotonic() < end:
            await asyncio.sleep(0.2)
        await daemon.call(BLUEZ, adapter, 'org.bluez.Adapter1', 'StopDiscovery')
    if path is None:
        raise TimeoutError(f'no {name} in sight')
    await daemon.call(BLUEZ, path, DEVICE, 'Pair', seconds=60)
    await daemon.call(BLUEZ, path, PROPERTIES, 'Set', 'ssv', [DEVICE, 'Trusted', Variant('b', True)])
    return path
