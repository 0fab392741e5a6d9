"""A way between a client and a server that is as slow as one wants, at any moment, in either direction.

Datagrams keep their order: when a delay shrinks, what is on the way is not overtaken.
"""
import collections
import heapq
import select
import socket
import threading
import time

DATAGRAM_MAX = 65535
QUEUE_MAX = 10_000              # datagrams on the way; more are lost, as in any network
CLIENTS_MAX = 16
WAIT_S = 1.0                    # how long it sleeps at most


class DelayingProxy:
    """Passes UDP to `server` (host, port) from `port` on loopback. `up` and `down` are the delays of the directions, in seconds.

    A context manager; it runs on a thread of its own.
    """

    def __init__(self, server):
        self.server, self.up, self.down = server, 0.0, 0.0
        self.dropped = 0
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.bind(("127.0.0.1", 0))
        self.port = self.front.getsockname()[1]
        self.backs, self.clients = collections.OrderedDict(), {}       # client's address -> socket to the server, and back
        self.waiting, self.count = [], 0
        self.last = {}                                                  # (client's address, upwards) -> when its last one goes
        self.stopping = False
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.wake_writer.send(b"x")
        self.thread.join(5)
        for each in (self.front, self.wake_reader, self.wake_writer, *self.backs.values()):
            each.close()

    def _back(self, client):
        if client not in self.backs:
            if len(self.backs) == CLIENTS_MAX:
                _, oldest = self.backs.popitem(last=False)
                self.clients.pop(oldest)
                oldest.close()
            back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            back.connect(self.server)
            self.backs[client], self.clients[back] = back, client
        return self.backs[client]

    def _take(self, key, delay, send, datagram):
        if len(self.waiting) >= QUEUE_MAX:
            self.dropped += 1
            return
        due = max(time.monotonic() + delay, self.last.get(key, 0))
        self.last[key] = due
        self.count += 1
        heapq.heappush(self.waiting, (due, self.count, send, datagram))

    def _run(self):
        while not self.stopping:
            now = time.monotonic()
            while self.waiting and self.waiting[0][0] <= now:
                _, _, send, datagram = heapq.heappop(self.waiting)
                try:
                    send(datagram)
                except OSError:         # who it was for has gone
                    self.dropped += 1
            wait = min(WAIT_S, self.waiting[0][0] - now) if self.waiting else WAIT_S
            ready, _, _ = select.select([self.front, self.wake_reader, *self.clients], [], [], max(0, wait))
            for each in ready:
                if each is self.wake_reader:
                    continue
                try:
                    if each is self.front:
                        datagram, client = each.recvfrom(DATAGRAM_MAX)
                        self._take((client, True), self.up, self._back(client).send, datagram)
                    elif each in self.clients:
                        client, datagram = self.clients[each], each.recv(DATAGRAM_MAX)
                        self._take((client, False), self.down, lambda d, c=client: self.front.sendto(d, c), datagram)
                except OSError:         # the server's port is shut: its answer to an earlier datagram
                    self.dropped += 1
