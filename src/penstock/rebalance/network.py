"""The sockets of a task of an adaptive exchange, and the thread that owns them.

The thread accepts connections, reads, and sends queued data. It never blocks on a connection, so a silent peer does
not delay others. Other threads send what a socket accepts at once; they queue further data and actions for the thread.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from penstock.errors import LostConnectionError, RebalanceError
from penstock.rebalance.protocol import FrameKind

HANDSHAKE_SECONDS = 20.0
"""Seconds until a connection must have completed its handshake."""
_MAX_UNAUTHENTICATED = 256
"""Maximum number of accepted connections in a handshake; the oldest is dropped for a new connection."""
_READ_BYTES = 1 << 18  # maximum of a call of `recv_into`
_ANY_BUFFER_BYTES = 4096  # receive buffer for `ANY_COUNT`
ANY_COUNT = -1
"""Passed to `Connection.expect` to handle bytes as they arrive, in any number."""
_FLUSH_SECONDS = 5.0
"""Seconds to send the queued data when the network is closed."""


@dataclass(eq=False, slots=True)
class Connection:
    """A socket with its send and receive buffers.

    At a reader, `peer_index` is the index of the writing task (None before the handshake); at a writer, the number of
    the channel. `nonce` is the nonce of this side. `frame` has the kind and the rows of the frame whose body is read
    next. `has_ended` says whether the end frame was received (at a reader) or acknowledged (at a writer). `send_queue`
    is sent now, and `held_back` after the handshake. Any thread may send while it holds `send_lock`.
    """

    sock: socket.socket
    label: str = "a peer"
    peer_index: int | None = None
    nonce: bytes = b""
    frame: tuple[FrameKind, int] = (FrameKind.END, 0)
    has_ended: bool = False
    is_authenticated: bool = False
    handshake_deadline: float = 0.0
    send_queue: deque[memoryview] = field(default_factory=deque)
    held_back: deque[memoryview] = field(default_factory=deque)
    send_lock: threading.Lock = field(default_factory=threading.Lock)
    _expected_bytes: int = ANY_COUNT
    _on_read: Callable[[Connection, bytearray], None] | None = None
    _buffer: bytearray = field(default_factory=bytearray)
    _received_bytes: int = 0

    def __post_init__(self) -> None:
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.handshake_deadline = time.monotonic() + HANDSHAKE_SECONDS

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self.sock.fileno() < 0

    def expect(self, size: int, handler: Callable[[Connection, bytearray], None]) -> None:
        """Set how many bytes to read next, and their handler, which calls `expect` again except after `ANY_COUNT`."""
        self._expected_bytes, self._on_read = size, handler
        self._buffer, self._received_bytes = bytearray(_ANY_BUFFER_BYTES if size == ANY_COUNT else size), 0

    def send(self) -> bool:
        """Send what the socket accepts now; return whether data remains. The caller must hold `send_lock`."""
        with contextlib.suppress(BlockingIOError):
            while self.send_queue:
                sent = self.sock.send(self.send_queue[0])
                if sent < len(self.send_queue[0]):
                    self.send_queue[0] = self.send_queue[0][sent:]
                else:
                    self.send_queue.popleft()
        return bool(self.send_queue)

    def read(self) -> None:
        """Read available bytes, at most a few MiB so that other connections are served, too."""
        for _ in range(16):
            try:
                count = self.sock.recv_into(memoryview(self._buffer)[self._received_bytes :][:_READ_BYTES])
            except BlockingIOError:
                return
            if not count:
                raise ConnectionResetError("it was closed at the other end")
            assert self._on_read is not None
            if self._expected_bytes == ANY_COUNT:
                self._on_read(self, self._buffer[:count])
                return
            self._received_bytes += count
            if self._received_bytes == self._expected_bytes:
                self._on_read(self, self._buffer)


class Network(ABC):
    """The connections of a task, and the thread that serves them; a context manager."""

    def __init__(self, listener: socket.socket) -> None:
        self.changed = threading.Condition()  # guards the state that threads share, and announces its changes
        self.error: BaseException | None = None  # the first error of any thread
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._unauthenticated: deque[Connection] = deque()
        self._actions: deque[Callable[[], None]] = deque()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._is_closing = False
        self._close_deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="penstock-network", daemon=True)

    @abstractmethod
    def open_connections(self) -> None:
        """Open the connections of the task."""

    @abstractmethod
    def begin_handshake(self, connection: Connection) -> None:
        """Begin the handshake of an accepted connection."""

    def __enter__(self) -> Self:
        self._listener.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, self._drain_wake)
        self.open_connections()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_deadline = time.monotonic() + _FLUSH_SECONDS
        self._is_closing = True
        self._wake()
        self._thread.join(timeout=2 * _FLUSH_SECONDS)

    def fail(self, error: BaseException) -> None:
        """Report an error to all threads; later errors are ignored."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def post(self, connection: Connection, *parts: object) -> None:
        """Send buffers, or queue them until the handshake is complete; the network thread sends what remains."""
        try:
            with connection.send_lock:
                queue = connection.send_queue if connection.is_authenticated else connection.held_back
                queue.extend(memoryview(part).cast("B") for part in parts)  # type: ignore[arg-type]
                has_unsent = connection.send()
        except OSError as error:
            self._run_on_network_thread(partial(self._close_lost, connection, error))
        else:
            if has_unsent:
                self._run_on_network_thread(partial(self._watch, connection))

    # -- on the network thread, except `_run_on_network_thread` and `_wake` ----------------------------------------

    def register(self, connection: Connection) -> None:
        """Let the network thread read from a connection."""
        self._selector.register(connection.sock, selectors.EVENT_READ, connection)

    def send_handshake(self, connection: Connection, part: bytes) -> None:
        """Send a part of the handshake."""
        connection.send_queue.append(memoryview(part))
        self._flush(connection)

    def complete_handshake(self, connection: Connection) -> None:
        """End the handshake of a connection, and send the data that was held back."""
        if connection in self._unauthenticated:
            self._unauthenticated.remove(connection)
        with connection.send_lock:
            connection.is_authenticated = True
            connection.send_queue.extend(connection.held_back)
            connection.held_back.clear()
        self._flush(connection)

    def _run_on_network_thread(self, action: Callable[[], None]) -> None:
        self._actions.append(action)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread wakes up anyway; closed: the thread has ended
            self._wake_sender.send(b"\0")

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_receiver.recv(4096):
                pass

    def _run(self) -> None:
        try:
            while not self._is_done():
                for key, events in self._selector.select(timeout=1.0):
                    if isinstance(key.data, Connection):
                        self._serve(key.data, events)
                    else:
                        key.data()
                while self._actions:
                    self._actions.popleft()()
                self._drop_expired()
        except BaseException as error:  # noqa: BLE001 - the other threads must raise it
            self.fail(error)
        finally:
            for key in list(self._selector.get_map().values()):
                with contextlib.suppress(OSError):
                    key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._wake_sender.close()

    def _connections(self) -> list[Connection]:
        return [key.data for key in self._selector.get_map().values() if isinstance(key.data, Connection)]

    def _is_done(self) -> bool:
        if not self._is_closing:
            return False
        has_unsent = any(connection.send_queue for connection in self._connections() if connection.is_authenticated)
        return self.error is not None or not has_unsent or time.monotonic() > self._close_deadline

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        connection = Connection(sock)
        if len(self._unauthenticated) >= _MAX_UNAUTHENTICATED:
            self._close_lost(self._unauthenticated[0], TimeoutError("too many connections without a handshake"))
        self._unauthenticated.append(connection)
        self.register(connection)
        self.begin_handshake(connection)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(connection)
            if events & selectors.EVENT_READ:
                connection.read()
        except (OSError, RebalanceError) as error:
            self._close_lost(connection, error)

    def _flush(self, connection: Connection) -> None:
        try:
            with connection.send_lock:
                connection.send()
        except OSError as error:
            self._close_lost(connection, error)
            return
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        """Wait for write events if there is more to send."""
        if connection.is_closed:
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.send_queue else 0)
        key = self._selector.get_map().get(connection.sock)
        if key is not None and key.events != events:
            self._selector.modify(connection.sock, events, connection)

    def _close_lost(self, connection: Connection, cause: BaseException) -> None:
        """Close a connection; report an error if its peer, a task, has not sent or acknowledged the end frame."""
        if connection.is_closed:
            return
        if self._selector.get_map().get(connection.sock) is not None:
            self._selector.unregister(connection.sock)
        connection.sock.close()
        if connection in self._unauthenticated:
            self._unauthenticated.remove(connection)
        if connection.peer_index is not None and not connection.has_ended and not self._is_closing:
            message = f"the connection to {connection.label} of the rebalance is lost"
            self.fail(LostConnectionError(message, cause=f"{type(cause).__name__}: {cause}"))

    def _drop_expired(self) -> None:
        now = time.monotonic()
        for connection in self._connections():
            if not connection.is_authenticated and connection.handshake_deadline < now:
                self._close_lost(connection, TimeoutError(f"no handshake within {HANDSHAKE_SECONDS:.0f} s"))
