"""The families of virtual LE buttons: what each is called, which services it shows and which bytes it notifies."""
import asyncio

from virtual_button import COMMAND, NOTIFY, READ, WRITE, Button, now


class PTTZ(Button):
    """Pryme PTT-Z: nothing but FFE0/FFE1; 01 down, 00 up; not readable."""

    name, address = 'PTT-Z', 'C4:00:00:00:FF:E0'
    advertised_services = ('FFE0',)
    services = {'FFE0': {'ptt': ('FFE1', WRITE | NOTIFY, b'\0')}}

    def report(self, control):
        return [('ptt', bytes([control in self.held]))]


class AINA(Button):
    """AINA PTT Voice Responder V2: a bit mask of what is held; bit 0x80 flips as a heartbeat while anything is held."""

    name, address = 'APTT0042', 'C4:00:00:00:FA:CE'
    bits = {'ptt': 0x01, 'emergency': 0x02, 'ptt2': 0x04, 'left': 0x08, 'right': 0x10, 'multifunction': 0x20}
    controls = tuple(bits)
    advertised_services = ('127FACE1-CB21-11E5-93D0-0002A5D5C51B',)
    services = {'127FACE1-CB21-11E5-93D0-0002A5D5C51B': {
        'buttons': ('127FBEEF-CB21-11E5-93D0-0002A5D5C51B', READ | NOTIFY, b'\0'),
        'led': ('127FDEAD-CB21-11E5-93D0-0002A5D5C51B', WRITE, b'\0'),
        'version': ('127FC0FF-CB21-11E5-93D0-0002A5D5C51B', READ, b'\x12'),
        'config': ('127FDEAF-CB21-11E5-93D0-0002A5D5C51B', READ | WRITE | NOTIFY, b'\0')}}
    has_battery_service = True
    heartbeat_s = 0.5
    beat, beating = 0, None

    def mask(self):
        return sum(self.bits[c] for c in self.held)

    def report(self, control):
        self.beat = 0
        if self.held and self.beating is None:
            self.beating = asyncio.get_running_loop().create_task(self.heartbeat())
        elif not self.held and self.beating is not None:
            self.beating.cancel()
            self.beating = None
        return [('buttons', bytes([self.mask()]))]

    async def heartbeat(self):
        while True:
            await asyncio.sleep(self.heartbeat_s)
            self.beat ^= 0x80
            if self.subscribed('buttons'):
                self.repeats.append(now())
            await self.send('buttons', bytes([self.mask() | self.beat]))


class AnyTone(Button):
    """AnyTone BP-01/02: text; tells its battery as soon as somebody subscribes."""

    name, address = 'ELET-PTT60B02A', 'C4:00:00:60:B0:2A'
    manufacturer_data = b'\x45\x50\x00\x01'
    services = {'FF01': {'text': ('FF02', NOTIFY, b'')}}
    level = 100

    def report(self, control):
        return [('text', b'ELET1' if control in self.held else b'ELET2')]

    def on_subscription(self, label, notify):
        super().on_subscription(label, notify)
        if notify:
            asyncio.get_running_loop().create_task(self.battery(self.level))

    async def battery(self, percent):
        self.level = percent
        return await self.send('text', b'BATT' + bytes([percent]))


class TDQ2L(Button):
    """Tidradio TD-Q2L: the state in its own service (which is not advertised) and mirrored on FFE0/FFE1."""

    name, address = 'TID-MIC-Q2L-0042', 'C4:00:00:00:89:A8'
    services = {
        '89A8591D-BB19-485B-9F59-58492BC33E24': {'ptt': ('894C8042-E841-461C-A5C9-5A73D25DB08E', READ | NOTIFY, b'\0')},
        'FFE0': {'mirror': ('FFE1', READ | NOTIFY, b'\0')}}

    def report(self, control):
        value = bytes([control in self.held])
        return [('ptt', value), ('mirror', value)]


class Microbit(Button):
    """BBC micro:bit button service: 0 up, 1 down, 2 still down after a while."""

    name, address = 'BBC micro:bit [zotut]', 'C4:00:00:00:E9:5D'
    controls = ('a', 'b')
    services = {'E95D9882-251D-470A-A062-FA1922DFA9A8': {
        'a': ('E95DDA90-251D-470A-A062-FA1922DFA9A8', READ | NOTIFY, b'\0'),
        'b': ('E95DDA91-251D-470A-A062-FA1922DFA9A8', READ | NOTIFY, b'\0')}}
    long_press_s = 1.5

    def report(self, control):
        if control in self.held:
            asyncio.get_running_loop().create_task(self.long_press(control))
        return [(control, bytes([control in self.held]))]

    async def long_press(self, control):
        await asyncio.sleep(self.long_press_s)
        if control in self.held:
            await self.send(control, b'\2')


