"""What the virtual LE buttons of virtual_bt.py have in common: GATT, advertising, links, requests. The families are in virtual_buttons.py."""
import asyncio
import random

from bumble import hci
from bumble.core import AdvertisingData, UUID
from bumble.device import Device, DeviceConfiguration
from bumble.gatt import (GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR, Characteristic, CharacteristicValue, Descriptor,
                         Service)
from bumble.host import Host
from bumble.keys import MemoryKeyStore
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.transport.common import AsyncPipeSink

from virtual_radio import Radio, log, now

READ, WRITE, NOTIFY = (Characteristic.Properties.READ, Characteristic.Properties.WRITE, Characteristic.Properties.NOTIFY)
COMMAND = Characteristic.Properties.WRITE_WITHOUT_RESPONSE


class Button:
    """One virtual talk button. A family says what it is called, what its GATT tree is, and what it notifies."""

    name = address = ''
    controls = ('ptt',)
    advertised_services = ()
    manufacturer_data = b''
    appearance = 0
    services = {}               # service UUID -> {label: (characteristic UUID, properties, first value[, descriptors])}
    has_battery_service = False

    def __init__(self, air, radio, address=None, secure=False):
        self.air, self.host_radio, self.held, self.written = air, radio, set(), {}
        self.repeats = []       # when it said again, since the last press, what is held, and somebody heard it
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
        if secure:                  # subscribing is a write as well
            for c in self.characteristics.values():
                if subscription := c.get_descriptor(GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR):
                    subscription.permissions |= Characteristic.WRITE_REQUIRES_ENCRYPTION
        self.advertise_as()

    def characteristic(self, label, secure, uuid, properties, value, descriptors=()):
        permissions = Characteristic.Permissions(0)
        if properties & READ:
            permissions |= Characteristic.READABLE
        if properties & (WRITE | COMMAND):
            permissions |= Characteristic.WRITEABLE
        if secure:
            permissions |= Characteristic.READ_REQUIRES_ENCRYPTION | Characteristic.WRITE_REQUIRES_ENCRYPTION
        self.values[label] = value

        def write(_, data):
            self.values[label] = self.written[label] = bytes(data)
            log(f'{self.name}: {label} written {bytes(data).hex()}')
            self.on_write(label, bytes(data))
        c = Characteristic(UUID(uuid), properties, permissions,
                           CharacteristicValue(read=lambda _: self.values[label], write=write),
                           [Descriptor(UUID(u), Characteristic.READABLE, v) for u, v in descriptors])
        c.on('subscription', lambda _, notify, __: self.on_subscription(label, notify))
        self.characteristics[label] = c
        return c

    def advertise_as(self):
        """The flags, then what fits: 31 bytes in the advertisement, 31 in the scan response; the kernel drops longer ones."""
        fields = [(AdvertisingData.COMPLETE_LOCAL_NAME, self.name.encode())]
        if self.appearance:
            fields.append((AdvertisingData.APPEARANCE, self.appearance.to_bytes(2, 'little')))
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
        if on:
            self.air.unreachable.discard(self.own_address)
        if on and not self.radio.is_advertising and not self.device.connections:
            await self.device.start_advertising()
        elif not on and self.radio.is_advertising:
            await self.device.stop_advertising()

    async def start(self, advertising=True):
        await self.device.power_on()
        self.wants_advertising = advertising
        await self.advertise(advertising)

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

    def on_write(self, label, value):
        pass

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
        return times[0] if times else now(), sum(self.subscribed(label) for label, _ in reports)

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
            if command == 'press':
                self.repeats = []
            t, receivers = await self.change(arguments[0] if arguments else self.controls[0], command == 'press')
            return f'ok t={t} receivers={receivers} repeats={",".join(map(str, self.repeats)) or "-"}'
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
