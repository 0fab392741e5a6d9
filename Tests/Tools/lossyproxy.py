"""A way between clients and a server that loses and delays datagrams, changeable at any moment.

Losses are random, datagram by datagram, or come in bursts (Gilbert-Elliott): the way is now good and now bad, and everything is lost
while it is bad. Bursts are counted in time, not in datagrams, so that the size of a program's packets makes no difference. Each
delayed datagram gets a delay of its own, and so overtakes others. TCP passes untouched, but not in a black-out.
"""
import asyncio
import dataclasses
import random
import threading
import time

BAD_S = 0.06            # how long the way is bad, on average
CHUNK = 65536


@dataclasses.dataclass(frozen=True)
class Network:
    """What a way does to datagrams, in either direction alike."""

    loss: float = 0.0           # the share that is lost
    is_bursty: bool = False
    jitter_ms: float = 0.0      # delays are spread evenly from nothing to this
    is_dark: bool = False       # nothing passes at all

    def __str__(self):
        words = [f"{self.loss:.0%} {'bursty' if self.is_bursty else 'random'}"] if self.loss else []
        words += [f"jitter {self.jitter_ms:.0f} ms"] if self.jitter_ms else []
        return ", ".join(words) or "nothing lost"


class Direction:
    """One direction: its chance, and whether it is bad now."""

    def __init__(self, seed):
        self.random, self.seen, self.passed = random.Random(seed), 0, 0
        self.is_bad, self.changes_at = False, 0.0

    def delay(self, network):
        """How long a datagram takes, in seconds; None: it is lost."""
        self.seen += 1
        if network.is_dark or self._loses(network):
            return None
        self.passed += 1
        return self.random.uniform(0, network.jitter_ms / 1000)

    def _loses(self, network):
        if not network.is_bursty:
            return self.random.random() < network.loss
        if not 0 < network.loss < 1:
            return network.loss >= 1
        now = time.monotonic()
        if now - self.changes_at > 100 * BAD_S:         # nothing came for long
            self.is_bad, self.changes_at = self.random.random() < network.loss, now
        while self.changes_at <= now:
            self.is_bad = not self.is_bad
            mean = BAD_S if self.is_bad else BAD_S * (1 - network.loss) / network.loss
            self.changes_at += self.random.expovariate(1 / mean)
        return self.is_bad


class LossyProxy:
    """Passes UDP and TCP to `server` (host, port) from `port` of `host`. A context manager; it runs on a thread of its own.

    `network` may be set at any time, from any thread.
    """

    def __init__(self, server, port=0, seed=7, host="127.0.0.1"):
        self.server, self.wanted_port, self.host, self.network = server, port, host, Network()
        self.up, self.down = Direction(seed), Direction(seed + 1)
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self.thread.start()
        if not started.wait(10):
            raise SystemExit("the lossy way did not start: no free port on loopback?")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        self.backs = {}
        self.loop.run_until_complete(self._open())
        started.set()
        self.loop.run_forever()
        self.tcp.close()
        going = asyncio.all_tasks(self.loop)
        for task in going:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*going, return_exceptions=True))
        for back in self.backs.values():
            if back.done() and not back.cancelled() and not back.exception():
                back.result()[0].close()
        self.front.close()
        self.loop.run_until_complete(asyncio.sleep(0))      # What was closed says so to itself.
        self.loop.close()

    async def _open(self):
        self.tcp = await asyncio.start_server(self._stream, self.host, self.wanted_port)
        self.port = self.tcp.sockets[0].getsockname()[1]
        self.front, _ = await self.loop.create_datagram_endpoint(lambda: Front(self), local_addr=(self.host, self.port))

    async def _stream(self, reader, writer):
        try:
            back_reader, back_writer = await asyncio.open_connection(*self.server)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._pump(reader, back_writer), self._pump(back_reader, writer))
        except asyncio.CancelledError:
            pass        # The end; asyncio complains of a connection's task that is cancelled.

    async def _pump(self, reader, writer):
        try:
            while data := await reader.read(CHUNK):
                while self.network.is_dark:
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def carry(self, direction, send):
        """Sends now, later, or never."""
        delay = direction.delay(self.network)
        if delay == 0:
            send()
        elif delay is not None:
            self.loop.call_later(delay, send)


class Front(asyncio.DatagramProtocol):
    """Faces the clients."""

    def __init__(self, proxy):
        self.proxy = proxy

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, client):
        asyncio.ensure_future(self._take(data, client))

    async def _take(self, data, client):
        proxy = self.proxy
        if client not in proxy.backs:
            proxy.backs[client] = asyncio.ensure_future(proxy.loop.create_datagram_endpoint(
                lambda: Back(proxy, self.transport, client), remote_addr=proxy.server))
        back, _ = await proxy.backs[client]
        proxy.carry(proxy.up, lambda: back.sendto(data))


class Back(asyncio.DatagramProtocol):
    """Faces the server, for one client."""

    def __init__(self, proxy, front, client):
        self.proxy, self.front, self.client = proxy, front, client

    def datagram_received(self, data, _):
        self.proxy.carry(self.proxy.down, lambda: self.front.sendto(data, self.client))
