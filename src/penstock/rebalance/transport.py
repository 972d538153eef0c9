"""The transport between the tasks of an adaptive exchange; a task may write, and those with the lowest indexes read."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.channel import NONCE_BYTES, PROOF_BYTES
from penstock.errors import RebalanceError
from penstock.rebalance import protocol
from penstock.rebalance.network import ANY_COUNT, Connection, Network
from penstock.rebalance.protocol import FrameKind

if TYPE_CHECKING:
    from penstock.rebalance.rendezvous import Peer


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """A batch in a reader's queue.

    `payload` is the record batch as an IPC message, or the batch itself if the same task wrote it. `schema` is the
    schema as an IPC message, and `connection` is for the acknowledgement; both None if the same task wrote it.
    """

    payload: object
    schema: bytes | None
    rows: int
    size: int
    connection: Connection | None


class Transport(Network):
    """The connections of a task; a context manager. Channels are numbered by their position in `targets`.

    `secret` is shared by all tasks of this attempt of the stage, `peers` are their addresses, and `index` is the index
    of this task. `targets` are the readers that this task writes to, `writers` the tasks that write to it. `on_ack`
    is called with a channel when the oldest batch of the channel was consumed.
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
        super().__init__(listener)
        self.inbox: deque[ReceivedBatch] = deque()
        self._secret = secret
        self._index = index
        self._peers = peers
        self._targets = list(targets)
        self._unconnected_writers = set(writers)
        self._unfinished_writers = set(writers)
        self._on_ack = on_ack
        self._channels: dict[int, Connection] = {}
        self._schema_by_writer: dict[int, bytes] = {}
        self._channels_with_schema: set[int] = set()
        self._unacknowledged_ends = len(self._targets)
        self._unacknowledged_batches = [0] * len(self._targets)
        self._channels_with_end: set[int] = set()

    def open_connections(self) -> None:
        """Connect to the readers."""
        for channel, reader in enumerate(self._targets):
            if reader != self._index:
                self._connect(channel, reader)

    # -- for the writing thread ----------------------------------------------------------------------------------

    def send(self, channel: int, schema: bytes, payload: object, rows: int, size: int, batch: object) -> None:
        """Send a batch to a reader: serialized (`payload`), or `batch` itself if this task is the reader."""
        if self._targets[channel] == self._index:
            with self.changed:
                self.inbox.append(ReceivedBatch(batch, None, rows, size, None))
                self.changed.notify_all()
            return
        parts = [protocol.frame_header(FrameKind.BATCH, rows, size), payload]
        if channel not in self._channels_with_schema:
            self._channels_with_schema.add(channel)
            parts = [protocol.frame_header(FrameKind.SCHEMA, 0, len(schema)), schema, *parts]
        with self.changed:
            self._unacknowledged_batches[channel] += 1
        self.post(self._channels[channel], *parts)

    def send_ends(self) -> None:
        """Send an end frame to all readers."""
        for channel, reader in enumerate(self._targets):
            if reader == self._index:
                with self.changed:
                    self._unfinished_writers.discard(self._index)
                    self._unacknowledged_ends -= 1
                    self.changed.notify_all()
            else:
                self._channels_with_end.add(channel)
                self.post(self._channels[channel], protocol.frame_header(FrameKind.END, 0, 0))

    @property
    def all_ends_acknowledged(self) -> bool:
        """Whether every reader has acknowledged this task's end frame."""
        return self._unacknowledged_ends == 0

    @property
    def silent_readers(self) -> list[int]:
        """The readers, other than this task, that have not acknowledged its end frame."""
        remote = [(channel, reader) for channel, reader in enumerate(self._targets) if reader != self._index]
        return [reader for channel, reader in remote if not self._channels[channel].has_ended]

    # -- for the reading thread ----------------------------------------------------------------------------------

    def acknowledge(self, received: ReceivedBatch) -> None:
        """Acknowledge to its writer that a batch was consumed."""
        if received.connection is None:
            with self.changed:
                self._on_ack(self._targets.index(self._index))
                self.changed.notify_all()
        else:
            self.post(received.connection, protocol.ACK)

    @property
    def all_writers_ended(self) -> bool:
        """Whether all writers have sent their end frame."""
        return not self._unfinished_writers

    # -- as a reader ---------------------------------------------------------------------------------------------

    def begin_handshake(self, connection: Connection) -> None:
        """Send this reader's nonce to a writer."""
        connection.nonce = os.urandom(NONCE_BYTES)
        connection.expect(protocol.HELLO_BYTES, self._on_hello)
        self.send_handshake(connection, connection.nonce)

    def _on_hello(self, connection: Connection, answer: bytearray) -> None:
        writer_and_proof = protocol.check_hello(self._secret, connection.nonce, bytes(answer), self._index)
        if writer_and_proof is None or writer_and_proof[0] not in self._unconnected_writers:
            raise RebalanceError("a peer does not know the stage's secret, or is not a writer that has yet to connect")
        writer, proof = writer_and_proof
        self._unconnected_writers.discard(writer)
        connection.peer_index, connection.label = writer, f"writer {writer}"
        connection.expect(protocol.HEADER_BYTES, self._on_frame)
        self.send_handshake(connection, proof)
        self.complete_handshake(connection)

    def _on_frame(self, connection: Connection, header: bytearray) -> None:
        kind, rows, size = protocol.read_frame_header(bytes(header))
        if kind is FrameKind.END:
            connection.has_ended = True
            connection.expect(protocol.HEADER_BYTES, self._on_frame)
            self.post(connection, protocol.ACK)
            with self.changed:
                self._unfinished_writers.discard(connection.peer_index if connection.peer_index is not None else -1)
                self.changed.notify_all()
            return
        connection.frame = kind, rows
        connection.expect(size, self._on_body)

    def _on_body(self, connection: Connection, body: bytearray) -> None:
        kind, rows = connection.frame
        assert connection.peer_index is not None
        if kind is FrameKind.SCHEMA:
            self._schema_by_writer[connection.peer_index] = bytes(body)
        else:
            received = ReceivedBatch(body, self._schema_by_writer[connection.peer_index], rows, len(body), connection)
            with self.changed:
                self.inbox.append(received)
                self.changed.notify_all()
        connection.expect(protocol.HEADER_BYTES, self._on_frame)

    # -- as a writer ---------------------------------------------------------------------------------------------

    def _connect(self, channel: int, reader: int) -> None:
        peer = self._peers[reader]
        family, kind, proto, _, address = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
        connection = self._channels[channel] = Connection(sock, f"reader {reader}", channel)
        sock.connect_ex(address)
        connection.expect(NONCE_BYTES, self._on_nonce)
        self.register(connection)

    def _on_nonce(self, connection: Connection, reader_nonce: bytearray) -> None:
        assert connection.peer_index is not None
        reader = self._targets[connection.peer_index]  # at a writer, `peer_index` is the channel
        connection.nonce = os.urandom(NONCE_BYTES)
        peer_nonce = bytes(reader_nonce)
        answer = protocol.hello(self._secret, peer_nonce, connection.nonce, self._index, reader)

        def check(_: Connection, proof: bytearray) -> None:
            if not protocol.is_proof(self._secret, peer_nonce, connection.nonce, self._index, reader, bytes(proof)):
                raise RebalanceError(f"{connection.label} does not know the secret of the stage")
            connection.expect(ANY_COUNT, self._on_acks)
            self.complete_handshake(connection)

        connection.expect(PROOF_BYTES, check)
        self.send_handshake(connection, answer)

    def _on_acks(self, connection: Connection, acks: bytearray) -> None:
        assert connection.peer_index is not None
        with self.changed:
            for _ in acks:
                self._on_ack_byte(connection, connection.peer_index)
            self.changed.notify_all()

    def _on_ack_byte(self, connection: Connection, channel: int) -> None:
        if self._unacknowledged_batches[channel]:
            self._unacknowledged_batches[channel] -= 1
            self._on_ack(channel)
        elif channel in self._channels_with_end and not connection.has_ended:
            connection.has_ended = True
            self._unacknowledged_ends -= 1
        else:
            raise RebalanceError(f"{connection.label} acknowledges a frame that was not sent to it")
