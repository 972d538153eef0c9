"""The transport between the tasks of a stage: every task is a writer, and the first tasks are readers, too.

One thread owns all sockets of a task: it accepts and opens connections, performs handshakes, reads frames, and sends
queued data. It never blocks on a connection, so a silent peer delays nobody. The other threads talk to it through
queues under a lock.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

from penstock.errors import LostConnectionError, RebalanceError
from penstock.rebalance import protocol
from penstock.rebalance.protocol import FrameKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HANDSHAKE_SECONDS = 20.0
"""Seconds until a connection must have completed its handshake."""
_MAX_UNAUTHENTICATED = 256
"""Maximum number of connections in a handshake; the oldest is dropped for a new connection."""
_CHUNK = 1 << 18
_ACKS = -1
"""The value of `needed` for writers, which read any number of acknowledgements."""
_FLUSH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A task of the stage."""

    host: str
    port: int


@dataclass(slots=True)
class _Connection:
    """A socket with its send and receive buffers.

    Parameters
    ----------
    needed
        How many bytes are read before `on_read` is called with them.
    on_read
        Handles what was read, and sets what is needed next.
    peer
        At a reader, the index of the writer; at a writer, the channel; None before the handshake.
    out, pending
        What to send: now, and after the handshake. Any thread may send while it holds `sending`.
    """

    sock: socket.socket
    needed: int
    on_read: Callable[[_Connection, bytearray], None]
    deadline: float | None = None
    label: str = "a peer"
    peer: int | None = None
    trusted: bool = False
    buffer: bytearray = field(default_factory=bytearray)
    have: int = 0
    out: deque[memoryview] = field(default_factory=deque)
    pending: deque[memoryview] = field(default_factory=deque)
    sending: threading.Lock = field(default_factory=threading.Lock)
    frame: tuple[FrameKind, int] = (FrameKind.END, 0)
    nonce: bytes = b""
    ended: bool = False

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self.sock.fileno() < 0

    def send(self) -> bool:
        """Send what the socket accepts now; return whether data is left. The caller must hold `sending`."""
        try:
            while self.out:
                sent = self.sock.send(self.out[0])
                if sent < len(self.out[0]):
                    self.out[0] = self.out[0][sent:]
                else:
                    self.out.popleft()
        except BlockingIOError:
            pass
        return bool(self.out)

    def expect(self, size: int, then: Callable[[_Connection, bytearray], None]) -> None:
        """Set how many bytes to read next, and the handler for them."""
        self.needed, self.on_read = size, then
        self.buffer, self.have = bytearray(size), 0


@dataclass(frozen=True, slots=True)
class Received:
    """A batch in a reader's queue.

    Parameters
    ----------
    payload
        The record batch as an IPC message, or the batch itself if it comes from the same task.
    schema
        The schema as an IPC message; None for a batch of the same task.
    source
        The connection to acknowledge it on; None for the same task.
    """

    payload: object
    schema: bytes | None
    rows: int
    size: int
    source: _Connection | None


