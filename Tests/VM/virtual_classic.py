"""The classic (BR/EDR) devices of virtual_bt.py: bumble on controllers of BlueZ' btvirt, taken by the kernel's user channel.

They have to be started before bluetoothd, which would take their controllers as adapters."""
import asyncio
import fcntl
import os
import socket
import struct

from bumble import avc, avrcp, hci, hfp, rfcomm
from bumble.core import UUID, PhysicalTransport
from bumble.device import Device, DeviceConfiguration
from bumble.host import Host
from bumble.keys import MemoryKeyStore
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.transport import open_transport

from virtual_radio import log, now

SERIAL_PORT = UUID.from_16_bits(0x1101)
DEVICE_INFORMATION = 0x800448D3     # HCIGETDEVINFO


def address_of(index):
    """The address of the kernel's controller `index`."""
    with socket.socket(socket.AF_BLUETOOTH, socket.SOCK_RAW, socket.BTPROTO_HCI) as s:
        answer = fcntl.ioctl(s, DEVICE_INFORMATION, struct.pack('=H', index) + bytes(126))
    return ':'.join(f'{b:02X}' for b in reversed(answer[10:16]))


async def controllers(count):
    """Starts btvirt; the indices of its `count` controllers, and its process."""
    def present():
        return {int(n[3:]) for n in os.listdir('/sys/class/bluetooth') if n.startswith('hci') and ':' not in n}
    before = present()
    # Where its timer and a command are due at once it calls what it has just freed (5.66, 5.82); without malloc's per-thread cache the
    # pointer that it calls is still there.
    process = await asyncio.create_subprocess_exec('btvirt', '-B', f'-l{count}', stdout=asyncio.subprocess.DEVNULL,
                                                   env={**os.environ, 'GLIBC_TUNABLES': 'glibc.malloc.tcache_count=0'})
    for _ in range(200):
        if len(made := present() - before) == count:
            return sorted(made), process
        await asyncio.sleep(0.05)
    raise RuntimeError(f'btvirt made {len(made)} of {count} controllers')


class ClassicHost(Host):
    """bumble's host on a controller without LE."""

    async def send_sync_command(self, command, *arguments, **options):
        if not isinstance(command, hci.HCI_LE_Set_Event_Mask_Command):
            return await super().send_sync_command(command, *arguments, **options)


class ClassicDevice:
    """One classic device. A family says what it is called and which services it has."""

    name = own_address = ''
    class_of_device = 0x240404      # audio, wearable headset
    controls = ('ptt',)
    host_class = ClassicHost

    async def open(self, index, host_address):
        self.host_address, self.held, self.hidden_records = host_address, set(), 0
        for attempt in range(60):   # busy while the kernel still sets the controller up
            try:
                transport = await open_transport(f'hci-socket:{index}')
                break
            except OSError:
                if attempt == 59:
                    raise
                await asyncio.sleep(0.25)
        self.device = Device(
            config=DeviceConfiguration(name=self.name, class_of_device=self.class_of_device, classic_enabled=True, le_enabled=False),
            host=self.host_class(transport.source, transport.sink))
        self.device.keystore = MemoryKeyStore()
        self.device.pairing_config_factory = lambda _: PairingConfig(
            mitm=False, delegate=PairingDelegate(PairingDelegate.NO_OUTPUT_NO_INPUT))
        self.device.on('connection', self.on_connection)
        self.device.sdp_service_records = self.records()
        match = self.device.sdp_server.match_services

        def match_unless_hidden(pattern):
            if self.hidden_records == 0:
                return match(pattern)
            self.hidden_records -= 1
            return {}
        self.device.sdp_server.match_services = match_unless_hidden

    async def start(self):
        await self.device.power_on()
        await self.device.set_discoverable(True)
        await self.device.set_connectable(True)
        self.own_address = str(self.device.public_address).removesuffix('/P')

    def records(self):
        """SDP: handle -> attributes."""
        return {}

    def on_connection(self, connection):
        log(f'{self.name}: connected by {connection.peer_address}')
        connection.on('disconnection', lambda reason: log(f'{self.name}: disconnected, reason 0x{reason:02x}'))
        connection.on('classic_pairing', lambda *_: log(f'{self.name}: paired'))

    async def connection(self):
        """The link to the host, made when there is none, and encrypted."""
        for connection in self.device.connections.values():
            return connection
        connection = await self.device.connect(self.host_address + '/P', transport=PhysicalTransport.BR_EDR, timeout=15)
        await connection.authenticate()
        await connection.encrypt()
        return connection

    def is_open(self):
        """Whether presses have a way to the host."""
        return False

    async def change(self, control, down, *options):
        raise NotImplementedError

    async def close(self):
        """Ends the channel, not the link."""
        raise ValueError(f'{self.name} has no channel to close')

    async def do(self, command, arguments):
        t = now()
        if command in ('press', 'release'):
            control, *options = arguments or [self.controls[0]]
            if control not in self.controls:
                raise ValueError(f'{self.name} has no {control}; it has {", ".join(self.controls)}')
            (self.held.add if command == 'press' else self.held.discard)(control)
            if not self.is_open():
                return f'ok t={t} receivers=0'
            return f'ok t={await self.change(control, command == "press", *options)} receivers=1'
        if command == 'connect':
            await self.connection()
        elif command == 'drop':
            for connection in list(self.device.connections.values()):
                await connection.disconnect()
        elif command == 'close':
            await self.close()
        elif command == 'hide':     # the next so many searches find no service record
            self.hidden_records = int(arguments[0])
        elif command == 'adv':
            await self.device.set_discoverable(arguments[0] == 'on')
            await self.device.set_connectable(arguments[0] == 'on')
        elif command == 'forget':
            self.device.keystore = MemoryKeyStore()
        elif not await self.do_more(command, arguments) and command != 'state':
            raise ValueError(f'unknown command {command}')
        return (f'ok t={t} address={self.own_address} connected={len(self.device.connections)} open={int(self.is_open())}'
                f' held={"+".join(sorted(self.held)) or "-"}')

    async def do_more(self, command, arguments):
        return False


