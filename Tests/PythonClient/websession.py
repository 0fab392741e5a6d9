"""A member's connection over TLS: docs/relay-protocol.md, section 21. WebSocket (RFC 6455) is written out here, so that it can be broken."""

import asyncio
import base64
import hashlib
import os
import socket
import ssl
import struct
import time

import relay_pb2
import session
import webwire
import wire

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEEP_ALIVE = 20
UNSENT_MAXIMUM = 4096


class Refused(Exception):
    """The relay did not upgrade; the argument is the HTTP status, None without an answer."""


class Closed(Exception):
    """The other end is gone; the arguments are code and reason of its Close frame, None without one."""


def tls_context(authority=None):
    """Section 21: the outer layer. The pin counts, so any certificate will do, unless an authority is named."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority:
        context.load_verify_locations(authority)
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


async def open_stream(host, port, tls=True, source=None, receive_buffer=None, server_name=None, authority=None, through=None):
    """Reader and writer; `source`: the own address; `through`: (HOST, PORT) of an HTTP proxy, by CONNECT."""
    loop = asyncio.get_running_loop()
    wanted, (host, port), server_name = (host, port), through or (host, port), server_name or host
    family, kind, protocol, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    plain = socket.socket(family, kind, protocol)
    try:
        plain.setblocking(False)
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            plain.bind((source, 0))
        await asyncio.wait_for(loop.sock_connect(plain, address), 10)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if through:
            await pass_on(loop, plain, *wanted)
        where = {"ssl": tls_context(authority), "server_hostname": server_name} if tls else {}
        return await asyncio.open_connection(sock=plain, **where)
    except BaseException:
        plain.close()
        raise


async def pass_on(loop, plain, host, port):
    """Asks an HTTP proxy to connect (RFC 9110, section 9.3.6)."""
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    await loop.sock_sendall(plain, f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        # One byte after the other: what follows is TLS's.
        if not (byte := await asyncio.wait_for(loop.sock_recv(plain, 1), 10)) or len(head) > 8192:
            raise Refused(None)
        head += byte
    status = int(head.split(b" ", 2)[1])
    if not 200 <= status < 300:
        raise Refused(status)


def request(host, port, path=webwire.PATH, method="GET", **changed):
    """A request for a link; `changed` are headers with _ for -, None leaves one out."""
    headers = {
        "Host": f"{host}:{port}", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Protocol": webwire.SUBPROTOCOL,
    }
    headers.update({name.replace("_", "-"): value for name, value in changed.items()})
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return ("\r\n".join([f"{method} {path} HTTP/1.1", *lines]) + "\r\n\r\n").encode(), headers["Sec-WebSocket-Key"]


def frame(opcode, payload, fin=True, masked=True, reserved=0):
    head = bytes([fin << 7 | reserved << 4 | opcode])
    size = len(payload)
    flag = masked << 7
    if size < 126:
        head += bytes([flag | size])
    elif size < 65536:
        head += bytes([flag | 126]) + struct.pack(">H", size)
    else:
        head += bytes([flag | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    whole = (mask * (size // 4 + 1))[:size]
    return head + mask + (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")


class WebSocket:
    """One WebSocket. Messages come whole from `receive`."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.pongs = 0
        self.closing = None

    @classmethod
    async def connect(cls, host, port, fragments=None, server_name=None, headers={}, **opening):
        """`headers`: what `request` takes; `opening`: what `open_stream` takes."""
        made = cls(*await open_stream(host, port, server_name=server_name, **opening))
        made.fragments = fragments
        try:
            name = server_name or (f"[{host}]" if ":" in host else host)
            text, key = request(name, port, **headers)
            made.writer.write(text)
            await made._upgraded(key)
        except BaseException:
            made.abort()
            raise
        return made

    async def _upgraded(self, key):
        try:
            head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 12)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            raise Refused(None) from None
        status, *lines = head.decode("latin-1").split("\r\n")
        code = int(status.split(" ")[1])
        if code != 101:
            raise Refused(code)
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        expected = base64.b64encode(hashlib.sha1(key.encode() + ACCEPT).digest()).decode().lower()
        if headers.get("sec-websocket-accept") != expected:
            raise wire.ProtocolError("the answer is not to this key")
        if headers.get("sec-websocket-protocol") != webwire.SUBPROTOCOL:
            raise wire.ProtocolError("the relay did not choose the subprotocol")
        if "sec-websocket-extensions" in headers:
            raise wire.ProtocolError("the relay chose an extension")

    fragments = None  # bytes of each fragment, None for whole messages

    def send(self, message):
        if not self.fragments:
            return self.write(frame(BINARY, message))
        parts = [message[at : at + self.fragments] for at in range(0, len(message), self.fragments)]
        for index, part in enumerate(parts):
            self.write(frame(BINARY if index == 0 else 0, part, fin=index == len(parts) - 1))

    def write(self, data):
        if not self.writer.transport.is_closing():
            self.writer.write(data)

    async def receive(self):
        """The next binary message; Closed at the end."""
        message, within = b"", False
        while True:
            try:
                fin, opcode, payload = await self._frame()
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                raise Closed(None, "") from None
            if opcode == PING:
                self.write(frame(PONG, payload))
            elif opcode == PONG:
                self.pongs += 1
            elif opcode == CLOSE:
                code = struct.unpack(">H", payload[:2])[0] if payload else 1005
                self.closing = (code, payload[2:].decode(errors="replace"))
                self.write(frame(CLOSE, payload[:2]))
                raise Closed(*self.closing)
            elif opcode not in (0, BINARY) or (opcode == 0) != within:
                raise wire.ProtocolError(f"a frame of kind {opcode} from the relay")
            else:
                message, within = message + payload, True
                if len(message) > webwire.MESSAGE_MAXIMUM:
                    raise wire.ProtocolError("a message from the relay that is too long")
                if fin:
                    return message

    async def _frame(self):
        first, second = await self.reader.readexactly(2)
        if first & 0x70 or second & 0x80:
            raise wire.ProtocolError("a frame from the relay with reserved bits or a mask")
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
        if size > webwire.MESSAGE_MAXIMUM:
            raise wire.ProtocolError(f"a frame of {size} bytes from the relay")
        return bool(first & 0x80), first & 15, await self.reader.readexactly(size)

    def read_nothing(self, is_so):
        """Leaves what comes in the kernel, or takes it again. asyncio's own pause would still fill TLS's buffers."""
        below = getattr(self.writer.transport, "_ssl_protocol", None)
        transport = below._transport if below else self.writer.transport
        transport.pause_reading() if is_so else transport.resume_reading()

    def abort(self):
        self.writer.transport.abort()


