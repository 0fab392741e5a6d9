#!/usr/bin/python3
"""Stands in for pttd under pttd.service: does each thing that the daemon needs, and tries what it must not. Prints `ok`/`FAIL`
lines, then owns org.pttd for ten seconds."""
import asyncio
import ctypes
import ctypes.util
import os
import socket
import sys

from dbus_fast import BusType, Message, MessageType, NameFlag, PropertyAccess, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.service import ServiceInterface, dbus_property, method

failures = 0
SERVICE = '0000ffe0-0000-1000-8000-00805f9b34fb'


def check(what, act, wanted=None):
    """`wanted`: the exception that has to come."""
    global failures
    try:
        value = act()
        good, text = wanted is None, f'{value}' if value not in (None, True) else ''
    except Exception as error:
        good, text = wanted is not None and isinstance(error, wanted), repr(error)
    failures += not good
    print(('ok  ' if good else 'FAIL'), what, text, flush=True)


def capture():
    alsa = ctypes.CDLL(ctypes.util.find_library('asound') or 'libasound.so.2')
    alsa.snd_strerror.restype = ctypes.c_char_p
    alsa.snd_pcm_readi.restype = ctypes.c_long
    alsa.snd_pcm_readi.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ulong]
    pcm = ctypes.c_void_p()
    for status in (alsa.snd_pcm_open(ctypes.byref(pcm), b'plughw:Loopback,1,0', 1, 0),
                   alsa.snd_pcm_set_params(pcm, 2, 3, 1, 48000, 1, 100000), alsa.snd_pcm_start(pcm)):
        if status < 0:
            raise OSError(alsa.snd_strerror(status).decode())
    return f'{alsa.snd_pcm_readi(pcm, ctypes.create_string_buffer(960), 480)} frames'


class Profile(ServiceInterface):
    def __init__(self):
        super().__init__('org.bluez.GattProfile1')

    @method()
    def Release(self):
        pass

    @dbus_property(access=PropertyAccess.READ)
    def UUIDs(self) -> 'as':        # noqa: F722
        return [SERVICE]


class Manager(ServiceInterface):
    def __init__(self):
        super().__init__('org.pttd.Manager1')

    @dbus_property(access=PropertyAccess.READ)
    def Version(self) -> 's':       # noqa: F821
        return 'stand-in'


class Objects(ServiceInterface):
    def __init__(self):
        super().__init__('org.freedesktop.DBus.ObjectManager')

    @method()
    def GetManagedObjects(self) -> 'a{oa{sa{sv}}}':     # noqa: F722
        return {'/probe/profile': {'org.bluez.GattProfile1': {'UUIDs': Variant('as', [SERVICE])}}}


async def main():
    def real_time():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    check('who', lambda: f'{os.getuid()} {os.getgroups()}')
    check('capture from an ALSA card', capture)
    check('real-time priority', real_time)
    check('UDP socket', lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close())
    check('netlink for udev', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15).close())
    check('state directory', lambda: open('/var/lib/pttd/probe', 'w').close())
    check('no input device without a tag', lambda: os.open('/dev/input/event0', os.O_RDONLY), PermissionError)
    check('no writing to /etc', lambda: open('/etc/probe', 'w'), OSError)
    check('raw Bluetooth, for link parameters', lambda: socket.socket(31, socket.SOCK_RAW, 1).close())
    check('no other device', lambda: open('/dev/vda', 'rb'), OSError)
    check('no home', lambda: os.listdir('/root'), OSError)

    bus = await MessageBus(bus_type=BusType.SYSTEM).connect()

    async def call(path, interface, member, signature='', body=()):
        reply = await asyncio.wait_for(bus.call(Message(destination='org.bluez', path=path, interface=interface, member=member,
                                                        signature=signature, body=list(body))), 20)
        if reply.message_type == MessageType.ERROR:
            raise RuntimeError(f'{reply.error_name} {reply.body}')
        return reply.body

    async def acheck(what, awaitable):
        try:
            value = await awaitable
            check(what, lambda: None)
            return value
        except Exception as error:
            def fail(error=error):
                raise error
            check(what, fail)
    await acheck('BlueZ answers', call('/', 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects'))
    await acheck('power the adapter', call('/org/bluez/hci0', 'org.freedesktop.DBus.Properties', 'Set', 'ssv',
                                           ['org.bluez.Adapter1', 'Powered', Variant('b', True)]))
    bus.export('/probe/profile', Profile())
    bus.export('/probe', Objects())
    await acheck('register a GATT profile (bluetoothd calls back)',
                 call('/org/bluez/hci0', 'org.bluez.GattManager1', 'RegisterApplication', 'oa{sv}', ['/probe', {}]))
    bus.export('/org/pttd', Manager())
    await acheck('own org.pttd', bus.request_name('org.pttd', NameFlag.DO_NOT_QUEUE))
    print('probe: done', failures, flush=True)
    await asyncio.sleep(10)
    sys.exit(failures > 0)

asyncio.run(main())