class Headset(ClassicDevice):
    """A headset whose keys are AVRCP commands."""

    name = 'Virtual Headset'
    controls = ('play', 'pause', 'stop', 'forward', 'backward')

    def records(self):
        return {0x10001: avrcp.ControllerServiceSdpRecord(0x10001).to_service_attributes(),
                0x10002: avrcp.TargetServiceSdpRecord(0x10002).to_service_attributes()}

    async def start(self):
        self.avrcp = avrcp.Protocol()
        self.avrcp.listen(self.device)
        self.avrcp.on('start', lambda: log(f'{self.name}: AVRCP open'))
        await super().start()

    def is_open(self):
        return self.avrcp.avctp_protocol is not None

    async def do_more(self, command, arguments):
        if command != 'avrcp':
            return False
        if not self.is_open():
            await self.avrcp.connect(await self.connection())
        return True

    async def change(self, control, down):
        t = now()
        await self.avrcp.send_key_event(avc.PassThroughCommandFrame.OperationId[control.upper()], down)
        return t


class SerialButton(ClassicDevice):
    """AINA PTT Voice Responder V1: text over the serial port profile, without any line ends. `press ptt split` sends a word in two
    pieces. `hide 2` makes its service record missing at first, as it is with the real one."""

    name = 'APTT00001'
    words = {'ptt': ('+PTT=P', '+PTT=R'), 'ptt2': ('+PTTS=P', '+PTTS=R'), 'emergency': ('+PTTE=P', '+PTTE=R'),
             'soft1': ('+PTTB1=P', '+PTTB1=R'), 'soft2': ('+PTTB2=P', '+PTTB2=R')}
    controls = tuple(words)
    channel, line = 7, None

    def records(self):
        return {0x10001: rfcomm.make_service_sdp_records(0x10001, self.channel, SERIAL_PORT)}

    async def start(self):
        self.server = rfcomm.Server(self.device)
        self.server.listen(self.on_line, self.channel)
        await super().start()

    def on_line(self, line):
        log(f'{self.name}: serial line opened')
        self.line = line
        line.sink = lambda data: log(f'{self.name}: read {data!r}')

        def closed():
            log(f'{self.name}: serial line closed')
            if self.line is line:
                self.line = None
        line.on(line.EVENT_CLOSE, closed)

    def on_connection(self, connection):
        super().on_connection(connection)

        def gone(_):
            self.line = None
        connection.on('disconnection', gone)

    def is_open(self):
        return self.line is not None

    async def change(self, control, down, *options):
        word = self.words[control][not down]
        t = now()
        if 'split' in options:
            self.line.write(word[:3])
            await asyncio.sleep(0.03)
            t = now()
            word = word[3:]
        self.line.write(word)
        return t

    async def close(self):
        if self.line is not None:
            await self.line.disconnect()
            self.line = None

    async def do_more(self, command, arguments):
        if command == 'notify':     # any bytes: glued words, rubbish
            self.line.write(bytes.fromhex(arguments[0]))
        elif command == 'dial':     # the device opens the machine's port
            connection = await self.connection()
            channel = await rfcomm.find_rfcomm_channel_with_uuid(connection, SERIAL_PORT)
            if channel is None:
                raise ValueError('the machine offers no serial port')
            self.on_line(await (await rfcomm.Client(connection).start()).open_dlc(channel))
        else:
            return False
        return True


class B02(SerialButton):
    """Inrico B02: the same words for talking, others for the rest; the volume keys have no release."""

    name, class_of_device = 'B02PTT-FF01', 0x240418
    words = {'ptt': ('+PTT=P', '+PTT=R'), 'emergency': ('C:SP*', 'C:SR*'), 'group': ('C:GP*', 'C:GR*'),
             'volume-up': ('C:VP*', ''), 'volume-down': ('C:VM*', '')}
    controls = tuple(words)


class HandsFree(SerialButton):
    """Pryme BTH-550: its key is an AT command of the hands-free profile, AT+XEVENT=TALK,1 and ,0."""

    name, class_of_device = 'BTH-PTT', 0x240408
    words = {'ptt': ('AT+XEVENT=TALK,1\r', 'AT+XEVENT=TALK,0\r'), 'emergency': ('AT+XEVENT=SOS,1\r', 'AT+XEVENT=SOS,0\r')}
    controls = tuple(words)
    channel = 5
    configuration = hfp.HfConfiguration([], [], [hfp.AudioCodec.CVSD])

    def records(self):
        return {0x10001: hfp.make_hf_sdp_records(0x10001, self.channel, self.configuration)}

    def on_line(self, line):
        super().on_line(line)

        async def begin():
            await hfp.HfProtocol(line, self.configuration).initiate_slc()
            log(f'{self.name}: service level connection')
        asyncio.get_running_loop().create_task(begin())


CLASSIC = {'headset': Headset, 'aina-v1': SerialButton, 'b02': B02, 'hands-free': HandsFree}
