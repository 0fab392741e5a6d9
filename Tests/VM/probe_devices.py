"""Proves the other virtual devices without pttd: HID over GATT, a serial button, a headset's AVRCP keys and wired devices reach a
plain D-Bus client, and the kernel's input devices."""
import asyncio
import glob
import os
import struct
import sys
import time

from dbus_fast import Message, MessageType, Variant
from dbus_fast.service import ServiceInterface, method

from accessory_agent import Agent, pair
from probe_buttons import BLUEZ, DEVICE, BlueZ, vbt

SERIAL_PORT = '00001101-0000-1000-8000-00805f9b34fb'
failures = 0


class Profile(ServiceInterface):
    def __init__(self):
        super().__init__('org.bluez.Profile1')
        self.opened = asyncio.get_running_loop().create_future()

    @method()
    def NewConnection(self, device: 'o', fd: 'h', properties: 'a{sv}'):     # noqa: F821, F722
        self.opened.set_result(os.dup(fd))

    @method()
    def RequestDisconnection(self, device: 'o'):            # noqa: F821
        pass


def input_device(name):
    for path in glob.glob('/sys/class/input/event*'):
        with open(f'{path}/device/name') as f:
            if name in f.read():
                return '/dev/input/' + os.path.basename(path)


async def wait_for(find, what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := find():
            return found
        await asyncio.sleep(0.05)
    raise TimeoutError(what)


async def keys(node, count):
    """The next `count` key events: [(code, value)]."""
    fd, found = os.open(node, os.O_RDONLY | os.O_NONBLOCK), []
    try:
        end = time.monotonic() + 5
        while len(found) < count and time.monotonic() < end:
            try:
                for _, _, kind, code, value in struct.iter_unpack('=qqHHi', os.read(fd, 24 * 64)):
                    if kind == 1:
                        found.append((code, value))
            except BlockingIOError:
                await asyncio.sleep(0.01)
    finally:
        os.close(fd)
    return found


async def step(what, awaitable):
    global failures
    try:
        print('ok  ', what, await asyncio.wait_for(awaitable, 60) or '', flush=True)
    except Exception as error:
        failures += 1
        print('FAIL', what, repr(error), flush=True)


async def pressed(node, device, control, expected):
    reading = asyncio.get_running_loop().create_task(keys(node, len(expected)))
    await asyncio.sleep(0.3)
    await vbt(device, 'press', *control)
    await asyncio.sleep(0.1)
    await vbt(device, 'release', *control)
    if (got := await reading) != expected:
        raise AssertionError(f'{got}, expected {expected}')
    return got


async def main():
    bluez = await BlueZ().open()
    adapters = await wait_for_adapters(bluez)
    le, classic = adapters['00:AA:02:00:00:01'], next(p for a, p in adapters.items() if a != '00:AA:02:00:00:01')
    await Agent.register(bluez)

    async def wired():
        node = input_device('Virtual HDA Headset Jack')
        return await pressed(node, 'wired-headset', [], [(164, 1), (164, 0)])
    await step('wired headset', wired())

    async def unplugged():
        node = input_device('Virtual FootSwitch')
        reading = asyncio.get_running_loop().create_task(keys(node, 2))
        await asyncio.sleep(0.2)
        await vbt('foot-switch', 'press')
        await asyncio.sleep(0.2)
        await vbt('foot-switch', 'unplug')
        try:
            return await reading
        except OSError as error:
            return error
    await step('foot switch unplugged while held', unplugged())

    async def remote():
        await pair(bluez, le, 'Media Remote')
        node = await wait_for(lambda: input_device('Media Remote'), 'no input device')
        return await pressed(node, 'hid-remote', [], [(164, 1), (164, 0)])
    await step('HID over GATT', remote())

    async def secure():
        device = await pair(bluez, le, 'B01_BLE')
        return (await bluez.objects())[device][DEVICE]['Paired'].value
    await step('a button that asks for encryption pairs', secure())

    async def headset():
        await pair(bluez, classic, 'Virtual Headset')
        await vbt('headset', 'avrcp')
        node = await wait_for(lambda: input_device('(AVRCP)'), 'no input device')
        return await pressed(node, 'headset', ['play'], [(200, 1), (200, 0)])
    await step('AVRCP keys', headset())
    await vbt('headset', 'drop')        # btvirt serves one link at a time

    async def serial():
        device = await pair(bluez, classic, 'APTT00001')
        profile = Profile()
        bluez.bus.export('/profile', profile)
        await bluez.call(BLUEZ, '/org/bluez', 'org.bluez.ProfileManager1', 'RegisterProfile', 'osa{sv}',
                         ['/profile', SERIAL_PORT, {'Role': Variant('s', 'client'), 'RequireAuthentication': Variant('b', False)}])
        connecting = asyncio.get_running_loop().create_task(bluez.call(BLUEZ, device, DEVICE, 'ConnectProfile', 's', [SERIAL_PORT]))
        fd = await asyncio.wait_for(profile.opened, 30)
        await connecting
        os.set_blocking(fd, False)
        got = b''
        for command in (['press'], ['release'], ['press', 'ptt', 'split'], ['notify', '2b5054543d502b5054543d52']):
            await vbt('aina-v1', *command)
        end = time.monotonic() + 5
        while got.count(b'=') < 5 and time.monotonic() < end:
            try:
                got += os.read(fd, 100)
            except BlockingIOError:
                await asyncio.sleep(0.01)
        if got != b'+PTT=P+PTT=R+PTT=P+PTT=P+PTT=R':
            raise AssertionError(got)
        await vbt('aina-v1', 'close')
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                if os.read(fd, 100) == b'':
                    return 'and closed'
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except ConnectionResetError:        # so the kernel says it
                return 'and closed'
        raise AssertionError('not closed')
    await step('serial port profile', serial())
    sys.exit(failures)


async def wait_for_adapters(bluez):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = {i['org.bluez.Adapter1']['Address'].value: path for path, i in (await bluez.objects()).items() if 'org.bluez.Adapter1' in i}
        if len(found) == 2:
            return found
        await asyncio.sleep(0.1)
    raise TimeoutError('two adapters')

asyncio.run(main())
