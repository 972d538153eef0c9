"""The exchange between the tasks of one stage: each is a writer and, the first ones, a reader too.

One thread owns all sockets of a task: it accepts and makes connections, proves and checks who is at the other end,
reads frames and sends what is due. It never waits for one of them: a silent stranger holds nobody up. The other threads
talk to it through queues under one lock.
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
"""How long a connection may take to prove who it is."""
_STRANGERS = 256
"""Connections that have not proven anything yet, at a time; the oldest is dropped for a new one."""
_CHUNK = 1 << 18
_ACKS = -1
"""Needed by a writer: acknowledgements, as many as have come."""
_FLUSH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A task of the stage.

    Parameters
    ----------
    host, port
        Where it listens.
    """

    host: str
    port: int


@dataclass(slots=True)
class _Connection:
    """A socket with what is to be sent and what is being read.

    Parameters
    ----------
    sock
        The socket, not blocking.
    needed
        How many bytes are read before `on_read` is called with them.
    on_read
        Takes what was read; sets what is needed next.
    peer
        The writer at the other end, or the place of the reader among the targets; None of a stranger.
    out, held
        What is to be sent: now, and once the other end has proven who it is. Any thread may send, under `sending`.
    """

    sock: socket.socket
    needed: int
    on_read: Callable[[_Connection, bytearray], None]
    deadline: float | None = None
    label: str = "a stranger"
    peer: int | None = None
    trusted: bool = False
    buffer: bytearray = field(default_factory=bytearray)
    have: int = 0
    out: deque[memoryview] = field(default_factory=deque)
    held: deque[memoryview] = field(default_factory=deque)
    sending: threading.Lock = field(default_factory=threading.Lock)
    frame: tuple[FrameKind, int] = (FrameKind.END, 0)
    nonce: bytes = b""
    ended: bool = False

    @property
    def closed(self) -> bool:
        """Whether it was dropped."""
        return self.sock.fileno() < 0

    def send(self) -> bool:
        """Send what the socket takes now; return whether something is left. To be called under `sending`."""
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
        """Say what is read next."""
        self.needed, self.on_read = size, then
        self.buffer, self.have = bytearray(size), 0


@dataclass(frozen=True, slots=True)
class Received:
    """A batch in a reader's queue.

    Parameters
    ----------
    payload
        The record batch as an IPC message, or the batch itself where it comes from the same task.
    schema
        The schema as an IPC message; None for a batch of the same task.
    rows
        How many it has.
    size
        Its bytes.
    source
        The connection to acknowledge it on; None for the same task.
    """

    payload: object
    schema: bytes | None
    rows: int
    size: int
    source: _Connection | None