class B01(Button):
    """Inrico B01, its LE half: text with a NUL; silent until the start command is written."""

    name, address = 'B01_BLE', 'C4:00:00:00:66:66'
    controls = ('ptt', 'emergency', 'volume-up', 'volume-down')
    clicks = {'emergency': b'C:SOS*', 'volume-up': b'C:VP*', 'volume-down': b'C:VM*'}
    services = {'6666': {'text': ('8888', NOTIFY, b'')}, '7777': {'start': ('8877', WRITE, b'\0')}}
    started = False

    def on_write(self, label, value):
        self.started = value == b'\1'

    def on_connection(self, connection):
        super().on_connection(connection)
        self.started = False

    def report(self, control):
        down = control in self.held
        if not self.started or (control in self.clicks and not down):
            return []
        return [('text', self.clicks.get(control, b'+PTT=P' if down else b'+PTT=R') + b'\0')]


class ITag(Button):
    """iTAG key fob: FFE0/FFE1 as the PTT-Z has, but one notification a click and none for the release."""

    name, address = 'iTAG            ', 'C4:00:00:00:18:02'
    advertised_services = ('FFE0',)
    services = {'FFE0': {'click': ('FFE1', READ | NOTIFY, b'\0')}, '1802': {'alert': ('2A06', WRITE | COMMAND, b'\0')}}
    has_battery_service = True

    def report(self, control):
        return [('click', b'\1')] if control in self.held else []


class Unknown(Button):
    """A button with a side key that no profile knows: a counter and a mask of both in two bytes, and a characteristic that chatters."""

    name, address = 'Acme BTN-7', 'C4:00:00:00:AC:3E'
    bits = {'ptt': 0x04, 'side': 0x10}
    controls = tuple(bits)
    services = {'5A1D0001-7C1E-4B7A-9A43-0B7D10C0FFEE': {
        'state': ('5A1D0002-7C1E-4B7A-9A43-0B7D10C0FFEE', READ | NOTIFY, b'\0\0'),
        'voltage': ('5A1D0003-7C1E-4B7A-9A43-0B7D10C0FFEE', NOTIFY, b'\0\0')}}
    counter, chattering, chatter_s = 0, None, 0.7

    def report(self, control):
        self.counter = (self.counter + 1) % 256
        return [('state', bytes([self.counter, sum(self.bits[c] for c in self.held)]))]

    def on_subscription(self, label, notify):
        super().on_subscription(label, notify)
        if label == 'voltage' and self.chattering is None:
            self.chattering = asyncio.get_running_loop().create_task(self.chatter())

    async def chatter(self):
        millivolts = 2950
        while self.subscribed('voltage'):
            millivolts -= 1
            await self.send('voltage', millivolts.to_bytes(2, 'little'))
            await asyncio.sleep(self.chatter_s)
        self.chattering = None


class HIDRemote(Button):
    """A remote control by HID over GATT: BlueZ makes an input device of it. It has to be bonded."""

    name, address = 'Media Remote', 'C4:00:00:00:18:12'
    appearance = 0x0180
    # One bit a control: play/pause, next, previous, volume up, volume down of the consumer page; three bits of nothing.
    usages = {'play-pause': 0xCD, 'next': 0xB5, 'previous': 0xB6, 'volume-up': 0xE9, 'volume-down': 0xEA}
    controls = tuple(usages)
    report_map = (b'\x05\x0c\x09\x01\xa1\x01\x85\x01\x15\x00\x25\x01\x75\x01\x95\x05'
                  + b''.join(bytes((0x09, usage)) for usage in usages.values()) + b'\x81\x02\x95\x03\x81\x01\xc0')
    advertised_services = ('1812',)
    services = {
        '180A': {'pnp': ('2A50', READ, bytes.fromhex('02341278560001'))},
        '1812': {'report': ('2A4D', READ | NOTIFY, b'\0', [('2908', b'\x01\x01')]),
                 'map': ('2A4B', READ, report_map),
                 'information': ('2A4A', READ, b'\x11\x01\x00\x02'),
                 'point': ('2A4C', COMMAND, b'\0'),
                 'mode': ('2A4E', READ | COMMAND, b'\1')}}
    has_battery_service = True

    def report(self, control):
        return [('report', bytes([sum(1 << n for n, c in enumerate(self.controls) if c in self.held)]))]


FAMILIES = {'ptt-z': PTTZ, 'aina': AINA, 'anytone': AnyTone, 'td-q2l': TDQ2L, 'microbit': Microbit, 'b01': B01, 'itag': ITag,
            'unknown': Unknown, 'hid-remote': HIDRemote}
