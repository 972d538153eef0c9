"""The sockets of a task, and the thread that owns them.

The thread accepts and opens connections, reads, and sends queued data. It never blocks on a connection, so a silent
peer delays nobody. The other threads talk to it through queues under a lock.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

from penstock.errors import LostConnectionError, RebalanceError
from penstock.rebalance.protocol import FrameKind

if TYPE_CHECKING:
    from collections.abc import Callable

HANDSHAKE_SECONDS = 20.0
"""Seconds until a connection must have completed its handshake."""
_MAX_UNAUTHENTICATED = 256
"""Maximum number of connections in a handshake; the oldest is dropped for a new connection."""
_CHUNK = 1 << 18
_ANY_BYTES = 4096
ANY = -1
"""The number of expected bytes if any number is handled as it arrives."""
_FLUSH_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class Connection:
    """A socket with its send and receive buffers.

    `peer` is at a reader, the index of the writer; at a writer, the channel; None before the handshake. `out` and
    `pending` say what to send: now, and after the handshake. Any thread may send while it holds `sending`.
    """

    sock: socket.socket
    label: str = "a peer"
    peer: int | None = None
    nonce: bytes = b""
    frame: tuple[FrameKind, int] = (FrameKind.END, 0)
    ended: bool = False
    trusted: bool = False
    deadline: float = 0.0
    out: deque[memoryview] = field(default_factory=deque)
    pending: deque[memoryview] = field(default_factory=deque)
    sending: threading.Lock = field(default_factory=threading.Lock)
    _needed: int = ANY
    _on_read: Callable[[Connection, bytearray], None] | None = None
    _buffer: bytearray = field(default_factory=bytearray)
    _have: int = 0

    def __post_init__(self) -> None:
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.deadline = time.monotonic() + HANDSHAKE_SECONDS

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self.sock.fileno() < 0

    def expect(self, size: int, then: Callable[[Connection, bytearray], None]) -> None:
        """Set how many bytes to read next, and the handler for them, which sets what is expected after them."""
        self._needed, self._on_read = size, then
        self._buffer, self._have = bytearray(_ANY_BYTES if size == ANY else size), 0

    def send(self) -> bool:
        """Send what the socket accepts now; return whether data is left. The caller must hold `sending`."""
        with contextlib.suppress(BlockingIOError):
            while self.out:
                sent = self.sock.send(self.out[0])
                if sent < len(self.out[0]):
                    self.out[0] = self.out[0][sent:]
                else:
                    self.out.popleft()
        return bool(self.out)

    def read(self) -> None:
        """Read available bytes, at most a few chunks so that other connections are served, too."""
        for _ in range(16):
            try:
                count = self.sock.recv_into(memoryview(self._buffer)[self._have :][:_CHUNK])
            except BlockingIOError:
                return
            if not count:
                raise ConnectionResetError("it was closed at the other end")
            assert self._on_read is not None
            if self._needed == ANY:
                self._on_read(self, self._buffer[:count])
                return
            self._have += count
            if self._have == self._needed:
                self._on_read(self, self._buffer)


class Network(ABC):
    """The connections of a task, and the thread that serves them; a context manager."""

    def __init__(self, listener: socket.socket) -> None:
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._unauthenticated: deque[Connection] = deque()
        self._requests: deque[Callable[[], None]] = deque()
        self._wake_out, self._wake_in = socket.socketpair()
        self._closing = False
        self._close_by = 0.0
        self._thread = threading.Thread(target=self._run, name="penstock-network", daemon=True)

    @abstractmethod
    def open_connections(self) -> None:
        """Open the connections of the task."""

    @abstractmethod
    def greet(self, connection: Connection) -> None:
        """Begin the handshake of an accepted connection."""

    def __enter__(self) -> Self:
        self._listener.setblocking(False)
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._drain_wake)
        self.open_connections()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_by = time.monotonic() + _FLUSH_SECONDS
        self._closing = True
        self._wake()
        self._thread.join(timeout=2 * _FLUSH_SECONDS)

    def fail(self, error: BaseException) -> None:
        """Report an error to all threads; only the first error is kept."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def post(self, connection: Connection, *parts: object) -> None:
        """Send what the socket accepts at once, and let the network thread send the rest."""
        try:
            with connection.sending:
                queue = connection.out if connection.trusted else connection.pending
                queue.extend(memoryview(part).cast("B") for part in parts)  # type: ignore[arg-type]
                has_rest = connection.send()
        except OSError as error:
            self._request(partial(self._lost, connection, error))
        else:
            if has_rest:
                self._request(partial(self._watch, connection))

    # -- the network thread --------------------------------------------------------------------------------------

    def register(self, connection: Connection) -> None:
        """Serve a connection."""
        self._selector.register(connection.sock, selectors.EVENT_READ, connection)

    def send_handshake(self, connection: Connection, part: bytes) -> None:
        """Send a part of the handshake."""
        connection.out.append(memoryview(part))
        self._flush(connection)

    def trust(self, connection: Connection) -> None:
        """End the handshake of a connection, and send what has waited for it."""
        if connection in self._unauthenticated:
            self._unauthenticated.remove(connection)
        with connection.sending:
            connection.trusted = True
            connection.out.extend(connection.pending)
            connection.pending.clear()
        self._flush(connection)

    def _request(self, action: Callable[[], None]) -> None:
        self._requests.append(action)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes it anyway, and a closed pipe means that it has ended
            self._wake_in.send(b"\0")

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_out.recv(4096):
                pass

    def _run(self) -> None:
        try:
            while not self._is_done():
                for key, events in self._selector.select(timeout=1.0):
                    if isinstance(key.data, Connection):
                        self._serve(key.data, events)
                    else:
                        key.data()
                while self._requests:
                    self._requests.popleft()()
                self._drop_expired()
        except BaseException as error:  # noqa: BLE001 - the other threads must raise it
            self.fail(error)
        finally:
            for key in list(self._selector.get_map().values()):
                with contextlib.suppress(OSError):
                    key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._wake_in.close()

    def _connections(self) -> list[Connection]:
        return [key.data for key in self._selector.get_map().values() if isinstance(key.data, Connection)]

    def _is_done(self) -> bool:
        if not self._closing:
            return False
        due = any(connection.out for connection in self._connections() if connection.trusted)
        return self.error is not None or not due or time.monotonic() > self._close_by

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        connection = Connection(sock)
        if len(self._unauthenticated) >= _MAX_UNAUTHENTICATED:
            self._lost(self._unauthenticated[0], TimeoutError("too many connections without a handshake"))
        self._unauthenticated.append(connection)
        self.register(connection)
        self.greet(connection)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(connection)
            if events & selectors.EVENT_READ:
                connection.read()
        except (OSError, RebalanceError) as error:
            self._lost(connection, error)

    def _flush(self, connection: Connection) -> None:
        try:
            with connection.sending:
                connection.send()
        except OSError as error:
            self._lost(connection, error)
            return
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        """Wait for write events if there is more to send."""
        if connection.closed:
            return
        requested_events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        key = self._selector.get_map().get(connection.sock)
        if key is not None and key.events != requested_events:
            self._selector.modify(connection.sock, requested_events, connection)

    def _lost(self, connection: Connection, cause: BaseException) -> None:
        """Close a connection; an error if its peer has not sent or acknowledged its end frame."""
        if connection.closed:
            return
        if self._selector.get_map().get(connection.sock) is not None:
            self._selector.unregister(connection.sock)
        connection.sock.close()
        if connection in self._unauthenticated:
            self._unauthenticated.remove(connection)
        if connection.peer is not None and not connection.ended and not self._closing:
            self.fail(LostConnectionError.to(connection.label, cause))

    def _drop_expired(self) -> None:
        now = time.monotonic()
        for connection in self._connections():
            if not connection.trusted and connection.deadline < now:
                self._lost(connection, TimeoutError(f"no handshake within {HANDSHAKE_SECONDS:.0f} s"))
