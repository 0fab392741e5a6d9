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
        await pair(self.daemon, self.le, 'Media Remote')
        await self.daemon.ready('hid-remote')
        return await self.presses('hid-remote', 'hid-remote/ptt')

    async def headset(self):
        """AVRCP as BlueZ' uinput device."""
        await pair(self.daemon, self.classic, 'Virtual Headset')
        await self.devices('headset', 'avrcp')
        await self.daemon.ready('avrcp')
        return await self.toggles('headset', 'avrcp/ptt', [('play',), ('pause',)])

    async def media_player(self):
        """AVRCP by the media player that pttd registers."""
        with open('/etc/pttd/pttd.toml') as f:
            settings = f.read()
        try:
            with open('/etc/pttd/pttd.toml', 'w') as f:
                f.write(settings + '\n[accessories]\nmedia-player = true\n')
            await self.restart()
            await self.devices('headset', 'avrcp')      # unless it is open still
            await self.daemon.ready('media-player')
            return await self.toggles('headset', 'media-player/ptt', [('play',), ('pause',)])
        finally:
            with open('/etc/pttd/pttd.toml', 'w') as f:
                f.write(settings)
            await self.restart()

    async def serial(self):
        await run('pttctl', 'accessory', 'add', self.spp, '--name', 'aina-v1')
        await self.daemon.ready('aina-v1')
        return await self.presses('aina-v1', 'aina-v1/ptt')

    async def serial_removed(self):
        """It makes room for the headset: btvirt mixes up the data of two links to one controller."""
        await run('pttctl', 'accessory', 'remove', 'aina-v1')
        for _ in range(100):
            if not (await self.devices('aina-v1', 'state'))['connected']:
                break
            await asyncio.sleep(0.1)
        assert not (await self.devices('aina-v1', 'state'))['connected'], 'it is still connected'
        await self.devices('aina-v1', 'adv', 'off')

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
