"""The wired devices of virtual_bt.py: input devices through /dev/uinput, plugged and unplugged at will."""
import fcntl
import os
import struct

from virtual_radio import now

SET_EVENT, SET_KEY, SET_PHYSICAL = 0x40045564, 0x40045565, 0x4008556C          # UI_SET_EVBIT, UI_SET_KEYBIT, UI_SET_PHYS
SETUP, CREATE, DESTROY, NAME_OF = 0x405C5503, 0x5501, 0x5502, 0x8040552C      # UI_DEV_SETUP …, UI_GET_SYSNAME of 64 bytes
SYNCHRONISE, KEY, USB = 0, 1, 3                                                # EV_SYN, EV_KEY, BUS_USB


class WiredDevice:
    """One input device. A family says what the kernel calls it, its numbers and its keys (KEY_* of <linux/input-event-codes.h>)."""

    name = own_address = ''
    vendor, product, physical = 0x1209, 0x0001, ''
    keys = {}

    def __init__(self):
        self.descriptor, self.held, self.node = None, set(), '-'

    async def start(self):
        self.plug()

    def plug(self):
        if self.descriptor is not None:
            return
        self.descriptor = os.open('/dev/uinput', os.O_WRONLY | os.O_NONBLOCK)
        fcntl.ioctl(self.descriptor, SET_EVENT, KEY)
        for code in self.keys.values():
            fcntl.ioctl(self.descriptor, SET_KEY, code)
        fcntl.ioctl(self.descriptor, SET_PHYSICAL, self.physical.encode() + b'\0')
        fcntl.ioctl(self.descriptor, SETUP, struct.pack('=HHHH80sI', USB, self.vendor, self.product, 1, self.name.encode(), 0))
        fcntl.ioctl(self.descriptor, CREATE)
        system_name = fcntl.ioctl(self.descriptor, NAME_OF, bytes(64)).rstrip(b'\0').decode()
        folder = f'/sys/devices/virtual/input/{system_name}'
        self.node = next(f'/dev/input/{n}' for n in os.listdir(folder) if n.startswith('event'))

    def unplug(self):
        """The kernel lets every held key go by itself."""
        if self.descriptor is not None:
            fcntl.ioctl(self.descriptor, DESTROY)
            os.close(self.descriptor)
        self.descriptor, self.node = None, '-'
        self.held.clear()

    def change(self, control, value):
        t = now()
        os.write(self.descriptor, struct.pack('=qqHHiqqHHi', 0, 0, KEY, self.keys[control], value, 0, 0, SYNCHRONISE, 0, 0))
        return t

    async def do(self, command, arguments):
        control = arguments[0] if arguments else next(iter(self.keys))
        t = now()
        if command == 'plug':
            self.plug()
        elif command == 'unplug':
            self.unplug()
        elif command in ('press', 'release', 'repeat'):
            if self.descriptor is None:
                return f'ok t={t} receivers=0'
            (self.held.discard if command == 'release' else self.held.add)(control)
            return f'ok t={self.change(control, {"press": 1, "release": 0, "repeat": 2}[command])} receivers=1'
        elif command != 'state':
            raise ValueError(f'unknown command {command}')
        return f'ok t={t} plugged={int(self.descriptor is not None)} node={self.node} held={"+".join(sorted(self.held)) or "-"}'


class Headset(WiredDevice):
    """The inline keys of a headset in a sound card's jack."""

    name, physical = 'Virtual HDA Headset Jack', 'ALSA'
    keys = {'play-pause': 164, 'volume-up': 115, 'volume-down': 114}


class FootSwitch(WiredDevice):
    """A USB foot switch that is a keyboard with one key, F13."""

    name, product, physical = 'Virtual FootSwitch', 0x0002, 'usb-0000:00:14.0-3/input0'
    keys = {'pedal': 183}


class Keyboard(WiredDevice):
    """A keyboard. Nobody but its user may see its keys: no rule tags it."""

    name, product, physical = 'Virtual Keyboard', 0x0003, 'usb-0000:00:14.0-4/input0'
    keys = {'play-pause': 164, 'f13': 183, 'a': 30, 'enter': 28, 'space': 57}


WIRED = {'wired-headset': Headset, 'foot-switch': FootSwitch, 'keyboard': Keyboard}
