"""The proof's part that an installer does by command line: scan, add, test, learn, remove."""
import asyncio
import json

from accessory_bench import brief, run
from accessory_presses import ADDRESS, Presses


class Setup(Presses):
    async def add(self, device, *options, ready=True):
        output = await run('pttctl', 'accessory', 'add', ADDRESS[device], '--name', device, *options)
        return brief(await self.daemon.ready(device)) if ready else output.splitlines()[-1]

    async def scan(self):
        output = await run('pttctl', 'accessory', 'scan', '--seconds', '8', '--json')
        found = {}
        for line in output.splitlines():
            if line.startswith('{'):
                device = json.loads(line)['device']
                found[device.get('address', '').upper()] = {**found.get(device.get('address', '').upper(), {}), **device}
        missing = [n for n in ADDRESS if ADDRESS[n] not in found]
        assert not missing, f'not seen: {", ".join(missing)}'
        assert found[ADDRESS['ptt-z']].get('profile') == 'ptt-z', found[ADDRESS['ptt-z']]
        assert found[ADDRESS['itag']].get('refusal'), found[ADDRESS['itag']]
        assert not found[ADDRESS['unknown']].get('profile'), found[ADDRESS['unknown']]
        return f'{len(found)} devices, the iTAG with its refusal, the unknown one without a profile'

    async def itag(self):
        output = await run('pttctl', 'accessory', 'add', ADDRESS['itag'], '--name', 'itag', ok=False)
        assert 'click' in output, output
        return output.splitlines()[-1]

    async def unbonded_notes(self):
        output = await run('pttctl', 'accessory', 'add', ADDRESS['ptt-z'], '--name', 'ptt-z')
        await self.daemon.ready('ptt-z')
        assert 'imitate' in output or 'clone' in output or 'copies' in output, output
        return output.splitlines()[-1]

    async def bonded(self):
        bonded = [i for i, a in (await self.daemon.accessories()).items() if a['Bonded']]
        assert bonded == ['aina'], f'bonded: {", ".join(bonded) or "none"}'
        return 'and the others are not'

    async def test_mode(self):
        since = self.log.here()
        testing = asyncio.create_task(run('pttctl', 'accessory', 'test', 'ptt-z', '--seconds', '6', '--json'))
        await asyncio.sleep(3)
        for _ in range(3):
            await self.devices('ptt-z', 'press')
            await asyncio.sleep(0.1)
            await self.devices('ptt-z', 'release')
            await asyncio.sleep(0.1)
        output = await testing
        assert await self.log.find('Press', since, 0) is None, 'a test transmitted'
        presses = [json.loads(x)['edge'] for x in output.splitlines() if '"edge"' in x]
        assert presses, output[-300:]
        return f'{len(presses)} edges shown, nothing transmitted'

    async def learn(self):
        """A person who does what the program asks for."""
        process = await asyncio.create_subprocess_exec(
            'pttctl', 'accessory', 'learn', ADDRESS['unknown'], '--name', 'acme', '--json',
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        told, result, tried = [], {}, None
        try:
            while line := (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip():
                told.append(line)
                event = json.loads(line) if line.startswith('{') else {}
                step = event.get('step') or event.get('event')
                await asyncio.sleep(0.4)
                if step == 'press':
                    await self.devices('unknown', 'press')
                elif step == 'release':
                    await self.devices('unknown', 'release')
                elif step == 'others':
                    await self.devices('unknown', 'press', 'side')
                    await asyncio.sleep(0.3)
                    await self.devices('unknown', 'release', 'side')
                elif step == 'done':
                    result = event
                    await asyncio.sleep(1.5)
                    await self.devices('unknown', 'press')
                    await asyncio.sleep(0.3)
                    await self.devices('unknown', 'release')
                elif step == 'tried':
                    tried = event.get('heard')
        finally:
            if process.returncode is None and not result:
                process.kill()
        await process.wait()
        assert result.get('file'), '\n'.join(told)[-1200:]
        with open(result['file']) as f:
            text = f.read()
        assert '5a1d0002' in text.lower() and '5a1d0003' not in text.lower(), text
        assert '"bits"' in text, text
        assert tried, 'the trial heard nothing'
        self.learned = next(a['Id'] for a in (await self.daemon.accessories()).values() if a['Address'] == ADDRESS['unknown'])
        return f'{sum(1 for t in told if chr(34) + "press" + chr(34) in t)} presses asked for, {result["file"]}'

    async def learned_presses(self):
        return await self.presses('unknown', f'{self.learned}/ptt')

    async def side_key(self):
        """The other key of the learned button neither opens the microphone nor keeps it open."""
        source, since = f'{self.learned}/ptt', self.log.here()
        await self.devices('unknown', 'press', 'side')
        assert await self.log.find('Press', since, 1, source=source) is None, 'the side key talks'
        await self.hold('unknown', source)
        since = self.log.here()
        await self.devices('unknown', 'release', 'side')
        await self.devices('unknown', 'press', 'side')
        assert await self.log.find('Release', since, 1, source=source) is None, 'the side key ended it'
        await self.let_go('unknown', source)
        await self.devices('unknown', 'release', 'side')
        self.balanced()
        return 'it neither opens the microphone nor keeps it open'

    async def learned_again(self):
        await self.restart()
        await self.daemon.ready(self.learned, 60)
        return await self.presses('unknown', f'{self.learned}/ptt', 3)


    async def removed(self):
        await run('pttctl', 'accessory', 'remove', 'anytone')
        for _ in range(60):
            if not (await self.devices('anytone', 'state'))['connected']:
                break
            await asyncio.sleep(0.1)
        assert await self.daemon.accessory('anytone') is None, 'it is still there'
        assert not (await self.devices('anytone', 'state'))['connected'], 'it is still connected'