class Transport:
    """The connections of one task. Used as a context; made with an open listener.

    Parameters
    ----------
    listener
        A listening socket.
    secret
        What all tasks of this attempt of the stage know, and nobody else.
    index
        Which task this is.
    peers
        All tasks, in order.
    targets
        The readers this task writes to.
    writers
        The tasks that write to this one.
    on_ack
        Called with the place in `targets` whenever the first waiting batch of it was consumed.
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
        self._missing = set(writers)
        self._running = set(writers)
        self._on_ack = on_ack
        self._selector = selectors.DefaultSelector()
        self._strangers: deque[_Connection] = deque()
        self._channels: dict[int, _Connection] = {}
        self._schemas: dict[int, bytes] = {}
        self._schema_sent: set[int] = set()
        self._ends_to_come = len(self._targets)
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
        for place, reader in enumerate(self._targets):
            if reader != self._index:
                self._connect(place, reader)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_by = time.monotonic() + _FLUSH_SECONDS
        self._closing = True
        self._wake()
        self._thread.join(timeout=2 * _FLUSH_SECONDS)

    # -- for the writer's thread ---------------------------------------------------------------------------------

    def send(self, place: int, schema: bytes, payload: object, rows: int, size: int, batch: object) -> None:
        """Send a batch to a reader.

        Parameters
        ----------
        place
            Which of the targets.
        schema, payload
            As IPC messages; not used where the reader is this task.
        batch
            The batch itself.
        """
        if self._targets[place] == self._index:
            with self.changed:
                self.inbox.append(Received(batch, None, rows, size, None))
                self.changed.notify_all()
            return
        parts = [protocol.frame_header(FrameKind.BATCH, rows, size), payload]
        if place not in self._schema_sent:
            self._schema_sent.add(place)
            parts = [protocol.frame_header(FrameKind.SCHEMA, 0, len(schema)), schema, *parts]
        with self.changed:
            self._unacknowledged[place] += 1
        self._post(self._channels[place], *parts)

    def end(self) -> None:
        """Tell all readers that this task sends nothing more."""
        for place, reader in enumerate(self._targets):
            if reader == self._index:
                with self.changed:
                    self._running.discard(self._index)
                    self._ends_to_come -= 1
                    self.changed.notify_all()
            else:
                self._end_sent.add(place)
                self._post(self._channels[place], protocol.frame_header(FrameKind.END, 0, 0))

    @property
    def all_ends_known(self) -> bool:
        """Whether every reader has said that it knows this task's end."""
        return self._ends_to_come == 0

    @property
    def unheard(self) -> list[int]:
        """The readers that have not said so."""
        remote = [(place, reader) for place, reader in enumerate(self._targets) if reader != self._index]
        return [reader for place, reader in remote if not self._channels[place].ended]

    # -- for the reader's thread ---------------------------------------------------------------------------------

    def acknowledge(self, received: Received) -> None:
        """Tell a batch's writer that it is consumed."""
        if received.source is None:
            with self.changed:
                self._on_ack(self._targets.index(self._index))
                self.changed.notify_all()
        else:
            self._post(received.source, protocol.ACK)

    @property
    def all_ended(self) -> bool:
        """Whether no writer sends anything more."""
        return not self._running

    def fail(self, error: BaseException) -> None:
        """Let all threads know of an error; the first one counts."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def _post(self, connection: _Connection, *parts: object) -> None:
        """Send what the socket takes at once; the network's thread is woken for the rest only."""
        try:
            with connection.sending:
                queue = connection.out if connection.trusted else connection.held
                queue.extend(memoryview(part).cast("B") for part in parts)  # type: ignore[arg-type]
                is_rest = connection.send()
        except OSError as error:
            self._request(partial(self._lost, connection, error))
        else:
            if is_rest:
                self._request(partial(self._watch, connection))

    # -- the network's thread ------------------------------------------------------------------------------------

    def _request(self, action: Callable[[], None]) -> None:
        self._requests.append(action)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake if its ear is full, and gone if there is none
            self._wake_in.send(b"\0")

    def _drain_wake(self, *_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_out.recv(4096):
                pass

    def _run(self) -> None:
        try:
            while not self._done():
                for key, events in self._selector.select(timeout=1.0):
                    if isinstance(key.data, _Connection):
                        self._serve(key.data, events)
                    else:
                        key.data()
                while self._requests:
                    self._requests.popleft()()
                self._drop_late_ones()
        except BaseException as error:  # noqa: BLE001 - the other threads must hear of it
            self.fail(error)
        finally:
            for key in list(self._selector.get_map().values()):
                with contextlib.suppress(OSError):
                    key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._wake_in.close()

    def _done(self) -> bool:
        if not self._closing:
            return False
        connections = [key.data for key in self._selector.get_map().values() if isinstance(key.data, _Connection)]
        due = any(connection.out for connection in connections if connection.trusted)
        return self.error is not None or not due or time.monotonic() > self._close_by

    def _register(self, connection: _Connection, events: int) -> None:
        self._selector.register(connection.sock, events, connection)

    def _say(self, connection: _Connection, part: bytes) -> None:
        """Send something of the handshake."""
        connection.out.append(memoryview(part))
        self._flush(connection)

    def _trust(self, connection: _Connection) -> None:
        with connection.sending:
            connection.trusted, connection.deadline = True, None
            connection.out.extend(connection.held)
            connection.held.clear()
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
        """Be told when a socket takes more, if there is more to send."""
        if connection.closed:
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        key = self._selector.get_map().get(connection.sock)
        if key is not None and key.events != wanted:
            self._selector.modify(connection.sock, wanted, connection)

    def _read(self, connection: _Connection) -> None:
        """Read what has come, at most a few pieces so that others have their turn."""
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
        """Drop a connection; an error if the other end is a task that has not said its last word."""
        if connection.closed:
            return
        if self._selector.get_map().get(connection.sock) is not None:
            self._selector.unregister(connection.sock)
        connection.sock.close()
        if connection in self._strangers:
            self._strangers.remove(connection)
        if connection.peer is not None and not connection.ended and not self._closing:
            self.fail(LostConnectionError.to(connection.label, cause))

    def _drop_late_ones(self) -> None:
        now = time.monotonic()
        late = [c for c in [*self._strangers, *self._channels.values()] if c.deadline is not None and c.deadline < now]
        for connection in late:
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
        if len(self._strangers) >= _STRANGERS:
            self._lost(self._strangers[0], TimeoutError("too many strangers"))
        self._strangers.append(connection)
        self._register(connection, selectors.EVENT_READ)
        self._say(connection, nonce)

    def _on_hello(self, connection: _Connection, answer: bytearray) -> None:
        found = protocol.check_hello(self._secret, connection.nonce, bytes(answer), self._index)
        if found is None or found[0] not in self._missing:
            raise RebalanceError("a stranger does not know the secret of the stage")
        writer, proof = found
        self._strangers.remove(connection)
        self._missing.discard(writer)
        connection.peer, connection.label = writer, f"writer {writer}"
        connection.expect(protocol.FRAME_BYTES, self._on_frame)
        self._say(connection, proof)
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

    def _connect(self, place: int, reader: int) -> None:
        peer = self._peers[reader]
        family, kind, number, _, address = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect_ex(address)
        connection = _Connection(
            sock, 0, self._on_nonce, time.monotonic() + HANDSHAKE_SECONDS, f"reader {reader}", place
        )
        connection.expect(protocol.NONCE_BYTES, self._on_nonce)
        self._channels[place] = connection
        self._register(connection, selectors.EVENT_READ)

    def _on_nonce(self, connection: _Connection, reader_nonce: bytearray) -> None:
        assert connection.peer is not None
        reader = self._targets[connection.peer]
        connection.nonce = os.urandom(protocol.NONCE_BYTES)
        theirs = bytes(reader_nonce)
        answer = protocol.hello(self._secret, theirs, connection.nonce, self._index, reader)

        def check(_: _Connection, proof: bytearray) -> None:
            if not protocol.check_reader(self._secret, theirs, connection.nonce, self._index, reader, bytes(proof)):
                raise RebalanceError(f"{connection.label} does not know the secret of the stage")
            connection.needed = _ACKS
            self._trust(connection)

        connection.expect(protocol.PROOF_BYTES, check)
        self._say(connection, answer)

    def _read_acks(self, connection: _Connection) -> None:
        try:
            found = connection.sock.recv(4096)
        except BlockingIOError:
            return
        if not found:
            raise ConnectionResetError("it was closed at the other end")
        assert connection.peer is not None
        with self.changed:
            for _ in found:
                self._acknowledged(connection, connection.peer)
            self.changed.notify_all()

    def _acknowledged(self, connection: _Connection, place: int) -> None:
        if self._unacknowledged[place]:
            self._unacknowledged[place] -= 1
            self._on_ack(place)
        elif place in self._end_sent and not connection.ended:
            connection.ended = True
            self._ends_to_come -= 1
        else:
            raise RebalanceError(f"{connection.label} acknowledges what it was not sent")
