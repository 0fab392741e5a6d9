"""The buttons of virtual_bt.py: what each family is called, which services it shows and which bytes it notifies."""
import asyncio
import random

from bumble import hci
from bumble.core import AdvertisingData, UUID
from bumble.device import Device, DeviceConfiguration
from bumble.gatt import Characteristic, CharacteristicValue, Service
from bumble.host import Host
from bumble.keys import MemoryKeyStore
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.transport.common import AsyncPipeSink

from virtual_radio import Radio, log, now

READ, WRITE, NOTIFY = (Characteristic.Properties.READ, Characteristic.Properties.WRITE, Characteristic.Properties.NOTIFY)


class Button:
    """One virtual talk button. A family says what it is called, what its GATT tree is, and what it notifies."""

    name = address = ''
    controls = ('ptt',)
    advertised_services = ()
    manufacturer_data = b''
    services = {}               # service UUID -> {label: (characteristic UUID, properties, first value)}
    has_battery_service = False

    def __init__(self, air, radio, address=None, secure=False):
        self.air, self.host_radio, self.held, self.written = air, radio, set(), {}
        self.wants_advertising = True
        self.radio = Radio(self.name, link=air, public_address='00:00:00:00:00:00')
        self.own_address = hci.Address(address or self.address)
        self.device = Device(
            config=DeviceConfiguration(name=self.name, address=self.own_address, irk=random.randbytes(16),
                                       advertising_interval_min=100.0, advertising_interval_max=100.0),
            host=Host(self.radio, AsyncPipeSink(self.radio)))
        self.device.keystore = MemoryKeyStore()
        self.device.pairing_config_factory = lambda _: PairingConfig(
            sc=True, mitm=False, bonding=True, delegate=PairingDelegate(PairingDelegate.NO_OUTPUT_NO_INPUT))
        self.device.on('connection', self.on_connection)
        self.values, self.characteristics = {}, {}
        services = dict(self.services)
        if self.has_battery_service:
            services['180F'] = {'battery': ('2A19', READ | NOTIFY, b'\x4d')}
        self.device.add_services([
            Service(UUID(uuid), [self.characteristic(label, secure and uuid != '180F', *c) for label, c in tree.items()])
            for uuid, tree in services.items()])
        self.advertise_as()

    def characteristic(self, label, secure, uuid, properties, value):
        permissions = Characteristic.Permissions(0)
        if properties & READ:
            permissions |= Characteristic.READABLE
        if properties & WRITE:
            permissions |= Characteristic.WRITEABLE
        if secure:
            permissions |= Characteristic.READ_REQUIRES_ENCRYPTION | Characteristic.WRITE_REQUIRES_ENCRYPTION
        self.values[label] = value

        def write(_, data):
            self.values[label] = self.written[label] = bytes(data)
            log(f'{self.name}: {label} written {bytes(data).hex()}')
        c = Characteristic(UUID(uuid), properties, permissions,
                           CharacteristicValue(read=lambda _: self.values[label], write=write))
        c.on('subscription', lambda _, notify, __: self.on_subscription(label, notify))
        self.characteristics[label] = c
        return c

    def advertise_as(self):
        """The flags, then what fits: 31 bytes in the advertisement, 31 in the scan response; the kernel drops longer ones."""
        fields = [(AdvertisingData.COMPLETE_LOCAL_NAME, self.name.encode())]
        for uuid in map(UUID, self.advertised_services):
            kind = (AdvertisingData.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS if len(bytes(uuid)) == 2
                    else AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS)
            fields.insert(0, (kind, bytes(uuid)))
        if self.manufacturer_data:
            fields.append((AdvertisingData.MANUFACTURER_SPECIFIC_DATA, self.manufacturer_data))
        first, second = [(AdvertisingData.FLAGS, b'\x06')], []
        for field in fields:
            fits = len(bytes(AdvertisingData(first + [field]))) <= 31
            (first if fits else second).append(field)
        self.device.advertising_data = bytes(AdvertisingData(first))
        self.device.scan_response_data = bytes(AdvertisingData(second))

    async def advertise(self, on):
        if on and not self.radio.is_advertising and not self.device.connections:
            self.air.unreachable.discard(self.own_address)
            await self.device.start_advertising()
        elif not on and self.radio.is_advertising:
            await self.device.stop_advertising()

    async def start(self):
        await self.device.power_on()
        await self.advertise(True)

    def on_connection(self, connection):
        log(f'{self.name}: connected by {connection.peer_address}')

        def gone(reason):
            log(f'{self.name}: disconnected, reason 0x{reason:02x}')
            if self.wants_advertising:
                asyncio.get_running_loop().create_task(self.advertise(True))
        connection.on('disconnection', gone)
        connection.on('pairing', lambda _: log(f'{self.name}: paired'))
        connection.on('pairing_failure', lambda reason: log(f'{self.name}: pairing failed, {reason}'))

    def on_subscription(self, label, notify):
        log(f'{self.name}: {label} notifications {"on" if notify else "off"}')

    def subscribed(self, label):
        handle = self.characteristics[label].handle
        return sum(1 for cccds in self.device.gatt_server.subscribers.values() if cccds.get(handle, b'\0')[0] & 1)

    async def send(self, label, value):
        """Notifies and returns the instant of it."""
        self.values[label] = value
        t = now()
        await self.device.notify_subscribers(self.characteristics[label], value)
        return t

    def report(self, control):
        """What is notified when `control` has changed and `self.held` is what is down now: [(label, bytes)]."""
        raise NotImplementedError

    async def change(self, control, down):
        if control not in self.controls:
            raise ValueError(f'{self.name} has no {control}; it has {", ".join(self.controls)}')
        (self.held.add if down else self.held.discard)(control)
        reports = self.report(control)
        times = [await self.send(label, value) for label, value in reports]
        return times[0], sum(self.subscribed(label) for label, _ in reports)

    async def battery(self, percent):
        if not self.has_battery_service:
            raise ValueError(f'{self.name} has no battery service')
        return await self.send('battery', bytes([percent]))

    def connection_of_host(self):
        return self.host_radio.le_connections.get(self.own_address)

    def vanish(self):
        self.wants_advertising = False
        self.air.unreachable.add(self.own_address)
        timeout = 0.0
        host_side = self.connection_of_host()
        if host_side is not None:
            timeout = self.host_radio.parameters[host_side.handle][2] / 100
            asyncio.get_running_loop().call_later(timeout, self.host_radio.lose, host_side)
        for own_side in list(self.radio.le_connections.values()):
            asyncio.get_running_loop().call_later(timeout, self.radio.lose, own_side)
        return timeout

    def state(self):
        host_side = self.connection_of_host()
        interval, latency, timeout = self.host_radio.parameters.get(host_side.handle, (0, 0, 0)) if host_side else (0, 0, 0)
        return (f'connected={len(self.device.connections)} advertising={int(self.radio.is_advertising)}'
                f' subscribed={sum(map(self.subscribed, self.characteristics))} held={"+".join(sorted(self.held)) or "-"}'
                f' written={",".join(f"{k}:{v.hex()}" for k, v in self.written.items()) or "-"}'
                f' interval_ms={interval * 1.25} latency={latency} supervision_ms={timeout * 10}')

    async def do(self, command, arguments):
        if command in ('press', 'release'):
            t, receivers = await self.change(arguments[0] if arguments else self.controls[0], command == 'press')
            return f'ok t={t} receivers={receivers}'
        if command == 'notify':
            label = arguments[1] if len(arguments) > 1 else next(iter(self.characteristics))
            value = bytes.fromhex('' if arguments[0] == '-' else arguments[0])
            t = await self.send(label, value)
            return f'ok t={t} receivers={self.subscribed(label)}'
        if command == 'battery':
            return f'ok t={await self.battery(int(arguments[0]))}'
        t = now()
        if command == 'drop':
            for connection in list(self.device.connections.values()):
                await connection.disconnect()
        elif command == 'vanish':
            await self.advertise(False)
            return f'ok t={t} supervision_ms={self.vanish() * 1000:.0f}'
        elif command == 'adv':
            self.wants_advertising = {'on': True, 'off': False}[arguments[0]]
            await self.advertise(self.wants_advertising)
        elif command == 'forget':
            self.device.keystore = MemoryKeyStore()
        elif command != 'state':
            raise ValueError(f'unknown command {command}')
        return f'ok t={t} {self.state()}'


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


FAMILIES = {'ptt-z': PTTZ, 'aina': AINA, 'anytone': AnyTone, 'td-q2l': TDQ2L, 'microbit': Microbit}
