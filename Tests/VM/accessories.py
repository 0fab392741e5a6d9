"""The accessories' proof, in the guest: what an installer does by command line, every transport, every way to lose a held button.
Started by accessories.sh, which has installed and started everything."""
import asyncio
import glob
import os
import sys

from accessory_bench import run
from accessory_day import day
from accessory_kinds import Kinds
from accessory_losses import Losses
from accessory_setup import Setup


class Proof(Setup, Kinds, Losses):
    async def untagged(self):
        """The keyboard was there all the time, with keys that profiles know; pttd has never opened it, nor could it."""
        def number(node):
            return f'device={13 << 20 | 64 + int(node.removeprefix("/dev/input/event"))}'
        keyboard = (await self.devices('keyboard', 'state'))['node']
        tagged = (await self.devices('wired-headset', 'state'))['node']
        for control in ('play-pause', 'f13'):
            since = self.log.here()
            await self.devices('keyboard', 'press', control)
            await self.devices('keyboard', 'release', control)
            assert await self.log.find('Press', since, 0.5) is None, 'its key talked'
        with open('/sys/kernel/tracing/trace') as f:
            opens = [line.split() for line in f if 'opened:' in line]
        by = {o[-1]: {x[0].rpartition('-')[0] for x in opens if x[-1] == o[-1]} for o in opens}
        pid = await run('systemctl', 'show', '-P', 'MainPID', 'pttd')
        descriptors = [os.readlink(d) for d in glob.glob(f'/proc/{pid}/fd/*') if os.path.lexists(d)]
        assert keyboard not in descriptors and 'pttd' not in by.get(number(keyboard), ()), f'pttd opened {keyboard}'
        assert tagged in descriptors and 'pttd' in by.get(number(tagged), ()), f'pttd has not opened {tagged}, so this proves nothing'
        refusal = await run('setpriv', '--reuid=pttd', '--regid=pttd', '--init-groups', 'cat', keyboard, ok=False)
        assert 'ermission denied' in refusal, refusal
        return (f'{len(opens)} opens seen, the keyboard by {", ".join(sorted(by.get(number(keyboard), ()))) or "nobody"}; '
                f'as the user pttd: {refusal.rsplit(": ", 1)[-1]}')

    async def prove(self):
        step = self.book.step
        self.spp = (await self.devices('aina-v1', 'state'))['address']
        await step('scan shows what fits and what cannot', self.scan())
        await step('add an unbonded button', self.unbonded_notes())
        await step('add a button that bonds', self.add('aina'))
        await step('add a button that speaks text', self.add('anytone'))
        await step('add a button with a start command', self.add('b01'))
        await step('its start command is written', self.start_command())
        await step('the iTAG is refused', self.itag())
        for device in ('ptt-z', 'aina', 'anytone', 'b01'):
            await step(f'GATT: {device}', self.presses(device, f'{device}/ptt'))
        await step('the one that bonds is bonded', self.bonded())
        await step('lights', self.lights())
        await step('emergency', self.emergency())
        await step('a test transmits nothing', self.test_mode())
        await step('learn a button that nobody knows', self.learn())
        await step('use it', self.learned_presses())
        await step('its side key', self.side_key())
        await step('wired headset (toggle)', self.toggles('wired-headset', 'wired-headset/ptt', [()]))
        await step('foot switch (hold)', self.pedal())
        await step('HID over GATT', self.remote())
        await step('pttd restarted: the learned button works', self.learned_again())
        await step('serial port (SPP)', self.serial())
        await step('split and glued words', self.serial_words())
        await self.serial_losses()
        await step('the serial button is removed', self.serial_removed())
        await self.losses()
        await step('reconnects when the button advertises again', self.reconnect())
        await step('a day in a minute', day(self), 400)
        await step('AVRCP by its input device (toggle)', self.headset())
        await step('AVRCP by a media player (toggle)', self.media_player())
        await step('what is not tagged is never opened', self.untagged())
        await step('remove', self.removed())
        self.book.table()
        self.book.close()
        self.book.say(f'{self.book.failures} failed')
        return self.book.failures


async def main():
    proof = await Proof(sys.argv[1]).open()
    return await proof.prove()

if __name__ == '__main__':
    sys.exit(min(asyncio.run(main()), 1))
