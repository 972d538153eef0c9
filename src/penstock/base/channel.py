"""Authenticated channel between the tasks of a job and a server in the driver.

The server sends a nonce. The task replies with another nonce and a proof that it knows the server's secret; the server
replies with its own proof. Then each message carries an HMAC of its number and content. Each direction has a key, which
is derived from the secret and both nonces. So the receiver detects changed, replayed, reordered or reflected messages.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

from penstock.base.threads import start_thread

NONCE_BYTES = 16
PROOF_BYTES = 32
MAX_UNAUTHENTICATED = 512
"""The maximum number of unauthenticated connections of a server."""
HANDSHAKE_SECONDS = 10.0  # the time that a server waits for the task's part of a handshake
MAX_REQUEST_BYTES = 1 << 16
"""The maximum bytes of a message to a server."""
_MAX_REPLY_BYTES = 1 << 26
_LENGTH_BYTES = 4


class UntrustedPeerError(ConnectionError):
    """The peer does not know the secret, or a message was changed."""


def prove(secret: bytes, role: bytes, server_nonce: bytes, client_nonce: bytes, context: bytes = b"") -> bytes:
    """Return a proof (HMAC-SHA256) of knowing a secret; `context` is further content that the proof covers.

    Neither side can reuse a proof of the other side, because the two sides pass different values of `role`.

    >>> prove(b"secret", b"task", bytes(16), bytes(16)) == prove(b"secret", b"driver", bytes(16), bytes(16))
    False
    """
    return hmac.digest(secret, role + server_nonce + client_nonce + context, "sha256")


class Seal:
    """The proofs of the messages in a single direction of a connection: the sender adds them, the receiver checks them.

    >>> len(Seal(b"key").seal(b"message"))
    43
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0  # of the last message; both ends count, as the proof covers the number

    def seal(self, message: bytes) -> bytes:
        """Return the next message with its length and its proof."""
        return len(message).to_bytes(_LENGTH_BYTES) + message + self._next_proof(message)

    def check(self, message: bytes, message_proof: bytes) -> None:
        """Raise `UntrustedPeerError` if the proof of the next message is wrong."""
        if not hmac.compare_digest(message_proof, self._next_proof(message)):
            raise UntrustedPeerError("a message was changed")

    def _next_proof(self, message: bytes) -> bytes:
        self._number += 1
        return hmac.digest(self._key, self._number.to_bytes(8) + message, "sha256")


def create_seals(secret: bytes, server_nonce: bytes, client_nonce: bytes) -> tuple[Seal, Seal]:
    """Return two seals of a connection: for the messages to the server, and for the messages from the server."""
    to_server, from_server = (
        Seal(prove(secret, role, server_nonce, client_nonce)) for role in (b"to driver", b"from driver")
    )
    return to_server, from_server


def read_length(header: bytes, max_bytes: int) -> int:
    """Return the number of bytes of a message from its header; raise `ValueError` if it exceeds `max_bytes`."""
    length = int.from_bytes(header)
    if length > max_bytes:
        raise ValueError(f"a message has {length} bytes, and at most {max_bytes} are accepted")
    return length


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a `ChannelServer`, and its secret."""

    host: str
    port: int
    secret: bytes = field(repr=False)

    def open(self, timeout: float, reply_timeout: float | None = None) -> DriverChannel:
        """Connect a task to the server, and return the connection.

        Raise `UntrustedPeerError` if the handshake fails, for example because another process listens on the port, and
        `OSError` if the server cannot be reached. `timeout` is the maximum seconds until the server accepts the
        connection. `reply_timeout` is the maximum seconds that `receive` waits for a reply; None for no limit.
        """
        sock = socket.create_connection((self.host, self.port), timeout=timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(2 * HANDSHAKE_SECONDS)
            channel = DriverChannel(sock, self.secret)
            sock.settimeout(reply_timeout)
        except EOFError as error:
            sock.close()
            raise UntrustedPeerError("another process responds") from error
        except BaseException:
            sock.close()
            raise
        return channel


class DriverChannel:
    """A task's connection to the driver; the constructor performs the handshake."""

    def __init__(self, sock: socket.socket, secret: bytes) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb")
        server_nonce, nonce = self._read(NONCE_BYTES), os.urandom(NONCE_BYTES)
        sock.sendall(nonce + prove(secret, b"task", server_nonce, nonce))
        if not hmac.compare_digest(self._read(PROOF_BYTES), prove(secret, b"driver", server_nonce, nonce)):
            raise UntrustedPeerError("another process responds")
        self._outgoing, self._incoming = create_seals(secret, server_nonce, nonce)

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._sock.sendall(self._outgoing.seal(message))

    def receive(self) -> bytes:
        """Wait for a message.

        Raise `OSError` (connection lost, or wrong proof), `EOFError` (connection closed) or `ValueError` (too long).
        """
        message = self._read(read_length(self._read(_LENGTH_BYTES), _MAX_REPLY_BYTES))
        self._incoming.check(message, self._read(PROOF_BYTES))
        return message

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._sock.close()

    def _read(self, count: int) -> bytes:
        content = self._stream.read(count)
        if len(content) < count:
            raise EOFError
        return content