class WebSession(session.Session):
    """One connection over TLS, joined. The same to its user as `Session`."""

    def __init__(self, link, name, identity, **connecting):
        """`connecting`: what `WebSocket.connect` takes, `at` (HOST, PORT) instead of the link's."""
        super().__init__(link, name, identity)
        self.at = connecting.pop("at", None) or webwire.place(link.web, link.host)
        self.keep_alive = connecting.pop("keep_alive", None) or KEEP_ALIVE - 2
        self.connecting = connecting
        self.acknowledged = 0
        self.media_sent = 0
        self.round_trips = []
        self.answers = {}  # number: bytes so far
        self.on_answer = lambda number, data: None
        self.socket = self._up = self._down = None
        self._pings = {}
        self._sent_at = 0.0

    async def open(self):
        """Connects and proves the key; does not join."""
        host, port = self.at
        self.socket = await WebSocket.connect(host, port, **self.connecting)
        handshake = webwire.ClientHandshake(self.link.pin)
        self.socket.send(handshake.hello())
        handshake.receive(await asyncio.wait_for(self.socket.receive(), 10))
        self.socket.send(handshake.proof(self.identity[1]))
        self._up, self._down = handshake.up, handshake.down
        self._sent_at = time.monotonic()

    async def run(self, body):
        await self.open()
        try:
            await self._join(None)
            tasks = [asyncio.ensure_future(each) for each in (self._read(None), self._keep_alive(), body(self))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if not tasks[2].done():
                    raise wire.ProtocolError(f"the relay closed the connection: {self.closing}")
                self.send("leave", relay_pb2.Leave())
                await asyncio.wait([tasks[0]], timeout=5)
                if self.closing is None or self.closing[0] != 0:
                    raise wire.ProtocolError(f"the relay closes with {self.closing} after leaving")
                return tasks[2].result()
            finally:
                for task in tasks:
                    task.cancel()
        finally:
            self.socket.abort()

    @property
    def closing(self):
        """Code (of section 11, or of somebody in between: 1000 to 2999) and reason, once it is closed; None before."""
        if not self.socket.closing:
            return None
        code, reason = self.socket.closing
        return code - webwire.CLOSE_BASE if code >= webwire.CLOSE_BASE else code, reason

    def _check_pin(self):
        """The handshake has done so."""

    def send_sealed(self, plaintext):
        self.socket.send(bytes([webwire.SEALED]) + self._up.seal(plaintext))
        self._sent_at = time.monotonic()

    def send(self, kind, message):
        wrapped = relay_pb2.ClientMessage()
        getattr(wrapped, kind).CopyFrom(message)
        getattr(wrapped, kind).SetInParent()
        self.send_sealed(bytes([webwire.CONTROL]) + wrapped.SerializeToString())

    def send_media(self, packet):
        if len(packet) > wire.PACKET_MAXIMUM:
            raise wire.ProtocolError(f"a packet of {len(packet)} bytes")
        # Section 21.4: this client has no queue for media. What the kernel does not take it drops.
        if self.socket.writer.transport.get_write_buffer_size() > UNSENT_MAXIMUM:
            self.drops["not sent"] += 1
            return
        self.send_sealed(bytes([webwire.SEALED_MEDIA]) + packet)
        self.media_sent += 1

    def ping(self):
        number = os.urandom(8)
        self._pings[number] = time.monotonic()
        self.send_sealed(bytes([webwire.PING]) + number)

    async def _next(self, reader):
        """The next control message of a kind we know; what else comes is dealt with here. None at the end."""
        while True:
            try:
                message = await self.socket.receive()
            except Closed:
                return None
            if message[:1] == bytes([webwire.SEALED]):
                if (control := self._sealed(self._down.open(message[1:]))) is not None:
                    return control
            elif message and message[0] & 0xC0 == 0x80:
                if self.welcome:
                    self._take(message)

    def _sealed(self, plaintext):
        kind, body = plaintext[0], plaintext[1:]
        if kind == webwire.CONTROL:
            message = relay_pb2.ServerMessage.FromString(body)
            return message if message.WhichOneof("kind") else None
        if kind == webwire.ACKNOWLEDGEMENT:
            (count,) = struct.unpack(">I", body)
            if count < self.acknowledged:
                raise wire.ProtocolError(f"{count} acknowledged after {self.acknowledged}")
            self.acknowledged = count  # more than was sent, when somebody in between adds media
        elif kind == webwire.PING:
            self.send_sealed(bytes([webwire.PONG]) + body)
        elif kind == webwire.PONG and body in self._pings:
            self.round_trips.append(time.monotonic() - self._pings.pop(body))
        elif kind == webwire.ANSWER:
            (number,) = struct.unpack(">I", body[:4])
            if number < max(self.answers, default=0):
                raise wire.ProtocolError("a part of an answer that was over")
            self.answers[number] = self.answers.get(number, b"") + body[5:]
            if body[4] & 1:
                self.on_answer(number, self.answers[number])
        return None

    async def _keep_alive(self):
        while True:
            await asyncio.sleep(self.keep_alive / 16)
            if time.monotonic() - self._sent_at > self.keep_alive:
                self.ping()
