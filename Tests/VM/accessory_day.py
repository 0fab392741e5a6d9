"""A day in a minute: presses of random length of three buttons at once, with random drops; count in = count out."""
import asyncio
import os
import random

from accessory_bench import now

BUTTONS = ('ptt-z', 'aina', 'anytone')
# These say again what is held. Dropped while held, they are believed only when they have been seen up: by a value, or by what is read.
REPEATING = ('aina',)
SEED = 20260420


class Worker:
    """One button and who presses it. `told`: what it sent while somebody heard it, [(ns, isDown)], 'again' for what it repeated, and
    drops as (ns, None)."""

    def __init__(self, proof, name, presses, seed):
        self.proof, self.name, self.presses, self.chance = proof, name, presses, random.Random(f'{seed} {name}')
        self.told, self.unheard, self.drops = [], 0, 0

    async def send(self, command):
        answer = await self.proof.devices(self.name, command)
        if command == 'release':
            # A button that says again what is held is heard then, even if nobody heard the press.
            self.told += [(int(t), 'again') for t in str(answer['repeats']).split(',') if t.isdigit()]
        if answer['receivers']:
            self.told.append((answer['t'], command == 'press'))
        else:
            self.unheard += command == 'press'

    async def work(self):
        done = 0
        while done < self.presses:
            await self.send('press')
            done += 1
            # Mostly short ones, as people do; now and then a long one.
            await asyncio.sleep(self.chance.choice((0.02, 0.05, 0.1, 0.2)) * (1 + self.chance.random()))
            if self.chance.random() < 0.05:
                await self.proof.devices(self.name, 'drop')
                self.drops += 1
                # Only now: what the button says while it hangs up is said by one that is held.
                self.told.append((now(), None))
                await asyncio.sleep(self.chance.random() * 0.6)
            await self.send('release')
            await asyncio.sleep(0.02 + self.chance.random() * 0.15)


def edges(told, is_doubted=False):
    """The edges that pttd has to report of what a button told: a press while down and a release while up are none, a drop is an up.

    With `is_doubted` a button that was dropped while held is believed when its release was told, and not before."""
    down, is_doubtful, found = False, False, []
    for _, state in sorted(told, key=lambda entry: entry[0]):
        if state is None:
            is_doubtful = is_doubtful or down
        elif state is False:
            is_doubtful = False
        elif is_doubtful and (is_doubted or state == 'again'):
            continue
        if bool(state) != down:
            down = bool(state)
            found.append('down' if down else 'up')
    return found


async def day(proof):
    presses = int(os.environ.get('PTTD_DAY_PRESSES') or 300)
    for name in BUTTONS:
        await proof.daemon.ready(name, 60)
    since = proof.log.here()
    paths = {name: (await proof.daemon.accessory(name))['Path'] for name in BUTTONS}
    proof.daemon.signals.clear()
    workers = [Worker(proof, name, presses // len(BUTTONS) + (n < presses % len(BUTTONS)), SEED) for n, name in enumerate(BUTTONS)]
    await asyncio.gather(*(w.work() for w in workers))

    def reports():
        return [(path, 'down' if body[1] else 'up') for _, path, member, body in proof.daemon.signals if member == 'Control']
    await asyncio.sleep(1)
    proof.log.read()
    lines = proof.log.lines[since:]
    problems, count_in, count_out, unheard, drops = [], 0, 0, 0, 0
    controls = reports()
    for worker in workers:
        reported = [edge for path, edge in controls if path == paths[worker.name]]
        told = worker.told
        if worker.name not in REPEATING:
            told = [(t, True if state == 'again' else state) for t, state in told]
        expected = edges(told)
        count_in += expected.count('down')
        count_out += reported.count('down')
        unheard += worker.unheard
        drops += worker.drops
        # A press soon after a repeating button is back may come before the answer that shows that it was up.
        least = edges(told, is_doubted=True) if worker.name in REPEATING else expected
        if reported != expected and not (reported == expected[:len(reported)] and len(least) <= len(reported)):
            at = next((i for i, (a, b) in enumerate(zip(reported, expected)) if a != b), min(len(reported), len(expected)))
            problems.append(f'{worker.name}: {len(expected)} edges told, {len(reported)} reported, different from edge {at}')
    intents = [line.message for line in lines if line.message in ('Press', 'Release')]
    refused = sum(line.message == 'not transmitted' for line in lines)
    wanted, held = [], set()
    for path, edge in controls:
        before = bool(held)
        (held.add if edge == 'down' else held.discard)(path)
        if bool(held) != before:
            wanted.append('Press' if held else 'Release')
    if intents != wanted or refused:
        problems.append(f'{len(wanted)} begins and ends of talking were due, {len(intents)} came; {refused} were refused')
    if held or not await proof.idle():
        problems.append('stuck')
    proof.book.results['day'] = {'seed': SEED, 'presses': presses, 'heard': count_in, 'reported': count_out, 'while_away': unheard,
                                 'drops': drops, 'bursts': intents.count('Press')}
    assert not problems, '; '.join(problems)
    return (f'{presses} presses of {len(BUTTONS)} buttons, {drops} drops: {count_in} told, {count_out} reported, {unheard} while away; '
            f'{intents.count("Press")} bursts; seed {SEED}')