@dataclass(eq=False)
class TaskChannel:
    """The server's authenticated connection to a task."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _incoming: Seal
    _outgoing: Seal

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._writer.write(self._outgoing.seal(message))

    async def receive(self) -> bytes:
        """Wait for a message; errors are those of `DriverChannel.receive`."""
        length = read_length(await self._reader.readexactly(_LENGTH_BYTES), MAX_REQUEST_BYTES)
        message = await self._reader.readexactly(length)
        self._incoming.check(message, await self._reader.readexactly(PROOF_BYTES))
        return message

    @property
    def has_ended(self) -> bool:
        """Whether the task has disconnected, and all its messages were received."""
        return self._reader.at_eof()

    async def wait_for_end(self) -> None:
        """Wait until a task that sends no more messages disconnects."""
        await self._reader.read(1)


class ChannelServer:
    """A server in the driver's process, with an event loop on a separate thread.

    If too many connections are unauthenticated, the oldest of them is closed. A task authenticates in a single round
    trip, so its connection is seldom the oldest: an attacker that opens many connections cannot keep tasks out.

    `serve` handles an authenticated connection, which is closed afterwards. `bind` is the address to listen on.
    """

    def __init__(self, name: str, bind: str, serve: Callable[[TaskChannel], Awaitable[None]]) -> None:
        self.secret = secrets.token_bytes(32)
        self._serve = serve
        self._unauthenticated: dict[asyncio.StreamWriter, None] = {}
        self._loop = asyncio.new_event_loop()
        start_thread(name, self._run)
        # The loop has a separate thread, because the caller's thread may already run a loop, as in a notebook.
        server = asyncio.start_server(self._accept, bind, 0, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(server, self._loop).result()
        self.port = int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Close all connections, and end the thread."""
        with suppress(RuntimeError):  # already closed
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        self._loop.run_forever()
        self._server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, asyncio.CancelledError), closing(writer):
            nonce = os.urandom(NONCE_BYTES)
            async with self._unauthenticated_during(writer):
                writer.write(nonce)
                task_nonce = await reader.readexactly(NONCE_BYTES)
                task_proof = await reader.readexactly(PROOF_BYTES)
            if hmac.compare_digest(task_proof, prove(self.secret, b"task", nonce, task_nonce)):
                writer.write(prove(self.secret, b"driver", nonce, task_nonce))
                await self._serve(TaskChannel(reader, writer, *create_seals(self.secret, nonce, task_nonce)))

    @asynccontextmanager
    async def _unauthenticated_during(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Track a connection as unauthenticated during the block; raise `TimeoutError` after `HANDSHAKE_SECONDS`."""
        if len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.transport.abort()
        self._unauthenticated[writer] = None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                yield
        finally:
            self._unauthenticated.pop(writer, None)


def driver_hosts(conf: Callable[[str], str | None]) -> tuple[str, str]:
    """Return the host that tasks connect to, and the address to listen on; `conf` returns a Spark setting by its key.

    >>> driver_hosts({"spark.driver.host": "[::1]"}.get)
    ('::1', '::1')
    """
    host = conf("spark.driver.host") or "localhost"
    return host.strip("[]"), (conf("spark.driver.bindAddress") or host).strip("[]")
