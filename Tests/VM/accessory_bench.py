"""What accessories.py and accessory_day.py stand on: the virtual devices, pttd's log and its D-Bus, and a count of what held."""
import asyncio
import collections
import json
import os
import re
import statistics
import time

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

PTTD, ROOT = 'org.pttd', '/org/pttd'
ACCESSORY, MANAGER = 'org.pttd.Accessory1', 'org.pttd.AccessoryManager1'
PROPERTIES = 'org.freedesktop.DBus.Properties'
LOG = '/run/pttd.log'
WORD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Devices:
    """The socket of virtual_bt.py."""

    def __init__(self):
        self.lock = asyncio.Lock()

    async def open(self):
        self.reader, self.writer = await asyncio.open_unix_connection('/run/vbt.sock')
        return self

    async def __call__(self, *words):
        """Answers {'t': ns, 'receivers': count, ...}; raises when the device will not."""
        async with self.lock:
            self.writer.write((' '.join(words) + '\n').encode())
            answer = (await asyncio.wait_for(self.reader.readline(), 30)).decode().strip()
        if not answer.startswith('ok'):
            raise RuntimeError(f'{" ".join(words)}: {answer}')
        fields = dict(word.partition('=')[::2] for word in answer.split()[1:])
        return {k: int(v) if v.lstrip('-').isdigit() else v for k, v in fields.items()}


class Line:
    """A line of pttd's log: when it was written (ns), what it says, and its metadata."""

    def __init__(self, text):
        stamp, _, rest = text.partition(' ')
        self.written = int(float(stamp) * 1e9) if re.fullmatch(r'\d+\.\d+', stamp) else 0
        self.text = rest
        self.fields = {k: v.strip('"') for k, v in WORD.findall(rest)}
        words = rest.partition(': ')[2]
        first = WORD.search(words)
        self.message = (words[:first.start()] if first else words).strip()
        self.time = int(self.fields['t']) if self.fields.get('t', '').isdigit() else self.written


class Log:
    """pttd's log as it grows."""

    def __init__(self):
        self.lines, self.rest = [], ''
        self.file = open(LOG, errors='replace')

    def read(self):
        *complete, self.rest = (self.rest + self.file.read()).split('\n')
        self.lines += map(Line, complete)

    async def find(self, message, since, seconds=5.0, **fields):
        """The first line of this message from line `since` on whose fields agree; None when none came."""
        end = time.monotonic() + seconds
        while True:
            self.read()
            while since < len(self.lines):
                line = self.lines[since]
                since += 1
                if line.message == message and all(line.fields.get(k) == v for k, v in fields.items()):
                    return line
            if time.monotonic() >= end:
                return None
            await asyncio.sleep(0.005)

    def here(self):
        self.read()
        return len(self.lines)


