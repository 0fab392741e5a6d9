"""The proof's part with something of every kind: lights, start commands, emergency, HID, serial ports, headsets' keys."""
import asyncio

from accessory_agent import pair
from accessory_bench import run
from accessory_presses import Presses


class Kinds(Presses):
    async def lights(self):
        await self.hold('aina', 'aina/ptt')
        await asyncio.sleep(1.2)
        transmitting = (await self.devices('aina', 'state'))['written']
        await self.let_go('aina', 'aina/ptt')
        await asyncio.sleep(1.2)
        idle = (await self.devices('aina', 'state'))['written']
        assert 'led:01' in transmitting and 'led:00' in idle, f'transmitting {transmitting}, idle {idle}'
        return f'transmitting {transmitting}, then {idle}'

    async def start_command(self):
        written = (await self.devices('b01', 'state'))['written']
        assert 'start:01' in written, written
        return written

    async def emergency(self):
        self.daemon.signals.clear()
        told = lambda: [b for _, _, m, b in self.daemon.signals if m == 'Emergency']      # noqa: E731
        await self.devices('aina', 'press', 'emergency')
        await asyncio.sleep(0.4)
        await self.devices('aina', 'release', 'emergency')
        await asyncio.sleep(0.8)
        assert not told(), 'a short press was an emergency'
        since = self.log.here()
        sent = await self.devices('aina', 'press', 'emergency')
        await asyncio.sleep(1.8)
        assert told() and told()[0][0] is True, 'no emergency after 1.8 s'
        began = next(t for t, _, m, _ in self.daemon.signals if m == 'Emergency')
        press = await self.log.find('Press', since, 1, source='aina/emergency')
        await self.devices('aina', 'release', 'emergency')
        await asyncio.sleep(0.8)
        assert told()[-1][0] is False, f'{told()}'
        assert press, 'an emergency does not transmit'
        return f'after {(began - sent["t"]) / 1e6:.0f} ms of holding, over with the release; a press of 0.4 s was none'

    async def pedal(self):
        """It repeats itself while held, which is no press."""
        detail = await self.presses('foot-switch', 'foot-switch/ptt')
        await self.hold('foot-switch', 'foot-switch/ptt')
        since = self.log.here()
        for _ in range(10):
            await self.devices('foot-switch', 'repeat')
            await asyncio.sleep(0.03)
        assert await self.log.find('Press', since, 0.2) is None and await self.log.find('Release', since, 0) is None, 'a repeat was an edge'
        await self.let_go('foot-switch', 'foot-switch/ptt')
        return f'{detail}, and one of 10 repeats'

    async def remote(self):
        """HID over GATT: bonded, an input device by a rule."""
        await pair(self.daemon, self.le, 'PTT-Remote')
        await self.daemon.ready('hid-remote')
        return await self.presses('hid-remote', 'hid-remote/ptt')

    async def only(self, device):
        """The one classic device in reach: btvirt mixes up the data of two links to one controller."""
        await asyncio.sleep(2)      # nothing may be under way: Linux 6.1 stops at a link that goes while BlueZ closes a channel
        for other in ('headset', 'aina-v1'):
            if other != device:
                await self.devices(other, 'adv', 'off')
                await self.devices(other, 'drop')
        await asyncio.sleep(1)
        await self.devices(device, 'adv', 'on')

    async def headset(self):
        """AVRCP as BlueZ' uinput device."""
        await self.only('headset')
        await pair(self.daemon, self.classic, 'Virtual Headset')
        await self.devices('headset', 'avrcp')
        await self.daemon.ready('avrcp')
        return await self.toggles('headset', 'avrcp/ptt', [('play',), ('pause',)])

    async def media-player(self):
        """AVRCP by the media player that pttd registers."""
        with open('/etc/pttd/pttd.toml') as f:
            settings = f.read()
        with open('/etc/pttd/pttd.toml', 'w') as f:
            f.write(settings.replace('[accessories]\n', '[accessories]\nmedia-player = true\n'))
        await self.restart()
        await self.only('headset')
        await self.devices('headset', 'drop')
        await asyncio.sleep(1)
        await self.devices('headset', 'avrcp')
        try:
            await self.daemon.ready('media-player')
            return await self.toggles('headset', 'media-player/ptt', [('play',), ('pause',)])
        finally:
            with open('/etc/pttd/pttd.toml', 'w') as f:
                f.write(settings)
            await self.restart()

    async def serial(self):
        await self.only('aina-v1')
        await run('pttctl', 'accessory', 'add', self.spp, '--name', 'aina-v1')
        await self.daemon.ready('aina-v1')
        return await self.presses('aina-v1', 'aina-v1/ptt')

    async def serial_words(self):
        """A word in two pieces, two glued ones, and rubbish between."""
        await self.presses('aina-v1', 'aina-v1/ptt', 2, ('ptt', 'split'))
        since = self.log.here()
        await self.devices('aina-v1', 'notify', b'\0junk+PTT=P+PTT=R+PTT='.hex())
        press = await self.log.find('Press', since, source='aina-v1/ptt')
        release = await self.log.find('Release', since, source='aina-v1/ptt')
        assert press and release, 'glued words were not heard'
        await self.devices('aina-v1', 'notify', b'X\0'.hex())
        self.balanced()

    async def serial_again(self):
        """It was out of reach, and is connected again."""
        await self.only('aina-v1')
        await self.daemon.ready('aina-v1', 60)
        return await self.presses('aina-v1', 'aina-v1/ptt', 2)
