"""The proof's part in which a held button is lost, in every way, and comes back."""
import asyncio
import os
import re
import signal

from accessory_agent import Agent
from accessory_bench import now, run
from accessory_presses import Presses

LOSS_LIMIT_MS = 500
# 500 ms without a sign of life, and what it takes to act on it.
HALTED_LIMIT_MS = 600
RECONNECT_LIMIT_MS = 2000


class Losses(Presses):
    async def loss(self, name, hold, source, lose, reasons, recover, limit=LOSS_LIMIT_MS):
        """Holds, loses, and measures until the burst has ended."""
        since = self.log.here()
        await self.hold(*hold)
        await asyncio.sleep(0.5)
        lost = await lose()
        line = await self.log.find('Release', since, 10, source=source)
        assert line, 'the burst never ended'
        assert line.written >= lost, f'the burst ended before the loss ({line.fields["reason"]})'
        took = (line.written - lost) / 1e6
        for _ in range(40):
            if await self.idle():
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError('the channel still transmits')
        await recover()
        self.balanced()
        self.book.results['losses'].append({'loss': name, 'ended_after_ms': round(took, 1), 'reason': line.fields['reason']})
        assert line.fields['reason'] in reasons, f'reason {line.fields["reason"]}'
        assert took < limit, f'it took {took:.0f} ms, {limit} allowed'
        return f'ended after {took:.0f} ms ({line.fields["reason"]})'

    def back(self, *identifiers, before=None):
        """What brings everything back: an action, then waiting until these are ready."""
        async def recover():
            if before is not None:
                await before()
            for identifier in identifiers:
                await self.daemon.ready(identifier, 60)
        return recover

    def vbt(self, *words):
        async def act():
            return (await self.devices(*words))['t']
        return act

    async def losses(self):
        step, loss, ready, back = self.book.step, self.loss, self.daemon.ready, self.back
        z = (('ptt-z', 'ptt-z/ptt'), 'ptt-z/ptt')
        await step('held, and dropped by the button', loss('drop', *z, self.vbt('ptt-z', 'drop'), {'disconnected'}, back('ptt-z')))

        async def vanish():
            state = await self.devices('ptt-z', 'state')
            answer = await self.devices('ptt-z', 'vanish')
            self.in_force = f'interval {state["interval_ms"]} ms, latency {state["latency"]}, supervision {answer["supervision_ms"]} ms'
            self.supervision = answer['supervision_ms']
            return answer['t']
        self.in_force, self.supervision = 'nothing', 0
        monitor = await asyncio.create_subprocess_exec('btmon', '-w', f'{self.book.folder}/hci.log', stdout=asyncio.subprocess.DEVNULL)
        await asyncio.sleep(1)
        await step('held, and out of reach', loss('vanish', *z, vanish, {'disconnected'},
                                                  back('ptt-z', before=self.vbt('ptt-z', 'adv', 'on'))))
        await asyncio.sleep(1)
        monitor.terminate()
        await monitor.wait()
        await step('btmon saw the links that were asked for', self.links_in_force())
        self.book.note('the link was tightened while held', 0 < self.supervision <= 400, self.in_force)
        relaxed = await self.devices('ptt-z', 'state')
        self.book.note('and is not afterwards', relaxed['supervision_ms'] > 400, f'supervision {relaxed["supervision_ms"]} ms')

        def power(adapter, on):
            async def act():
                t = now()
                await self.daemon.power(adapter, on)
                return t
            return act
        await step('held, and the adapter switched off', loss(
            'adapter off', *z, power(self.le, False), {'adapterOff', 'disconnected'}, back('ptt-z', before=power(self.le, True)), 3000))

        async def halt_bluetoothd():
            pid, t = await self.pid('bluetooth'), now()
            os.kill(pid, signal.SIGSTOP)
            return t

        async def resume_bluetoothd():
            """What was pressed meanwhile is told now, and is no press."""
            for command in ('release', 'press', 'release', 'press', 'release'):
                await self.devices('ptt-z', command)
                await asyncio.sleep(0.1)
            since = self.log.here()
            os.kill(await self.pid('bluetooth'), signal.SIGCONT)
            await ready('ptt-z')
            assert await self.log.find('Press', since, 1) is None, 'an old press opened the microphone'
            await self.presses('ptt-z', 'ptt-z/ptt', 1)
        await step('held, and bluetoothd halted', loss(
            'bluetoothd halted', *z, halt_bluetoothd, {'disconnected'}, resume_bluetoothd, HALTED_LIMIT_MS))

        async def kill_bluetoothd():
            pid, t = await self.pid('bluetooth'), now()
            os.kill(pid, signal.SIGKILL)
            return t

        async def start_bluetoothd():
            await run('systemctl', 'reset-failed', 'bluetooth', ok=None)
            await run('systemctl', 'start', 'bluetooth')
            self.agent = await Agent.register(self.daemon)
        await step('held, and bluetoothd killed', loss(
            'bluetoothd killed', *z, kill_bluetoothd, {'bluetoothStopped'}, back('ptt-z', 'aina', before=start_bluetoothd), 3000), 180)

        async def suspend():
            t = now()
            await self.daemon.call('org.freedesktop.login1', '/org/freedesktop/login1', 'org.freedesktop.login1.Manager', 'Suspend',
                                   'b', [False])
            return t

        async def awake():
            await asyncio.sleep(2)
            await self.devices('ptt-z', 'release')
            await ready('ptt-z', 40)
        await step('held, and the machine goes to sleep', loss('suspend', *z, suspend, {'suspended'}, awake, 3000))
        # The kernel itself may let the key go before the device is gone: `released` is right, too.
        await step('held, and unplugged', loss(
            'unplug', ('foot-switch', 'foot-switch/ptt'), 'foot-switch/ptt', self.vbt('foot-switch', 'unplug'), {'unplugged', 'removed', 'released'},
            back('foot-switch', before=self.vbt('foot-switch', 'plug'))))
        await step('two held, one lost', self.two_held())
        await step('pttd killed while a button that repeats is held', self.killed_while_repeating())

        async def stop():
            t = now()
            await run('systemctl', 'stop', 'pttd')
            return t

        async def start():
            await run('systemctl', 'start', 'pttd')
            await ready('ptt-z', 40)
        self.idle, idle = self.always, self.idle
        await step('held, and pttd stopped', loss('pttd stopped', *z, stop, {'stopped'}, start, 5000))
        self.idle = idle

    async def pid(self, unit):
        return int(await run('systemctl', 'show', '-P', 'MainPID', unit))

    async def killed_while_repeating(self):
        """What it repeats is no press for the pttd that systemd starts; the next one is."""
        await self.hold('aina', 'aina/ptt')
        await asyncio.sleep(0.7)
        since, pid = self.log.here(), await self.pid('pttd')
        os.kill(pid, signal.SIGKILL)
        await self.daemon.until('aina', lambda a: a['Connected'] and 'let it go' in a['Problem'], 60)
        assert await self.log.find('Press', since, 1.5) is None, 'it transmits again by itself'
        assert await self.pid('pttd') not in (0, pid)
        answer = await self.devices('aina', 'release')
        await self.daemon.ready('aina', 20)
        assert await self.log.find('Press', since, 0) is None, 'its release transmits'
        await self.presses('aina', 'aina/ptt', 1)
        await self.daemon.ready('ptt-z', 40)
        return f'repeated {len(str(answer["repeats"]).split(","))} times while held'

    async def links_in_force(self):
        """The parameters of the link while the button was held and afterwards, as the controller confirmed them."""
        text = await run('btmon', '-r', f'{self.book.folder}/hci.log', ok=None)
        with open(f'{self.book.folder}/hci.txt', 'w') as f:
            f.write(text)
        found = re.findall(r'LE Connection Update Complete.*?Connection interval: ([\d.]+) msec.*?Connection latency: (\d+).*?'
                           r'Supervision timeout: (\d+) msec', text, re.S)
        assert any(int(timeout) <= 400 and latency == '0' for _, latency, timeout in found), found
        assert any(int(timeout) > 400 for _, _, timeout in found), found
        return '; '.join(f'interval {i} ms, latency {n}, supervision {t} ms' for i, n, t in found)

    async def serial_losses(self):
        """Linux 6.1 stops at a link that goes while BlueZ still has a channel for service discovery, which it keeps for two seconds."""
        hold = ('aina-v1', 'aina-v1/ptt'), 'aina-v1/ptt'
        await asyncio.sleep(4)
        await self.book.step('held, and the serial port closed', self.loss(
            'serial port closed', *hold, self.vbt('aina-v1', 'close'), {'disconnected'}, self.back('aina-v1')))
        await asyncio.sleep(4)
        await self.book.step('held, and the classic link dropped', self.loss(
            'classic link dropped', *hold, self.vbt('aina-v1', 'drop'), {'disconnected'}, self.back('aina-v1')))
        await asyncio.sleep(4)

    async def always(self):
        return True

    async def two_held(self):
        await self.hold('ptt-z', 'ptt-z/ptt')
        await self.devices('foot-switch', 'press')
        await asyncio.sleep(0.3)
        since = self.log.here()
        await self.devices('ptt-z', 'drop')
        assert await self.log.find('Release', since, 1.5) is None, 'the other one was released too'
        await self.devices('foot-switch', 'release')
        assert await self.log.find('Release', since, source='foot-switch/ptt'), 'no release of the second'
        await self.devices('ptt-z', 'release')
        await self.daemon.ready('ptt-z')
        self.balanced()
        return 'it went on until the second was let go'

    async def reconnect(self):
        took = []
        for _ in range(4):
            await self.devices('ptt-z', 'vanish')
            await self.daemon.until('ptt-z', lambda a: not a['Connected'], 10)
            await asyncio.sleep(2)
            since = self.log.here()
            t = (await self.devices('ptt-z', 'adv', 'on'))['t']
            line = await self.log.find('Accessory', since, 10, id='ptt-z', ready='true')
            assert line, 'it never came back'
            took.append((line.written - t) / 1e6)
            await self.presses('ptt-z', 'ptt-z/ptt', 1)
        self.book.results['reconnect_ms'] = [round(x) for x in took]
        assert max(took) < RECONNECT_LIMIT_MS, f'{[round(x) for x in took]} ms'
        return f'{", ".join(f"{x:.0f}" for x in took)} ms after it advertised again'