class Daemon:
    """org.pttd and org.bluez on the system bus."""

    async def open(self):
        self.bus = await MessageBus(bus_type=BusType.SYSTEM).connect()
        self.signals = collections.deque(maxlen=65536)
        self.bus.add_message_handler(self.on_message)
        await self.call('org.freedesktop.DBus', '/org/freedesktop/DBus', 'org.freedesktop.DBus', 'AddMatch', 's',
                        [f"type='signal',sender='{PTTD}'"])
        return self

    def on_message(self, m):
        if m.message_type == MessageType.SIGNAL and m.path.startswith(ROOT):
            self.signals.append((now(), m.path, m.member, m.body))

    async def call(self, destination, path, interface, member, signature='', body=(), seconds=30):
        reply = await asyncio.wait_for(self.bus.call(Message(
            destination=destination, path=path, interface=interface, member=member, signature=signature, body=list(body))), seconds)
        if reply.message_type == MessageType.ERROR:
            raise RuntimeError(f'{interface}.{member}: {reply.error_name} {reply.body}')
        return reply.body[0] if reply.body else None

    async def accessories(self):
        """Every accessory by its id: its properties, and 'Path'."""
        objects = await self.call(PTTD, ROOT, 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')
        found = {}
        for path, interfaces in objects.items():
            if ACCESSORY in interfaces:
                properties = {k: v.value for k, v in interfaces[ACCESSORY].items()}
                found[properties['Id']] = {**properties, 'Path': path}
        return found

    async def accessory(self, identifier):
        """One by its id or its address."""
        every = await self.accessories()
        return every.get(identifier) or next((a for a in every.values() if a['Address'] == identifier), None)

    async def until(self, identifier, what, seconds=30.0):
        """Waits until `what(properties)` holds; the properties."""
        end = time.monotonic() + seconds
        found = None
        while time.monotonic() < end:
            try:
                found = await self.accessory(identifier)
                if found and what(found):
                    return found
            except RuntimeError:
                pass            # pttd is being started
            await asyncio.sleep(0.03)
        raise TimeoutError(f'{identifier} after {seconds:.0f} s: {brief(found)}')

    async def ready(self, identifier, seconds=30.0):
        return await self.until(identifier, lambda a: a['Ready'], seconds)

    async def adapter(self, address):
        objects = await self.call('org.bluez', '/', 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')
        return next(p for p, i in objects.items() if 'org.bluez.Adapter1' in i and i['org.bluez.Adapter1']['Address'].value == address)

    async def power(self, adapter, on):
        await self.call('org.bluez', adapter, PROPERTIES, 'Set', 'ssv', ['org.bluez.Adapter1', 'Powered', Variant('b', on)])


def brief(accessory):
    if not accessory:
        return 'pttd does not know it'
    return ', '.join(f'{k} {accessory.get(k)}' for k in ('Connected', 'Ready', 'Bonded', 'Profile', 'Problem'))


async def run(*words, seconds=60, ok=True):
    """A program's output, both streams; raises when its status is not the wanted one (None: any)."""
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        output = (await asyncio.wait_for(process.communicate(), seconds))[0].decode(errors='replace').strip()
    except asyncio.TimeoutError:
        process.kill()
        raise TimeoutError(f'{" ".join(words)} took more than {seconds} s') from None
    if ok is not None and (process.returncode == 0) != ok:
        raise RuntimeError(f'{" ".join(words)}: status {process.returncode}: {output[-600:]}')
    return output


class Book:
    """What held, what did not, and the figures."""

    def __init__(self, folder):
        self.folder, self.failures, self.results = folder, 0, {'steps': [], 'losses': [], 'latency_ms': {}}
        self.latencies = collections.defaultdict(lambda: ([], []))

    def say(self, text):
        with open('/proc/uptime') as f:
            print(f'[{float(f.read().split()[0]):7.2f}] {text}', flush=True)

    def note(self, what, holds, detail=''):
        self.failures += not holds
        self.results['steps'].append({'what': what, 'holds': bool(holds), 'detail': detail})
        self.say(f'{"ok  " if holds else "FAIL"} {what}{": " + detail if detail else ""}')
        return holds

    async def step(self, what, awaitable, seconds=120):
        """The awaitable's value is the detail; an exception is a failure. Answers whether it held."""
        try:
            return self.note(what, True, str(await asyncio.wait_for(awaitable, seconds) or ''))
        except Exception as error:      # every mistake counts as one, and the next step runs
            text = str(error) if isinstance(error, (AssertionError, RuntimeError, TimeoutError)) and str(error) else repr(error)
            return self.note(what, False, text)

    def latency(self, source, sent, line):
        """A press sent at `sent` that pttd dated `line.time` and wrote down at `line.written`."""
        for times, value in zip(self.latencies[source], (line.time - sent, line.written - sent)):
            times.append(value / 1e6)

    def table(self):
        self.say('press to intent, milliseconds:     presses   received: median   p95   max     written down: median   p95   max')
        for source, (received, written) in self.latencies.items():
            a, b = figures(received), figures(written)
            self.results['latency_ms'][source] = {'presses': len(received), 'received': a, 'written': b}
            print(f'          {source:34} {len(received):7} {a["median"]:18.1f} {a["p95"]:5.1f} {a["max"]:5.1f} '
                  f'{b["median"]:24.1f} {b["p95"]:5.1f} {b["max"]:5.1f}', flush=True)

    def close(self):
        self.results['failures'] = self.failures
        with open(os.path.join(self.folder, 'results.json'), 'w') as f:
            json.dump(self.results, f, indent=2)


def figures(values):
    values = sorted(values)
    return {'median': round(statistics.median(values), 2), 'p95': round(values[min(len(values) - 1, int(len(values) * 0.95))], 2),
            'max': round(values[-1], 2)}
