"""Presses of the virtual devices, and what pttd made of them."""
import asyncio

from accessory_agent import Agent
from accessory_bench import PTTD, ROOT, Book, Daemon, Devices, Log, run

LE_ADAPTER, CLASSIC_ADAPTER = '00:AA:02:00:00:01', '00:AA:01:00:00:01'
ADDRESS = {'ptt-z': 'C4:00:00:00:FF:E0', 'aina': 'C4:00:00:00:FA:CE', 'anytone': 'C4:00:00:60:B0:2A', 'b01': 'C4:00:00:00:66:66',
           'itag': 'C4:00:00:00:18:02', 'unknown': 'C4:00:00:00:AC:3E', 'hid-remote': 'C4:00:00:00:18:12'}
PRESSES = 12


class Presses:
    """What the parts of the proof have in common."""

    def __init__(self, folder):
        self.book = Book(folder)

    async def open(self):
        self.devices, self.daemon, self.log = await Devices().open(), await Daemon().open(), Log()
        self.agent = await Agent.register(self.daemon)
        self.le = await self.daemon.adapter(LE_ADAPTER)
        self.classic = await self.daemon.adapter(CLASSIC_ADAPTER)
        return self

    async def hold(self, device, source, control=()):
        """Presses; the log's line of it."""
        since = self.log.here()
        sent = await self.devices(device, 'press', *control)
        assert sent.get('receivers', 1), f'{device} has nobody to tell'
        line = await self.log.find('Press', since, source=source)
        assert line, f'no press of {source} came'
        self.book.latency(source, sent['t'], line)
        return line

    async def let_go(self, device, source, control=()):
        since = self.log.here()
        await self.devices(device, 'release', *control[:1])
        line = await self.log.find('Release', since, source=source)
        assert line, f'no release of {source} came'
        assert line.fields['reason'] == 'released', f'released by {line.fields["reason"]}'

    async def presses(self, device, source, count=PRESSES, control=()):
        for n in range(count):
            await self.hold(device, source, control)
            await asyncio.sleep(0.05 + 0.02 * n)
            await self.let_go(device, source, control)
            await asyncio.sleep(0.1)
        self.balanced()
        return f'{count} presses'

    async def toggles(self, device, source, controls, count=PRESSES):
        """Presses of a toggle: one begins, the next ends."""
        for n in range(count):
            since, control = self.log.here(), controls[n % len(controls)]
            sent = await self.devices(device, 'press', *control)
            line = await self.log.find('Release' if n % 2 else 'Press', since, source=source)
            assert line, f'press {n + 1} of {source} did nothing'
            self.book.latency(source, sent['t'], line)
            await self.devices(device, 'release', *control)
            await asyncio.sleep(0.3)        # debounced; and a release changes nothing
        self.balanced()
        return f'{count} presses'

    def balanced(self):
        """Every press has its release, or was refused, or its pttd was killed."""
        self.log.read()
        held = None
        for line in self.log.lines:
            if line.message == 'Press':
                assert held is None, f'{line.fields.get("source")} pressed while {held} was not released'
                held = line.fields.get('source')
            elif line.message in ('Release', 'not transmitted', 'pttd starts'):
                held = None
        assert held is None, f'{held} is stuck'

    async def idle(self):
        objects = await self.daemon.call(PTTD, ROOT, 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')
        return not any(i['org.pttd.Channel1']['Transmitting'].value for i in objects.values() if 'org.pttd.Channel1' in i)

    async def restart(self):
        await run('systemctl', 'restart', 'pttd')
        self.log.read()