class Transport:
    """The connections of a task; a context manager. Channels are numbered by their position in `targets`.

    Parameters
    ----------
    secret
        The secret shared by all tasks of this attempt of the stage.
    targets
        The readers that this task writes to.
    writers
        The tasks that write to this task.
    on_ack
        Called with a channel when its oldest batch was consumed.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        index: int,
        peers: Sequence[Peer],
        targets: Sequence[int],
        writers: Sequence[int],
        on_ack: Callable[[int], None],
    ) -> None:
        self.changed = threading.Condition()
        self.inbox: deque[Received] = deque()
        self.error: BaseException | None = None
        self._listener = listener
        self._secret = secret
        self._index = index
        self._peers = peers
        self._targets = list(targets)
        self._unconnected_writers = set(writers)
        self._running = set(writers)
        self._on_ack = on_ack
        self._selector = selectors.DefaultSelector()
        self._unauthenticated: deque[_Connection] = deque()
        self._channels: dict[int, _Connection] = {}
        self._schemas: dict[int, bytes] = {}
        self._schema_sent: set[int] = set()
        self._unacknowledged_ends = len(self._targets)
        self._unacknowledged = [0] * len(self._targets)
        self._end_sent: set[int] = set()
        self._requests: deque[Callable[[], None]] = deque()
        self._wake_out, self._wake_in = socket.socketpair()
        self._closing = False
        self._close_by = 0.0
        self._thread = threading.Thread(target=self._run, name="penstock-network", daemon=True)

    def __enter__(self) -> Self:
        self._listener.setblocking(False)
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._drain_wake)
        for channel, reader in enumerate(self._targets):
            if reader != self._index:
                self._connect(channel, reader)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_by = time.monotonic() + _FLUSH_SECONDS
        self._closing = True
        self._wake()
        self._thread.join(timeout=2 * _FLUSH_SECONDS)

    # -- for the writing thread ----------------------------------------------------------------------------------

    def send(self, channel: int, schema: bytes, payload: object, rows: int, size: int, batch: object) -> None:
        """Send a batch to a reader."""
        if self._targets[channel] == self._index:
            with self.changed:
                self.inbox.append(Received(batch, None, rows, size, None))
                self.changed.notify_all()
            return
        parts = [protocol.frame_header(FrameKind.BATCH, rows, size), payload]
        if channel not in self._schema_sent:
            self._schema_sent.add(channel)
            parts = [protocol.frame_header(FrameKind.SCHEMA, 0, len(schema)), schema, *parts]
        with self.changed:
            self._unacknowledged[channel] += 1
        self._post(self._channels[channel], *parts)

    def end(self) -> None:
        """Send an end frame to all readers."""
        for channel, reader in enumerate(self._targets):
            if reader == self._index:
                with self.changed:
                    self._running.discard(self._index)
                    self._unacknowledged_ends -= 1
                    self.changed.notify_all()
            else:
                self._end_sent.add(channel)
                self._post(self._channels[channel], protocol.frame_header(FrameKind.END, 0, 0))

    @property
    def all_ends_acknowledged(self) -> bool:
        """Whether every reader has acknowledged this task's end frame."""
        return self._unacknowledged_ends == 0

    @property
    def silent_readers(self) -> list[int]:
        """The readers that have not acknowledged this task's end frame."""
        remote = [(channel, reader) for channel, reader in enumerate(self._targets) if reader != self._index]
        return [reader for channel, reader in remote if not self._channels[channel].ended]

    # -- for the reading thread ----------------------------------------------------------------------------------

    def acknowledge(self, received: Received) -> None:
        """Acknowledge to its writer that a batch was consumed."""
        if received.source is None:
            with self.changed:
                self._on_ack(self._targets.index(self._index))
                self.changed.notify_all()
        else:
            self._post(received.source, protocol.ACK)

    @property
    def all_ended(self) -> bool:
        """Whether all writers have sent their end frame."""
        return not self._running

    def fail(self, error: BaseException) -> None:
        """Report an error to all threads; only the first error is kept."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def _post(self, connection: _Connection, *parts: object) -> None:
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

    def _request(self, action: Callable[[], None]) -> None:
        self._requests.append(action)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes it anyway, and a closed pipe means that it has ended
            self._wake_in.send(b"\0")

    def _drain_wake(self, *_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_out.recv(4096):
                pass

    def _run(self) -> None:
        try:
            while not self._is_done():
                for key, events in self._selector.select(timeout=1.0):
                    if isinstance(key.data, _Connection):
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

    def _is_done(self) -> bool:
        if not self._closing:
            return False
        connections = [key.data for key in self._selector.get_map().values() if isinstance(key.data, _Connection)]
        due = any(connection.out for connection in connections if connection.trusted)
        return self.error is not None or not due or time.monotonic() > self._close_by

    def _register(self, connection: _Connection, events: int) -> None:
        self._selector.register(connection.sock, events, connection)

    def _send_handshake(self, connection: _Connection, part: bytes) -> None:
        connection.out.append(memoryview(part))
        self._flush(connection)

    def _trust(self, connection: _Connection) -> None:
        with connection.sending:
            connection.trusted, connection.deadline = True, None
            connection.out.extend(connection.pending)
            connection.pending.clear()
        self._flush(connection)

    def _serve(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(connection)
            if events & selectors.EVENT_READ:
                self._read(connection)
        except (OSError, RebalanceError) as error:
            self._lost(connection, error)

    def _flush(self, connection: _Connection) -> None:
        try:
            with connection.sending:
                connection.send()
        except OSError as error:
            self._lost(connection, error)
            return
        self._watch(connection)

    def _watch(self, connection: _Connection) -> None:
        """Wait for write events if there is more to send."""
        if connection.closed:
            return
        requested_events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        key = self._selector.get_map().get(connection.sock)
        if key is not None and key.events != requested_events:
            self._selector.modify(connection.sock, requested_events, connection)

    def _read(self, connection: _Connection) -> None:
        """Read available bytes, at most a few chunks so that other connections are served, too."""
        for _ in range(16):
            if connection.needed == _ACKS:
                self._read_acks(connection)
                return
            try:
                view = memoryview(connection.buffer)[connection.have :]
                count = connection.sock.recv_into(view[:_CHUNK])
            except BlockingIOError:
                return
            if not count:
                raise ConnectionResetError("it was closed at the other end")
            connection.have += count
            if connection.have == connection.needed:
                connection.on_read(connection, connection.buffer)

    def _lost(self, connection: _Connection, cause: BaseException) -> None:
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
        connections = [*self._unauthenticated, *self._channels.values()]
        for connection in [c for c in connections if c.deadline is not None and c.deadline < now]:
            self._lost(connection, TimeoutError(f"no handshake within {HANDSHAKE_SECONDS:.0f} s"))

    # -- as a reader ---------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nonce = os.urandom(protocol.NONCE_BYTES)
        connection = _Connection(sock, 0, self._on_hello, time.monotonic() + HANDSHAKE_SECONDS, nonce=nonce)
        connection.expect(protocol.HELLO_BYTES, self._on_hello)
        if len(self._unauthenticated) >= _MAX_UNAUTHENTICATED:
            self._lost(self._unauthenticated[0], TimeoutError("too many connections without a handshake"))
        self._unauthenticated.append(connection)
        self._register(connection, selectors.EVENT_READ)
        self._send_handshake(connection, nonce)

    def _on_hello(self, connection: _Connection, answer: bytearray) -> None:
        writer_and_proof = protocol.check_hello(self._secret, connection.nonce, bytes(answer), self._index)
        if writer_and_proof is None or writer_and_proof[0] not in self._unconnected_writers:
            raise RebalanceError("a peer does not know the secret of the stage")
        writer, proof = writer_and_proof
        self._unauthenticated.remove(connection)
        self._unconnected_writers.discard(writer)
        connection.peer, connection.label = writer, f"writer {writer}"
        connection.expect(protocol.FRAME_BYTES, self._on_frame)
        self._send_handshake(connection, proof)
        self._trust(connection)

    def _on_frame(self, connection: _Connection, header: bytearray) -> None:
        kind, rows, size = protocol.read_frame_header(bytes(header))
        if kind is FrameKind.END:
            connection.ended = True
            connection.expect(protocol.FRAME_BYTES, self._on_frame)
            self._post(connection, protocol.ACK)
            with self.changed:
                self._running.discard(connection.peer if connection.peer is not None else -1)
                self.changed.notify_all()
            return
        connection.frame = kind, rows
        connection.expect(size, self._on_body)

    def _on_body(self, connection: _Connection, body: bytearray) -> None:
        kind, rows = connection.frame
        assert connection.peer is not None
        if kind is FrameKind.SCHEMA:
            self._schemas[connection.peer] = bytes(body)
        else:
            received = Received(body, self._schemas[connection.peer], rows, len(body), connection)
            with self.changed:
                self.inbox.append(received)
                self.changed.notify_all()
        connection.expect(protocol.FRAME_BYTES, self._on_frame)

    # -- as a writer ---------------------------------------------------------------------------------------------

    def _connect(self, channel: int, reader: int) -> None:
        peer = self._peers[reader]
        family, kind, number, _, address = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect_ex(address)
        connection = _Connection(
            sock, 0, self._on_nonce, time.monotonic() + HANDSHAKE_SECONDS, f"reader {reader}", channel
        )
        connection.expect(protocol.NONCE_BYTES, self._on_nonce)
        self._channels[channel] = connection
        self._register(connection, selectors.EVENT_READ)

    def _on_nonce(self, connection: _Connection, reader_nonce: bytearray) -> None:
        assert connection.peer is not None
        reader = self._targets[connection.peer]
        connection.nonce = os.urandom(protocol.NONCE_BYTES)
        peer_nonce = bytes(reader_nonce)
        answer = protocol.hello(self._secret, peer_nonce, connection.nonce, self._index, reader)

        def check(_: _Connection, proof: bytearray) -> None:
            if not protocol.check_reader(self._secret, peer_nonce, connection.nonce, self._index, reader, bytes(proof)):
                raise RebalanceError(f"{connection.label} does not know the secret of the stage")
            connection.needed = _ACKS
            self._trust(connection)

        connection.expect(protocol.PROOF_BYTES, check)
        self._send_handshake(connection, answer)

    def _read_acks(self, connection: _Connection) -> None:
        try:
            acks = connection.sock.recv(4096)
        except BlockingIOError:
            return
        if not acks:
            raise ConnectionResetError("it was closed at the other end")
        assert connection.peer is not None
        with self.changed:
            for _ in acks:
                self._on_ack_byte(connection, connection.peer)
            self.changed.notify_all()

    def _on_ack_byte(self, connection: _Connection, channel: int) -> None:
        if self._unacknowledged[channel]:
            self._unacknowledged[channel] -= 1
            self._on_ack(channel)
        elif channel in self._end_sent and not connection.ended:
            connection.ended = True
            self._unacknowledged_ends -= 1
        else:
            raise RebalanceError(f"{connection.label} acknowledges a frame that was not sent to it")
